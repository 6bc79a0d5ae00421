"""An artifact for either processor can be built on this machine, and contains nothing for
another processor or Python."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.aws.binaries import foreign
from infra.aws.package import ROOT, PackagingFailed, configured_architecture, main
from infra.aws.wheels import MACHINES, host_architecture, install, runtime
from tests.functional.artifact import Artifact, artifact

X86, ARM = 62, 183
OTHER = next(name for name in MACHINES if name != host_architecture())


def elf(machine: int, *, bits: int = 2, order: int = 1, kind: str = "<") -> bytes:
    return (
        b"\x7fELF"
        + bytes([bits, order])
        + bytes(10)
        + struct.pack(f"{kind}HH", 3, machine)
        + bytes(64)
    )


def zipped(folder: Path, **files: bytes) -> Path:
    archive = folder / "some.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for name, content in files.items():
            target.writestr(name.replace("__", "/", 1), content)
    return archive


@pytest.fixture(scope="module")
def other() -> Artifact:
    """The artifact for the processor that this machine does not have."""
    try:
        return artifact(OTHER)
    except PackagingFailed as failed:
        pytest.skip(f"the package index has no wheels for {OTHER}: {str(failed)[:200]}")


def members(built: Artifact) -> dict[str, int]:
    with zipfile.ZipFile(built.zip) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("lib__a.so", elf(X86), "lib/a.so is not for arm64"),
        ("lib__a.so.1.2", elf(X86), "lib/a.so.1.2 is not for arm64"),
        ("lib__tool", elf(X86), "lib/tool is not for arm64"),
        ("lib__a.so", elf(ARM, bits=1), "lib/a.so is not for arm64"),
        ("lib__a.so", elf(ARM, order=2, kind=">"), "lib/a.so is not for arm64"),
        ("lib__a.so", elf(ARM)[:19], "lib/a.so is not for arm64"),
        (
            "lib__a.cpython-311-aarch64-linux-gnu.so",
            elf(ARM),
            "lib/a.cpython-311-aarch64-linux-gnu.so is for Python 3.11",
        ),
        ("lib__a.cpython-313.pyc", b"", "lib/a.cpython-313.pyc is for Python 3.13"),
    ],
    ids=[
        "module",
        "library",
        "program",
        "32-bits",
        "big-endian",
        "cut",
        "module-of-3.11",
        "bytecode-of-3.13",
    ],
)
def test_file_that_cannot_run_in_lambda_is_named(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    assert list(foreign(zipped(tmp_path, **{name: content}), "arm64", "python3.12")) == [says]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lib__a.so", elf(ARM)),
        ("lib__a.abi3.so", elf(ARM)),
        ("lib__a.cpython-312-aarch64-linux-gnu.so", elf(ARM)),
        ("lib__a.cpython-312.pyc", b""),
        ("lib__a.py", b"\x7fEL"),
        ("lib__empty", b""),
    ],
)
def test_file_that_can_run_in_lambda_is_not_named(
    tmp_path: Path, name: str, content: bytes
) -> None:
    assert list(foreign(zipped(tmp_path, **{name: content}), "arm64", "python3.12")) == []


def test_everything_in_the_artifact_runs_on_its_processor_and_python() -> None:
    built = artifact()
    assert list(foreign(built.zip, host_architecture(), runtime())) == []
    assert list(foreign(built.zip, OTHER, runtime())), "the artifact has binaries"


def test_numpy_modules_imported_at_the_first_call_are_in_the_zip() -> None:
    """From numpy 2.3 on `unique` imports numpy.ma, which importing numpy does not."""
    calls = (
        "import sys, numpy as np; a = np.array([3, 1, 3]); "
        "np.unique(a); np.setdiff1d(a, a); np.isin(a, a); np.unique(a, return_counts=True); "
        "np.partition(a, 1); np.einsum('i,i', a, a); print(np.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", calls],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(artifact().task), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(artifact().task))


def test_artifact_for_the_other_processor_differs_only_in_binaries(other: Artifact) -> None:
    assert list(foreign(other.zip, OTHER, runtime())) == []
    ours, theirs = members(artifact()), members(other)
    plain = {
        name
        for name in ours.keys() | theirs.keys()
        if name.endswith((".py", ".pyc")) and not name.startswith(("numpy/", "highspy/"))
    }
    assert {name for name in plain if ours.get(name) != theirs.get(name)} == set()


def test_every_function_has_the_processor_and_python_of_its_zip(other: Artifact) -> None:
    for built, stage, architecture in (
        (artifact(), "dev", host_architecture()),
        (artifact(), "prod", host_architecture()),
        (other, "prod", OTHER),
    ):
        functions = [
            one["Properties"]
            for one in built.sam(stage)["Resources"].values()
            if one["Type"] == "AWS::Serverless::Function"
        ]
        assert functions
        assert {(*one["Architectures"], one["Runtime"]) for one in functions} == {
            (architecture, runtime())
        }


def test_processor_comes_from_the_configuration_unless_one_is_named() -> None:
    config = json.loads((ROOT / ".chalice" / "config.json").read_text())
    assert config["stages"]
    for stage, settings in config["stages"].items():
        wanted = settings.get("lambda_architecture", config.get("lambda_architecture", "x86_64"))
        assert configured_architecture(stage) == wanted


def test_processor_unknown_to_lambda_is_rejected(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--architecture", "riscv64", "--out", str(tmp_path)])
    assert "choose from" in capsys.readouterr().err


def test_wheel_other_than_the_locked_one_is_rejected(tmp_path: Path) -> None:
    wheel = tmp_path / "six-1.17.0-py3-none-any.whl"
    wheel.write_bytes(b"not the file that was locked")
    lock = tmp_path / "requirements.txt"
    lock.write_text(f"--no-index\n--find-links {tmp_path}\nsix==1.17.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(PackagingFailed, match=r"(?s)its hash is not there; .*HASH"):
        install(lock, tmp_path / "task", host_architecture())
    assert not (tmp_path / "task").exists()


def test_package_without_a_wheel_for_the_processor_is_rejected(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(f"--no-index\nsix==1.17.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(
        PackagingFailed, match=r"pip found no wheel for arm64 and python3\.\d+ of something"
    ):
        install(lock, tmp_path / "task", "arm64")
