"""Which events trigger a reconcile pass."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.handlers.webhook_events import AUDIT, CORE, DEFAULT_REASONS, Audit, ClusterEvent, is_relevant, parse
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
        ("Scheduled", "default-scheduler", False),
        ("Pulled", "kubelet", False),
        ("NodeReady", "kubelet", False),
        ("failedscheduling", "default-scheduler", False),
        ("", "", False),
        ("FailedScheduling", "outscaler", False),
    ],
)
def test_event_filter_reasons_that_trigger_a_pass(reason: str, component: str, matter: bool) -> None:
    assert is_relevant(ClusterEvent(CORE, reason=reason, component=component), ()) is matter


def test_event_filter_recognizes_own_events_by_their_instance() -> None:
    ours = ClusterEvent(CORE, reason="NotTriggerScaleUp", component="cluster-autoscaler", instance="outscaler")
    assert not is_relevant(ours, ())


_SCHEDULER = "system:kube-scheduler"


@each_row(
    ("audit", "matter"),
    [
        (Audit("create", "pods", "someone", happened=True, node_name=""), True),
        (Audit("create", "pods", "someone", happened=True, node_name="n1"), False),  # a static or DaemonSet-like pod
        (Audit("create", "pods", "someone", happened=True, node_name=None), False),  # the audit level omits it
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
        "objectRef": {"resource": "pods", "namespace": "default", "name": "web-1", "apiVersion": "v1"},
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
