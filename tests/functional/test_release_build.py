"""`make release`: every file of a release is built from the commit alone, with
equal bytes in every clone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import chalicelib
from infra.aws.publish import zip_name
from infra.aws.wheels import host_architecture, runtime
from infra.release.build import STEPS, SUMS, checkout, export, release
from tests.functional.artifact import artifact

ROOT = Path(__file__).resolve().parents[2]
VERSION = chalicelib.__version__
WHEEL, BILL = f"outscaler-{VERSION}-py3-none-any.whl", f"outscaler-{VERSION}.cdx.json"
TEMPLATE = f"outscaler-{VERSION}-template.json"
ZIP = zip_name(host_architecture())
TOOLS = {
    f"outscaler-{VERSION}{end}"
    for end in (".tgz", "-kubectl.tar.gz", "-krew.yaml", "-policy.schema.json")
}
_DATE = "2030-01-31T12:00:00+00:00"
_COMMITTER = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Release"), ("EMAIL", "release@example.com"), ("DATE", _DATE))
}
SECTION = f"## [{VERSION}] - 2030-01-31\n\n### Added\n\n- A release.\n\n"


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | _COMMITTER,
    ).stdout


def clone(folder: Path, umask: int) -> Path:
    """The current tree, committed, with a changelog section of the version; file
    modes as under that umask."""
    folder.mkdir()
    export(checkout(ROOT), folder)
    changelog = (folder / "CHANGELOG.md").read_text("utf-8")
    if not re.search(rf"^## \[?{re.escape(VERSION)}\b", changelog, re.MULTILINE):
        (folder / "CHANGELOG.md").write_text(changelog + "\n" + SECTION, "utf-8")
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(file.stat().st_mode & ~umask)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "-c", "commit.gpgsign=false", "commit", "--quiet", "--message=all")
    return folder


def make(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m infra.release` in that tree as make does."""
    return subprocess.run(
        [sys.executable, "-m", "infra.release", *arguments],
        cwd=tree,
        check=False,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone(tmp_path_factory.mktemp("release") / "one", 0o022)


@pytest.fixture(scope="module")
def dist(tree: Path) -> Path:
    """A release with the zip for this machine's processor."""
    done = make(tree, "--architecture", host_architecture(), "--out", str(tree / "dist"))
    assert (done.returncode, done.stderr) == (0, "")
    return tree / "dist"


def sums(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != SUMS
    }


def test_release_is_complete_and_its_checksums_are_correct(dist: Path) -> None:
    assert sums(dist).keys() == {WHEEL, BILL, TEMPLATE, ZIP, *TOOLS}
    listed = {
        name: digest
        for digest, name in (line.split("  ") for line in (dist / SUMS).read_text().splitlines())
    }
    assert listed == sums(dist)


def test_released_template_is_the_published_one_for_the_python_of_the_zip(dist: Path) -> None:
    made = json.loads((dist / TEMPLATE).read_text())
    functions = [
        one["Properties"]
        for one in made["Resources"].values()
        if one["Type"] == "AWS::Lambda::Function"
    ]
    assert {one["Runtime"] for one in functions} == {runtime()}
    assert {"CodeBucket", "CodePrefix", "Architecture"} <= made["Parameters"].keys()
    assert made.get("Transform") is None


def test_release_of_another_clone_in_another_folder_has_equal_bytes(
    dist: Path, tmp_path: Path
) -> None:
    """The zip was also built in this checkout; the wheel is built again in a clone
    with other modes and dates."""
    assert sums(dist)[ZIP] == hashlib.sha256(artifact().zip.read_bytes()).hexdigest()
    other = clone(tmp_path / "two", 0o077)
    steps = [step for step in STEPS if step[0] in {"wheel", "checksums"}]
    assert release(other, other / "dist", VERSION, [], allow_dirty=False, steps=steps) == [
        SUMS,
        WHEEL,
    ]
    assert sums(other / "dist") == {WHEEL: sums(dist)[WHEEL]}


def test_installed_wheel_gives_a_working_command(dist: Path, tmp_path: Path) -> None:
    """Only the dependencies come from this environment, which has everything that is locked."""
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    [packages] = place.glob("lib/python*/site-packages")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-index",
            "--prefix",
            str(place),
            "--ignore-installed",
            str(dist / WHEEL),
        ],
        check=True,
    )
    (packages / "dependencies.pth").write_text(f"{Path(msgspec.__file__).parents[1]}\n")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "manifest.json").write_text('{"nodeGroups": []}')
    for kind in ("nodes", "pods"):
        (snapshot / f"{kind}.json").write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": []})
        )

    def outscaler(*arguments: str) -> str:
        done = subprocess.run(
            [str(place / "bin" / "outscaler"), *arguments],
            cwd=tmp_path,
            text=True,
            check=False,
            capture_output=True,
            env={"PATH": os.environ["PATH"]},
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert outscaler("--version") == f"outscaler {VERSION}\n"
    assert (
        json.loads(outscaler("plan", "--snapshot", str(snapshot), "-o", "json"))["scaleUps"] == []
    )


def test_bill_of_materials_lists_every_wheel_with_its_locked_hash(dist: Path) -> None:
    text = (dist / BILL).read_text("utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = json.loads(text)
    assert found["metadata"]["component"]["version"] == VERSION
    assert found["metadata"]["timestamp"] == _DATE
    lock = (ROOT / "requirements.txt").read_text()
    listed = {each["name"]: each for each in found["components"]}
    library = listed.pop("uplot")  # which the page's folder has, and no wheel
    assert (library["purl"], library["licenses"]) == (
        "pkg:npm/uplot@1.6.32",
        [{"license": {"id": "MIT"}}],
    )
    assert (
        library["hashes"][0]["content"]
        == hashlib.sha256((ROOT / "chalicelib/page/static/uPlot.js").read_bytes()).hexdigest()
    )
    assert listed.keys() - {"chalice"} == set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))
    for each in listed.values():
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["licenses"], each["name"]
        assert all(f"sha256:{one['content']}" in lock for one in each.get("hashes", ())), each[
            "name"
        ]
    assert [name for name, each in listed.items() if not each.get("hashes")] == ["chalice"]
    with zipfile.ZipFile(dist / ZIP) as opened:
        deployed = {
            match[1].lower().replace("_", "-")
            for name in opened.namelist()
            if (match := re.match(r"([^/]+)-[^-/]+\.dist-info/", name))
        }
    assert deployed == listed.keys() - {"chalice"}


