"""A pass takes what a watch has sent when it has been quiet for a moment in which this process
ran.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.watch import ListWatch, Watch, WatchPace, wait_for
from infra.emulators.controllers.clock import ManualClock

CHANGE = b'{"type":"ADDED","object":{"metadata":{"name":"one","resourceVersion":"2"}}}\n'


class HaltedProcess(threading.Condition):
    """Waits of a process that is halted in some of them. halts: seconds by which each wait lasts
    longer than asked. arrives: what the reading thread finds during each wait."""

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
        self,
        path: str,
        query: Mapping[str, str],
        seen: Callable[[bytes], None],
        *,
        accept: str,
        longest: int,
    ) -> None:
        del path, query, accept, longest
        self._process.seen = seen
        seen(b"")
        self._then()


SECOND = b'{"type":"ADDED","object":{"metadata":{"name":"two","resourceVersion":"3"}}}\n'
MARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n'


def taken_lines(clock: ManualClock, process: HaltedProcess, position: int | None = None) -> int:
    """Return the number of lines that a pass takes of a watch."""
    numbers: list[int] = []

    def settle() -> None:
        followed = ListWatch(lambda _: watch, "1", WatchPace(), lambda: None, lambda: 0)
        followed.answered(position)
        wait_for([followed], process, until=5.0, monotonic=clock)
        numbers.append(len(watch.lines()[0]))

    kube = cast(KubeClient, OpenWatch(process, settle))
    watch = Watch(kube, "/api/v1/pods", {}, "1", changed=process, monotonic=clock)
    watch.run()
    return numbers[0]


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
    assert taken_lines(clock, HaltedProcess(clock, halts, arrives), position=2) == taken


@pytest.mark.parametrize("last", [SECOND, MARK], ids=["change", "bookmark"])
def test_watch_is_complete_at_once_where_it_has_reached_the_position_of_the_list(
    last: bytes,
) -> None:
    clock = ManualClock(0.0)
    assert taken_lines(clock, HaltedProcess(clock, [], [CHANGE, last, SECOND]), position=3) == 2
    assert clock() < 1.0


def test_pauses_of_a_server_are_learnt_at_once_and_forgotten_slowly() -> None:
    pace = WatchPace()
    assert (pace.quiet, pace.only_marks) == (0.15, False)
    pace.note(0.2)
    assert (pace.quiet, pace.only_marks) == (0.4, False)
    pace.note(3.0)
    assert (pace.quiet, pace.only_marks) == (1.0, True)
    passes = 0
    while pace.quiet > 0.15:
        pace.note(0.0)
        passes += 1
    assert 10 < passes < 50
