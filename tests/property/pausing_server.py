"""A server in virtual time that pauses before its changes arrive, and a
process that follows its lists.

The clock goes on only while the reader waits, to the next arrival or to the end of the wait.
"""

from __future__ import annotations

import functools
import heapq
import json
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, cast

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import NotFound
from chalicelib.cluster.list_changes import Changes, WatchMeans, follow
from chalicelib.cluster.list_page import TypedList, TypedPage, typed_page
from chalicelib.cluster.list_state import ListState, read_lists
from chalicelib.cluster.watch import WatchPace

PODS = "/api/v1/pods"
_AWAY = 0.010  # seconds to the server and back
_ROW = 0.000_1  # seconds in which an object of a list arrives
Json = dict[str, Any]
Pauses = Callable[[], float]


def healthy() -> float:
    """Return the pause of a server without load, as recorded: changes arrive within 20 ms."""
    return 0.001


class VirtualTime(WatchMeans):
    """The clock, and what arrives when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def monotonic(self) -> float:
        return self.now

    def condition(self) -> threading.Condition:
        return _VirtualCondition(self)

    def pool(self, most: int) -> Executor:
        del most
        return _Threads()

    def at(self, instant: float, happen: Callable[[], None]) -> None:
        """Let something happen at an instant."""
        self._number += 1
        heapq.heappush(self._due, (instant, self._number, happen))

    def go_on(self, until: float) -> None:
        """Go on to the next arrival, or to an instant that is before it."""
        if not self._due or self._due[0][0] > until:
            self.now = max(self.now, until)
            return
        instant, _, happen = heapq.heappop(self._due)
        self.now = max(self.now, instant)
        happen()

    def pass_by(self, seconds: float) -> None:
        """Let time pass, with all that arrives in it."""
        until = self.now + seconds
        while self.now < until:
            self.go_on(until)


class _VirtualCondition(threading.Condition):
    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self._time = time

    def wait(self, timeout: float | None = None) -> bool:
        self.release()
        try:
            self._time.go_on(self._time.now + (timeout or 0.0))
        finally:
            self.acquire()
        return True


class _Threads(Executor):
    """Threads of which each is done, or waits for the server, when `submit` returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
            finally:
                _IDLE.pop(thread, idle).set()

        thread, idle = threading.Thread(target=work, daemon=True), threading.Event()
        _IDLE[thread] = idle
        thread.start()
        idle.wait()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        del wait, cancel_futures


_IDLE: dict[threading.Thread, threading.Event] = {}


