"""Evictions: every answer of a real server means accepted, blocked or gone; all others are
errors.
"""

from __future__ import annotations

import pytest

from chalicelib.cluster import errors
from chalicelib.cluster.objects import (
    Accepted,
    Blocked,
    EvictResult,
    PodGone,
    evict,
    get_pod,
    pods_on_node,
)
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.cases import each_row
from tests.unit.cluster.support import client, status

BUDGET = "The disruption budget web needs 4 healthy pods and has 4 currently"
BY_BUDGET = status(
    429,
    "TooManyRequests",
    "Cannot evict pod as it would violate the pod's disruption budget.",
    causes=[{"reason": "DisruptionBudget", "message": BUDGET}],
)
TWO_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
OTHER_UID = (
    "the UID in the precondition (0) does not match the UID in record (1). The object might have "
    "been deleted"
)
OTHER_UID_IN_STORE = "Precondition failed: UID in precondition: 0, UID in object meta: 1"
PLAIN = {"Content-Type": "text/plain"}
GRANTED = Reply(201, {"kind": "Status", "status": "Success"})


@each_row(
    ("reply", "expected"),
    [
        (GRANTED, Accepted()),
        (Reply(429, BY_BUDGET), Blocked(BUDGET)),
        (Reply(429, BY_BUDGET, {"Retry-After": "10"}), Blocked(BUDGET, 10.0)),
        (
            Reply(429, "Too many requests, please try again later.", {**PLAIN, "Retry-After": "1"}),
            Blocked(
                "HTTP 429 (42 bytes of text/plain), which is not a Status of the Kubernetes API",
                1.0,
            ),
        ),
        (Reply(500, status(500, message=TWO_BUDGETS)), Blocked(TWO_BUDGETS)),
        (Reply(404, status(404, "NotFound", 'pods "a" not found')), PodGone()),
        (
            Reply(
                409,
                status(409, "Conflict", f'Operation cannot be fulfilled on Pod "a": {OTHER_UID}'),
            ),
            PodGone(),
        ),
        (
            Reply(
                409,
                status(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on pods "a": {OTHER_UID_IN_STORE}',
                ),
            ),
            PodGone(),
        ),
        (
            Reply(409, status(409, "Conflict", "the object has been modified")),
            Blocked("the object has been modified"),
        ),
    ],
)
def test_kube_eviction_meaning_of_every_answer(reply: Reply, expected: EvictResult) -> None:
    with HttpScript([reply]) as server:
        assert evict(client(server), "shop", "a", "uid-1", 30) == expected
    assert len(server.requests) == 1


def test_kube_eviction_names_exactly_this_pod_by_uid() -> None:
    with HttpScript([GRANTED]) as server:
        evict(client(server), "shop", "web-1", "uid-1", 30)
    assert server.requests[0].path == "/api/v1/namespaces/shop/pods/web-1/eviction"
    assert server.requests[0].json() == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web-1", "namespace": "shop"},
        "deleteOptions": {"preconditions": {"uid": "uid-1"}, "gracePeriodSeconds": 30},
    }


def test_kube_eviction_sends_a_grace_of_zero_and_omits_none() -> None:
    with HttpScript([GRANTED, GRANTED]) as server:
        evict(client(server), "shop", "a", "u", 0)
        evict(client(server), "shop", "a", "u", None)
    # JSON has no type
    options = [seen.json()["deleteOptions"] for seen in server.requests]  # type: ignore[index]
    assert options == [
        {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 0},
        {"preconditions": {"uid": "u"}},
    ]


@each_row(
    ("reply", "cls"),
    [
        (Reply(403, status(403, "Forbidden")), errors.Forbidden),
        (Reply(503, status(503)), errors.Unavailable),
        (Reply(hang_up=True), errors.Unavailable),
        (Reply(200, "<html>a proxy's page</html>"), errors.Unavailable),
        (Reply(200, {}), errors.Unavailable),
        (Reply(200, {"kind": "Status", "status": "Failure"}), errors.Unavailable),
        (Reply(422, status(422, "Invalid")), errors.Invalid),
    ],
)
def test_kube_eviction_answer_unrelated_to_the_pod_is_an_error(
    reply: Reply, cls: type[errors.ClusterError]
) -> None:
    with HttpScript([reply, GRANTED]) as server, pytest.raises(cls):
        evict(client(server), "shop", "a", "u", 30)
    assert len(server.requests) == 1


def test_kube_drain_reads_the_pods_of_one_node_from_etcd() -> None:
    with HttpScript([Reply(body={"kind": "PodList", "items": []})]) as server:
        assert b"PodList" in pods_on_node(client(server), "node,1")
    assert server.requests[0].query == {
        "fieldSelector": r"spec.nodeName=node\,1,status.phase!=Succeeded,status.phase!=Failed"
    }


def test_kube_reads_one_pod() -> None:
    with HttpScript([Reply(body={"kind": "Pod"})]) as server:
        get_pod(client(server), "shop", "a/../b")
    assert server.requests[0].path == "/api/v1/namespaces/shop/pods/a%2F..%2Fb"
