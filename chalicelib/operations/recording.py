"""Reports passes and the steps and ends of operations: to the log, and through
chalicelib/journal to everything else.

Reporting follows the work: a pass is saved and sent, an operation's row is written. A failure to
report is therefore only logged; the facts are in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chalicelib.journal import carry_over
from chalicelib.journal.journal import failing_entry, recovered_entry
from chalicelib.journal.metric_values import is_braked
from chalicelib.journal.operation_events import OperationStep
from chalicelib.journal.recorder import (
    ClusterWriter,
    Recorder,
    record_failure,
    record_outcome,
    record_plan,
    record_step,
)
from chalicelib.model.errors import OutscalerError, published_name
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import Snapshot
from chalicelib.operations import removal_progress
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Metrics, Policy
from chalicelib.policy.timeouts import LARGEST
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.leases import PassFailure

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient
    from chalicelib.plan.state.cluster_state import ClusterState
    from chalicelib.store.leases import Lease


_UNEXPECTED = "unexpected; the function's log has the details"


class PassRecorder:
    """Reports one pass. The carry-over of the last pass comes with the lease, and this pass's
    carry-over is stored with it.

    left, decision, succeeded, failure: for Leases.release, for any result of the pass. read_scope:
    what the pass has read of the cluster. No method raises.
    """

    def __init__(self, policy: Policy, lease: Lease, runtime: Runtime) -> None:
        self._policy, self._token, self._rt, self._failure_before = (
            policy,
            lease.token,
            runtime,
            lease.failure,
        )
        self._before = carry_over.read(lease.carry_over)
        self._begun = runtime.clock()
        self._seconds: dict[str, float] = {}
        self.left, self.decision = lease.carry_over, lease.decision
        self.succeeded = False
        self.read_scope = ReadScope.FULL
        self.failure: PassFailure | None = None
        self._state: ClusterState | None = None

    def planned_with(self, state: ClusterState) -> None:
        """Note the state with which the decision is made."""
        self._state = state

    @contextmanager
    def timed(self, function: str) -> Iterator[None]:
        """Measure a part of the pass under its name in metrics; repeated parts add up."""
        begun = self._rt.clock()
        try:
            yield
        finally:
            self._seconds[function] = self._seconds.get(function, 0.0) + self._since(begun)

    def plan_saved(
        self, plan: Plan, snapshot: Snapshot, marks: Sequence[TaintUpdate], kube: KubeClient | None
    ) -> None:
        """Report a decision that was saved. kube None: this cluster must not be written to."""
        self.succeeded = True
        trouble: tuple[str, ...] = ()
        if self._failure_before is not None:
            with _contained("recovery not published", plan.cluster):
                now = self._rt.clock()
                self._rt.store.journal.append(
                    plan.cluster, recovered_entry(self._failure_before, self._begun, now)
                )
        with _contained("pass not published", plan.cluster):
            record = record_plan(
                plan,
                snapshot,
                self._recorder(kube),
                self._before,
                self.decision,
                seconds=self._timed(),
                marks=marks,
                state=self._state,
            )
            self.left, self.decision, trouble = (
                carry_over.write(record.left),
                record.decision,
                record.trouble,
            )
        self._state = None  # large
        logger.info(
            "pass",
            cluster=plan.cluster,
            plan=plan.id,
            token=self._token,
            grow=len(plan.scale_ups),
            remove=len(plan.removals),
            repair=len(plan.repairs),
            unneeded=len(plan.unneeded),
            gaps=len(plan.gaps),
            extra={"brake": True} if is_braked(plan) else None,
        )
        if trouble:
            logger.error(
                "pass published incompletely",
                cluster=plan.cluster,
                plan=plan.id,
                detail=list(trouble),
            )

    def plan_overtaken(self, error: Exception) -> None:
        """Count a pass that made no decision because other writers came
        first, which is not a failure."""
        with _contained("failure not published", self._policy.name):
            after = record_failure(
                self._policy.name, error, self._recorder(None), self._before, self._timed()
            )
            self.left = carry_over.write(after)

    def pass_failed(self, error: Exception) -> None:
        """Count a pass that failed. The first of consecutive failures gets
        an entry in the journal."""
        self.plan_overtaken(error)
        # The text of an unexpected error may contain anything; the text of an
        # OutscalerError is safe to show.
        request = getattr(error, "asked", "")
        message = (
            ": ".join(filter(None, (request, str(error))))
            if isinstance(error, OutscalerError)
            else _UNEXPECTED
        )
        self.succeeded = False
        self.failure = PassFailure.after(
            self._failure_before, published_name(error), message, self._begun
        )
        if self._failure_before is None:
            with _contained("failure not published", self._policy.name):
                self._rt.store.journal.append(
                    self._policy.name, failing_entry(self.failure, self._rt.clock())
                )

    def _recorder(self, kube: KubeClient | None) -> Recorder:
        board = None if kube is None else ClusterWriter(lambda: kube)
        return Recorder(
            journal=self._rt.store.journal,
            board=board,
            clock=self._rt.clock,
            options=self._policy.options,
            emit=self._rt.emit,
            metrics=self._policy.metrics,
            ring=self._rt.store.gauge_rings,
            ended=self._rt.store.operations.ended,
        )

    def _timed(self) -> dict[str, float]:
        return {"main": self._since(self._begun), **self._seconds}

    def _since(self, begun: float) -> float:
        return max(0.0, self._rt.clock() - begun)  # the clock may have been set back


def record_operation(
    old_operation: Operation,
    new_operation: Operation,
    outcome: Outcome,
    policy: Policy | None,
    connect: Callable[[], KubeClient] | None,
    runtime: Runtime,
) -> None:
    """Report a step or the end of an operation. old_operation, new_operation: the operation around
    the step. connect: to the cluster for events; None: this cluster must not be written to."""
    spec = new_operation.spec
    recorder = Recorder(
        journal=runtime.store.journal,
        board=ClusterWriter(connect) if connect else None,
        clock=runtime.clock,
        emit=runtime.emit,
        options=policy.options if policy else Options(),
        metrics=policy.metrics if policy else Metrics.SUMMARY,
    )
    trouble = ""
    with _contained("not told", spec.cluster, operation=spec.id):
        if isinstance(outcome, InProgress):
            trouble = _record_step(old_operation, new_operation, outcome, recorder)
        else:
            trouble = _record_end(new_operation, outcome, policy, recorder, runtime)
    if trouble:
        what = "operation published incompletely"
        logger.warning(what, cluster=spec.cluster, operation=spec.id, detail=trouble)


def _record_step(
    old_operation: Operation, new_operation: Operation, outcome: InProgress, recorder: Recorder
) -> str:
    spec = new_operation.spec
    logger.info(
        "step",
        cluster=spec.cluster,
        operation=spec.id,
        group=spec.group,
        step=old_operation.status.step,
        next=outcome.step,
        after=outcome.after,
        note=outcome.note,
    )
    why = ""  # nodes of a removal or restart are given up in this step
    if (
        spec.kind in (OperationKind.DELETE_NODES, OperationKind.RESTART_NODE)
        and outcome.step == "undo"
    ):
        nodes = removal_progress.read(new_operation).nodes.values()
        why = "; ".join(sorted({node.kept for node in nodes if node.kept and not node.undone}))
    return record_step(OperationStep(old_operation, outcome, why), recorder)


def _record_end(
    operation: Operation,
    outcome: Succeeded | Failed,
    policy: Policy | None,
    recorder: Recorder,
    runtime: Runtime,
) -> str:
    spec, status = operation.spec, operation.status
    logger.info(
        "operation ended",
        cluster=spec.cluster,
        operation=spec.id,
        group=spec.group,
        state=status.state.value,
        outcome=status.outcome,
    )
    unready: frozenset[str] = frozenset()
    if spec.kind is OperationKind.DELETE_NODES and isinstance(outcome, Succeeded):
        last_pass = runtime.store.scan_states.last(spec.cluster)
        unready = frozenset(carry_over.read(last_pass.carry_over).unready) if last_pass else unready
    # The group's maximum that it was planned with; for an operation of an
    # earlier version, the policy's.
    planned = status.data.get(LARGEST, "")
    if planned.isascii() and planned.isdecimal():
        largest: int | None = int(planned[:12])
    else:
        groups = policy.node_groups if policy else ()
        largest = next(
            (g.max for g in groups if (g.provider, g.id) == (spec.provider, spec.group)), None
        )
    return record_outcome(operation, outcome, recorder, largest=largest, unready=unready)


@contextmanager
def _contained(what: str, cluster: str, operation: str = "") -> Iterator[None]:
    """Log any failure inside the context and suppress it."""
    try:
        yield
    except Exception as error:
        logger.exception(what, cluster=cluster, operation=operation, **failure(error))
