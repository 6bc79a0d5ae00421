"""Writes files that a reader sees whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(target: Path, data: bytes) -> None:
    """Write a file and its folders in place of an earlier one. Raises OSError."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(data)
    draft.replace(target)
