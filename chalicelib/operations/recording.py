"""Reports the steps and ends of operations: to the log, and through chalicelib/journal to
everything else.

Reporting follows the work: the operation's row is written. A failure to report is therefore only
logged; the facts are in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from chalicelib.journal import carry_over
from chalicelib.journal.operation_events import OperationStep
from chalicelib.journal.recorder import ClusterWriter, Recorder, record_outcome, record_step
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.operations import removal_progress
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Metrics, Policy
from chalicelib.policy.timeouts import LARGEST
from chalicelib.runtime.log import contained, logger
from chalicelib.runtime.runtime import Runtime

if TYPE_CHECKING:
    from chalicelib.cluster.client import KubeClient


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
    with contained("not told", spec.cluster, operation=spec.id):
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
