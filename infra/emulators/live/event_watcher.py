"""The event exporter of the live emulation: a client of the cluster's API that watches Events and posts them.

It is connected like a real one: to the cluster with TLS, its CA, a token and a watch; to the webhook with HTTP. Events
that arrive within a short time are posted together.
"""

from __future__ import annotations

import http.client
import json
import queue
import ssl
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from infra.emulators.event_exporter import Exporter
from infra.emulators.kube.objects import KubeObject
from infra.emulators.live.checked_threads import Ended, Worker, logged

TOGETHER = 0.05
"""Wall seconds during which Events are collected into one post."""
MOST = 100
"""Maximum number of Events in one post; the webhook accepts 256 KiB."""


class LiveExporter:
    """api, ca, headers: the cluster's API and its CA in PEM. webhook: URL of the front. answers: status -> number of
    responses."""

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
        self._api, self._ca, self._headers, self._webhook = urlsplit(api), ca, headers, urlsplit(webhook)
        self._exporter = Exporter(cluster, key, clock, self._post)
        self._stopping = stopping
        self._heard: queue.SimpleQueue[KubeObject] = queue.SimpleQueue()
        self._threads = [
            Worker(work, name=f"exporter-{work.__name__.strip('_')}", ended=ended) for work in (self._watch, self._tell)
        ]
        self.answers: dict[int, int] = {}

    @property
    def posted(self) -> int:
        """Return the number of Events posted so far."""
        return self._exporter.posted

    def start(self) -> None:
        """Start with future Events."""
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
                    self._api.netloc, context=ssl.create_default_context(cadata=self._ca), timeout=300
                )
                version = version or self._version(connection)
                connection.request("GET", f"/api/v1/events?watch=1&resourceVersion={version}", headers=self._headers)
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
