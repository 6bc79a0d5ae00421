"""Reads files up to a size limit, because a path may name a disk image, a device or an endless
pipe, and writes files that a reader sees whole or not at all."""

from __future__ import annotations

import errno
import gzip
import os
import stat
from pathlib import Path

MOST_CONFIGURATION = 2**20
"""Bytes of a kubeconfig, of a certificate or of a credential in a file. A
secret of AWS holds 64 KiB."""
MOST_OBJECTS = 2**31
"""Bytes of one file with objects of a cluster, unpacked."""


def content(path: Path, most: int) -> bytes:
    """Return the file's bytes, decompressed where its name ends in `.gz`. Raises OSError, also for
    more than `most` bytes; EOFError, zlib.error and gzip.BadGzipFile (an OSError) for an
    incomplete compressed file."""
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        if stat.S_ISREG(state.st_mode) and state.st_size > most:
            raise _too_large(path, most)
        if path.name.endswith(".gz"):
            with gzip.GzipFile(fileobj=file) as packed:
                data = packed.read(most + 1)
        else:
            data = file.read(most + 1)
    if len(data) > most:
        raise _too_large(path, most)
    return data


def text(path: Path, most: int = MOST_CONFIGURATION) -> str:
    """Return the file as UTF-8 text. Raises OSError as content does, UnicodeDecodeError."""
    return content(path, most).decode("utf-8")


def _too_large(path: Path, most: int) -> OSError:
    return OSError(errno.EFBIG, f"it is too large, at most {most} bytes are read", str(path))


def write_whole(target: Path, data: bytes) -> None:
    """Write a file and its folders in place of an earlier one. Raises OSError."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(data)
    draft.replace(target)
