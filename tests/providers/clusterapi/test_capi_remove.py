"""Tests of removing named machines, also after a crash and with concurrent operations."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.clusterapi.models import FORGOTTEN_AFTER
from chalicelib.providers.kit.base import Provider
from chalicelib.providers.kit.errors import Conflict, Transient, Unauthorized
from infra.emulators.kube.request import Response, answer
from tests.providers.clusterapi.management import (
    NOW,
    Management,
    fill,
    finalized,
    management,
    operation,
)
from tests.providers.clusterapi.objects import bounds, deployment, machine, machine_set, owner

SCALE = "machinedeployments/md-0/scale"


def removal(start: int, *indices: int, op: str = "op") -> Operation:
    return operation(OperationKind.DELETE_NODES, start, start - len(indices), *indices, op=op)


def marks(*names: str) -> list[str]:
    return [f"PATCH machines/{name} 200" for name in names]


def failed(outcome: Outcome) -> tuple[str, str]:
    assert isinstance(outcome, Failed), outcome
    return outcome.error_class, outcome.message


def finish(there: Management, provider: Provider, wanted: Operation) -> Succeeded:
    """Calls the provider and lets the controllers work in turn until the operation is done."""
    outcome = provider.delete_nodes(wanted)
    for _ in range(5):
        if isinstance(outcome, Succeeded):
            return outcome
        assert isinstance(outcome, InProgress), outcome
        there.work()
        outcome = provider.poll(wanted.with_status(step=outcome.step, data=outcome.data))
    raise AssertionError(f"still {outcome}")


def test_capi_removed_machines_are_annotated_before_one_size_decrease() -> None:
    with management() as there:
        fill(there, 10)
        provider, wanted = there.provider(), removal(10, 1, 3, 5, 7, 9)
        assert isinstance(provider.delete_nodes(wanted), InProgress)
        names = ["m-1", "m-3", "m-5", "m-7", "m-9"]
        assert there.writes() == [*marks(*names), f"PATCH {SCALE} 200"]
        assert there.marked() == dict.fromkeys(names, f"outscaler/op/{int(NOW)}")
        assert there.size() == 5
        assert finish(there, provider, wanted).facts["to"] == 5
        assert there.machines() == ["m-0", "m-2", "m-4", "m-6", "m-8"]


def test_capi_machine_of_another_group_stops_the_removal_before_any_write() -> None:
    with management() as there:
        fill(there, 3)
        there.add(
            deployment("md-1"),
            machine_set("md-1-ms", of="md-1"),
            machine("other", "md-1-ms"),
            machine("cp", "", owners=(owner("KubeadmControlPlane", "cp"),)),
        )
        for name in ("default/other", "default/cp", "elsewhere/m-2"):
            wanted = removal(3, 0, 1).with_spec(
                targets=(
                    RemovalTarget("n-0", "c:///i-0", "default/m-0"),
                    RemovalTarget("n", "i", name),
                )
            )
            cls, message = failed(there.provider().delete_nodes(wanted))
            assert cls == "InvalidRequest"
            assert name in message
        assert there.writes() == []


def test_capi_removal_below_the_minimum_writes_nothing() -> None:
    with management() as there:
        fill(there, 2, annotations=bounds(1, 5))
        assert failed(there.provider().delete_nodes(removal(2, 0, 1)))[0] == "InvalidRequest"
        assert there.writes() == []
        assert there.marked() == {}


def test_capi_repeated_removal_before_and_after_the_deletion_began() -> None:
    with management() as there:
        fill(there, 10)
        wanted = removal(10, 0, 1, 2)
        there.provider().delete_nodes(wanted)
        there.requests()
        for again in (wanted, wanted.with_spec(id="planned-anew")):
            assert isinstance(there.provider().delete_nodes(again), InProgress)
        for name in ("m-0", "m-1", "m-2"):
            there.begin_deletion(name)
        assert isinstance(there.provider().delete_nodes(wanted), Succeeded)
        assert there.writes() == []
        assert there.size() == 7


def test_capi_machine_already_gone_counts_as_removed_without_a_decrease() -> None:
    with management() as there:
        fill(there, 3)
        wanted = removal(3, 0).with_spec(targets=(RemovalTarget("gone", "c:///x", "default/gone"),))
        assert isinstance(there.provider().delete_nodes(wanted), Succeeded)
        assert there.writes() == []


def test_capi_only_machines_still_to_be_removed_count_against_the_minimum() -> None:
    with management() as there:
        fill(there, 4, annotations=bounds(2, 5))
        there.resize(3)
        there.begin_deletion("m-0")  # by another writer; the size accounts for it
        assert isinstance(there.provider().delete_nodes(removal(4, 0, 1)), InProgress)
        assert there.size() == 2


def test_capi_group_above_its_maximum_may_shrink() -> None:
    with management() as there:
        fill(there, 4, annotations=bounds(0, 2))
        finish(there, there.provider(), removal(4, 3))
        assert there.size() == 3
        assert there.machines() == ["m-0", "m-1", "m-2"]


def test_capi_size_conflict_is_read_again_with_annotations_in_place() -> None:
    with management() as there:
        fill(there, 3)
        there.fault("PATCH", "/scale", 409, times=2)
        assert isinstance(there.provider().delete_nodes(removal(3, 1)), InProgress)
        assert there.writes() == [*marks("m-1"), *[f"PATCH {SCALE} 409"] * 2, f"PATCH {SCALE} 200"]
        assert there.size() == 2


def test_capi_third_size_conflict_removes_the_annotations() -> None:
    with management() as there:
        fill(there, 3)
        there.fault("PATCH", "/scale", 409, times=-1)
        with pytest.raises(Conflict):
            there.provider().delete_nodes(removal(3, 1))
        assert there.writes() == [*marks("m-1"), *[f"PATCH {SCALE} 409"] * 3, *marks("m-1")]
        assert (there.size(), there.marked()) == (3, {})


def test_capi_third_size_conflict_keeps_the_annotations_of_a_lowered_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with management() as there:
        fill(there, 3)
        handle, refused = there.server.api.handle, []

        def answers(method: str, target: str, *rest: Any, **more: Any) -> Response:
            if method != "PATCH" or "/scale" not in target:
                return handle(method, target, *rest, **more)
            refused.append(target)
            if len(refused) == 3:
                # another executor of this operation lowers it
                handle(method, target, *rest, **more)
            return answer(
                409, {"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}
            )

        monkeypatch.setattr(there.server.api, "handle", answers)
        with pytest.raises(Conflict):
            there.provider().delete_nodes(removal(3, 1))
        assert (len(refused), there.size(), set(there.marked())) == (3, 2, {"m-1"})
        there.work()
        assert there.machines() == ["m-0", "m-2"]


def test_capi_refused_annotation_leaves_size_and_other_annotations_unchanged() -> None:
    with management() as there:
        fill(there, 3)
        there.fault("PATCH", "/machines/m-2", 409, times=-1)
        with pytest.raises(Conflict):
            there.provider().delete_nodes(removal(3, 1, 2))
        assert not any("scale" in each for each in there.writes())
        assert (there.size(), there.marked()) == (3, {})


@pytest.mark.parametrize("path", ["/scale", "/machines/m-1"])
def test_capi_forbidden_write_leaves_nothing_behind(path: str) -> None:
    with management() as there:
        fill(there, 3)
        there.fault("PATCH", path, 403, times=1)
        assert failed(there.provider().delete_nodes(removal(3, 0, 1)))[0] == Unauthorized.__name__
        assert (there.size(), there.marked()) == (3, {})


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("path", ["/machines/m-1", "/scale"])
def test_capi_interrupted_removal_is_completed_once_by_the_next_call(path: str, late: bool) -> None:
    with management() as there:
        fill(there, 4)
        there.fault("PATCH", path, close=True, late=late)
        with pytest.raises(Transient):
            there.provider().delete_nodes(removal(4, 0, 1))
        finish(there, there.provider(), removal(4, 0, 1))
        assert (there.size(), there.machines()) == (2, ["m-2", "m-3"])


def test_capi_crash_after_the_decrease_and_scale_up_before_the_next_call() -> None:
    """The annotation has not been consumed and the size no longer accounts for it: the size is
    lowered again, exactly once."""
    with management() as there:
        fill(there, 4)
        there.provider().delete_nodes(removal(4, 1))
        there.resize(6)
        assert isinstance(there.provider().delete_nodes(removal(4, 1)), InProgress)
        assert there.size() == 6  # machines are still to be created, so the removal waits
        there.work()
        finish(there, there.provider(), removal(4, 1))
        assert there.size() == 5
        assert "m-1" not in there.machines()
        assert {"m-0", "m-2", "m-3"} <= set(there.machines())


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_capi_concurrent_removals_each_remove_their_own_machines(order: tuple[int, ...]) -> None:
    """Both were planned together, so each planned to go from 5 to 4; the order does not matter."""
    with management() as there:
        fill(there, 5)
        wanted = {index: removal(5, index, op=f"op-{index}") for index in order}
        provider = there.provider()
        for index in order:
            assert isinstance(provider.delete_nodes(wanted[index]), InProgress)
        assert there.size() == 2
        for index in order:
            finish(there, provider, wanted[index])
        assert (there.size(), there.machines()) == (2, ["m-3", "m-4"])


def test_capi_annotation_of_a_concurrent_removal_counts_in_either_order() -> None:
    with management() as there:
        fill(there, 5)
        there.fault("PATCH", "/scale", close=True)
        with pytest.raises(Transient):
            # stopped between annotation and size
            there.provider().delete_nodes(removal(5, 0, op="first"))
        assert isinstance(there.provider().delete_nodes(removal(5, 1, op="second")), InProgress)
        assert there.size() == 3
        there.work()
        assert there.machines() == ["m-2", "m-3", "m-4"]
        for op, index in (("first", 0), ("second", 1)):
            assert isinstance(there.provider().delete_nodes(removal(5, index, op=op)), Succeeded)
        assert there.size() == 3


def test_capi_leftover_delete_annotation_never_removes_its_machine_later() -> None:
    with management() as there:
        fill(there, 5)
        there.fault("PATCH", "/scale", close=True)
        with pytest.raises(Transient):
            there.provider().delete_nodes(removal(5, 0, op="given-up"))
        there.clock.advance(FORGOTTEN_AFTER + 1)
        finish(there, there.provider(), removal(5, 1, op="later"))
        assert there.machines() == ["m-0", "m-2", "m-3", "m-4"]
        assert "m-0" not in there.marked()


def test_capi_delete_annotation_of_another_writer_blocks_the_removal() -> None:
    with management() as there:
        fill(there, 2)
        there.add(finalized(machine("theirs", "md-0-ms", node="n", mark="by hand")))
        there.resize(3)
        cls, message = failed(there.provider().delete_nodes(removal(3, 0)))
        assert cls == "Conflict"
        assert "default/theirs" in message
        assert there.marked() == {"theirs": "by hand"}
        # on a target it has the same effect as ours, and stays unchanged
        own = removal(3, 0).with_spec(targets=(RemovalTarget("n", "", "default/theirs"),))
        finish(there, there.provider(), own)
        assert there.machines() == ["m-0", "m-1"]


def test_capi_removals_wait_for_a_rollout() -> None:
    with management() as there:
        fill(there, 3)
        there.add(machine_set("older", of="md-0", revision="0", replicas=1))
        cls, message = failed(there.provider().delete_nodes(removal(3, 0)))
        assert cls == "Conflict"
        assert "older" in message
        assert there.writes() == []


def test_capi_recreated_machine_with_a_targets_name_is_untouched() -> None:
    with management() as there:
        fill(there, 2)
        wanted = removal(2, 0).with_spec(
            targets=(RemovalTarget("n-0", "c:///before", "default/m-0"),)
        )
        assert failed(there.provider().delete_nodes(wanted))[0] == "InvalidRequest"
        assert there.writes() == []


def test_capi_unregistered_machines_are_removed_by_placeholder_and_reported() -> None:
    with management() as there:
        fill(there, 3, joined=2)
        target = RemovalTarget("", "pending-machine-default_m-2")
        wanted = removal(3, 0).with_spec(kind=OperationKind.DELETE_INSTANCES, targets=(target,))
        done = finish(there, there.provider(), wanted)
        assert done.facts["never_joined"] == 1
        assert there.machines() == ["m-0", "m-1"]


def _discard(*names: str) -> Any:
    targets = tuple(
        RemovalTarget("", f"pending-machine-default_{name}", f"default/{name}") for name in names
    )
    return removal(3, 0).with_spec(kind=OperationKind.DELETE_INSTANCES, targets=targets)


def test_capi_unregistered_machine_is_deleted_at_the_group_minimum() -> None:
    with management() as there:
        fill(there, 3, joined=2, annotations=bounds(3, 10))
        finish(there, there.provider(), _discard("m-2"))
        assert there.machines() == ["m-0", "m-1"]
        assert there.size() == 2


def test_capi_machine_that_joined_meanwhile_stops_unregistered_deletions() -> None:
    with management() as there:
        fill(there, 3, joined=2)
        cls, message = failed(there.provider().delete_nodes(_discard("m-1", "m-2")))
        assert (cls, message) == (
            "Conflict",
            "Machine default/m-1 has joined as node n-1 meanwhile",
        )
        assert (there.marked(), there.size()) == ({}, 3)


def test_capi_joined_machine_whose_node_is_gone_is_not_unregistered() -> None:
    """A nodeRef that names none of our Nodes may name another cluster's Node."""
    with management() as there:
        fill(there, 3)
        there.store.delete("nodes", "n-2")
        outcome = there.provider().delete_nodes(_discard("m-2"))
        assert isinstance(outcome, Failed)
        assert "delete the Machine" in outcome.message
        assert (there.machines(), there.marked(), there.size()) == (["m-0", "m-1", "m-2"], {}, 3)


def test_capi_machine_whose_drained_node_vanished_is_removed() -> None:
    with management() as there:
        fill(there, 3)
        there.store.delete("nodes", "n-2")
        finish(there, there.provider(), removal(3, 2))
        assert there.machines() == ["m-0", "m-1"]


def test_capi_target_without_a_known_machine_is_refused() -> None:
    with management() as there:
        fill(there, 2)
        wanted = removal(2, 0).with_spec(targets=(RemovalTarget("n-0", "c:///i-0"),))
        assert failed(there.provider().delete_nodes(wanted))[0] == "InvalidRequest"


def test_capi_stand_alone_set_loses_the_named_machine() -> None:
    with management() as there:
        there.add(machine_set("alone", replicas=2))
        there.add(*(finalized(machine(name, "alone", node=name)) for name in ("a", "b")))
        wanted = operation(OperationKind.DELETE_NODES, 2, 1, group="MachineSet/default/alone")
        named: Any = wanted.with_spec(targets=(RemovalTarget("b", "", "default/b"),))
        finish(there, there.provider(), named)
        assert there.machines() == ["a"]
        assert there.size("alone", "MachineSet") == 1
