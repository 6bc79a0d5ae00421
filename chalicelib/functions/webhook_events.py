"""Parses the webhook's payload, and decides whether an event triggers a reconcile now
instead of at the next scan.

The payload is Kubernetes Events and audit events, in every form in which exporters post them.
Exporters marshal typed Go objects, so `kind` and `apiVersion` are often missing (the API server
omits them in list items, too); the fields then identify the type. Only the fields that decide
whether an event is relevant are decoded. One malformed event among many is listed as a gap; if no
event can be read, that is an error. CloudEvents of a vendor's event bus are read, too
(docs/events.md "Alibaba EventBridge"): of them, the type counts as the reason.

The relevant events are a list of words in the policy (spec.webhook.reasons), which replaces the
default list below. A word is an Event's reason, or for audit events one of the names in
AUDIT_REASONS. A wake-up changes nothing by itself: the pass it causes decides from a fresh
snapshot. The list therefore prefers a superfluous pass, and the debounce keeps that cheap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import instant

CORE = "v1"
EVENTS = "events.k8s.io/v1"
AUDIT = "audit.k8s.io/v1"
CLOUD = "cloudevents.io/v1"

_LISTS = frozenset({"EventList", "List"})
_SINGLE = (
    "post an Event (v1, events.k8s.io/v1), an EventList (also audit.k8s.io/v1), a CloudEvent "
    "(1.0), or an array of them"
)
_LONGEST_TEXT = 256  # characters of a CloudEvent's attribute
_PATH = re.compile(r" - at `\$(.*?)`\Z")


class ClusterEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The relevant fields of one event. form: the apiVersion it was read as. component: the
    reporting component. first: epoch seconds of its first occurrence, 0.0 if it does not say."""

    form: str
    reason: str = ""
    component: str = ""
    instance: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    audit: Audit | None = None
    first: float = 0.0


