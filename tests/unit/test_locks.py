"""What is installed is what was locked: every pin has hashes, and pip is told to take nothing without one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements.txt", "requirements-dev.txt")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_PIN = re.compile(r"[a-z0-9][a-z0-9._-]*==[A-Za-z0-9.+!]+")


def pins(text: str) -> dict[str, list[str]]:
    """`name==version` -> its hashes; raises ValueError for a line that is neither a pin nor a hash."""
    found: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        first, *rest = line.split()
        if not _PIN.fullmatch(first) or not all(_HASH.fullmatch(each) for each in rest):
            raise ValueError(line[:80])
        found[first] = rest
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_of_a_lock_has_a_hash_and_nothing_else(lock: str) -> None:
    found = pins((ROOT / lock).read_text())
    assert [pin for pin, hashes in found.items() if not hashes] == []
    assert len({pin.partition("==")[0] for pin in found}) == len(found)


@pytest.mark.parametrize("line", [
    "six>=1.0", "-r other.txt", "--index-url https://packages.test", "six @ https://packages.test/six.whl",
    "six==1.17.0 --hash=md5:aa", "six==1.17.0 ; python_version < '3.12'",
])
def test_a_line_that_would_weaken_a_lock_is_noticed(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line[:20])):
        pins(line)


def test_the_development_lock_holds_what_is_deployed_with_the_same_hashes() -> None:
    deployed, everything = (pins((ROOT / lock).read_text()) for lock in LOCKS)
    assert deployed.items() <= everything.items()


def test_every_requirement_that_is_written_is_locked() -> None:
    for source, lock in (("requirements.in", LOCKS[0]), ("requirements-dev.in", LOCKS[1])):
        locked = {pin.partition("==")[0]: pin.partition("==")[2] for pin in pins((ROOT / lock).read_text())}
        wanted = re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?:==(\S+))?$", (ROOT / source).read_text())
        assert {name for name, _ in wanted if name.lower().replace("_", "-") not in locked} == set()
        assert {name for name, version in wanted if version and locked[name.lower()] != version} == set()


def test_pip_takes_only_what_has_a_hash_wherever_it_installs() -> None:
    recipe = (ROOT / "Makefile").read_text()
    installs = [line for line in recipe.splitlines() if re.search(r"\bpip (install|download|wheel)\b", line)]
    assert [line for line in installs if "--require-hashes" not in line and "--no-deps" not in line] == []
    assert any("--require-hashes -r requirements-dev.txt" in line for line in installs)
    assert "--generate-hashes" in recipe
    assert '"PIP_REQUIRE_HASHES": "1"' in (ROOT / "infra" / "aws" / "package.py").read_text()


def test_the_editable_installation_needs_nothing_that_is_not_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == []
    locked = {pin.partition("==")[0] for pin in pins((ROOT / LOCKS[1]).read_text())}
    assert {re.split(r"[>=<]", each)[0] for each in project["build-system"]["requires"]} <= locked
