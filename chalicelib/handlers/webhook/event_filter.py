"""Decides whether an event triggers a reconcile now instead of at the next scan.

The relevant events are a list of words in the policy (spec.webhook.reasons), which replaces the default list below. A
word is an Event's reason, or for audit events one of the names in AUDIT. A wake-up changes nothing by itself: the pass
it causes decides from a fresh snapshot. The list therefore prefers a superfluous pass, and the debounce keeps that
cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chalicelib.handlers.webhook.event_parser import Audit, ClusterEvent

#: Event reasons that affect the plan (scheduler, node lifecycle, kubelet, taint manager, upstream).
EVENT_REASONS = (
    "FailedScheduling",  # a pod that fits no existing node
    "NotTriggerScaleUp",  # another autoscaler found no group for it
    "Preempted",  # a preempted pod needs another node
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
_NEW_FOR = 10.0  # seconds; the scheduler reports pods that still wait again and again


def _unschedulable(audit: Audit) -> bool:
    """Return whether the scheduler reports no node for the pod: it writes a pod's status only then, or after a
    preemption."""
    return audit.verb in ("patch", "update") and audit.resource == "pods/status" and audit.user == _SCHEDULER


def _created(audit: Audit) -> bool:
    """Return whether this is a new pod without a node. DaemonSet pods match, too, which costs only a superfluous
    pass."""
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

#: The reporting instance of Outscaler's own Events (kube/events.REPORTER, which is not imported: the webhook needs no
#: HTTP client).
OURSELVES = "outscaler"


def is_relevant(event: ClusterEvent, reasons: Iterable[str]) -> bool:
    """Return whether this event triggers a wake-up. reasons: the policy's list; empty means DEFAULT_REASONS."""
    wanted = frozenset(reasons) or frozenset(DEFAULT_REASONS)
    if event.audit is not None:
        audit = event.audit
        return audit.happened and any(word in wanted and holds(audit) for word, holds in AUDIT.items())
    return event.reason in wanted and not _ours(event)


def is_new_refusal(event: ClusterEvent, now: float) -> bool:
    """Return whether the scheduler has just found no node for a pod. A pass can use this event without waiting for
    others; it waits itself while such pods still arrive. Evictions come in numbers, and the last of them shows what is
    needed. An event that does not say when it occurred first counts as new."""
    refused = event.reason == "FailedScheduling" or (event.audit is not None and _unschedulable(event.audit))
    return refused and (not event.first or now - event.first <= _NEW_FOR)


def _ours(event: ClusterEvent) -> bool:
    """Return whether the event is Outscaler's own, which the exporter sends back; a wake-up for it would cause a
    loop."""
    return event.component.startswith(OURSELVES) or event.instance.startswith(OURSELVES)
