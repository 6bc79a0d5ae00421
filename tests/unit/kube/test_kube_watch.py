"""A pass takes what a watch has sent when it has been quiet for a moment in which this process ran."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from chalicelib.kube.client import KubeClient
from chalicelib.kube.watch import QUIET, Watch, wait_for
from infra.emulators.controllers.clock import ManualClock

CHANGE = b'{"type":"ADDED","object":{"metadata":{"name":"one","resourceVersion":"2"}}}\n'


class HaltedProcess(threading.Condition):
    """Waits of a process that is halted in some of them. halts: seconds by which each wait lasts longer than asked.
    arrives: what the reading thread finds during each wait."""

    def __init__(self, clock: ManualClock, halts: list[float], arrives: list[bytes]) -> None:
        super().__init__()
        self._clock, self._halts, self._arrives = clock, halts, arrives
        self.seen: Callable[[bytes], None] = lambda _: None

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.advance((timeout or 0.0) + (self._halts.pop(0) if self._halts else 0.0))
        if self._arrives and (piece := self._arrives.pop(0)):
            self.seen(piece)
        return True


class OpenWatch:
    """A server that sends the head of a watch, and calls `then` before the watch ends."""

    def __init__(self, process: HaltedProcess, then: Callable[[], None]) -> None:
        self._process, self._then = process, then

    def watch(
        self, path: str, query: Mapping[str, str], seen: Callable[[bytes], None], *, accept: str, longest: int
    ) -> None:
        del path, query, accept, longest
        self._process.seen = seen
        seen(b"")
        self._then()


@pytest.mark.parametrize(
    ("halts", "arrives", "taken"),
    [
        ([], [b"", CHANGE], 0),
        ([0.1], [b"", CHANGE], 1),
        ([0.1, 0.1, 0.1], [b"", b"", b"", CHANGE], 1),
        ([0.1] * 9, [b"", b"", b"", b"", CHANGE], 0),
        ([30.0], [b"", CHANGE], 0),
    ],
    ids=["not-halted", "halted-once", "halted-thrice", "halted-all-the-time", "no-time-left"],
)
def test_time_in_which_the_process_is_halted_is_not_a_quiet_moment(
    halts: list[float], arrives: list[bytes], taken: int
) -> None:
    clock = ManualClock(0.0)
    process = HaltedProcess(clock, halts, arrives)
    taken_lines: list[int] = []

    def settle() -> None:
        wait_for([watch], process, until=5.0, monotonic=clock)
        taken_lines.append(len(watch.lines()[0]))

    kube = cast(KubeClient, OpenWatch(process, settle))
    watch = Watch(kube, "/api/v1/pods", {}, "1", quiet=QUIET, changed=process, monotonic=clock)
    watch.run()
    assert taken_lines == [taken]
