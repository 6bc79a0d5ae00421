"""Tests of raising and lowering sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.clusterapi.api import CapiApi
from chalicelib.providers.clusterapi.models import FORGOTTEN_AFTER, CapiAnnotations
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from tests.providers.clusterapi.management import Management, fill, finalized, management, operation
from tests.providers.clusterapi.objects import (
    bounds,
    deployment,
    leaving,
    machine,
    machine_set,
    node,
)

SCALE = "machinedeployments/md-0/scale"


def grow(start: int, end: int, **more: Any) -> Any:
    return operation(OperationKind.SCALE_UP, start, end, **more)


def shrink(start: int, end: int) -> Any:
    return operation(OperationKind.DECREASE_TARGET, start, end)


def failed(outcome: object) -> tuple[str, str]:
    assert isinstance(outcome, Failed), outcome
    return outcome.error_class, outcome.message


def test_capi_repeated_scale_up_writes_the_size_once() -> None:
    with management() as there:
        fill(there, 2)
        provider = there.provider()
        for _ in range(3):
            assert provider.scale_up(grow(2, 5)) == Succeeded({"from": 2, "to": 5})
        assert there.writes() == [f"PATCH {SCALE} 200"]
        assert there.size() == 5
        assert provider.poll(grow(2, 5)) == Succeeded({"from": 2, "to": 5})


def test_capi_size_neither_old_nor_requested_is_a_conflict_and_stays() -> None:
    with management() as there:
        fill(there, 3)
        cls, message = failed(there.provider().scale_up(grow(2, 5)))
        assert cls == "Conflict"
        assert "size 3" in message
        assert there.writes() == []


def test_capi_scale_up_above_the_maximum_writes_nothing() -> None:
    with management() as there:
        fill(there, 2, annotations=bounds(0, 4))
        assert failed(there.provider().scale_up(grow(2, 5)))[0] == "InvalidRequest"
        assert there.provider([GroupPolicy("clusterapi", "md-0", max=5)]).scale_up(
            grow(2, 5)
        ) == Succeeded({"from": 2, "to": 5})
        assert there.size() == 5


def test_capi_group_below_its_minimum_may_grow() -> None:
    with management() as there:
        fill(there, 2, annotations=bounds(6, 10))
        assert isinstance(there.provider().scale_up(grow(2, 4)), Succeeded)
        assert there.size() == 4


def test_capi_size_conflict_is_read_and_decided_again() -> None:
    with management() as there:
        fill(there, 2)
        there.fault("PATCH", "/scale", 409, times=2)
        assert isinstance(there.provider().scale_up(grow(2, 3)), Succeeded)
        assert there.writes() == [f"PATCH {SCALE} 409"] * 2 + [f"PATCH {SCALE} 200"]


def test_capi_third_size_conflict_ends_the_scale_up() -> None:
    with management() as there:
        fill(there, 2)
        there.fault("PATCH", "/scale", 409, times=-1)
        with pytest.raises(Conflict):
            there.provider().scale_up(grow(2, 3))
        assert there.writes() == [f"PATCH {SCALE} 409"] * 3


def test_capi_size_is_written_only_over_the_version_read() -> None:
    with management() as there:
        fill(there, 2)
        api = CapiApi(there.kube(), CapiAnnotations(), "v1beta2")
        version = api.scale("MachineDeployment", "default", "md-0").metadata.resource_version
        there.touch()
        with pytest.raises(Conflict):
            api.set_scale("MachineDeployment", "default", "md-0", 9, version)
        assert there.size() == 2


def test_capi_lost_answer_is_checked_before_the_write_is_repeated() -> None:
    with management() as there:
        fill(there, 2)
        there.fault("PATCH", "/scale", close=True, late=True)
        with pytest.raises(Transient):
            there.provider().scale_up(grow(2, 3))
        assert there.size() == 3  # the write had happened
        there.requests()
        assert isinstance(there.provider().scale_up(grow(2, 3)), Succeeded)
        assert there.writes() == []


def test_capi_throttled_write_states_when_to_retry() -> None:
    with management() as there:
        fill(there, 2)
        there.fault("PATCH", "/scale", 429, headers={"Retry-After": "7"}, times=-1)
        with pytest.raises(Throttled) as raised:
            there.provider().scale_up(grow(2, 3))
        assert raised.value.retry_after == 7.0


def test_capi_scale_up_waits_until_a_removal_has_deleted_its_machines() -> None:
    with management() as there:
        fill(there, 3)
        provider = there.provider()
        provider.delete_nodes(operation(OperationKind.DELETE_NODES, 3, 2, 0))
        with pytest.raises(Conflict):
            provider.scale_up(grow(2, 4))
        there.work()
        assert isinstance(provider.scale_up(grow(2, 4)), Succeeded)
        assert (there.size(), "m-0" in there.machines()) == (4, False)


@pytest.mark.parametrize(
    ("group", "cls"),
    [
        ("MachineDeployment/default/gone", "NotFound"),
        ("MachineSet/default/md-0-ms", "InvalidRequest"),  # it belongs to a MachineDeployment
        ("MachineDeployment/default/paused", "Conflict"),
        ("MachineDeployment/default/bare", "InvalidRequest"),
        ("MachineDeployment/elsewhere/md-0", "NotFound"),
        ("MachinePool/default/md-0", "NotFound"),
        ("Machine/default/m-0", "InvalidRequest"),
        ("md-0", "InvalidRequest"),
    ],
)
def test_capi_object_that_is_not_our_group_is_not_resized(group: str, cls: str) -> None:
    with management() as there:
        fill(there, 2)
        paused = {**bounds(), "cluster.x-k8s.io/paused": ""}
        there.add(deployment("paused", annotations=paused), deployment("bare", annotations={}))
        assert failed(there.provider().scale_up(grow(2, 3, group=group)))[0] == cls
        assert there.writes() == []


def test_capi_group_outside_the_discovery_is_not_resized() -> None:
    with management() as there:
        fill(there, 2)
        assert (
            failed(there.provider(settings={"clusterName": "c2"}).scale_up(grow(2, 3)))[0]
            == "InvalidRequest"
        )


def test_capi_stand_alone_set_is_resized_like_a_deployment() -> None:
    with management() as there:
        there.add(machine_set("alone", replicas=1))
        assert isinstance(
            there.provider().scale_up(grow(1, 2, group="MachineSet/default/alone")), Succeeded
        )
        assert there.size("alone", "MachineSet") == 2


def test_capi_size_zero_is_written_and_read() -> None:
    with management() as there:
        fill(there, 1, joined=0)
        assert there.provider().decrease_target(shrink(1, 0)) == Succeeded({"from": 1, "to": 0})
        assert there.size() == 0
        assert there.provider().scale_up(grow(0, 2)) == Succeeded(
            {"from": 0, "to": 2}
        )  # a Scale without replicas means 0
        assert there.size() == 2


@pytest.mark.parametrize(
    ("size", "running", "odd", "down", "left"),
    [
        (4, 3, [], 1, 3),
        (3, 3, [], 1, None),  # would delete a running machine
        (4, 3, ["pending"], 1, 3),
        (4, 3, ["failed"], 1, 3),
        (4, 3, ["deleting"], 1, 3),
        (5, 3, ["pending", "failed"], 2, 3),
        (5, 2, ["pending", "failed", "deleting"], 3, 2),
        (5, 3, ["pending", "failed"], 3, None),
        (4, 3, ["registered"], 1, None),  # Cluster API reports it as pending, yet its Node exists
    ],
)
def test_capi_decrease_target_is_safe_or_refused(
    size: int, running: int, odd: list[str], down: int, left: int | None
) -> None:
    shapes = {
        "pending": machine("pending", "md-0-ms", provider_id="c:///p"),
        "failed": machine("failed", "md-0-ms", phase="Failed", failureMessage="no"),
        "deleting": leaving(machine("deleting", "md-0-ms", provider_id="c:///d", node="gone")),
        "registered": machine("registered", "md-0-ms", provider_id="c:///r"),
    }
    with management() as there:
        fill(there, running)
        there.resize(size)
        there.add(*(shapes[each] for each in odd))
        there.join(node("r", "c:///r"))
        outcome = there.provider().decrease_target(shrink(size, size - down))
        if left is None:
            assert "existing machines" in failed(outcome)[1]
            assert there.size() == size
        else:
            assert outcome == Succeeded({"from": size, "to": left})
            assert there.size() == left


@pytest.mark.parametrize("odd", ["unhealthy", "failed", "registered"])
def test_capi_decrease_target_counts_an_unhealthy_node_as_joined(odd: str) -> None:
    """To a MachineSet both machines are unhealthy, and the name decides
    which of them is deleted."""
    shapes = {
        "unhealthy": machine(
            "a", "md-0-ms", node="n", conditions=[{"type": "NodeHealthy", "status": "Unknown"}]
        ),
        "failed": machine(
            "a", "md-0-ms", node="n", deprecated={"v1beta1": {"failureMessage": "no"}}
        ),
        "registered": machine("a", "md-0-ms", provider_id="c:///a"),
    }
    with management() as there:
        fill(there, 2)
        there.add(finalized(shapes[odd]), finalized(machine("b-pending", "md-0-ms")))
        there.join(node("n", "c:///a"))
        there.change("md-0-ms", kind="MachineSet", replicas=5)
        there.resize(5)
        # no machine is deleted for this
        assert there.provider().decrease_target(shrink(5, 4)) == Succeeded({"from": 5, "to": 4})
        cls, message = failed(there.provider().decrease_target(shrink(4, 3)))
        assert (cls, "default/a has joined and is not healthy" in message, there.size()) == (
            "Conflict",
            True,
            4,
        )


def test_capi_machines_without_provider_ids_are_counted_by_their_nodes() -> None:
    with management() as there:
        there.add(deployment("md-0", replicas=4), machine_set("md-0-ms", of="md-0", replicas=4))
        for index in range(3):
            there.add(machine(f"m-{index}", "md-0-ms", node=f"n-{index}"))
            there.join(node(f"n-{index}", ""))
        assert isinstance(there.provider().decrease_target(shrink(4, 3)), Succeeded)
        assert there.size() == 3
        assert isinstance(there.provider().decrease_target(shrink(3, 2)), Failed)


def test_capi_decrease_below_minimum_or_with_annotated_machines_is_refused() -> None:
    with management() as there:
        fill(there, 3, joined=1, annotations=bounds(2, 5))
        assert failed(there.provider().decrease_target(shrink(3, 1)))[0] == "InvalidRequest"
        there.add(machine("marked", "md-0-ms", node="n-0", mark="somebody"))
        there.resize(4)
        with pytest.raises(Conflict):
            there.provider().decrease_target(shrink(4, 3))
        assert there.writes() == []


def test_capi_leftover_annotation_neither_blocks_a_decrease_nor_costs_a_machine() -> None:
    with management() as there:
        fill(there, 4, joined=3)
        there.fault("PATCH", "/scale", close=True)
        with pytest.raises(Transient):
            there.provider().delete_nodes(operation(OperationKind.DELETE_NODES, 4, 3, 0))
        with pytest.raises(Conflict):
            there.provider().decrease_target(shrink(4, 3))
        assert list(there.marked()) == ["m-0"]  # its removal may still be in progress
        there.clock.advance(FORGOTTEN_AFTER + 1)
        with pytest.raises(Conflict):
            # removed; the next read does not find it
            there.provider().decrease_target(shrink(4, 3))
        assert there.provider().decrease_target(shrink(4, 3)) == Succeeded({"from": 4, "to": 3})
        there.work()
        assert there.machines() == ["m-0", "m-1", "m-2"]


def test_capi_marks_that_removals_have_left_are_reported_and_taken_off() -> None:
    with management() as there:
        nodes = fill(there, 3)
        there.fault("PATCH", "/scale", close=True)
        with pytest.raises(Transient):
            there.provider().delete_nodes(operation(OperationKind.DELETE_NODES, 3, 2, 0))
        there.add(machine("theirs", "md-0-ms", node="n", mark="by hand"))
        there.resize(4)
        assert _left(there, nodes) == []
        assert there.provider().decrease_target(shrink(4, 4)) == Succeeded({"from": 4, "to": 4})
        assert sorted(there.marked()) == ["m-0", "theirs"]  # its removal may still be in progress
        there.clock.advance(FORGOTTEN_AFTER + 1)
        assert _left(there, nodes) == ["default/m-0"]
        assert there.provider().decrease_target(shrink(4, 4)) == Succeeded({"from": 4, "to": 4})
        assert (sorted(there.marked()), _left(there, nodes), there.size()) == (["theirs"], [], 4)


def _left(there: Management, nodes: Sequence[Node]) -> list[str]:
    """The handles of the machines with a mark of a removal that is over."""
    [group] = there.provider().observe(nodes).groups
    return [instance.handle for instance in group.instances if instance.left_mark]


def test_capi_decrease_with_two_machine_sets_is_refused() -> None:
    with management() as there:
        there.add(
            deployment("md-0", replicas=3),
            machine_set("adopted", of="md-0", revision=None, replicas=1),
            machine_set("md-0-ms", of="md-0", replicas=2),
            machine("a", "adopted", node="n"),
            machine("b", "md-0-ms"),
            machine("c", "md-0-ms"),
        )
        cls, message = failed(there.provider().decrease_target(shrink(3, 2)))
        assert (cls, "several of its MachineSets" in message) == ("Conflict", True)
        assert there.size() == 3


@pytest.mark.parametrize("refused", [False, True])
def test_capi_scale_up_removes_leftover_delete_annotations(refused: bool) -> None:
    with management() as there:
        fill(there, 3)
        there.fault("PATCH", "/scale", close=True)
        with pytest.raises(Transient):
            there.provider().delete_nodes(operation(OperationKind.DELETE_NODES, 3, 2, 0))
        there.add(machine("theirs", "md-0-ms", node="n", mark="by hand"))
        there.resize(4)
        there.clock.advance(FORGOTTEN_AFTER + 1)
        if refused:
            there.fault("PATCH", "/machines/m-0", 403)
        assert isinstance(there.provider().scale_up(grow(4, 5)), Succeeded)
        assert sorted(there.marked()) == (["m-0", "theirs"] if refused else ["theirs"])
        assert there.size() == 5