class PausingServer:
    """Pods that change, and watches that pause. pause: seconds before each change after the first
    one. first: seconds before the first one. marks: whether the server sends a bookmark two seconds
    before the end of a watch."""

    def __init__(
        self,
        time: VirtualTime,
        pods: int,
        pause: Pauses,
        *,
        first: Pauses = healthy,
        marks: bool = False,
        seed: int = 1,
    ) -> None:
        self._time, self.pause, self._first, self._marks = time, pause, first, marks
        self._random = random.Random(seed)
        self.version, self._made = 1, 0
        self.pods: dict[str, Json] = {}
        self._log: list[tuple[int, bytes]] = []
        for _ in range(pods):
            self._add()

    def change(self, count: int) -> None:
        """Write changes after which the number of pods is what it was."""
        for at in range(count):
            (self._drop, self._add, self._modify)[at % 3]()
        if count % 3 == 1:
            self._add()
        self.version += 5  # other lists have changed, too

    def written_after(self, version: int) -> int:
        """Return the number of changes of pods after a version."""
        return sum(1 for at, _ in self._log if at > version)

    def _write(self, type_: str, pod: Json) -> None:
        self.version += 1
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
        self.pods[pod["metadata"]["name"]] = pod
        if type_ == "DELETED":
            del self.pods[pod["metadata"]["name"]]
        self._log.append(
            (self.version, json.dumps({"type": type_, "object": pod}).encode() + b"\n")
        )

    def _add(self) -> None:
        self._made += 1
        meta = {"name": f"pod-{self._made}", "namespace": "app", "uid": f"uid-{self._made}"}
        self._write(
            "ADDED", {"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Pending"}}
        )

    def _drop(self) -> None:
        self._write("DELETED", self.pods[self._random.choice(sorted(self.pods))])

    def _modify(self) -> None:
        pod = self.pods[self._random.choice(sorted(self.pods))]
        self._write(
            "MODIFIED",
            {**pod, "spec": {**pod["spec"], "nodeName": f"node-{self._random.randrange(9)}"}},
        )

    # -- what KubeClient has

    def access(self) -> str:
        return "the same"

    def is_local(self) -> bool:
        return False

    def get(self, path: str) -> bytes:
        raise NotFound(f"{path}: not found", status=404)

    def list_page(
        self, path: str, query: Mapping[str, str], decode: Callable[[bytes], TypedList], **_: object
    ) -> TypedPage:
        items = [self.pods[name] for name in sorted(self.pods)] if path == PODS else []
        meta: Json = {"resourceVersion": str(self.version)}
        if query["limit"] == "1" and len(items) > 1:
            # with a field selector the number of the others is not said
            meta |= {"continue": "more"}
            items = items[:1]
        elif path == PODS:
            self._time.pass_by(_AWAY + len(items) * _ROW)
        body = json.dumps({"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items})
        return typed_page(body.encode(), decode)

    def watch(
        self,
        path: str,
        query: Mapping[str, str],
        seen: Callable[[bytes], None],
        *,
        accept: str,
        longest: int,
    ) -> None:
        del accept, longest
        ended, time = threading.Event(), self._time
        began, since = time.now + _AWAY, int(query["resourceVersion"])
        end = began + float(query["timeoutSeconds"])
        lines = [line for version, line in self._log if version > since] if path == PODS else []
        arrivals = [(began, b"")]
        for line in lines:
            arrivals.append(
                (arrivals[-1][0] + (self.pause() if len(arrivals) > 1 else self._first()), line)
            )
        if self._marks and self.version > since:
            mark = {
                "type": "BOOKMARK",
                "object": {"metadata": {"resourceVersion": str(self.version)}},
            }
            after = arrivals[-1][0] + (self.pause() if lines else 0.0)
            arrivals.append((max(end - 2.0, after), json.dumps(mark).encode() + b"\n"))
        for instant, piece in arrivals:
            if instant <= end:
                time.at(instant, functools.partial(seen, piece))
        thread = threading.current_thread()

        def finish() -> None:
            ended.set()
            thread.join()

        time.at(end, finish)
        _IDLE.pop(thread).set()
        ended.wait()


class FollowedServer:
    """A process that reads such a server, a pass every ten seconds.

    missed: changes that a pass did not have although they were written a second before it;
    missed_passes: numbers of such passes; signs: numbers of passes that say that the server paused.
    seconds: of all passes. behind: of the last one, see ReadResult.
    """

    def __init__(self, server: PausingServer, time: VirtualTime) -> None:
        self.server, self.time, self.pace = server, time, WatchPace()
        self.kube = cast(KubeClient, server)
        read_at = time.now
        self.lists: ListState = read_lists(self.kube, "kube-system", rules=False)
        self.lists.read_at = read_at
        self.passes, self.missed, self.seconds, self.behind = 0, 0, 0.0, 0.0
        self.missed_passes, self.signs = list[int](), list[int]()

    def run(self, changes: int) -> Changes:
        """Change pods, and make a pass a second later."""
        self.server.change(changes)
        self.time.pass_by(1.0)
        began = self.time.now
        self.lists.passes = self.passes
        made = follow(
            self.kube, self.lists, rules=False, now=began, pace=self.pace, means=self.time
        )
        self.seconds += self.time.now - began
        self.behind = self.time.now - self.lists.complete_since()
        if missed := self.server.written_after(int(self.lists.versions["Pod"])):
            self.missed += missed
            self.missed_passes.append(self.passes)
        if made.short:
            self.signs.append(self.passes)
        self.passes += 1
        self.time.pass_by(9.0)
        return made
