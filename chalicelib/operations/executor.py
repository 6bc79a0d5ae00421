"""How long an executor may work on an operation, and who continues when it dies. The claim itself
is in store/operations.py.

    message ─► watches sent ─► claim ─► step ─► claim ─► step … ─► the message for the next step
                  │              └ 24 s ┘ extended before a request that it might not outlast
                  └ 25 s later ─► the claim of this executor is over ──► taken over
                                  it goes on ──────────────────────────► the watch again, at its end
                                  the next step is due later ──────────► the watch again, 25 s after
                                  that anything else ───────────────────────► nothing

A claim is short, so that an operation whose executor was killed continues within 30 seconds. The
watch is a delayed message that is sent before the first claim of an invocation: SQS delivers it
never early, and whether or not this process still lives. A second watch follows 25 s after
the first: the executor that receives the first may be killed before it has sent a watch of its own,
and SQS would not deliver that message again for minutes.

The clocks of two functions may differ. The watch therefore says when it arrives by the clock that
has set the claim's end, and only that clock counts.

An executor sends a request to the cluster or the vendor only while its claim lasts. It asks the
clock before each of them, and extends a claim of which little is left. A process that was frozen
meanwhile finds that it has to extend a claim that another executor has taken over, and sends
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from chalicelib.model.operation import Operation, OperationState
from chalicelib.net.sockets import allowed_by
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import ActMessage, act_queue, decode_act, encode
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import MAX_DELAY, NotSent, whole_delay
from chalicelib.store.errors import OperationClaimed, OperationFinished, OperationNotDue

CLAIM = 24.0
"""Seconds of a claim."""
LONGEST = 60.0
"""Seconds that an invocation lasts where Lambda does not say (.chalice/config.json)."""
WATCH_AFTER = math.ceil(CLAIM) + 1
"""Seconds after which the watch of an invocation arrives."""
SHORTEST = 12.0
"""Seconds that are left of a claim, below which it is extended before a request."""
MARGIN = 1.0
"""Seconds by which a request ends before the claim."""
RECORDING = 4.0
"""Seconds that an invocation keeps for recording a step, in which it sends no request."""
PLANNER = "planner"
"""The sender of an operation's first watch."""
EARLY = 20.0
"""Seconds by which a message may arrive before its step is due, between two clocks that are wrong
by 10 seconds each. An earlier message is a duplicate."""


class StepMessage(ActMessage, frozen=True, omit_defaults=True):
    """The message for an operation's next step. attempt: the one that sent
    it; 0: sent by other code.

    watch: for a watch, the executor that sent it. spare: for its second one. at: when it is
    delivered, by the clock of that executor. instead_of: the claim that this executor found to be
    over, and was about to take over."""

    attempt: int = 0
    watch: str = ""
    at: float = 0.0
    instead_of: str = ""
    spare: bool = False


def decode(body: bytes | str) -> StepMessage:
    """Return the message; raises BadInput."""
    message = decode_act(body)
    try:
        return msgspec.json.decode(body, type=StepMessage)
    except msgspec.ValidationError:  # fields of another sender
        return StepMessage(message.cluster, message.operation)


def send(operation: Operation, message: ActMessage, delay: float, runtime: Runtime) -> None:
    """Send a message about the operation. Raises NotSent."""
    runtime.sender.send(act_queue(operation.spec.provider), encode(message), whole_delay(delay))


