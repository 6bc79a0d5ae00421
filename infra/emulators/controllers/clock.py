"""Clocks for the simulated cluster: an accelerated one, or a manual one.

A node takes minutes to boot and ten more to become unneeded, which is too long to wait for. Every
part of the simulation gets one of these two clocks and never reads the wall clock itself. The same
code therefore serves the live emulation and scenarios without real time.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_CELLS = struct.Struct("<6dQ")
"""What processes share: virtual and wall seconds of the last change of speed, the speed since then,
the full speed, the wall seconds of the beginning, the real time at the beginning, and the number of
changes (odd while one is written)."""
_SHORTEST = 0.005  # wall seconds of a wait


class Clock:
    """Epoch seconds that begin at `start` and advance `speed` times as fast as `wall`
    (which must not go backwards).

    present: epoch seconds of the real time at the beginning. The clock does not pass the real time:
    as soon as it reaches it, it is it. at_work: its speed within `working`, where the length of a
    computation counts, so that a busy machine takes little virtual time; `speed` if not given.
    path: a file in which other processes read it (`shared`).
    """

    def __init__(
        self,
        start: float,
        speed: float,
        wall: Callable[[], float] = time.monotonic,
        *,
        present: float = math.inf,
        at_work: float | None = None,
        path: Path | None = None,
    ) -> None:
        if speed <= 0 or (at_work is not None and at_work <= 0):
            raise ValueError(f"speed {speed}, {at_work} at work: time must pass")
        self._wall, self._at_work = wall, speed if at_work is None else at_work
        self._idle, self._workers = threading.Condition(), 0
        began = wall()
        cells = _CELLS.pack(start, began, speed, speed, began, present, 0)
        self._cells: bytearray | mmap.mmap = bytearray(cells)
        if path is not None:
            self.share(path)

    def share(self, path: Path) -> None:
        """Put the clock into a file, where other processes read it
        (`shared`). Nothing may work yet."""
        path.write_bytes(self._cells)
        self._cells = _mapped(path)

    @classmethod
    def shared(cls, path: Path) -> Clock:
        """Return the clock that another process has put there. `wall` of both is the monotonic
        clock, which counts from the machine's start and is therefore the same in all processes."""
        clock = cls(0.0, 1.0)
        clock._cells = _mapped(path)
        return clock

    def _read(self) -> tuple[float, float, float, float, float, float]:
        while True:
            cells = _CELLS.unpack_from(self._cells)
            if not cells[6] % 2 and cells == _CELLS.unpack_from(self._cells):
                return cells[:6]

    @property
    def speed(self) -> float:
        """Virtual seconds per wall second while nothing works: the most there are."""
        return self._read()[3]

    def now(self) -> float:
        """Return the virtual time, epoch seconds."""
        start, since, speed, _, began, present = self._read()
        wall = self._wall()
        return min(start + (wall - since) * speed, present + wall - began)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Time passes at the speed `at_work` until all that are within have left."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._idle:
            self._workers += change
            if not self._workers:
                self._idle.notify_all()
            start, since, speed, full, began, present = self._read()
            if (new := self._at_work if self._workers else full) == speed:
                return
            wall = self._wall()
            self._write(start + (wall - since) * speed, wall, new, full, began, present)

    def _write(self, *values: float) -> None:
        count: int = _CELLS.unpack_from(self._cells)[6]
        struct.pack_into("<Q", self._cells, _CELLS.size - 8, count + 1)
        _CELLS.pack_into(self._cells, 0, *values, count + 1)
        struct.pack_into("<Q", self._cells, _CELLS.size - 8, count + 2)

    def jump(self, to: float) -> None:
        """Advance at once to that virtual time, epoch seconds, as soon as nothing works: no
        computation lasts for the time between. It neither goes back nor passes the real time."""
        with self._idle:
            self._idle.wait_for(lambda: not self._workers)
            _, _, speed, full, began, present = self._read()
            self._write(max(to, self.now()), self._wall(), speed, full, began, present)

    def wall_seconds(self, virtual_seconds: float) -> float:
        """Return how much real time such a virtual duration takes at least from now on."""
        start, since, speed, full, began, present = self._read()
        wall = self._wall()
        ahead, real = start + (wall - since) * speed, present + wall - began
        due = min(ahead, real) + virtual_seconds
        return max((due - ahead) / full, due - real)

    def sleep(self, virtual_seconds: float, wait: Callable[[float], object] = time.sleep) -> None:
        """Return when they have passed, or `wait` (given wall seconds) returns True, as
        an Event's does when set."""
        due = self.now() + virtual_seconds
        while (left := due - self.now()) > 0.0:
            if wait(max(_SHORTEST, self.wall_seconds(left))) is True:
                return

    def until_present(self) -> float:
        """Return the real seconds until the clock shows the real time if nothing works: 0.0 if it
        does, infinity if it never will."""
        _, _, _, speed, began, present = self._read()
        behind = present + self._wall() - began - self.now()
        if behind <= 0.0:
            return 0.0
        return behind / (speed - 1.0) if speed > 1.0 else math.inf

    def __call__(self) -> float:
        """Same as now(), because a clock is a parameter of type Callable[[], float]."""
        return self.now()


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, _CELLS.size)
    finally:
        os.close(descriptor)


class ManualClock:
    """Epoch seconds that advance only by `advance`."""

    def __init__(self, start: float) -> None:
        self._now = start
        self._repeated: dict[int, tuple[float, Callable[[], None]]] = {}

    def now(self) -> float:
        """Return the virtual time, epoch seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the time; it never goes back."""
        if seconds < 0:
            raise ValueError(f"{seconds} s: time does not go back")
        end = self._now + seconds
        while due := [(at, number) for number, (at, _) in self._repeated.items() if at <= end]:
            at, number = min(due)
            self._now = max(self._now, at)
            self._repeated[number][1]()
        self._now = max(self._now, end)

    @contextmanager
    def repeat(self, seconds: float, work: Callable[[], bool]) -> Iterator[None]:
        """Call `work` whenever so many seconds have passed inside the context, until it returns
        False: what a thread that waits does beside code that advances the clock."""
        number = 1 + max(self._repeated, default=0)

        def due() -> None:
            self._repeated[number] = (math.inf, due)  # a thread is not called while it works
            goes_on = work()
            if number in self._repeated:
                self._repeated[number] = (self._now + seconds if goes_on else math.inf, due)

        self._repeated[number] = (self._now + seconds, due)
        try:
            yield
        finally:
            self._repeated.pop(number, None)

    def __call__(self) -> float:
        """The same as now()."""
        return self._now
