"""Events have upstream's form, and a repeated event is posted once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chalicelib.cluster import errors
from chalicelib.cluster.objects import post_event
from infra.emulators.scripted_http_server import HttpScript, Reply
from tests.cases import each_row
from tests.unit.cluster.support import client, status

POD = {"kind": "Pod", "name": "web-1", "uid": "u1", "apiVersion": "v1"}
NOW = 1795246259.5


def post(server: HttpScript, **changes: Any) -> None:
    said: dict[str, Any] = {
        "namespace": "shop",
        "involved": POD,
        "reason": "TriggeredScaleUp",
        "type_": "Normal",
        "now": NOW,
        "message": "pod triggered scale-up: [{g1 1->2 (max: 5)}]",
    }
    post_event(client(server), **(said | changes))


def test_kube_event_has_the_form_of_upstreams_recorder() -> None:
    with HttpScript([Reply(201, {})]) as server:
        post(server)
    seen = server.requests[0]
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/shop/events")
    event: Any = seen.json()
    name = event["metadata"].pop("name")
    assert re.fullmatch(r"web-1\.[0-9a-f]{16}", name)
    assert abs(int(name.removeprefix("web-1."), 16) / 1e9 - NOW) < 0.01
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "shop"},
        "involvedObject": {**POD, "namespace": "shop"},
        "reason": "TriggeredScaleUp",
        "message": "pod triggered scale-up: [{g1 1->2 (max: 5)}]",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-11-21T07:30:59Z",
        "lastTimestamp": "2026-11-21T07:30:59Z",
        "source": {"component": "cluster-autoscaler"},
        "reportingComponent": "cluster-autoscaler",
        "reportingInstance": "outscaler",
    }


def test_kube_event_on_a_node_is_in_the_default_namespace() -> None:
    with HttpScript([Reply(201, {})]) as server:
        post(server, namespace="", involved={"kind": "Node", "name": "n1", "uid": "n1"})
    event: Any = server.requests[0].json()
    assert server.requests[0].path == "/api/v1/namespaces/default/events"
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "n1",
    }


def names(server: HttpScript) -> list[str]:
    # JSON has no type
    return [seen.json()["metadata"]["name"] for seen in server.requests]  # type: ignore[index]


def test_kube_event_name_is_equal_for_repeats_and_differs_for_other_events() -> None:
    twice = Reply(409, status(409, "AlreadyExists", "events already exists"))
    with HttpScript([Reply(201, {}), twice, Reply(201, {})]) as server:
        post(server)
        post(server)
        post(server, reason="NotTriggerScaleUp")
    first, second, third = names(server)
    assert first == second != third


def test_kube_event_long_texts_are_truncated() -> None:
    with HttpScript([Reply(201, {})]) as server:
        post(server, message="x" * 5000, involved={**POD, "name": "a" * 236 + "-" + "b" * 16})
    event: Any = server.requests[0].json()
    assert len(event["message"]) == 1024
    assert re.fullmatch(r"a{236}\.[0-9a-f]{16}", event["metadata"]["name"])


@each_row(
    "reply", [Reply(403, status(403)), Reply(hang_up=True), Reply(409, status(409, "Conflict"))]
)
def test_kube_event_that_cannot_be_posted_is_a_cluster_error(reply: Reply) -> None:
    with HttpScript([reply]) as server, pytest.raises(errors.ClusterError):
        post(server)
