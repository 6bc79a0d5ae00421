"""Installed packages equal the locked ones: every pin has hashes, and pip
accepts nothing without one.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
#: Each source and its lock, in the order in which pip gets the locks; the
#: first is what Lambda gets.
SOURCES = (
    "requirements.in",
    "requirements-cli.in",
    "requirements-deploy.in",
    "requirements-test.in",
    "requirements-vendors.in",
    "requirements-tools.in",
)
LOCKS = tuple(each.replace(".in", ".txt") for each in SOURCES)
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_PIN = re.compile(r"[a-z0-9][a-z0-9._-]*==[A-Za-z0-9.+!]+")
_PYTHONS = ("3.11.7", "3.12.1", "3.13.0", "3.14.0")
#: For Windows or for an older Python than the newest only.
_NOT_EVERYWHERE = {
    "ansicon",
    "backports-tarfile",
    "colorama",
    "importlib-metadata",
    "lazy-importer",
    "pywin32",
    "pywin32-ctypes",
    "typing-extensions",
    "tzdata",
    "zipp",
}
#: : Conditions that a lock may put on a pin: the interpreter and the platform, which a
#: package index does not choose.
_VARIABLES = {
    "python_full_version",
    "sys_platform",
    "platform_machine",
    "platform_python_implementation",
    "implementation_name",
}


class Pin(msgspec.Struct, frozen=True):
    """One line of a lock. marker: where the pin holds; empty for everywhere."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    def holds(self, python: str) -> bool:
        """Tells whether Linux with that version of CPython installs it."""
        environment = {
            "python_full_version": python,
            "python_version": python.rpartition(".")[0],
            "sys_platform": "linux",
            "platform_machine": "x86_64",
            "platform_python_implementation": "CPython",
            "implementation_name": "cpython",
        }
        return not self.marker or Marker(self.marker).evaluate(environment)


def pins(text: str) -> list[Pin]:
    """Returns the pins of a lock; raises ValueError for a line that is not a pin with
    its marker and its hashes."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        said, *hashes = line.split(" --")
        pin, _, marker = (part.strip() for part in said.partition(" ; "))
        variables = set(re.findall(r"[a-z_]{3,}", re.sub(r"'[^']*'", "", marker))) - {"and", "not"}
        hashes = [f"--{each.strip()}" for each in hashes]
        if (
            not _PIN.fullmatch(pin)
            or not variables <= _VARIABLES
            or not all(_HASH.fullmatch(each) for each in hashes)
        ):
            raise ValueError(line[:80])
        name, _, version = pin.partition("==")
        found.append(Pin(name, version, marker, tuple(hashes)))
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_every_pin_has_a_hash_and_nothing_else(lock: str) -> None:
    found = pins((ROOT / lock).read_text())
    assert [pin.name for pin in found if not pin.hashes] == []


@pytest.mark.parametrize("python", _PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_locks_every_python_gets_one_version_of_each_requirement(lock: str, python: str) -> None:
    everything = pins((ROOT / lock).read_text())
    held = [pin.name for pin in everything if pin.holds(python)]
    assert len(set(held)) == len(held)
    assert {pin.name for pin in everything} - set(held) <= _NOT_EVERYWHERE, lock


@pytest.mark.parametrize(
    "line",
    [
        "six>=1.0",
        "-r other.txt",
        "--index-url https://packages.test",
        "six @ https://packages.test/six.whl",
        "six==1.17.0 --hash=md5:aa",
        "six==1.17.0 ; platform_node == 'build-host'",
        "six==1.17.0 ; extra == 'more'",
    ],
)
def test_locks_line_that_weakens_a_lock_is_detected(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line[:20])):
        pins(line)


def test_each_lock_up_to_the_tests_holds_the_one_before_it_with_the_same_hashes() -> None:
    functions, command, deployment, tested = (
        set(pins((ROOT / lock).read_text())) for lock in LOCKS[:4]
    )
    assert functions < command < deployment < tested


@pytest.mark.parametrize("python", _PYTHONS)
def test_package_in_two_locks_has_one_version_and_the_same_hashes(python: str) -> None:
    held = {
        (pin.name, pin.version, pin.hashes)
        for lock in LOCKS
        for pin in pins((ROOT / lock).read_text())
        if pin.holds(python)
    }
    assert len({name for name, _, _ in held}) == len(held)


def test_locks_every_declared_requirement_is_locked() -> None:
    for source, lock in zip(SOURCES, LOCKS, strict=True):
        locked = pins((ROOT / lock).read_text())
        wanted = [
            Requirement(line.partition(" #")[0])
            for line in (ROOT / source).read_text().splitlines()
            if line and not line.startswith(("-r ", "#"))
        ]
        assert wanted, source
        for python in _PYTHONS:
            held = {pin.name: pin.version for pin in locked if pin.holds(python)}
            for each in wanted:
                if each.marker is None or each.marker.evaluate(
                    {"python_version": python.rpartition(".")[0]}
                ):
                    assert each.specifier.contains(held[each.name.lower().replace("_", "-")]), each


def test_locks_pip_requires_hashes_wherever_it_installs() -> None:
    recipe = (ROOT / "Makefile").read_text()
    assert re.findall(r"\bpip (?:install|download|wheel)\b", recipe) == ["pip install"], (
        "the definition of PIP only"
    )
    installs = [line for line in recipe.splitlines() if "$(PIP)" in line]
    assert [
        line for line in installs if "--require-hashes" not in line and "--no-deps" not in line
    ] == []
    assert {name for line in installs for name in re.findall(r" -r (\S+)", line)} == set(LOCKS[2:])
    assert "--generate-hashes" in recipe
    assert '"--require-hashes"' in (ROOT / "infra" / "aws" / "wheels.py").read_text()
    assert '"PIP_REQUIRE_HASHES": "1"' in (ROOT / "infra" / "aws" / "package.py").read_text()


def test_locks_editable_installation_needs_only_locked_packages() -> None:
    recipe = (ROOT / "Makefile").read_text()
    assert [
        line for line in recipe.splitlines() if " -e ." in line and "--no-deps" not in line
    ] == []
    locked = {pin.name for pin in pins((ROOT / LOCKS[2]).read_text())}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert {re.split(r"[>=<]", each)[0] for each in build["requires"]} <= locked


def declared(group: str = "") -> dict[str, Requirement]:
    """The requirements of the package in pyproject.toml, or those of an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][group] if group else project["dependencies"]
    return {canonicalize_name(each.name): each for each in map(Requirement, lines)}


