"""An in-cluster event exporter: posts batches of the cluster's Events to the webhook, signed.

It stands for a different program than the one under test. Therefore it has its own signing code and
posts all events, like the usual exporters, without knowing which are relevant.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import queue
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.store import ObjectStore
from infra.emulators.live.lambda_processes import Ended, Worker, logged

Post = Callable[[str, dict[str, str], bytes], Any]
"""(path, headers, body) -> the response."""


class Heard:
    """The Events of a store, each once per write."""

    def __init__(self, store: ObjectStore) -> None:
        self._events = store.subscribe("events")

    def poll(self) -> list[KubeObject]:
        return [event.object for event in self._events.poll() if event.type != "DELETED"]


class Exporter:
    """cluster: the cluster of the webhook. key: the HMAC key. post: sends a request."""

    def __init__(self, cluster: str, key: str, clock: Callable[[], float], post: Post) -> None:
        self._path, self._key, self._clock, self._send = (
            f"/clusters/{cluster}/events",
            key.encode(),
            clock,
            post,
        )
        self.posted = 0

    def tell(self, events: Sequence[KubeObject]) -> None:
        """Post these Events, if there are any. The response is ignored, because the next scan
        covers the events anyway."""
        if events:
            self.post(list(events))

    def post(self, events: object) -> Any:
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


TOGETHER = 0.05
"""Wall seconds during which Events are collected into one post."""
MOST = 100
"""Maximum number of Events in one post; the webhook accepts 256 KiB."""


class LiveExporter:
    """api, ca, headers: the cluster's API and its CA in PEM. webhook: URL of the front. answers:
    status -> number of responses."""

    def __init__(
        self,
        api: str,
        ca: str,
        headers: dict[str, str],
        webhook: str,
        cluster: str,
        key: str,
        clock: Callable[[], float],
        stopping: threading.Event,
        ended: Ended = logged,
    ) -> None:
        self._api, self._ca, self._headers, self._webhook = (
            urlsplit(api),
            ca,
            headers,
            urlsplit(webhook),
        )
        self._exporter = Exporter(cluster, key, clock, self._post)
        self._stopping = stopping
        self._heard: queue.SimpleQueue[KubeObject] = queue.SimpleQueue()
        self._threads = [
            Worker(work, name=f"exporter-{work.__name__.strip('_')}", ended=ended)
            for work in (self._watch, self._tell)
        ]
        self.answers: dict[int, int] = {}

    @property
    def posted(self) -> int:
        return self._exporter.posted

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for the end of the posts. The watch ends with the API server."""
        self._threads[1].join()

    def _watch(self) -> None:
        version = ""
        while not self._stopping.is_set():
            try:
                connection = http.client.HTTPSConnection(
                    self._api.netloc,
                    context=ssl.create_default_context(cadata=self._ca),
                    timeout=300,
                )
                version = version or self._version(connection)
                connection.request(
                    "GET",
                    f"/api/v1/events?watch=1&resourceVersion={version}",
                    headers=self._headers,
                )
                answer = connection.getresponse()
                while line := answer.readline():
                    change = json.loads(line)
                    version = change["object"].get("metadata", {}).get("resourceVersion", "")
                    if change["type"] in {"ADDED", "MODIFIED"}:
                        self._heard.put(change["object"])
                    elif change["type"] == "ERROR":  # the version is too old, so start again
                        break
            except (OSError, http.client.HTTPException, ValueError):
                self._stopping.wait(0.5)

    def _version(self, connection: http.client.HTTPSConnection) -> str:
        connection.request("GET", "/api/v1/events?limit=1", headers=self._headers)
        return str(json.loads(connection.getresponse().read())["metadata"]["resourceVersion"])

    def _tell(self) -> None:
        while not self._stopping.is_set():
            try:
                events = [self._heard.get(timeout=0.5)]
            except queue.Empty:
                continue
            self._stopping.wait(TOGETHER)
            while len(events) < MOST and not self._heard.empty():
                events.append(self._heard.get())
            self._exporter.tell(events)

    def _post(self, path: str, headers: dict[str, str], body: bytes) -> Any:
        try:
            connection = http.client.HTTPConnection(self._webhook.netloc, timeout=30)
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            connection.close()
            self.answers[answer.status] = self.answers.get(answer.status, 0) + 1
        except OSError:  # events are hints; the next scan covers them
            return None
        return answer.status
