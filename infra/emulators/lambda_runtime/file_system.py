"""A function's file system: /var/task, which it cannot write, and /var/runtime.

A hosted function trusts public authorities only, as in the artifact's certifi. The emulated vendors have their own
authority, which is added to that file; nothing else of the artifact is changed.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
import sysconfig
import zipfile
from pathlib import Path

from infra.emulators.lambda_runtime import shifted_clock

_RUNTIME = ("awslambdaric", "runtime_client*", "simplejson", "snapshot_restore_py")
_AUTHORITIES = Path("certifi") / "cacert.pem"
_READ_DIRECTORY, _READ_FILE, _WRITE = 0o555, 0o444, 0o755
_DROP = ("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")


class Folders:
    """task, runtime: below `place`, which must be empty. clock: seconds by which the functions' clocks are ahead."""

    def __init__(self, place: Path, archive: Path, authority: bytes = b"") -> None:
        self.task, self.runtime = place / "task", place / "runtime"
        with zipfile.ZipFile(archive) as code:
            code.extractall(self.task)
        if authority:
            with (self.task / _AUTHORITIES).open("ab") as known:
                known.write(b"\n" + authority)
        for path in (self.task, *self.task.rglob("*")):
            path.chmod(_READ_DIRECTORY if path.is_dir() else _READ_FILE)
        self.runtime.mkdir()
        for pattern in _RUNTIME:
            for found in Path(sysconfig.get_path("purelib")).glob(pattern):
                if not found.name.endswith(".dist-info"):
                    (self.runtime / found.name).symlink_to(found)
        shutil.copy(shifted_clock.__file__, self.runtime / "shifted_clock.py")
        self._clock = self.runtime / shifted_clock.NAME
        self._clock.write_bytes(struct.pack("<d", 0.0))

    def ahead(self, seconds: float) -> None:
        """Set the seconds by which functions' clocks are ahead. The file is written in place, because the functions
        have mapped it."""
        with self._clock.open("r+b") as file:
            file.write(struct.pack("<d", seconds))

    def command(self, handler: str) -> list[str]:
        """Return the command that starts the runtime client for this handler, without site-packages and without
        permission to write the task's folder."""
        boot = (
            "import pathlib, runpy, sys, shifted_clock; "
            f"shifted_clock.install(pathlib.Path({str(self._clock)!r})); "
            "sys.argv[:] = ['awslambdaric', sys.argv[1]]; "
            "runpy.run_module('awslambdaric', run_name='__main__')"
        )
        return [*without_rights(), sys.executable, "-S", "-s", "-c", boot, handler]

    def remove(self) -> None:
        """Make the task's folder writable again, and delete both."""
        for path in (self.task, *self.task.rglob("*")):
            if path.is_dir():
                path.chmod(_WRITE)
        shutil.rmtree(self.task, ignore_errors=True)
        shutil.rmtree(self.runtime, ignore_errors=True)


def without_rights() -> list[str]:
    """Return a command prefix with which the superuser has no more permissions on files than other users. Empty for
    other users, and if util-linux has no setpriv."""
    found = shutil.which("setpriv")
    return [found, *_DROP] if found and os.geteuid() == 0 else []