def test_release_contains_no_name_of_the_build_machine(dist: Path, tree: Path) -> None:
    for name in (TEMPLATE, BILL):
        assert str(tree.parent) not in (dist / name).read_text()
    for archive in (ZIP, WHEEL):
        with zipfile.ZipFile(dist / archive) as opened:
            found = [
                name for name in opened.namelist() if str(tree.parent).encode() in opened.read(name)
            ]
        assert found == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda tree: (tree / "app.py").write_text("changed"),
            "M app.py: not committed; commit or remove it",
        ),
        (
            lambda tree: (tree / "chalicelib" / "left.py").write_text(""),
            "?? chalicelib/left.py: not committed",
        ),
        (lambda tree: (tree / "app.py").unlink(), "D app.py: not committed"),
    ],
    ids=["changed", "added", "deleted"],
)
def test_release_of_an_uncommitted_tree_is_rejected(
    tree: Path, tmp_path: Path, change: object, says: str
) -> None:
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "--quiet", str(tree), str(copy))
    assert callable(change)
    change(copy)
    done = make(copy, "--out", str(tmp_path / "dist"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "dist").exists()


def test_files_ignored_by_git_are_not_released(tree: Path, tmp_path: Path) -> None:
    copy, target = tmp_path / "copy", tmp_path / "export"
    git(tmp_path, "clone", "--quiet", str(tree), str(copy))
    (copy / "build").mkdir()
    for name in ("build/x.py", ".chalice/policy-dev-api.json", "chalicelib/x.pyc"):
        (copy / name).write_text("left")
    found = checkout(copy)
    assert found.dirty == ()
    target.mkdir()
    export(found, target)
    assert {
        path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()
    } == set(git(copy, "ls-files").split())


@pytest.mark.parametrize(
    ("tag", "says"),
    [
        ("v0.0.0", f"the tag is v0.0.0 and the version is {VERSION}; tag v{VERSION}\n"),
        (VERSION, f"the tag is {VERSION} and the version is {VERSION}; tag v{VERSION}\n"),
    ],
)
def test_release_with_a_tag_unlike_the_version_is_rejected(tree: Path, tag: str, says: str) -> None:
    done = make(tree, "--expect-tag", tag)
    assert (done.returncode, done.stderr) == (2, says)


def test_release_notes_are_the_changelog_section_of_the_version(tree: Path) -> None:
    done = make(tree, "--expect-tag", f"v{VERSION}", "--notes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("### ")
