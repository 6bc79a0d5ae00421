"""Where decisions are recorded, `s3://BUCKET/PREFIX` or a folder, and the recording of a pass.

A folder serves the local emulation, and copies of a bucket. A decision is stored after the pass's
lease was released; a failure is logged and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import msgspec

from chalicelib.aws.object_bucket import ObjectBucket, bucket_of
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.plan import Plan
from chalicelib.net.bounded_files import content, write_whole
from chalicelib.replay.recorded_decision import (
    LARGEST_FILE,
    RecordedDecision,
    TooLarge,
    encode,
    key_of,
    reduced,
)
from chalicelib.runtime.log import failure, logger


class NotRecorded(OutscalerError):
    """A decision could not be stored or read."""


class DecisionWriter(Protocol):
    """What a pass uses."""

    def put(self, path: str, data: bytes) -> None:
        """Store a decision. Raises OutscalerError."""


class DecisionReader(Protocol):
    """What the command uses."""

    def get(self, path: str) -> bytes:
        """Return a decision. Raises OutscalerError."""

    def paths(self, prefix: str) -> Iterator[str]:
        """Yield the paths below a prefix, in order. Raises OutscalerError."""


class _Bucket:
    """A bucket for the command: it has time for several attempts."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket = ObjectBucket(bucket, prefix, seconds=30.0, attempts=4)
        self.paths = self._bucket.paths

    def get(self, path: str) -> bytes:
        """See DecisionReader."""
        return self._bucket.get(path, LARGEST_FILE)


class _Folder:
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
        """Yield the paths of a cluster's decisions, or of one of its days,
        in order. Raises BadInput."""
        start = self._root / prefix
        if not start.is_dir():
            if not self._root.is_dir():
                raise BadInput(
                    str(self._root),
                    "is not a folder",
                    "give the folder in which decisions are recorded",
                )
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


def writer(place: str) -> DecisionWriter:
    """Return what stores decisions at a place. Raises BadInput."""
    bucket = bucket_of(place)
    return _Folder(Path(place)) if bucket is None else ObjectBucket(*bucket)


def reader(place: str) -> DecisionReader:
    """Return what reads the decisions of a place. Raises BadInput."""
    bucket = bucket_of(place)
    return _Folder(Path(place)) if bucket is None else _Bucket(*bucket)


def has_changes(plan: Plan) -> bool:
    """Return whether a plan changes the cluster, or would in another mode."""
    return bool(plan.scale_ups or plan.removals or plan.repairs or plan.operations)


def record(decision: RecordedDecision, place: str) -> bool:
    """Store a decision and return whether it was stored. Raises nothing."""
    cluster, plan = decision.snapshot.cluster, decision.plan.id
    try:
        data = _encoded(reduced(decision))
        _cached_writer(place).put(key_of(decision).path(), data)
    except OutscalerError as error:
        logger.error("decision not recorded", cluster=cluster, plan=plan, **failure(error))
        return False
    except Exception:
        logger.exception(
            "decision not recorded, for an unexpected reason", cluster=cluster, plan=plan
        )
        return False
    logger.info("decision recorded", cluster=cluster, plan=plan, bytes=len(data))
    return True


def _encoded(decision: RecordedDecision) -> bytes:
    """Return the file, without candidates where it is too large with them. Raises TooLarge."""
    try:
        return encode(decision)
    except TooLarge:
        snapshot = msgspec.structs.replace(decision.snapshot, candidates=())
        return encode(msgspec.structs.replace(decision, snapshot=snapshot))


_cached_writer = lru_cache(maxsize=4)(writer)
