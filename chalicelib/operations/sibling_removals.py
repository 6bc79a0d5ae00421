"""Lets removals of one group share a request, where a vendor takes one change of a pool at a time
(OneChangeAtATime in providers/kit/base.py).

An operation has one node, and drains it by itself. At such a vendor only one of them may then send
its request, and the others would wait for a change of minutes each. The executor whose turn it is
therefore takes along all that are ready:

    a  drained ─► delete: at rest ─► claims b, c ─► checks b, c ─► one request for
       a, b, c ─► records b, c, a
    b  drained ─► delete: busy, waits ──┘                                     a, b, c: polled, each
                                                                              by itself
    c  drained ─► delete: busy, waits ──┘

Ready means that it waits at the step `delete`. Its claim is what makes the executor the only one
that may act for it, as for any step: with a watch of its own, extended with the executor's own
before each request, and recorded as an outcome of its own. After a crash between any two writes
each of them is taken over by itself, and its next attempt reads at the vendor what became of its
node. One that is not in the request, because it was given up in its last check or would be refused,
goes on as if it had not been claimed.

Removals that were planned together are ready within seconds of each other. The first therefore
waits a moment for the others (upstream's nodeDeletionBatcherInterval), and none waits for a drain.
When the change is over, its removals wake one that waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.operations.executor import Executor, StepMessage, send
from chalicelib.operations.ordering import deadline_of
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.senders import NotSent
from chalicelib.store.errors import OperationClaimed, OperationFinished, OperationNotDue

READY = "delete"
"""The step at which a removal waits for its turn at the vendor."""
_BEFORE = frozenset({"", "look", "taint", "recheck", "evict", "gone", "delay"})
MOST = 50
"""Maximum operations that join another."""
CLAIMING = 5.0
"""Seconds after which no further one is claimed, because the check of the first ones becomes
old."""
PLANNED_TOGETHER = 20.0
"""Seconds after its plan in which a removal without a drain becomes ready."""
RELEASED = 10.0
"""Seconds until one that was claimed in vain tries by itself."""


class Siblings:
    """See SiblingRemovals. operation: as claimed by the executor, which joins the others."""

    def __init__(
        self, operation: Operation, executor: Executor, options: Options, runtime: Runtime
    ) -> None:
        self._operation, self._executor, self._options, self._rt = (
            operation,
            executor,
            options,
            runtime,
        )
        self._claimed: dict[str, tuple[Operation, Outcome]] = {}

    def soon_ready(self, now: float) -> bool:
        """See SiblingRemovals. One that has been planned a moment ago is ready in a moment. One
        that is still polled belongs to the change that has just ended, and its end makes room for
        further removals. Both end by themselves, so the wait does."""
        return any(
            sibling.status.step == "poll"
            or (
                sibling.status.step in _BEFORE
                and 0.0 <= now - sibling.spec.created_at < PLANNED_TOGETHER
            )
            for sibling in self._open()
        )

    def claim_ready(self) -> Iterator[Operation]:
        """See SiblingRemovals. One whose deadline has passed is left to its own
        executor, which gives it up."""
        until = self._rt.clock() + CLAIMING
        for sibling in self._ready():
            now = self._rt.clock()
            if len(self._claimed) >= MOST or now >= until:
                return
            if (
                now >= deadline_of(sibling, self._options)
                or (claimed := self._executor.join(sibling)) is None
            ):
                continue
            status = claimed.status
            self.end_step(claimed, InProgress(RELEASED, status.step, status.data))
            self._rt.checkpoint("act:joined")
            if status.step == READY:
                yield claimed

    def end_step(self, operation: Operation, outcome: Outcome) -> None:
        """See SiblingRemovals."""
        self._claimed[operation.spec.id] = operation, outcome

    def outcomes(self) -> tuple[tuple[Operation, Outcome], ...]:
        """Return the operations that were claimed, with the outcomes to record."""
        return tuple(self._claimed.values())

    def wake_one(self) -> None:
        """See SiblingRemovals."""
        ready = self._ready()
        if not ready or any(sibling.status.due_at <= self._rt.clock() for sibling in ready):
            return
        cluster, name = ready[0].spec.cluster, ready[0].spec.id
        try:
            self._rt.store.operations.hasten(cluster, name)
        except (OperationClaimed, OperationFinished, OperationNotDue):
            return
        try:
            send(ready[0], StepMessage(cluster, name), 0.0, self._rt)
        except NotSent as error:  # its own message arrives later
            logger.warning("operation not woken", cluster=cluster, operation=name, **failure(error))

    def _open(self) -> list[Operation]:
        spec = self._operation.spec
        return [
            other
            for other in self._rt.store.operations.list_open(spec.cluster)
            if (other.spec.provider, other.spec.group) == (spec.provider, spec.group)
            and other.spec.kind is OperationKind.DELETE_NODES
            # its vendor may refuse it, and it does not wait for others
            and not other.spec.interrupted
            and other.spec.id != spec.id
        ]

    def _ready(self) -> list[Operation]:
        return [
            other
            for other in self._open()
            if other.status.step == READY and other.status.state is OperationState.WAITING
        ]
