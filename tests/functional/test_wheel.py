"""The wheel as an index and a user get it: metadata, description, files, commands."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import chalicelib
from infra.release.build import STEPS, release
from infra.release.wheel_build import MANIFESTS, SHIPPED, absolute

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
_ABOUT = f"outscaler-{chalicelib.__version__}.dist-info"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_AT_THE_TAG = re.compile(
    rf"{re.escape(PROJECT['urls']['Source'])}/(?:blob|raw)/v{chalicelib.__version__}/([^#]+)"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    step = [step for step in STEPS if step[0] == "wheel"]
    [name] = release(ROOT, out, chalicelib.__version__, [], allow_dirty=True, steps=step)
    return out / name


def content(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as opened:
        return opened.read(name)


@pytest.fixture(scope="module")
def about(wheel: Path) -> Message:
    return message_from_bytes(content(wheel, f"{_ABOUT}/METADATA"))


@pytest.mark.parametrize(
    "command", [("twine", "check", "--strict"), ("check-wheel-contents",)], ids=" ".join
)
def test_checkers_of_wheels_find_nothing(wheel: Path, command: tuple[str, ...]) -> None:
    program, *arguments = command
    done = subprocess.run(
        [str(BIN / program), *arguments, str(wheel)],
        capture_output=True,
        text=True,
        check=False,
        cwd=wheel.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_index_learns_where_the_project_is_and_for_which_pythons(about: Message) -> None:
    assert about["Version"] == chalicelib.__version__
    assert {line.split(", ")[0] for line in about.get_all("Project-URL", ())} == {
        "Homepage",
        "Documentation",
        "Source",
        "Issues",
        "Changelog",
    }
    assert about["Author"]
    assert len(about["Keywords"].split(",")) > 5
    oldest, beyond = (int(number) for number in re.findall(r"3\.(\d+)", PROJECT["requires-python"]))
    classifiers = about.get_all("Classifier", ())
    listed = [
        int(line.rpartition("3.")[2]) for line in classifiers if re.search(r":: 3\.\d+$", line)
    ]
    assert listed == list(range(oldest, beyond))


def test_wheel_demands_the_ranges_of_the_project(about: Message) -> None:
    demanded = {
        str(Requirement(line)) for line in about.get_all("Requires-Dist", ()) if "extra" not in line
    }
    assert demanded == {str(Requirement(line)) for line in PROJECT["dependencies"]}


def test_description_has_absolute_links_only_and_each_leads_to_a_file_of_the_tag(
    about: Message,
) -> None:
    text = str(about.get_payload())
    links = _LINK.findall(text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    own = [path for link in links for path in _AT_THE_TAG.findall(link)]
    assert len(own) > 15
    assert [path for path in own if not (ROOT / path).exists()] == []
    pictures = [
        link
        for link in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text)
        if "img.shields.io" not in link
    ]
    assert len(pictures) == 2
    assert all("/raw/" in picture for picture in pictures)


def test_description_has_no_block_that_only_github_draws(about: Message) -> None:
    assert "```mermaid" not in str(about.get_payload())


def test_link_inside_a_code_block_of_the_description_stays() -> None:
    page = (
        "[a](docs/a#b) [![p](p.svg)](p) [h](#h) [w](https://w.test)\n```sh\n[[ x ]](y)\n```\n[c](c)"
    )
    assert absolute(page, "https://host.test/o", "v1") == (
        "[a](https://host.test/o/blob/v1/docs/a#b) "
        "[![p](https://host.test/o/raw/v1/p.svg)](https://host.test/o/blob/v1/p) [h](#h) "
        "[w](https://w.test)\n```sh\n[[ x ]](y)\n```\n[c](https://host.test/o/blob/v1/c)"
    )


def test_wheel_has_the_files_that_are_not_code_with_the_content_of_the_tree(wheel: Path) -> None:
    wanted = {f"{SHIPPED}/{file.name}": file for file in (ROOT / MANIFESTS).glob("*.yaml")}
    assert len(wanted) >= 6
    wanted |= {
        file.relative_to(ROOT).as_posix(): file
        for file in (ROOT / "chalicelib").rglob("*")
        if "__pycache__" not in file.parts and file.is_file() and file.suffix != ".py"
    }
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if not name.startswith(_ABOUT)]
        assert {name for name in names if not name.endswith(".py")} == set(wanted)
        assert [
            name for name, file in wanted.items() if opened.read(name) != file.read_bytes()
        ] == []
        assert {name.partition("/")[0] for name in names} == {"chalicelib"}


def test_wheel_installs_the_command_and_the_plugin_of_kubectl(wheel: Path) -> None:
    parser = ConfigParser()
    parser.read_string(content(wheel, f"{_ABOUT}/entry_points.txt").decode())
    scripts = dict(parser["console_scripts"])
    assert scripts == dict.fromkeys(("outscaler", "kubectl-outscaler"), "chalicelib.cli.main:main")


def test_every_file_names_the_same_repository() -> None:
    owner = PROJECT["urls"]["Source"].removeprefix("https://github.com/").partition("/")[0]
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    named: dict[str, set[str]] = {}
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            text = (ROOT / name).read_text("utf-8", errors="replace")
            named[name] = set(re.findall(r"(?:github\.com/|uses: )([\w-]+)/outscaler\b", text))
    users = {name for name, owners in named.items() if owners}
    assert {
        "infra/helm/Chart.yaml",
        "infra/krew/outscaler.yaml",
        "infra/action/example-workflow.yml",
    } <= users
    assert set().union(*named.values()) == {owner}
