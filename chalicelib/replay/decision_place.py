"""Where decisions are recorded: `s3://BUCKET/PREFIX`, or a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from chalicelib.aws.object_bucket import ObjectBucket, bucket_of
from chalicelib.replay.decision_folder import DecisionFolder
from chalicelib.replay.recorded_decision import LARGEST_FILE


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

    def get(self, path: str) -> bytes:
        """See DecisionReader."""
        return self._bucket.get(path, LARGEST_FILE)

    def paths(self, prefix: str) -> Iterator[str]:
        """See DecisionReader."""
        return self._bucket.paths(prefix)


def writer(place: str) -> DecisionWriter:
    """Return what stores decisions at a place. Raises BadInput."""
    found = bucket_of(place)
    if found is None:
        return DecisionFolder(Path(place))
    return ObjectBucket(*found)


def reader(place: str) -> DecisionReader:
    """Return what reads the decisions of a place. Raises BadInput."""
    found = bucket_of(place)
    return DecisionFolder(Path(place)) if found is None else _Bucket(*found)
