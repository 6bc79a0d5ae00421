"""Counter increments for a step or the end of an operation, and the closed lists of their labels
(docs/reference/reporting.md "Metrics").

Each name and value that is counted stays in the cluster's ledger permanently. A label value therefore comes from a list
that is known in advance; a vendor's own code is never one (it is a field of the log line and in the journal).
"""

from __future__ import annotations

from chalicelib.kube.errors import ClusterError
from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import ABANDONED, Failed, Succeeded
from chalicelib.providers.errors import ProviderError
from chalicelib.record.metrics import key
from chalicelib.record.operation_events import OperationStep, kept
from chalicelib.store.errors import StoreError

OF_PROVIDERS = frozenset(kind.__name__ for kind in ProviderError.__subclasses__())
OF_CLUSTERS = frozenset(f"Cluster{kind.__name__}" for kind in ClusterError.__subclasses__()) | {"ClusterError"}
REASONS = OF_PROVIDERS | OF_CLUSTERS | {"DeadlineExceeded", "NotStarted", ABANDONED, "timeout"}

#: The first match decides what an exception counts as.
ERRORS: tuple[tuple[type[BaseException], str], ...] = (
    (ClusterError, "apiCallError"),
    (ProviderError, "cloudProviderError"),
    (BadInput, "configurationError"),
    (StoreError, "transientError"),
    (BaseException, "internalError"),
)


def known_reason(cls: str) -> str:
    """Return the class of an error as a label: one of REASONS, or Other."""
    return cls if cls in REASONS else "Other"


def of_error(error: BaseException) -> dict[str, float]:
    """Return the increments for a pass that failed."""
    return {key("errors_total", type=next(name for kind, name in ERRORS if isinstance(error, kind))): 1.0}


def of_step(step: OperationStep) -> dict[str, float]:
    """Return the increments for evictions: granted ones at once; refused ones, which are retried, when the drain gives
    up on them."""
    refused = step.outcome.refused if step.gives_up else ()
    counts = {"succeeded": len(step.outcome.evicted), "failed": len(refused)}
    return {
        key("evicted_pods_total", eviction_result=result): float(count) for result, count in counts.items() if count
    }


def of_end(
    operation: Operation, outcome: Succeeded | Failed, unready: frozenset[str] = frozenset()
) -> dict[str, float]:
    """Return the increments for an operation that is over. unready: nodes that were not ready when their removal was
    planned.

    An operation that Outscaler cancelled itself is not a failure and counts nothing.
    """
    if isinstance(outcome, Failed):
        return _failed(operation, outcome)
    if operation.spec.kind is OperationKind.SCALE_UP:
        return {key("scaled_up_nodes_total"): float(max(0, operation.spec.to_size - operation.spec.from_size))}
    if operation.spec.kind is OperationKind.DELETE_INSTANCES:
        return {key("old_unregistered_nodes_removed_count"): float(len(operation.spec.targets))}
    if operation.spec.kind is OperationKind.DELETE_NODES:
        return _removed(operation, outcome, unready)
    return {}


def _removed(operation: Operation, outcome: Succeeded, unready: frozenset[str]) -> dict[str, float]:
    """Label a removed node: an unready node is unready; a ready one is underutilized if it was drained, otherwise empty
    (docs/reference/reporting.md "Removal labels")."""
    counts: dict[str, float] = {}
    for target in operation.spec.targets:
        if not kept(outcome, target.node):
            reason = "unready" if target.node in unready else "underutilized" if target.evict else "empty"
            series = key("scaled_down_nodes_total", reason=reason)
            counts[series] = counts.get(series, 0.0) + 1.0
    return counts


def _failed(operation: Operation, outcome: Failed) -> dict[str, float]:
    if outcome.error_class == ABANDONED:
        return {}
    counts = {key("failed_operations_total", kind=operation.spec.kind.value): 1.0}
    if operation.spec.kind is OperationKind.SCALE_UP:
        counts[key("failed_scale_ups_total", reason=known_reason(outcome.error_class))] = 1.0
    kind = (
        "apiCallError"
        if outcome.error_class in OF_CLUSTERS
        else "cloudProviderError"
        if outcome.error_class in OF_PROVIDERS
        else ""
    )
    return counts | ({key("errors_total", type=kind): 1.0} if kind else {})
