"""Fault schedule: single faults at a future I/O, fault periods, and faults of messages.

A rule schedules every fault in advance, and the functions' I/O counts it down. A run is therefore
its list of steps, and a shorter list (hypothesis shrinks it) is a shorter run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from infra.emulators.aws_faults import busy, cancelled
from infra.emulators.kube.request import Response, answer
from infra.emulators.virtual_sqs import Message

KILL, FAIL, LOSE, PAUSE = "kill", "fail", "lose", "pause"
TABLE, API, QUEUE, VENDOR = "table", "api", "queue", "vendor"


_REFUSALS = (
    (429, "TooManyRequests"),
    (500, "InternalError"),
    (503, "ServiceUnavailable"),
    (504, "Timeout"),
    (0, ""),
)
_PAGE = (200, "<html>a proxy's page</html>")


class Io(msgspec.Struct, frozen=True):
    """One I/O of a function. door: TABLE, API, QUEUE or VENDOR; verb: its method; what: path or
    queue; writes: whether it changes something."""

    function: str
    door: str
    verb: str
    what: str = ""
    writes: bool = False


class Strike(msgspec.Struct):
    """A fault at the `countdown`-th matching I/O, once.

    kind: KILL the process; FAIL instead of the call; LOSE the answer of a call that was made;
    PAUSE: the process is paused for `seconds` while other processes work and `meanwhile` happens.
    after: after the call instead of before it. door, function: "" for any; writing: only calls that
    change something.
    """

    kind: str
    countdown: int
    door: str = ""
    function: str = ""
    writing: bool = False
    after: bool = False
    seconds: float = 0.0
    meanwhile: Callable[[], None] | None = None

    def meets(self, io: Io) -> bool:
        """Counts down at a matching I/O; whether the countdown has ended."""
        met = (
            self.door in ("", io.door)
            and self.function in ("", io.function)
            and (io.writes or not self.writing)
        )
        if not met:
            return False
        self.countdown -= 1
        return self.countdown <= 0


class Writes(Strike):
    """A strike that hits nothing. It lists the writes of all functions."""

    made: list[str] = msgspec.field(default_factory=list)

    def meets(self, io: Io) -> bool:
        """See Strike."""
        if io.writes:
            self.made.append(f"{io.function} {io.verb} {io.what}")
        return False


class Weather:
    """strikes: scheduled faults; down, flaky: door -> until when it fails always, or sometimes;
    tricks: for the next sent messages.

    skew: the maximum error, in seconds, of a process clock. admission: by path and body of a
    change, the refusal by a webhook, which stays when faults stop. dice: for flaky doors and skews.
    """

    def __init__(self, clock: Callable[[], float], dice: Random) -> None:
        self._clock, self._dice = clock, dice
        self.strikes: list[Strike] = []
        self.down: dict[str, float] = {}
        self.flaky: dict[str, float] = {}
        self.tricks: list[Callable[[Message], Sequence[Message]]] = []
        self.skew = 0.0
        self.admission: Callable[[str, bytes], Response | None] = lambda *_: None

    def clear(self) -> None:
        """Stops all faults."""
        self.strikes, self.down, self.flaky, self.tricks, self.skew = [], {}, {}, [], 0.0

    def new_skew(self) -> float:
        """The clock error of the next process."""
        return round(self._dice.uniform(-self.skew, self.skew), 1) if self.skew else 0.0

    def out(self, io: Io) -> bool:
        """Whether this call fails because its door is down or flaky."""
        now = self._clock()
        if self.down.get(io.door, 0.0) > now:
            return True
        return self.flaky.get(io.door, 0.0) > now and self._dice.random() < 0.3

    def before(self, io: Io) -> Strike | None:
        """The fault at this call, if any; one of kind LOSE, or with
        `after`, applies after the call."""
        for strike in self.strikes:
            if strike.meets(io):
                self.strikes.remove(strike)
                return strike
        return None

    def refusal(self, io: Io) -> Response:
        """A failure of the cluster's API: overloaded, internal error, an
        unexpected answer, or no answer."""
        code, reason = self._dice.choice((*_REFUSALS, _PAGE))
        if not code:
            return Response(0, close=True)
        if code == 200:
            return Response(200, {"Content-Type": "text/html"}, reason.encode())
        return answer(
            code,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": reason,
                "code": code,
                "message": "the weather",
            },
        )

    def table_refusal(self, method: str) -> BaseException:
        """A failure of the table: throttled, transaction conflict, or internal error."""
        if method == "transact_write_items" and self._dice.random() < 0.3:
            return cancelled("TransactionConflict")
        return busy(self._dice.choice(("ThrottlingException", "InternalServerError")))

    def lost(self, made: Response) -> Response:
        """What arrives of a lost answer: nothing, or half of it."""
        if self._dice.random() < 0.5 or not made.body:
            return Response(0, close=True)
        return Response(made.status, made.headers, made.body, truncate=len(made.body) // 2)

    def tamper(self, message: Message) -> Sequence[Message]:
        """VirtualQueues.tamper: the fate of a sent message."""
        return self.tricks.pop(0)(message) if self.tricks else (message,)
