"""An in-cluster event exporter: it posts the cluster's Events to the webhook, signed, a batch at a time.

It is another program than the one under test, so it signs with its own three lines and knows nothing of which events
matter: it posts them all, as the usual exporters do.
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
"""(path, headers, body) -> whatever answers."""


class Heard:
    """The Events of a store, each once per write."""

    def __init__(self, store: ObjectStore) -> None:
        self._events = store.subscribe("events")

    def poll(self) -> list[KubeObject]:
        """Those written since the last poll."""
        return [event.object for event in self._events.poll() if event.type != "DELETED"]


class Exporter:
    """cluster: whose webhook it is; key: the HMAC key; post: how a request is sent."""

    def __init__(self, cluster: str, key: str, clock: Callable[[], float], post: Post) -> None:
        self._path, self._key, self._clock, self._send = f"/clusters/{cluster}/events", key.encode(), clock, post
        self.posted = 0

    def tell(self, events: Sequence[KubeObject]) -> None:
        """Post these, if there are any. What the webhook answers is its own affair: the next scan sees it anyway."""
        if events:
            self.post(list(events))

    def post(self, events: object) -> Any:
        """Post a body; what the webhook answered."""
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
