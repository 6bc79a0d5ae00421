"""Reports one pass: to the log and to traces, and through chalicelib/journal to everything else.

Reporting follows the work: the pass is saved, its operations are sent. A failure to report is
therefore only logged; the facts are in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chalicelib.journal import carry_over
from chalicelib.journal.journal import failing_entry, recovered_entry
from chalicelib.journal.metric_values import is_braked
from chalicelib.journal.recorder import ClusterWriter, Recorder, record_failure, record_plan
from chalicelib.model.errors import OutscalerError, published_name
from chalicelib.model.plan import Plan, TaintUpdate
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import contained, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.leases import Lease, PassFailure

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient
    from chalicelib.plan.state.cluster_state import ClusterState

MEASURED = {"read": "updateClusterState", "plan": "autoscaling"}
"""Stages that are measured, by their names in traces -> their names in metrics."""
_UNEXPECTED = "unexpected; the function's log has the details"


class PassReport:
    """Reports one pass. The carry-over of the last pass comes with the lease, and this pass's
    carry-over is stored with it.

    left, decision, succeeded, failure: for Leases.release, for any result of the pass. read_scope:
    what the pass has read of the cluster. No method raises.
    """

    def __init__(self, policy: Policy, lease: Lease, runtime: Runtime) -> None:
        self._policy, self._rt = policy, runtime
        self._token = lease.token
        self._failure_before = lease.failure
        self._before = carry_over.read(lease.carry_over)
        self._begun = runtime.clock()
        self._seconds: dict[str, float] = {}
        self.left, self.decision = lease.carry_over, lease.decision
        self.succeeded = False
        self.read_scope = ReadScope.FULL
        self.failure: PassFailure | None = None
        self._state: ClusterState | None = None
        self.read_catalogues: Callable[[], bool] | None = None
        """What is to be read once the lease is free; returns whether another pass can use it."""

    def planned_with(self, state: ClusterState) -> None:
        """Note the state with which the decision is made."""
        self._state = state

    @contextmanager
    def stage(self, name: str, **about: str) -> Iterator[None]:
        """Trace a stage of the pass, and measure it if metrics know it; repeated stages add up.
        about: more of it for the trace."""
        begun = self._rt.clock()
        try:
            with self._rt.tracing.part(name, cluster=self._policy.name, **about):
                yield
        finally:
            if name in MEASURED:
                metric = MEASURED[name]
                self._seconds[metric] = self._seconds.get(metric, 0.0) + self._since(begun)

    def plan_saved(
        self, plan: Plan, snapshot: Snapshot, marks: Sequence[TaintUpdate], kube: KubeClient | None
    ) -> None:
        """Report a decision that was saved. kube None: this cluster must not be written to."""
        self.succeeded = True
        trouble: tuple[str, ...] = ()
        if self._failure_before is not None:
            with contained("recovery not published", plan.cluster):
                now = self._rt.clock()
                self._rt.store.journal.append(
                    plan.cluster, recovered_entry(self._failure_before, self._begun, now)
                )
        with contained("pass not published", plan.cluster):
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

    def overtaken(self, error: Exception) -> None:
        """Count a pass that made no decision because other writers came
        first, which is not a failure."""
        with contained("failure not published", self._policy.name):
            after = record_failure(
                self._policy.name, error, self._recorder(None), self._before, self._timed()
            )
            self.left = carry_over.write(after)

    def failed(self, error: Exception) -> None:
        """Count a pass that failed. The first of consecutive failures gets
        an entry in the journal."""
        self.overtaken(error)
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
            with contained("failure not published", self._policy.name):
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
