"""What counters grow by when an operation takes a step or ends (state.md §12), and the closed lists of their labels.

Each name and value that is counted is kept for good in the cluster's ledger. So a value comes from a list that is known
beforehand; a vendor's own code never is one (it is a field of the log line and in the journal).
"""

from __future__ import annotations

from chalicelib.kube.errors import ClusterError
from chalicelib.model.errors import BadInput
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.providers.errors import ProviderError
from chalicelib.record.metrics import key
from chalicelib.record.operation_events import OperationStep, kept
from chalicelib.store.errors import StoreError

ABANDONED = "Abandoned"
OF_PROVIDERS = frozenset(kind.__name__ for kind in ProviderError.__subclasses__())
OF_CLUSTERS = frozenset(f"Cluster{kind.__name__}" for kind in ClusterError.__subclasses__()) | {"ClusterError"}
REASONS = OF_PROVIDERS | OF_CLUSTERS | {"DeadlineExceeded", "NotStarted", ABANDONED, "timeout"}

#: The first that matches: what an exception counts as.
ERRORS: tuple[tuple[type[BaseException], str], ...] = (
    (ClusterError, "apiCallError"),
    (ProviderError, "cloudProviderError"),
    (BadInput, "configurationError"),
    (StoreError, "transientError"),
    (BaseException, "internalError"),
)


def known_reason(cls: str) -> str:
    """The class of an error as a label: one of REASONS, or Other."""
    return cls if cls in REASONS else "Other"


def of_error(error: BaseException) -> dict[str, float]:
    """A pass that failed."""
    return {key("errors_total", type=next(name for kind, name in ERRORS if isinstance(error, kind))): 1.0}


def of_step(step: OperationStep) -> dict[str, float]:
    """Evictions: granted ones at once; refused ones, which are asked again, when the drain gives up on them."""
    refused = step.outcome.refused if step.gives_up else ()
    counts = {"succeeded": len(step.outcome.evicted), "failed": len(refused)}
    return {
        key("evicted_pods_total", eviction_result=result): float(count) for result, count in counts.items() if count
    }


def of_end(
    operation: Operation, outcome: Succeeded | Failed, unready: frozenset[str] = frozenset()
) -> dict[str, float]:
    """An operation that is over. unready: nodes that were not ready when their removal was planned.

    One that we called off ourselves is nobody's failure and counts nothing.
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
    """state.md §12: an unready node is unready; a ready one is underutilized if it was drained, else empty."""
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
