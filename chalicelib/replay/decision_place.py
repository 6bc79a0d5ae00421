"""Where decisions are recorded: `s3://BUCKET/PREFIX`, or a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from chalicelib.model.errors import BadInput
from chalicelib.replay.decision_folder import DecisionFolder
from chalicelib.replay.recorded_decision import LARGEST_FILE

_BUCKET = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[\w./-]{0,200}))?\Z")


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
        from chalicelib.aws.decision_bucket import DecisionBucket

        self._bucket = DecisionBucket(bucket, prefix, seconds=30.0, attempts=4)

    def get(self, path: str) -> bytes:
        """See DecisionReader."""
        return self._bucket.get(path, LARGEST_FILE)

    def paths(self, prefix: str) -> Iterator[str]:
        """See DecisionReader."""
        return self._bucket.paths(prefix)


def writer(place: str) -> DecisionWriter:
    """Return what stores decisions at a place. Raises BadInput."""
    found = _bucket_of(place)
    if found is None:
        return DecisionFolder(Path(place))
    from chalicelib.aws.decision_bucket import DecisionBucket

    return DecisionBucket(*found)


def reader(place: str) -> DecisionReader:
    """Return what reads the decisions of a place. Raises BadInput."""
    found = _bucket_of(place)
    return DecisionFolder(Path(place)) if found is None else _Bucket(*found)


def _bucket_of(place: str) -> tuple[str, str] | None:
    if not place.startswith("s3:"):
        return None
    found = _BUCKET.match(place)
    if found is None:
        raise BadInput(place, "is not the address of a bucket", "write s3://BUCKET, or s3://BUCKET/PREFIX")
    prefix = (found["prefix"] or "").strip("/")
    return found["bucket"], f"{prefix}/" if prefix else ""
