"""The Dockerfile: its linter, its sources, and the trees of files that its images run.

There is no Docker in a test. The instructions that put files of the repository into an image are
carried out here, and the image's command runs in the result, with the packages of this environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import chalicelib
from infra.release.wheel_build import SHIPPED

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "Dockerfile"
IGNORED = shutil.ignore_patterns("__pycache__")


class ImageStage(msgspec.Struct, frozen=True):
    """A stage of the Dockerfile, with its instructions in order."""

    base: str
    steps: list[tuple[str, str]]

    def of(self, instruction: str) -> list[str]:
        """The arguments of each such instruction."""
        return [argument for name, argument in self.steps if name == instruction]

    def copied(self) -> list[tuple[str, str]]:
        """Sources in the repository and their targets."""
        return [
            (one, other)
            for one, other in (line.split() for line in self.of("COPY") if line[:2] != "--")
        ]


def stages() -> dict[str, ImageStage]:
    found: dict[str, ImageStage] = {}
    steps: list[tuple[str, str]] = []
    for line in FILE.read_text().splitlines():
        instruction, _, argument = line.partition(" ")
        if instruction == "FROM":
            base, _, name = argument.partition(" AS ")
            found[name] = ImageStage(base, steps := [])
        elif instruction and instruction != "#":
            steps.append((instruction, argument))
    return found


STAGES = stages()
IMAGES = pytest.mark.parametrize("name", ["command", "watcher"])


def test_linter_of_dockerfiles_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([str(hadolint), str(FILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    bad = subprocess.run(
        [str(hadolint), "-"],
        input="FROM a\nRUN sudo\n",
        text=True,
        capture_output=True,
        check=False,
    )
    assert bad.returncode != 0


def test_docker_builds_the_command_unless_the_watcher_is_named() -> None:
    assert list(STAGES)[-1] == "command"
    assert {"base", "command", "watcher"} < set(STAGES)


def test_every_source_of_an_image_exists_and_is_sent_to_the_builder() -> None:
    sent = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")
    ]
    sources = [source for stage in STAGES.values() for source, _ in stage.copied()]
    assert len(sources) >= 6
    assert [name for name in (*sources, *sent) if not (ROOT / name).exists()] == []
    assert [
        name for name in sources if not any(Path(name).is_relative_to(folder) for folder in sent)
    ] == []
    assert [
        name for name in sent if not any(Path(source).is_relative_to(name) for source in sources)
    ] == []


def test_images_get_only_packages_with_the_hash_of_a_lock() -> None:
    lines = [line for stage in STAGES.values() for line in stage.of("RUN") if "pip" in line]
    assert len(lines) == 2
    assert [line for line in lines if "--require-hashes --only-binary=:all:" not in line] == []


@IMAGES
def test_image_runs_without_root_and_without_what_built_it(name: str) -> None:
    stage = STAGES[name]
    assert stage.of("USER") == ["65532:65532"]
    assert stage.base == "base"
    assert stage.of("COPY")[0].startswith(f"--from={name}-packages /packages ")
    assert not [line for line in stage.of("RUN") if "pip" in line]


def tree(name: str, root: Path) -> Path:
    """Copies the files of an image below `root`; returns the folder in which its packages are."""
    for source, target in STAGES[name].copied():
        shutil.copytree(ROOT / source, root / target.lstrip("/"), ignore=IGNORED)
    return root / STAGES[name].of("COPY")[0].split()[-1].lstrip("/")


def started(name: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    [entry] = STAGES[name].of("ENTRYPOINT")
    _, *words = re.findall(r'"([^"]+)"', entry)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, *words, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_image_of_the_command_runs_it(tmp_path: Path) -> None:
    folder = tree("command", tmp_path)
    done = started("command", folder, "--version")
    assert (done.returncode, done.stdout) == (0, f"outscaler {chalicelib.__version__}\n")
    shipped = {file.name for file in (folder / SHIPPED).iterdir()}
    assert shipped == {file.name for file in (ROOT / "infra" / "kubernetes").glob("*.yaml")}


def test_image_of_the_watcher_starts_it(tmp_path: Path) -> None:
    done = started("watcher", tree("watcher", tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("outscaler-watcher: OUTSCALER_CLUSTER")
    assert done.stderr.count("\n") == 1