class Executor:
    """One invocation, and its claims of one operation. seconds: that it may still last."""

    def __init__(self, runtime: Runtime, seconds: float = LONGEST) -> None:
        self._rt, self._name, self._claims = runtime, runtime.owner(), 0
        self._ends = runtime.clock() + seconds
        self._working: dict[str, tuple[Operation, float]] = {}  # by id, with the end of the claim

    def begin(self, message: StepMessage) -> Operation | None:
        """Claim the operation, or find that there is nothing to do now.
        Raises StoreError, NotSent."""
        self._rt.checkpoint("act:received")
        before = self._rt.store.operations.get(message.cluster, message.operation)
        if before is None or not before.is_open:
            self._log_nothing(message, before.status.state.value if before else "unknown")
            return None
        if before.status.state is OperationState.RUNNING:
            over = (
                self._is_over(message, before)
                if message.watch
                else self._rt.store.operations.is_abandoned(before)
            )
            if not over:
                self._log_nothing(message, f"claimed by {before.status.claimed_by}")
                return None
        elif before.status.due_at > self._rt.clock():
            self._too_early(message, before)
            return None
        self._watch(before)
        return self.claim(before)

    @contextmanager
    def working(self, operation: Operation) -> Iterator[None]:
        """Limit what is done inside the context to the time of the claim, and of the claims of
        operations that join. Every request to a cluster or a vendor may raise OperationClaimed,
        OperationNotDue or OperationFinished: another executor has taken one of them over."""
        self._working = {operation.spec.id: (operation, operation.status.claimed_until)}

        def seconds() -> float:
            now = self._rt.clock()
            for name, (claimed, until) in list(self._working.items()):
                if until - now < SHORTEST and until < self._ends:
                    ttl = min(CLAIM, max(0.0, self._ends - now))
                    self._working[name] = claimed, self._rt.store.operations.extend(claimed, ttl)
            return (
                min(
                    min(until for _, until in self._working.values()) - MARGIN,
                    self._ends - RECORDING,
                )
                - now
            )

        with allowed_by(seconds):
            yield

    def join(self, old_operation: Operation) -> Operation | None:
        """Claim a waiting operation before its time, for a step that this executor does for several
        operations at once; None where another executor has it, or it is over. Raises StoreError."""
        try:
            self._rt.store.operations.hasten(old_operation.spec.cluster, old_operation.spec.id)
        except (OperationClaimed, OperationFinished, OperationNotDue):
            return None
        self._watch(old_operation)
        claimed = self.claim(old_operation)
        if claimed is not None:
            self._working[claimed.spec.id] = claimed, claimed.status.claimed_until
        return claimed

    def claim(self, old_operation: Operation) -> Operation | None:
        """Claim the operation for a step that is due; None where another executor has it."""
        self._claims += 1
        owner, now = f"{self._name}.{self._claims}", self._rt.clock()
        ttl = min(CLAIM, max(0.0, self._ends - now))
        operations, name = (
            self._rt.store.operations,
            (old_operation.spec.cluster, old_operation.spec.id),
        )
        try:
            if old_operation.status.state is OperationState.RUNNING:
                return operations.take_over(old_operation, owner, ttl)
            return operations.claim(*name, owner, ttl)
        except (OperationClaimed, OperationFinished, OperationNotDue) as error:
            self._log_nothing(ActMessage(*name), str(error))
            return None

    def _is_over(self, message: StepMessage, old_operation: Operation) -> bool:
        """Return whether the claim that a watch was sent for is over. If its executor has extended
        it, or claimed the operation again for a further step, the watch is sent once more."""
        by, until = old_operation.status.claimed_by, old_operation.status.claimed_until
        if message.instead_of and message.instead_of == _claim_of(old_operation):
            return True  # its sender has died before it took over
        if by.rpartition(".")[0] != message.watch:
            return False
        if until <= message.at:
            return True
        after = min(MAX_DELAY, math.ceil(until - message.at))
        send(
            old_operation, msgspec.structs.replace(message, at=message.at + after), after, self._rt
        )
        return False

    def _watch(self, operation: Operation) -> None:
        """Send the messages that look after this executor. Without them the
        tick's sweeper does, later."""
        now, spec = self._rt.clock(), operation.spec
        message = StepMessage(
            spec.cluster, spec.id, watch=self._name, instead_of=_claim_of(operation)
        )
        try:
            for spare in (False, True):
                after = 2 * WATCH_AFTER if spare else WATCH_AFTER
                send(
                    operation,
                    msgspec.structs.replace(message, at=now + after, spare=spare),
                    after,
                    self._rt,
                )
        except NotSent as error:
            what = "executor not watched"
            logger.warning(
                what, cluster=message.cluster, operation=message.operation, **failure(error)
            )
        self._rt.checkpoint("act:watched")

    def _watch_next(self, message: StepMessage, operation: Operation) -> None:
        """Send a watch once more, for the executor of the next step: it may be killed before it has
        sent its own. Once that step has begun, this watch is of no use any more."""
        status, now = operation.status, self._rt.clock()
        if message.spare or message.attempt not in (0, status.attempt):
            return
        after = min(MAX_DELAY, math.ceil(max(0.0, status.due_at - now)) + WATCH_AFTER)
        again = msgspec.structs.replace(message, attempt=status.attempt, at=now + after)
        send(operation, again, after, self._rt)

    def _too_early(self, message: StepMessage, operation: Operation) -> None:
        """Send the message on, unless the message for the next step is known to be under way. This
        one is then a duplicate, and re-sending duplicates would multiply them."""
        status, now = operation.status, self._rt.clock()
        if message.watch:
            self._watch_next(message, operation)
            return
        arrival = status.sent_at + min(MAX_DELAY, max(0.0, status.due_at - status.sent_at))
        awaited = message.attempt == status.attempt
        not_a_duplicate = (
            awaited if message.attempt else not status.sent_at or now >= arrival - EARLY
        )
        if not_a_duplicate:
            send(operation, next_message(operation), status.due_at - now, self._rt)

    @staticmethod
    def _log_nothing(message: ActMessage, why: str) -> None:
        logger.info(
            "nothing to do", cluster=message.cluster, operation=message.operation, detail=why
        )


def _claim_of(operation: Operation) -> str:
    """Return what identifies a running operation's claim; "" for an operation without one."""
    status = operation.status
    return f"{status.claimed_by} until {status.claimed_until!r}" if status.claimed_by else ""


def send_first(operation: Operation, runtime: Runtime) -> None:
    """Send the message of an operation that is planned and saved, and its watch: its first executor
    may be killed before it has sent its own. Without the watch the tick's sweeper looks after the
    operation. Raises NotSent, StoreError."""
    spec = operation.spec
    send(operation, ActMessage(spec.cluster, spec.id), 0, runtime)
    runtime.checkpoint("reconcile:sent")
    watch = StepMessage(spec.cluster, spec.id, watch=PLANNER, at=runtime.clock() + WATCH_AFTER)
    try:
        send(operation, watch, WATCH_AFTER, runtime)
    except NotSent as error:
        logger.warning(
            "operation not watched", cluster=spec.cluster, operation=spec.id, **failure(error)
        )
    runtime.store.operations.mark_sent(spec.cluster, spec.id, runtime.clock())


def next_message(operation: Operation) -> StepMessage:
    """Return the message for the next step, as sent by the operation's present attempt."""
    return StepMessage(operation.spec.cluster, operation.spec.id, operation.status.attempt)
