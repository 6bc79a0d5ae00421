"""Installs the deployed dependencies as wheels for the functions' processor and Python, whichever machine builds.

Chalice calls pip twice: first for the wheels of this machine, then by name for those of Lambda. The second call cannot
be checked against the lock, so a build for the other processor would take whatever the index offers. Here pip is called
once, for Lambda's platform, and accepts only wheels whose hash is in requirements.txt. No package code runs.

pip uses this machine's configuration, including PIP_* variables, so it can also work without a network.
"""

from __future__ import annotations

import json
import platform
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

#: Lambda's name of a processor -> the machine in the names of wheels, and the number in the header of an ELF file.
MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}
#: Python -> the minor version of glibc 2 in Lambda's runtime: Amazon Linux 2 or Amazon Linux 2023.
_GLIBC = {(3, 11): 26, (3, 12): 34, (3, 13): 34}
_OLDEST_GLIBC = 5  # manylinux1
_PIPS_OWN = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")  # pip's own records of the installation


class PackagingFailed(Exception):
    """The artifact could not be built; the message gives the remedy."""


class Wheel(msgspec.Struct, frozen=True):
    """A deployed wheel. file: its name on the index. sha256: of the file, in hexadecimal. licence: as the project
    states it: an SPDX expression if it has one, otherwise the closest statement, or empty."""

    name: str
    version: str
    file: str
    sha256: str
    licence: str


def host_architecture() -> str:
    """Return Lambda's name of this machine's processor. Raises PackagingFailed if Lambda does not support it."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    for name, each in MACHINES.items():
        if each == machine:
            return name
    raise PackagingFailed(f"this machine's processor is {machine}; name one of {', '.join(MACHINES)} by --architecture")


def runtime() -> str:
    """Return Lambda's name of the running Python, which builds the package. Raises PackagingFailed if Lambda has no
    such runtime."""
    version = sys.version_info[:2]
    if version not in _GLIBC:
        known = ", ".join(f"{major}.{minor}" for major, minor in _GLIBC)
        raise PackagingFailed(f"Python {version[0]}.{version[1]} is no runtime of Outscaler; build with one of {known}")
    return f"python{version[0]}.{version[1]}"


def install(requirements: Path, target: Path, architecture: str) -> list[Wheel]:
    """Unpack the wheels of a lock with hashes into `target` and return them by name. Raises PackagingFailed."""
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
                f"pip found no wheel for {architecture} and {runtime()} of something in {requirements.name}, or its "
                f"hash is not there; pin versions with wheels for Lambda's glibc (2.{_GLIBC[sys.version_info[:2]]}), "
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
    """Return the licence expression, otherwise the older field if it has one line, otherwise the classifiers."""
    old = (about.get("license") or "").strip()
    classifiers = [each.rpartition(" :: ")[2] for each in about.get("classifier", []) if each.startswith("License :: ")]
    return about.get("license_expression") or (old if old and "\n" not in old else "") or ", ".join(classifiers)


_MAGIC = b"\x7fELF"
_HEAD = 20  # bytes: identification, type, machine
_CLASS_64, _LITTLE_ENDIAN = 2, 1
#: Lambda's name of a processor -> e_machine of an ELF file.
_MACHINE = {"x86_64": 62, "arm64": 183}
_TAGGED = re.compile(r"\.cpython-(\d+)[.-]")


def foreign(archive: Path, architecture: str, runtime: str) -> Iterator[str]:
    """Return each entry of the zip that cannot run in Lambda, with the reason, sorted.

    architecture: arm64 or x86_64. runtime: Lambda's name of it (python3.12).
    """
    tag = runtime.removeprefix("python").replace(".", "")
    with zipfile.ZipFile(archive) as opened:
        for name in sorted(opened.namelist()):
            found = _TAGGED.search(name)
            if found is not None and found[1] != tag:
                yield f"{name} is for Python {found[1][0]}.{found[1][1:]}"
            with opened.open(name) as entry:
                head = entry.read(_HEAD)
            if head.startswith(_MAGIC) and _machine(head) != _MACHINE[architecture]:
                yield f"{name} is not for {architecture}"


def _machine(head: bytes) -> int | None:
    """Return the processor number of an ELF header, None if the header is truncated or not 64-bit little-endian."""
    if len(head) < _HEAD or (head[4], head[5]) != (_CLASS_64, _LITTLE_ENDIAN):
        return None
    machine: int = struct.unpack_from("<H", head, 18)[0]
    return machine


#: Of a distribution's metadata, licences stay, and METADATA, from which vulnerability scanners read the version.
_METADATA = r"\.dist-info/(?!(licenses/|LICEN[CS]E|NOTICE|COPYING|AUTHORS|METADATA$))"

#: Only Powertools' logger is used, but its package also imports metrics and tracing.
_POWERTOOLS = (
    r"^aws_lambda_powertools/(event_handler|middleware_factory)/",
    r"^aws_lambda_powertools/metrics/provider/datadog/",
    r"^aws_lambda_powertools/utilities/(?!jmespath_utils/|__init__\.)",
)

#: numpy imports these on demand, and neither the planner nor the solver uses them. numpy.random stays because the
#: expander least-cost uses it. numpy.ma stays because `unique` and functions based on it import it from numpy 2.3 on.
_NUMPY = (
    r"^numpy/(f2py|distutils|_pyinstaller|doc|fft|polynomial|testing)/",
    r"^numpy/(ctypeslib|matlib|conftest|_configtool)\.py$",
    r"^numpy/_core/(_simd|_\w+_tests)\.[^/]*so$",
    r"^numpy/random/(_examples|lib)/",
)

#: Extensions of Jinja2 and ways to use it that the templates do not.
_JINJA = (r"^jinja2/(ext|sandbox|nativetypes|meta|constants)\.py$",)

LEFT_OUT = re.compile(
    "|".join(
        (
            r"(^|/)__pycache__/",
            r"(^|/)tests?/",
            r"_test\.py$",
            r"\.(pyi|pyc|pxd|pyx|h|c|a)$",
            r"^bin/",
            r"\.data/",  # scripts of wheels
            _METADATA,
            *_POWERTOOLS,
            *_NUMPY,
            *_JINJA,
            r"^charset_normalizer/",  # requests uses it to guess encodings; here only bytes are read
            r"^botocore/cacert\.pem$",  # certifi provides the certificate authorities
            r"^dateutil/zoneinfo/.*\.tar\.gz$",  # tzdata provides the time zones
            r"^urllib3/contrib/emscripten/",
        )
    )
)


def is_left_out(name: str) -> bool:
    """Return whether a file of Chalice's zip is left out of ours. name: its path in the zip."""
    return name.endswith("/") or LEFT_OUT.search(name) is not None


def twins(tree: Path) -> list[Path]:
    """Return shared libraries that a folder contains under several names. Only the name that programs link to is used.

    A wheel cannot contain symbolic links, so `libx.so.1` and `libx.so.1.2.3` are two files. The dynamic linker looks
    for the library's SONAME, which the file itself contains.
    """
    groups: dict[tuple[Path, int, bytes], list[Path]] = {}
    for library in sorted(tree.rglob("*.so*")):
        if library.is_file():
            content = library.read_bytes()
            groups.setdefault((library.parent, len(content), content), []).append(library)
    unused = []
    for (_, _, content), names in groups.items():
        linked = [path for path in names if b"\0" + path.name.encode() + b"\0" in content]
        unused += [path for path in names if len(names) > 1 and linked and path not in linked]
    return unused
