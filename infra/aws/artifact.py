"""Rewrites the zip that Chalice makes of the sources: adds the dependencies, so that the deployed
one is small, starts fast and is reproducible.

- Files that no function needs are removed (unneeded_files.py).
- botocore stays, pinned to the version that the tests ran with. Lambda's own copy may be older or
  newer, and the store and the retry behaviour depend on it. Its data is reduced to the services
  that are called (botocore_data.py).
- Bytecode is added. /var/task is read-only, so without bytecode every cold start compiles all
  modules from source, which takes three to five times as long. With `unchecked-hash` Python does
  not compare the bytecode with the source.
- Entries are sorted and dated 1980, so the same sources give the same bytes, and a deployment
  without changes is recognised as one.
"""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path

from infra.aws.botocore_data import cut
from infra.aws.unneeded_files import is_left_out, twins

_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_LEVEL = 7
"""Of compression: 9 takes 5 s of CPU more, a third of a build, for 0.4 % of the size."""
_TASK = "/var/task"


def rewrite(archive: Path, tree: Path) -> None:
    """Replace the zip by its complete, trimmed, compiled, reproducible form.

    tree: the folder with the installed dependencies; afterwards it has the contents of the zip.
    """
    for path in [path for path in tree.rglob("*") if path.is_file()]:
        if is_left_out(path.relative_to(tree).as_posix()):
            path.unlink()
    with zipfile.ZipFile(archive) as original:
        original.extractall(
            tree, sorted({name for name in original.namelist() if not is_left_out(name)})
        )
    for twin in twins(tree):
        twin.unlink()
    cut(tree / "botocore" / "data")
    _compile_apart(tree)
    finished = archive.with_suffix(".new.zip")
    with zipfile.ZipFile(finished, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as target:
        for path in sorted(tree.rglob("*")):
            if path.is_file():
                info = zipfile.ZipInfo(path.relative_to(tree).as_posix(), _DATE)
                info.external_attr, info.compress_type = _MODE, zipfile.ZIP_DEFLATED
                target.writestr(info, path.read_bytes(), compresslevel=_LEVEL)
    finished.replace(archive)


def compile_tree(tree: Path) -> None:
    """Write bytecode for every module where Lambda's Python looks for it, with the path that
    the source has in Lambda."""
    for source in sorted(tree.rglob("*.py")):
        relative = source.relative_to(tree).as_posix()
        cached = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        py_compile.compile(
            str(source),
            cfile=str(cached),
            dfile=f"{_TASK}/{relative}",
            quiet=2,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def _compile_apart(tree: Path) -> None:
    """Compile in a separate process, because the output of marshal depends on the strings that a
    process has interned before."""
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    command = [sys.executable, "-W", "ignore", "-m", "infra.aws.artifact", str(tree)]
    subprocess.run(command, check=True, env=environment, cwd=Path(__file__).resolve().parents[2])


if __name__ == "__main__":
    compile_tree(Path(sys.argv[1]))
