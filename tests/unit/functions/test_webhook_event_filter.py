"""Which events trigger a reconcile pass."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.functions.webhook_events import (
    AUDIT,
    CLOUD,
    CORE,
    DEFAULT_REASONS,
    Audit,
    ClusterEvent,
    is_new_refusal,
    is_relevant,
    parse,
)
from tests.cases import each_row


@each_row(
    ("reason", "component", "matter"),
    [
        ("FailedScheduling", "default-scheduler", True),
        ("FailedScheduling", "my-scheduler", True),
        ("NotTriggerScaleUp", "cluster-autoscaler", True),
        ("NodeNotReady", "node-controller", True),
        ("NodeNotReady", "kubelet", True),
        ("Evicted", "kubelet", True),
        ("Preempted", "default-scheduler", True),
        ("TaintManagerEviction", "taint-eviction-controller", True),
        ("RemovingNode", "node-controller", True),
        ("InstanceToBeTerminated", "ack-node-problem-detector", True),
        ("ReceivedReclaimNodeNotification", "node-problem-detector", True),
        ("SpotInterruption", "aws-node-termination-handler", True),
        ("ScheduledEvent", "aws-node-termination-handler", True),
        ("RebalanceRecommendation", "aws-node-termination-handler", False),
        ("KubeletUnhealthy", "kubelet-custom-plugin-monitor", True),
        ("Scheduled", "default-scheduler", False),
        ("Pulled", "kubelet", False),
        ("NodeReady", "kubelet", False),
        ("failedscheduling", "default-scheduler", False),
        ("", "", False),
        ("FailedScheduling", "outscaler", False),
    ],
)
def test_event_filter_reasons_that_trigger_a_pass(
    reason: str, component: str, matter: bool
) -> None:
    assert is_relevant(ClusterEvent(CORE, reason=reason, component=component), ()) is matter


def test_event_filter_recognizes_own_events_by_their_instance() -> None:
    ours = ClusterEvent(
        CORE, reason="NotTriggerScaleUp", component="cluster-autoscaler", instance="outscaler"
    )
    assert not is_relevant(ours, ())


_SCHEDULER = "system:kube-scheduler"


@each_row(
    ("audit", "matter"),
    [
        (Audit("create", "pods", "someone", happened=True, node_name=""), True),
        # a static or DaemonSet-like pod
        (Audit("create", "pods", "someone", happened=True, node_name="n1"), False),
        # the audit level omits it
        (Audit("create", "pods", "someone", happened=True, node_name=None), False),
        (Audit("create", "pods", "someone", happened=False, node_name=""), False),
        (Audit("patch", "pods/status", _SCHEDULER, happened=True), True),
        (Audit("patch", "pods/status", "system:node:n1", happened=True), False),
        (Audit("create", "pods/eviction", "someone", happened=True), True),
        (Audit("create", "pods/eviction", "someone", happened=False), False),  # refused by a budget
        (Audit("delete", "nodes", "someone", happened=True), True),
        (Audit("deletecollection", "nodes", "someone", happened=True), True),
        (Audit("delete", "pods", "someone", happened=True), False),
        (Audit("get", "nodes", "someone", happened=True), False),
    ],
)
def test_event_filter_audit_events_that_trigger_a_pass(audit: Audit, matter: bool) -> None:
    assert is_relevant(ClusterEvent(AUDIT, audit=audit), ()) is matter


@each_row(
    ("sent", "matter"),
    [
        ({"spec": {"containers": []}}, True),  # the API server omits an empty nodeName
        ({"spec": {"nodeName": ""}}, True),
        ({"spec": {"nodeName": None}}, True),
        ({"metadata": {"name": "web-1"}}, True),
        ({"spec": {"nodeName": "n1"}}, False),
        (None, False),  # level Metadata: whether the pod has a node is not known
    ],
)
def test_event_filter_posted_audit_event_of_a_new_pod_triggers_a_pass(
    sent: dict[str, Any] | None, matter: bool
) -> None:
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": "create",
        "user": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "objectRef": {
            "resource": "pods",
            "namespace": "default",
            "name": "web-1",
            "apiVersion": "v1",
        },
        "responseStatus": {"metadata": {}, "code": 201},
        **({} if sent is None else {"requestObject": {"kind": "Pod", "apiVersion": "v1", **sent}}),
    }
    (signal,) = parse(msgspec.json.encode(event)).signals
    assert is_relevant(signal, ()) is matter


def test_event_filter_list_of_the_policy_replaces_the_default() -> None:
    deleted = ClusterEvent(AUDIT, audit=Audit("delete", "nodes", "someone", happened=True))
    failed = ClusterEvent(CORE, reason="FailedScheduling")
    assert is_relevant(failed, ("FailedScheduling",))
    assert not is_relevant(deleted, ("FailedScheduling",))
    assert is_relevant(deleted, ("AuditNodeDeleted",))
    assert not is_relevant(failed, ("AuditNodeDeleted",))
    assert len(set(DEFAULT_REASONS)) == len(DEFAULT_REASONS)


INTERRUPTION = {
    "specversion": "1.0",
    "type": "ecs:Instance:PreemptibleInstanceInterruption",
    "source": "acs.ecs",
    "subject": "acs:ecs:cn-hangzhou:1:instance/i-1",
    "time": "2026-11-21T07:20:54Z",
    "data": {"instanceId": "i-1", "action": "delete"},
}


def test_cloud_event_is_read_by_its_type() -> None:
    (event,) = parse(msgspec.json.encode(INTERRUPTION)).signals
    assert event == ClusterEvent(
        CLOUD,
        reason="ecs:Instance:PreemptibleInstanceInterruption",
        component="acs.ecs",
        name="acs:ecs:cn-hangzhou:1:instance/i-1",
        first=1_795_245_654.0,
    )
    assert is_relevant(event, ())
    assert not is_relevant(event, ["FailedScheduling"])
    assert not is_new_refusal(event, event.first)


@each_row(
    ("changes", "matter"),
    [
        ({"type": "ecs:Instance:StateChange"}, False),
        ({"source": "outscaler"}, False),
        ({"data": None, "subject": None, "time": 7}, True),
        ({"data": "text", "unknown": [1, 2]}, True),
        ({"type": "ecs:Instance:PreemptibleInstanceInterruption" + "x" * 100_000}, False),
    ],
)
def test_cloud_event_that_triggers_a_pass(changes: dict[str, Any], matter: bool) -> None:
    (event,) = parse(msgspec.json.encode({**INTERRUPTION, **changes})).signals
    assert is_relevant(event, ()) is matter
    assert len(event.reason) <= 256


def test_cloud_events_in_an_array_are_read_by_themselves() -> None:
    parsed = parse(
        msgspec.json.encode([INTERRUPTION, {"specversion": "1.0"}, {**INTERRUPTION, "type": "x"}])
    )
    assert [is_relevant(event, ()) for event in parsed.signals] == [True, False]
    assert len(parsed.gaps) == 1


def test_event_of_the_cluster_is_none_of_a_bus() -> None:
    mixed = {
        "apiVersion": "v1",
        "kind": "Event",
        "specversion": "1.0",
        "reason": "FailedScheduling",
    }
    (event,) = parse(msgspec.json.encode(mixed)).signals
    assert (event.form, event.reason) == (CORE, "FailedScheduling")
