"""Taint and cordon, and their removal: one conditional write after one read,
however often others interfere.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.cluster import errors
from chalicelib.cluster.objects import add_taint, get_node, remove_soft_taint, remove_taint
from chalicelib.model.node import TO_BE_DELETED, Taint
from infra.emulators.scripted_http_server import HttpScript, Reply, Seen
from tests.unit.cluster.support import Waits, client, status

HARD = Taint(TO_BE_DELETED, "NoSchedule", "1700000000")
OTHER = {
    "key": "dedicated",
    "value": "db",
    "effect": "NoExecute",
    "timeAdded": "2026-11-21T07:30:19Z",
}
OURS = {"key": TO_BE_DELETED, "value": "1700000000", "effect": "NoSchedule"}
STALE = Reply(409, status(409, "Conflict", "the object has been modified"))
DONE = Reply(body={})


def node(*taints: dict[str, str], version: str = "7", cordoned: bool = False) -> Reply:
    spec: dict[str, Any] = {"providerID": "example://a"}
    if taints:
        spec["taints"] = list(taints)
    if cordoned:
        spec["unschedulable"] = True
    return Reply(
        body={"kind": "Node", "metadata": {"name": "n1", "resourceVersion": version}, "spec": spec}
    )


def patches(server: HttpScript) -> list[Any]:
    found: list[Seen] = [seen for seen in server.requests if seen.method == "PATCH"]
    assert all(seen.headers["content-type"] == "application/merge-patch+json" for seen in found)
    assert all(seen.path == "/api/v1/nodes/n1" for seen in server.requests)
    return [seen.json() for seen in found]


def test_kube_taint_and_cordon_are_one_write_against_the_version_read() -> None:
    with HttpScript([node(OTHER), DONE]) as server:
        add_taint(client(server), "n1", HARD, cordon=True)
    assert patches(server) == [
        {
            "metadata": {"resourceVersion": "7"},
            "spec": {"taints": [OTHER, OURS], "unschedulable": True},
        }
    ]


def test_kube_taint_without_a_cordon_leaves_scheduling_unchanged() -> None:
    with HttpScript([node(), DONE]) as server:
        add_taint(client(server), "n1", HARD, cordon=False)
    assert patches(server)[0]["spec"] == {"taints": [OURS]}


def test_kube_existing_taint_keeps_its_value() -> None:
    with HttpScript([node({**OURS, "value": "1600000000"}, cordoned=True)]) as server:
        add_taint(client(server), "n1", HARD, cordon=True)
    assert patches(server) == []


def test_kube_missing_cordon_is_added_to_an_existing_taint() -> None:
    with HttpScript([node(OURS), DONE]) as server:
        add_taint(client(server), "n1", HARD, cordon=True)
    assert patches(server)[0]["spec"] == {"unschedulable": True}


def test_kube_409_reads_again_and_keeps_the_foreign_change() -> None:
    waits = Waits()
    with HttpScript([node(), STALE, node(OTHER, version="8"), DONE]) as server:
        add_taint(client(server, sleep=waits), "n1", HARD, cordon=False)
    assert patches(server)[1] == {
        "metadata": {"resourceVersion": "8"},
        "spec": {"taints": [OTHER, OURS]},
    }
    assert len(waits.seconds) == 1


def test_kube_409_five_times_is_a_conflict() -> None:
    with HttpScript([node(), STALE] * 6) as server, pytest.raises(errors.Conflict):
        add_taint(client(server), "n1", HARD, cordon=False)
    assert len(patches(server)) == 5


def test_kube_taint_write_with_a_lost_answer_is_not_retried() -> None:
    with (
        HttpScript([node(), Reply(hang_up=True), node(), DONE]) as server,
        pytest.raises(errors.Unavailable),
    ):
        add_taint(client(server), "n1", HARD, cordon=False)
    assert len(patches(server)) == 1


def test_kube_removing_the_taint_also_uncordons() -> None:
    with HttpScript([node(OTHER, OURS, cordoned=True), DONE]) as server:
        assert remove_taint(client(server), "n1", TO_BE_DELETED, uncordon=True)
    assert patches(server)[0]["spec"] == {"taints": [OTHER], "unschedulable": None}


def test_kube_removing_the_last_taint_removes_the_list() -> None:
    with HttpScript([node(OURS, cordoned=True), DONE]) as server:
        assert remove_taint(client(server), "n1", TO_BE_DELETED, uncordon=False)
    assert patches(server)[0]["spec"] == {"taints": None}


def test_kube_cordon_without_our_taint_stays() -> None:
    with HttpScript([node(OTHER, cordoned=True)]) as server:
        assert not remove_taint(client(server), "n1", TO_BE_DELETED, uncordon=True)
    assert patches(server) == []


def test_kube_taint_of_an_absent_node_is_not_found() -> None:
    gone = Reply(404, status(404, "NotFound", 'nodes "n1" not found', name="n1", kind="nodes"))
    for act in (
        lambda c: add_taint(c, "n1", HARD, cordon=True),
        lambda c: remove_taint(c, "n1", "k", uncordon=True),
        lambda c: get_node(c, "n1"),
    ):
        with HttpScript([gone]) as server, pytest.raises(errors.NotFound, match="not found"):
            act(client(server))


# -- the annotation: the owner of a taint


def noted(
    *taints: dict[str, str], operation: str = "remove-1", cordoned: bool = False, **notes: str
) -> Reply:
    reply = node(*taints, cordoned=cordoned)
    assert isinstance(reply.body, dict)
    reply.body["metadata"]["annotations"] = {
        "keep": "me",
        "outscaler.dev/operation": operation,
        **notes,
    }
    return reply


CORDONED = {"outscaler.dev/cordoned": "true"}


def test_kube_taint_cordon_and_annotation_are_one_write() -> None:
    with HttpScript([node(), DONE]) as server:
        assert add_taint(client(server), "n1", HARD, cordon=True, operation="remove-1")
    assert patches(server) == [
        {
            "metadata": {
                "resourceVersion": "7",
                "annotations": {"outscaler.dev/operation": "remove-1", **CORDONED},
            },
            "spec": {"taints": [OURS], "unschedulable": True},
        }
    ]


def test_kube_existing_cordon_is_not_annotated_as_ours() -> None:
    with HttpScript([node(cordoned=True), DONE]) as server:
        add_taint(client(server), "n1", HARD, cordon=True, operation="remove-1")
    assert patches(server)[0]["metadata"]["annotations"] == {"outscaler.dev/operation": "remove-1"}


def test_kube_second_taint_of_a_node_writes_nothing() -> None:
    with HttpScript([noted(OURS, cordoned=True, **CORDONED)]) as server:
        assert not add_taint(client(server), "n1", HARD, cordon=True, operation="remove-1")
    assert patches(server) == []


def test_kube_leftover_taint_changes_owner_and_keeps_its_value() -> None:
    old = {**OURS, "value": "1600000000"}
    with HttpScript([noted(old, operation="remove-0", cordoned=True, **CORDONED), DONE]) as server:
        add_taint(client(server), "n1", HARD, cordon=True, operation="remove-1")
    assert patches(server)[0] == {
        "metadata": {"resourceVersion": "7", "annotations": {"outscaler.dev/operation": "remove-1"}}
    }


def test_kube_taint_cordon_and_annotation_are_removed_in_one_write() -> None:
    with HttpScript([noted(OTHER, OURS, cordoned=True, **CORDONED), DONE]) as server:
        assert remove_taint(
            client(server), "n1", TO_BE_DELETED, uncordon=False, operation="remove-1"
        )
    gone = {"outscaler.dev/operation": None, "outscaler.dev/cordoned": None}
    assert patches(server) == [
        {
            "metadata": {"resourceVersion": "7", "annotations": gone},
            "spec": {"taints": [OTHER], "unschedulable": None},
        }
    ]


def test_kube_cordon_not_named_by_the_annotation_stays() -> None:
    with HttpScript([noted(OURS, cordoned=True), DONE]) as server:
        remove_taint(client(server), "n1", TO_BE_DELETED, uncordon=True, operation="remove-1")
    assert patches(server)[0]["spec"] == {"taints": None}


def test_kube_annotation_of_another_operation_stays() -> None:
    with HttpScript([noted(OURS, operation="remove-2")]) as server:
        assert not remove_taint(
            client(server), "n1", TO_BE_DELETED, uncordon=True, operation="remove-1"
        )
    assert patches(server) == []


def test_kube_annotation_without_its_taint_is_cleared_with_its_cordon() -> None:
    with HttpScript([noted(OTHER, cordoned=True, **CORDONED), DONE]) as server:
        assert remove_taint(
            client(server), "n1", TO_BE_DELETED, uncordon=False, operation="remove-1"
        )
    assert patches(server)[0]["spec"] == {"unschedulable": None}


SOFT = Taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule", "1700000000")


def test_kube_soft_taints_are_separate_and_never_added_to_a_hard_taint() -> None:
    soft = {"key": SOFT.key, "value": SOFT.value, "effect": SOFT.effect}
    both = node(OTHER, soft, cordoned=True)
    with HttpScript([node(OTHER), DONE, both, DONE, node(OURS), node(OURS, soft)]) as server:
        api = client(server)
        assert add_taint(api, "n1", SOFT, cordon=False, unless=TO_BE_DELETED)
        assert remove_soft_taint(api, "n1", SOFT.key, unless=TO_BE_DELETED)
        assert not add_taint(api, "n1", SOFT, cordon=False, unless=TO_BE_DELETED)
        assert not remove_soft_taint(api, "n1", SOFT.key, unless=TO_BE_DELETED)
    assert [patch["spec"] for patch in patches(server)] == [
        {"taints": [OTHER, soft]},
        {"taints": [OTHER]},
    ]
