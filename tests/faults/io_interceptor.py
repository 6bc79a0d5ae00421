"""Intercepts every I/O of a function on the table, the cluster's API and the queues, to refuse it,
cut it off or kill the process.

A process is one invocation. Its clock may be wrong, it lives as long as Lambda allows, and it
may be paused in the middle of a call while other processes work. This test is about its
actions after it resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from infra.emulators.aws_faults import Life
from tests.faults.fault_schedule import API, FAIL, KILL, LOSE, PAUSE, Io, Strike, Weather

T = TypeVar("T")

LIFETIME = {"reconcile": 120.0}
"""Seconds until Lambda ends an invocation (.chalice/config.json); 60 for the others."""


@dataclass
class Process:
    """One invocation. operation: the one in its message. began: true time. skew: error of its
    clock, seconds. counts: number of its I/O calls. first_message: number of messages that were
    sent before it. disturbed: whether a fault other than its death hit it. waiting: pods that it
    read while they waited for a node. seen: by node, when it last read the node's pods, and which
    they were."""

    function: str
    operation: str
    began: float
    skew: float = 0.0
    counts: int = 0
    first_message: int = 0
    disturbed: bool = False
    waiting: set[str] = field(default_factory=set)
    seen: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)

    @property
    def ends(self) -> float:
        """The time at which Lambda ends it."""
        return self.began + LIFETIME.get(self.function, 60.0)


class IoInterceptor:
    """The interceptor of one runtime. life: of its process; now: true time;
    process: the running invocation.

    pause: lets other processes run while this one is paused.
    """

    def __init__(
        self,
        weather: Weather,
        life: Life,
        now: Callable[[], float],
        process: Callable[[], Process | None],
        pause: Callable[[Strike], None],
        tell: Callable[[str], None],
    ) -> None:
        self._weather, self.life, self._now, self._process = weather, life, now, process
        self._pause, self._tell = pause, tell

    @property
    def function(self) -> str:
        """The name of the running function."""
        process = self._process()
        return process.function if process else ""

    def through(
        self, io: Io, call: Callable[[], T], refuse: Callable[[], T], lose: Callable[[T], T]
    ) -> T:
        """Makes the call or injects the fault. refuse: the answer of a failed call; lose:
        the replacement for an answer that never arrives. Both usually raise. Raises
        Killed where the process dies."""
        process = self._process()
        if process is None:  # no process: an observer
            return call()
        process.counts += 1
        self._alive(process)
        strike = self._weather.before(io)
        if strike is not None:
            self._tell(
                f"{strike.kind} {'after' if strike.after else 'at'} {io.door} {io.verb} "
                f"{io.what[-80:]}"
            )
            if not strike.after and strike.kind != LOSE:
                self._strike(strike, process, io)
        if self._weather.out(io) or (strike is not None and strike.kind == FAIL):
            process.disturbed |= io.door != API
            return refuse()
        answer = call()
        if strike is not None and strike.kind == LOSE:
            process.disturbed |= io.door != API
            return lose(answer)
        if strike is not None and strike.after:
            self._strike(strike, process, io)
        return answer

    def _strike(self, strike: Strike, process: Process, io: Io) -> None:
        if strike.kind == KILL:
            self.die(f"{io.door}:{io.verb}{':after' if strike.after else ''}")
        if strike.kind == PAUSE:
            process.disturbed = True
            self._pause(strike)
            self._alive(process)

    def _alive(self, process: Process) -> None:
        self.life.check()
        if self._now() >= process.ends:
            self.die("timeout")

    def die(self, place: str) -> None:
        """Raises Killed, now and at every further I/O."""
        self.life.died_at = place
        self.life.check()


class Doors:
    """A client whose methods pass the interceptor. reads: methods that change nothing. refuse,
    lose: by the method's name, the error of a failed call, and of one whose answer is lost."""

    def __init__(
        self,
        client: Any,
        gate: IoInterceptor,
        door: str,
        reads: frozenset[str],
        refuse: Callable[[str], BaseException],
        lose: Callable[[str], BaseException],
    ) -> None:
        self._client, self._gate, self._door, self._reads = client, gate, door, reads
        self._refuse, self._lose = refuse, lose

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            def refuse() -> Any:
                raise self._refuse(name)

            def lose(_: Any) -> Any:
                raise self._lose(name)

            io = Io(
                self._gate.function,
                self._door,
                name,
                str(args[0]) if args else "",
                name not in self._reads,
            )
            return self._gate.through(io, lambda: found(*args, **kwargs), refuse, lose)

        return call