class Audit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts of an audit event: verb, resource with subresource (`pods/eviction`), user, and
    whether the request succeeded.

    node_name: spec.nodeName of the object sent, None where the audit level
    did not record the object.
    """

    verb: str
    resource: str
    user: str
    happened: bool
    node_name: str | None = None


class ParsedEvents(msgspec.Struct, frozen=True):
    """The events that were read, and one line for each event that was not."""

    signals: tuple[ClusterEvent, ...]
    gaps: tuple[str, ...] = ()


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    kind: str | None = None
    api_version: str | None = None
    items: list[msgspec.Raw] | None = None
    involved_object: msgspec.Raw = msgspec.Raw(b"")
    regarding: msgspec.Raw = msgspec.Raw(b"")
    audit_id: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="auditID")
    specversion: msgspec.Raw = msgspec.Raw(b"")


class _Reference(msgspec.Struct, frozen=True):
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None


class _Source(msgspec.Struct, frozen=True):
    component: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    reason: str | None = None
    involved_object: _Reference | None = None
    regarding: _Reference | None = None
    source: _Source | None = None
    deprecated_source: _Source | None = None
    reporting_component: str | None = None
    reporting_controller: str | None = None
    reporting_instance: str | None = None
    event_time: Any = None
    first_timestamp: Any = None
    deprecated_first_timestamp: Any = None


class _ObjectRef(msgspec.Struct, frozen=True):
    resource: str | None = None
    subresource: str | None = None
    namespace: str | None = None
    name: str | None = None


class _User(msgspec.Struct, frozen=True):
    username: str | None = None


class _AuditStatus(msgspec.Struct, frozen=True):
    code: int | None = None


class _BindingSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class _Sent(msgspec.Struct, frozen=True):
    spec: _BindingSpec | None = None


class _Audit(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    stage: str | None = None
    object_ref: _ObjectRef | None = None
    user: _User | None = None
    response_status: _AuditStatus | None = None
    request_object: _Sent | None = None


class _CloudEvent(msgspec.Struct, frozen=True):
    """The context attributes of a CloudEvent in structured JSON mode; its data is not read."""

    specversion: str
    type: str
    source: str
    subject: str | None = None
    time: Any = None


def parse(body: bytes) -> ParsedEvents:
    """Parse a webhook's body; raises BadInput when it is not an event at all, or when
    none of several can be read."""
    if body.lstrip()[:1] == b"[":
        return _parse_list(_decoded(body, list[msgspec.Raw], "body"), "body", "")
    envelope = _decoded(body, _Envelope, "body")
    if envelope.kind in _LISTS:
        return _parse_list(envelope.items or [], "body.items", envelope.api_version or "")
    if envelope.items is not None:
        raise BadInput("body.kind", f"{envelope.kind!r} with items", _SINGLE)
    return ParsedEvents((_parse_event(body, envelope, "body", ""),))


def _parse_list(items: list[msgspec.Raw], place: str, form: str) -> ParsedEvents:
    signals: list[ClusterEvent] = []
    gaps: list[str] = []
    for index, item in enumerate(items):
        item_place = f"{place}[{index}]"
        try:
            signals.append(
                _parse_event(item, _decoded(item, _Envelope, item_place), item_place, form)
            )
        except BadInput as error:
            if len(items) == 1:
                raise
            gaps.append(str(error))
    if gaps and not signals:
        raise BadInput(place, f"none of {len(gaps)} events can be read ({gaps[0]})", _SINGLE)
    return ParsedEvents(tuple(signals), tuple(gaps))


def _parse_event(
    raw: msgspec.Raw | bytes, envelope: _Envelope, place: str, list_form: str
) -> ClusterEvent:
    if envelope.specversion and not (envelope.kind or envelope.api_version):
        return _cloud_event(_decoded(raw, _CloudEvent, place), place)
    marks = (
        (CORE, envelope.involved_object),
        (EVENTS, envelope.regarding),
        (AUDIT, envelope.audit_id),
    )
    unmarked = AUDIT if list_form == AUDIT else ""
    form = envelope.api_version or next((form for form, field in marks if field), unmarked)
    if envelope.kind not in (None, "", "Event") or form not in (CORE, EVENTS, AUDIT):
        what = f"{envelope.api_version or 'no apiVersion'} {envelope.kind or 'no kind'}"
        raise BadInput(place, f"{what} is not an Event", _SINGLE)
    if form == AUDIT:
        return _audit_event(_decoded(raw, _Audit, place))
    event: _Event = _decoded(raw, _Event, place)
    about = event.involved_object or event.regarding or _Reference()
    source = event.source or event.deprecated_source or _Source()
    # Exporters write times in several ways; one that cannot be read is none.
    times = (event.first_timestamp, event.deprecated_first_timestamp, event.event_time)
    instants = [instant(time) for time in times if isinstance(time, str)]
    return ClusterEvent(
        form=form,
        reason=event.reason or "",
        component=event.reporting_component or event.reporting_controller or source.component or "",
        instance=event.reporting_instance or "",
        kind=about.kind or "",
        namespace=about.namespace or "",
        name=about.name or "",
        first=min((at for at in instants if at > 0), default=0.0),
    )


def _cloud_event(event: _CloudEvent, place: str) -> ClusterEvent:
    if not event.specversion.startswith("1."):
        raise BadInput(
            f"{place}.specversion", f"{event.specversion[:_LONGEST_TEXT]!r} is not 1.0", _SINGLE
        )
    return ClusterEvent(
        form=CLOUD,
        reason=event.type[:_LONGEST_TEXT],
        component=event.source[:_LONGEST_TEXT],
        name=(event.subject or "")[:_LONGEST_TEXT],
        first=instant(event.time) if isinstance(event.time, str) else 0.0,
    )


def _audit_event(audit: _Audit) -> ClusterEvent:
    about = audit.object_ref or _ObjectRef()
    code = audit.response_status.code if audit.response_status else None
    sent = audit.request_object
    return ClusterEvent(
        AUDIT,
        kind=about.resource or "",
        namespace=about.namespace or "",
        name=about.name or "",
        audit=Audit(
            verb=audit.verb,
            resource="/".join(part for part in (about.resource, about.subresource) if part),
            user=(audit.user.username if audit.user else None) or "",
            happened=audit.stage == "ResponseComplete" and (code or 200) < 300,
            node_name=None if sent is None else (sent.spec.node_name if sent.spec else None) or "",
        ),
    )


def _decoded(raw: msgspec.Raw | bytes, shape: Any, place: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        text = str(error)
        path = _PATH.search(text)
        where = place + path.group(1) if path else place
        raise BadInput(where, _PATH.sub("", text), _SINGLE) from None


#: Event reasons that affect the plan, each with its meaning for docs/events.md: of the scheduler,
#: node lifecycle, kubelet, taint manager and upstream; interruptions as vendors' programs report
#: them; problems of nodes as node-problem-detector names them. A recommendation to leave a node is
#: none of them: it is far more frequent than interruptions, and nothing depends on a second.
EVENT_REASONS: Mapping[str, str] = MappingProxyType(
    {
        "FailedScheduling": "the scheduler found no place for a pod",
        "NotTriggerScaleUp": "another autoscaler gave up on it",
        "Preempted": "a pod lost its place",
        "Evicted": "the same, by the kubelet or a drain",
        "TaintManagerEviction": "the same, by a taint",
        "NodeNotReady": "a node became unavailable",
        "NodeNotSchedulable": "a node was cordoned",
        "NodeControllerEviction": "pods of a lost node are being evicted",
        "DeletingNode": "a Node is being deleted",
        "RemovingNode": "the same, from the node controller",
        "NodeShutdown": "a node shuts down",
        "InstanceToBeTerminated": (
            "Alibaba takes a spot node back; from ACK's node-problem-detector"
        ),
        "ReceivedReclaimNodeNotification": (
            "Huawei takes a spot node back; from CCE's node-problem-detector"
        ),
        "SpotInterruption": (
            "AWS takes a spot node back; from the AWS node termination handler, as the next four"
        ),
        "ScheduledEvent": "AWS will stop the machine for maintenance",
        "ASGLifecycle": "its Auto Scaling group ends the machine",
        "SQSTermination": "the same, as read from a queue",
        "StateChange": "the machine is stopping",
        "ecs:Instance:PreemptibleInstanceInterruption": (
            "Alibaba takes a spot machine back; from [EventBridge](#alibaba-eventbridge)"
        ),
        "Rebooted": "a node has started again",
        "KubeletUnhealthy": (
            "a kubelet does not work; from node-problem-detector, as the next three"
        ),
        "ContainerdUnhealthy": "the container runtime does not work",
        "DockerHung": "the kernel hangs",
        "FilesystemIsReadOnly": "a file system became read-only",
    }
)

_SCHEDULER = "system:kube-scheduler"
_NEW_FOR = 10.0  # seconds; the scheduler reports pods that still wait again and again


def _unschedulable(audit: Audit) -> bool:
    """Return whether the scheduler reports no node for the pod: it writes a pod's status only
    then, or after a preemption."""
    return (
        audit.verb in ("patch", "update")
        and audit.resource == "pods/status"
        and audit.user == _SCHEDULER
    )


def _created(audit: Audit) -> bool:
    """Return whether this is a new pod without a node. DaemonSet pods match, too, which costs
    only a superfluous pass."""
    return audit.verb == "create" and audit.resource == "pods" and audit.node_name == ""


class AuditReason(msgspec.Struct, frozen=True):
    """A change that an audit event reports. holds: whether it reports this one."""

    meaning: str
    holds: Callable[[Audit], bool]


AUDIT_REASONS: Mapping[str, AuditReason] = MappingProxyType(
    {
        "AuditPodUnschedulable": AuditReason("the scheduler wrote a pod's status", _unschedulable),
        "AuditPodCreated": AuditReason("a pod without a node was created", _created),
        "AuditPodEvicted": AuditReason(
            "a pod was evicted",
            lambda audit: audit.verb == "create" and audit.resource == "pods/eviction",
        ),
        "AuditNodeDeleted": AuditReason(
            "a Node was deleted",
            lambda audit: (
                audit.verb in ("delete", "deletecollection") and audit.resource == "nodes"
            ),
        ),
    }
)

DEFAULT_REASONS = (*EVENT_REASONS, *AUDIT_REASONS)

#: The reporting instance of Outscaler's own Events (kube/events.REPORTER, which is not imported:
#: the webhook needs no HTTP client).
OURSELVES = "outscaler"


def is_relevant(event: ClusterEvent, reasons: Iterable[str]) -> bool:
    """Return whether this event triggers a wake-up. reasons: the policy's list;
    empty means DEFAULT_REASONS."""
    relevant = frozenset(reasons) or frozenset(DEFAULT_REASONS)
    if event.audit is not None:
        audit = event.audit
        return audit.happened and any(
            word in relevant and row.holds(audit) for word, row in AUDIT_REASONS.items()
        )
    # Outscaler's own events, which the exporter sends back, would cause a loop.
    own = event.component.startswith(OURSELVES) or event.instance.startswith(OURSELVES)
    return event.reason in relevant and not own


def is_new_refusal(event: ClusterEvent, now: float) -> bool:
    """Return whether the scheduler has just found no node for a pod. A pass can use this event
    without waiting for others; it waits itself while such pods still arrive. Evictions come in
    numbers, and the last of them shows what is needed. An event that does not say when it occurred
    first counts as new."""
    refused = event.reason == "FailedScheduling" or (
        event.audit is not None and _unschedulable(event.audit)
    )
    return refused and (not event.first or now - event.first <= _NEW_FOR)
