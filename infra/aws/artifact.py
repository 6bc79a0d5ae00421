"""The zip that Lambda gets, written anew from the one that Chalice made: smaller, quicker to start, always the same.

- Tests, type stubs, headers and other build-time files go.
- boto3 and botocore stay, pinned to what the tests ran with: Lambda's own copy is older or newer as AWS pleases, and
  pynamodb and the retry behaviour depend on it. Of botocore's 20 MB of service descriptions only those that are used
  stay, which leaves about 2 MB: that is what pinning costs.
- Bytecode is added. /var/task is read-only, so without it every cold start compiles everything from source, which takes
  three to five times as long. `unchecked-hash`: nobody compares it with the source again.
- Entries are sorted and dated 1980, so the same sources give the same bytes, and a deployment that changes nothing is
  seen to change nothing.
"""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

#: The AWS services that are called; tests/functional compares this with the code.
SERVICES = frozenset({"dynamodb", "eks", "lambda", "secretsmanager", "sqs", "sts"})

_WANTED_DATA = "|".join(sorted(SERVICES))
_DROPPED = re.compile(
    "|".join((
        r"(^|/)__pycache__/",
        r"(^|/)tests?/",
        r"_test\.py$",
        r"\.(pyi|pyc|pxd|pyx|h|c|a)$",
        r"\.dist-info/RECORD$",
        r"^bin/",
        r"^boto3/(data|examples)/",
        rf"^botocore/data/(?!({_WANTED_DATA})/)[^/]+/",
        r"^numpy/(f2py|distutils|_pyinstaller|doc)/",
    ))
)
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_TASK = "/var/task"


def is_wanted(name: str) -> bool:
    """Whether a file of Chalice's zip goes into ours."""
    return not name.endswith("/") and _DROPPED.search(name) is None


def rewrite(archive: Path) -> None:
    """Replace the zip by its trimmed, compiled, reproducible form."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        with zipfile.ZipFile(archive) as original:
            names = sorted({name for name in original.namelist() if is_wanted(name)})
            original.extractall(tree, names)
        _compile_apart(tree)
        finished = archive.with_suffix(".new.zip")
        with zipfile.ZipFile(finished, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as target:
            for path in sorted(tree.rglob("*")):
                if path.is_file():
                    info = zipfile.ZipInfo(path.relative_to(tree).as_posix(), _DATE)
                    info.external_attr, info.compress_type = _MODE, zipfile.ZIP_DEFLATED
                    target.writestr(info, path.read_bytes())
        finished.replace(archive)


def compile_tree(tree: Path) -> None:
    """Bytecode beside every module, as Lambda will look for it, naming the source as it will lie there."""
    for source in sorted(tree.rglob("*.py")):
        relative = source.relative_to(tree).as_posix()
        cached = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(
            str(source), cfile=str(cached), dfile=f"{_TASK}/{relative}", quiet=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def _compile_apart(tree: Path) -> None:
    """In a process of its own: what marshal writes depends on which strings the process has interned before."""
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-W", "ignore", "-m", "infra.aws.artifact", str(tree)]
    subprocess.run(command, check=True, env=environment, cwd=Path(__file__).resolve().parents[2])


if __name__ == "__main__":
    compile_tree(Path(sys.argv[1]))
