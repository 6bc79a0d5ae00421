"""Whether an event is worth a look at the cluster now, rather than at the next scan.

What matters is a list of words in the policy (spec.webhook.reasons), which replaces the default one below. A word is
an Event's reason, or for audit events one of the names in AUDIT. A wake-up changes nothing by itself: the pass it
causes decides from a fresh snapshot. So the list errs on the side of looking, and the debounce keeps that cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chalicelib.handlers.webhook.event_parser import Audit, ClusterEvent

#: Event reasons that change what the planner would say (scheduler, node lifecycle, kubelet, taint manager, upstream).
EVENT_REASONS = (
    "FailedScheduling",  # a pod that fits nowhere
    "NotTriggerScaleUp",  # another autoscaler gave up on it
    "Preempted",  # a pod lost its place and will want another
    "Evicted",
    "TaintManagerEviction",
    "NodeNotReady",
    "NodeNotSchedulable",
    "NodeControllerEviction",
    "DeletingNode",
    "RemovingNode",
    "NodeShutdown",
)

_SCHEDULER = "system:kube-scheduler"


def _unschedulable(audit: Audit) -> bool:
    """The scheduler writes a pod's status only to say that it found no place for it, or one by preemption."""
    return audit.verb in ("patch", "update") and audit.resource == "pods/status" and audit.user == _SCHEDULER


def _created(audit: Audit) -> bool:
    """A new pod without a node; DaemonSet pods also come without one, which costs a look and no more."""
    return audit.verb == "create" and audit.resource == "pods" and audit.node_name == ""


def _evicted(audit: Audit) -> bool:
    return audit.verb == "create" and audit.resource == "pods/eviction"


def _node_deleted(audit: Audit) -> bool:
    return audit.verb in ("delete", "deletecollection") and audit.resource == "nodes"


AUDIT: dict[str, Callable[[Audit], bool]] = {
    "AuditPodUnschedulable": _unschedulable,
    "AuditPodCreated": _created,
    "AuditPodEvicted": _evicted,
    "AuditNodeDeleted": _node_deleted,
}

DEFAULT_REASONS = (*EVENT_REASONS, *AUDIT)

#: How this program names itself as the reporting instance of its own Events (kube/events.REPORTER, which is not
#: imported: the webhook needs no HTTP client).
OURSELVES = "outscaler"


def is_relevant(signal: ClusterEvent, reasons: Iterable[str]) -> bool:
    """Whether this event wakes the cluster up. reasons: the policy's list; empty means DEFAULT_REASONS."""
    wanted = frozenset(reasons) or frozenset(DEFAULT_REASONS)
    if signal.audit is not None:
        audit = signal.audit
        return audit.happened and any(word in wanted and holds(audit) for word, holds in AUDIT.items())
    return signal.reason in wanted and not _ours(signal)


def _ours(signal: ClusterEvent) -> bool:
    """Our own Events echo through the exporter; waking up on them would be talking to oneself."""
    return signal.component.startswith(OURSELVES) or signal.instance.startswith(OURSELVES)
