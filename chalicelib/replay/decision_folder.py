"""A folder of recorded decisions, for the local emulation and for copies of a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.net.bounded_files import content, write_whole
from chalicelib.replay.recorded_decision import LARGEST_FILE


class NotRecorded(OutscalerError):
    """A decision could not be stored or read."""


class DecisionFolder:
    """Stores each decision as a file. root: the folder, made with the first decision."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, path: str, data: bytes) -> None:
        """Store a decision; a reader sees the whole file or none. Raises NotRecorded."""
        target = self._root / path
        try:
            write_whole(target, data)
        except OSError as error:
            raise NotRecorded(f"{target}: {error.strerror}") from error

    def get(self, path: str) -> bytes:
        """Return a decision. Raises BadInput."""
        return read_file(self._root / path)

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths of a cluster's decisions, or of one of its days, in order. Raises BadInput."""
        start = self._root / prefix
        if not start.is_dir():
            if not self._root.is_dir():
                raise BadInput(str(self._root), "is not a folder", "give the folder in which decisions are recorded")
            return
        for file in sorted(start.rglob("*.decision")):
            if file.is_file() and not file.name.startswith("."):
                yield file.relative_to(self._root).as_posix()


def read_file(file: Path) -> bytes:
    """Return the bytes of a file. Raises BadInput."""
    try:
        return content(file, LARGEST_FILE)
    except (OSError, EOFError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise BadInput(str(file), problem, "give a file that can be read") from None
