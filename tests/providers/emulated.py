"""What the emulated vendors of unit tests share: they run in process, and a test
says what crosses the wire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from chalicelib.providers.kit.services import NullCache, RateLimit, UnlimitedRateLimiter

OPENED = ExitStack()
"""The vendors that the current test has opened (conftest.py closes them)."""


class RecordedLimits(UnlimitedRateLimiter):
    """A rate limiter that grants everything, or states how long to wait,
    and records the requests."""

    def __init__(self, waits: Sequence[float] = ()) -> None:
        self.waits = list(waits)
        self.granted: list[tuple[str, int]] = []
        self.pauses: list[tuple[str, float]] = []
        self.limits: set[RateLimit] = set()

    def take(self, rate_limit: RateLimit, calls: int) -> float:
        self.limits.add(rate_limit)
        wait = self.waits.pop(0) if self.waits else 0.0
        if not wait:
            self.granted.append((rate_limit.key, calls))
        return wait

    def hold(self, rate_limit: RateLimit, seconds: float) -> None:
        self.pauses.append((rate_limit.key, seconds))


class KeptCache(NullCache):
    """A cache that keeps entries for the duration of a test."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: str, value: bytes, seconds: float) -> None:
        assert seconds > 0
        self.rows[key] = value


class RotatedSecrets:
    """Secrets by name; a written value is seen only by readers that bypass the cache,
    as in a Lambda function."""

    def __init__(self, **texts: str) -> None:
        self.now, self.cached = dict(texts), dict(texts)
        self.fresh_reads = 0

    def __call__(self, name: str) -> str:
        return self.cached[name]

    def fresh(self, name: str) -> str:
        self.fresh_reads += 1
        self.cached[name] = self.now[name]
        return self.cached[name]


def changed(body: bytes, key: str, changes: Mapping[object, Mapping[str, Any]]) -> bytes:
    """Returns a JSON body in which every object whose `key` is one of the given values
    has these other fields; a field that is None is removed. A mere reference, of one or
    two fields, stays as it is."""

    def hook(item: dict[str, Any]) -> dict[str, Any]:
        fields = (
            changes.get(item.get(key))
            if len(item) > 2 and isinstance(item.get(key), str | int)
            else None
        )
        return (
            item
            if fields is None
            else {k: v for k, v in {**item, **fields}.items() if v is not None}
        )

    return json.dumps(json.loads(body, object_hook=hook)).encode() if changes else body
