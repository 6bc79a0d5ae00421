"""Installs the deployed dependencies as wheels for the functions' processor and Python,
whichever machine builds.

Chalice calls pip twice: first for the wheels of this machine, then by name for those of Lambda. The
second call cannot be checked against the lock, so a build for the other processor would take
whatever the index offers. Here pip is called once, for Lambda's platform, and accepts only wheels
whose hash is in requirements.txt. No package code runs.

pip uses this machine's configuration, including PIP_* variables, so it can
also work without a network.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

#: Lambda's name of a processor -> the machine in the names of wheels, and the number in
#: the header of an ELF file.
MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}
#: Python -> the minor version of glibc 2 in Lambda's runtime: Amazon Linux 2 or Amazon Linux 2023.
_GLIBC = {(3, 11): 26, (3, 12): 34, (3, 13): 34, (3, 14): 34}
_OLDEST_GLIBC = 5  # manylinux1
# pip's own records of the installation
_PIPS_OWN = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")


class PackagingFailed(Exception):
    """The artifact could not be built; the message gives the remedy."""


class Wheel(msgspec.Struct, frozen=True):
    """A deployed wheel. file: its name on the index. sha256: of the file, in hexadecimal.
    licence: as the project states it: an SPDX expression if it has one, otherwise the
    closest statement, or empty."""

    name: str
    version: str
    file: str
    sha256: str
    licence: str


def host_architecture() -> str:
    """Return Lambda's name of this machine's processor. Raises PackagingFailed if
    Lambda does not support it."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    for name, each in MACHINES.items():
        if each == machine:
            return name
    raise PackagingFailed(
        f"this machine's processor is {machine}; name one of {', '.join(MACHINES)} by "
        "--architecture"
    )


def runtime() -> str:
    """Return Lambda's name of the running Python, which builds the package. Raises PackagingFailed
    if Lambda has no such runtime."""
    version = sys.version_info[:2]
    if version not in _GLIBC:
        known = ", ".join(f"{major}.{minor}" for major, minor in _GLIBC)
        raise PackagingFailed(
            f"Python {version[0]}.{version[1]} is no runtime of Outscaler; build with one of "
            f"{known}"
        )
    return f"python{version[0]}.{version[1]}"


def install(requirements: Path, target: Path, architecture: str) -> list[Wheel]:
    """Unpack the wheels of a lock with hashes into `target` and return them by
    name. Raises PackagingFailed."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--require-hashes",
            "--only-binary=:all:",
            "--no-compile",
            "--target",
            str(target),
            "--implementation",
            "cp",
            *_platforms(architecture),
            "--report",
            str(report),
            "-r",
            str(requirements),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PackagingFailed(
                f"pip found no wheel for {architecture} and {runtime()} of something in "
                f"{requirements.name}, or its "
                "hash is not there; pin versions with wheels for Lambda's glibc "
                f"(2.{_GLIBC[sys.version_info[:2]]}), "
                f"and see that the index can be reached:\n{done.stderr}"
            )
        taken = json.loads(report.read_text())["install"]
    for left in (file for name in _PIPS_OWN for file in target.glob(f"*.dist-info/{name}")):
        left.unlink()
    return sorted((_wheel(each) for each in taken), key=lambda wheel: wheel.name)


def _platforms(architecture: str) -> list[str]:
    runtime()
    machine, newest = MACHINES[architecture], _GLIBC[sys.version_info[:2]]
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, _OLDEST_GLIBC - 1, -1)]
    return [word for name in [*names, f"manylinux2014_{machine}"] for word in ("--platform", name)]


def _wheel(taken: Mapping[str, Any]) -> Wheel:
    about, download = taken["metadata"], taken["download_info"]
    file = unquote(urlsplit(download["url"]).path).rpartition("/")[2]
    return Wheel(
        about["name"].lower().replace("_", "-"),
        about["version"],
        file,
        download["archive_info"]["hashes"]["sha256"],
        _licence(about),
    )


def _licence(about: Mapping[str, Any]) -> str:
    """Return the licence expression, otherwise the older field if it has one line,
    otherwise the classifiers."""
    old = (about.get("license") or "").strip()
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in about.get("classifier", [])
        if each.startswith("License :: ")
    ]
    return (
        about.get("license_expression")
        or (old if old and "\n" not in old else "")
        or ", ".join(classifiers)
    )