def sources(*names: str) -> set[str]:
    """The names in .in files, without what they include."""
    lines = [
        line.partition("#")[0].strip()
        for name in names
        for line in (ROOT / name).read_text().splitlines()
    ]
    return {
        canonicalize_name(Requirement(line).name)
        for line in lines
        if line and not line.startswith("-r")
    }


def test_package_depends_on_what_the_functions_and_the_command_are_locked_to() -> None:
    assert set(declared()) == sources("requirements.in", "requirements-cli.in")
    assert set(declared("deploy")) == sources("requirements-deploy.in") - {"setuptools", "wheel"}


@pytest.mark.parametrize("python", _PYTHONS)
def test_every_pin_is_inside_the_range_of_the_package(python: str) -> None:
    locked = {
        pin.name: pin.version for pin in pins((ROOT / LOCKS[2]).read_text()) if pin.holds(python)
    }
    ranges = declared() | declared("deploy")
    assert len(ranges) > 15
    assert [
        str(each) for name, each in ranges.items() if not each.specifier.contains(locked[name])
    ] == []
    assert [
        str(each) for each in ranges.values() if "==" in str(each) or ">=" not in str(each)
    ] == []


def test_contributing_says_of_each_package_where_it_serves() -> None:
    page = (
        (ROOT / "CONTRIBUTING.md")
        .read_text("utf-8")
        .partition("## Packages\n")[2]
        .partition("\n## ")[0]
    )
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line[:1] == "|"
    ][2:]
    serves = {
        canonicalize_name(name.strip()): words
        for names, words, _ in rows
        for name in names.split(",")
    }
    functions = sources("requirements.in")
    assert {name for name, words in serves.items() if "functions" in words} - functions == {
        "chalice"
    }
    # what others of the table need
    assert functions - set(serves) == {"markupsafe", "python-dateutil", "tzdata"}
    assert {name for name, words in serves.items() if words.startswith("command")} <= sources(
        "requirements-cli.in"
    )
    assert "kubernetes" not in {pin.name for pin in pins((ROOT / LOCKS[0]).read_text())}
