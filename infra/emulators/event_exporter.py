"""An in-cluster event exporter: posts batches of the cluster's Events to the webhook, signed.

It stands for a different program than the one under test. Therefore it has its own signing code and posts all events,
like the usual exporters, without knowing which are relevant.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Sequence
from typing import Any

from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore

Post = Callable[[str, dict[str, str], bytes], Any]
"""(path, headers, body) -> the response."""


class Heard:
    """The Events of a store, each once per write."""

    def __init__(self, store: ObjectStore) -> None:
        self._events = store.subscribe("events")

    def poll(self) -> list[KubeObject]:
        """Return the Events written since the last poll."""
        return [event.object for event in self._events.poll() if event.type != "DELETED"]


class Exporter:
    """cluster: the cluster of the webhook. key: the HMAC key. post: sends a request."""

    def __init__(self, cluster: str, key: str, clock: Callable[[], float], post: Post) -> None:
        self._path, self._key, self._clock, self._send = f"/clusters/{cluster}/events", key.encode(), clock, post
        self.posted = 0

    def tell(self, events: Sequence[KubeObject]) -> None:
        """Post these Events, if there are any. The response is ignored, because the next scan covers the events
        anyway."""
        if events:
            self.post(list(events))

    def post(self, events: object) -> Any:
        """Post a body and return the webhook's response."""
        self.posted += len(events) if isinstance(events, list) else 1
        body = json.dumps(events).encode()
        timestamp = str(int(self._clock()))
        signed = f"v2\nPOST\n{self._path}\n{timestamp}\n".encode() + body
        signature = hmac.new(self._key, signed, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "X-Outscaler-Timestamp": timestamp,
            "X-Outscaler-Signature": f"v2={signature}",
        }
        return self._send(self._path, headers, body)
