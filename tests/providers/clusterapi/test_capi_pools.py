"""Tests of resizing MachinePools and of removals from them."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.base import Provider
from chalicelib.providers.kit.errors import Transient
from tests.providers.clusterapi.management import NOW, Management, finalized, management, operation
from tests.providers.clusterapi.objects import GROUP, MARK, bounds, node, pool, pool_machine

GROUP_ID, SCALE = "MachinePool/default/mp", "machinepools/mp/scale"
ALLOWED = {"allowPoolShrink": "true"}


def backed(there: Management, size: int, how: str = "machines", **more: Any) -> None:
    """A pool with the Machines m-0…, all joined."""
    annotations = {**bounds(), **more.pop("annotations", {}), "local.outscaler/pool": how}
    there.add(pool("mp", replicas=size, annotations=annotations, **more))
    for index in range(size):
        there.add(
            finalized(
                pool_machine(f"m-{index}", "mp", provider_id=f"c:///i-{index}", node=f"n-{index}")
            )
        )
        there.join(node(f"n-{index}", f"c:///i-{index}", of=f"m-{index}"))
    there.controllers.step()
    there.requests()


def bare(there: Management, size: int, **more: Any) -> None:
    """A pool without Machines and its instances mp-0000…, which became Nodes."""
    there.add(pool("mp", replicas=size, **more))
    there.work(80)
    there.requests()


def removal(
    *targets: RemovalTarget, kind: OperationKind = OperationKind.DELETE_NODES, op: str = "op"
) -> Operation:
    return operation(kind, 9, 8, op=op, group=GROUP_ID).with_spec(targets=targets)


def of_machine(index: int) -> RemovalTarget:
    return RemovalTarget(f"n-{index}", f"c:///i-{index}", f"default/m-{index}")


def of_instance(name: str) -> RemovalTarget:
    return RemovalTarget(name, f"local:///default/{name}", f"listed:local:///default/{name}")


def step(provider: Provider, wanted: Operation) -> tuple[Operation, Outcome]:
    """Makes one call; returns the operation as it is stored afterwards."""
    outcome = provider.delete_nodes(wanted)
    data = outcome.data if isinstance(outcome, InProgress) else {}
    return wanted.with_status(data=data), outcome


def finish(there: Management, wanted: Operation, **settings: str) -> Outcome:
    """Calls the provider and lets the controllers work in turn until the operation ends."""
    for _ in range(12):
        wanted, outcome = step(there.provider(settings=settings), wanted)
        if not isinstance(outcome, InProgress):
            return outcome
        there.clock.advance(outcome.after)
        there.work()
    raise AssertionError(f"still {outcome}")


def refused(outcome: Outcome) -> tuple[str, str]:
    assert isinstance(outcome, Failed), outcome
    return outcome.error_class, outcome.message


def nodes_left(there: Management) -> list[str]:
    return sorted(each["metadata"]["name"] for each in there.store.list("nodes"))


def test_capi_pool_is_resized_through_the_scale_subresource() -> None:
    with management() as there:
        backed(there, 2)
        provider = there.provider()
        grown = operation(OperationKind.SCALE_UP, 2, 4, group=GROUP_ID)
        for _ in range(2):
            assert provider.scale_up(grown) == Succeeded({"from": 2, "to": 4})
        assert there.writes() == [f"PATCH {SCALE} 200"]
        assert (
            refused(provider.scale_up(operation(OperationKind.SCALE_UP, 4, 11, group=GROUP_ID)))[0]
            == "InvalidRequest"
        )
        back = operation(OperationKind.DECREASE_TARGET, 4, 2, group=GROUP_ID)
        assert provider.decrease_target(back) == Succeeded({"from": 4, "to": 2})
        assert there.size("mp", "MachinePool") == 2


def test_capi_pool_size_is_not_lowered_below_its_instances_joined_or_not() -> None:
    """A MachineSet first removes machines without a Node; a pool does not guarantee any order."""
    with management() as there:
        backed(there, 2)
        there.add(pool_machine("coming", "mp"))
        there.change(
            "mp", "MachinePool", replicas=4, providerIDList=["c:///i-0", "c:///i-1", "c:///listed"]
        )
        provider = there.provider()
        cls, message = refused(
            provider.decrease_target(operation(OperationKind.DECREASE_TARGET, 4, 3, group=GROUP_ID))
        )
        assert (cls, "4 of which are there" in message) == ("InvalidRequest", True)


def test_capi_pool_machines_are_annotated_before_one_size_decrease() -> None:
    with management() as there:
        backed(there, 4)
        done = finish(there, removal(of_machine(1), of_machine(3)))
        assert isinstance(done, Succeeded), done
        assert (done.facts["to"], there.machines()) == (2, ["m-0", "m-2"])
        assert there.writes() == [
            "PATCH machines/m-1 200",
            "PATCH machines/m-3 200",
            f"PATCH {SCALE} 200",
        ]


def test_capi_pool_records_its_intent_before_the_size_is_written() -> None:
    with management() as there:
        backed(there, 3)
        wanted, outcome = step(there.provider(), removal(of_machine(1)))
        assert isinstance(outcome, InProgress)
        assert (there.size("mp", "MachinePool"), there.marked()) == (
            3,
            {"m-1": f"outscaler/op/{int(NOW)}"},
        )
        assert outcome.data["pool_size"] == "3"
        step(there.provider(), wanted)
        assert there.size("mp", "MachinePool") == 2


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("how", ["machines", "instances"])
def test_capi_pool_lost_answer_and_repeats_never_lower_the_size_twice(how: str, late: bool) -> None:
    with management() as there:
        if how == "machines":
            backed(there, 4)
        else:
            bare(there, 4)
        first = removal(of_machine(0) if how == "machines" else of_instance("mp-0000"))
        wanted, _ = step(there.provider(settings=ALLOWED), first)
        there.fault("PATCH", "/scale", close=True, late=late)
        with pytest.raises(Transient):
            there.provider(settings=ALLOWED).delete_nodes(wanted)
        for _ in range(3):  # the same message, delivered several times
            there.provider(settings=ALLOWED).delete_nodes(wanted)
        assert there.size("mp", "MachinePool") == 3
        there.touch("mp", "MachinePool")
        there.provider(settings=ALLOWED).delete_nodes(wanted)
        assert isinstance(finish(there, wanted, **ALLOWED), Succeeded)
        assert there.size("mp", "MachinePool") == 3


def test_capi_pool_changed_since_its_record_is_recorded_again() -> None:
    with management() as there:
        backed(there, 3)
        wanted, _ = step(there.provider(), removal(of_machine(0)))
        there.touch("mp", "MachinePool")
        wanted, outcome = step(there.provider(), wanted)
        assert isinstance(outcome, InProgress)
        assert there.size("mp", "MachinePool") == 3
        there.fault("PATCH", "/scale", 409)
        step(there.provider(), wanted)
        assert isinstance(finish(there, wanted), Succeeded)
        assert there.machines() == ["m-1", "m-2"]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("how", ["machines", "instances"])
def test_capi_pool_lowered_and_raised_again_is_not_lowered_twice(how: str, lost: bool) -> None:
    """The machine that the first decrease costs may already be on its way out."""
    with management() as there:
        if how == "machines":
            backed(there, 3)
        else:
            bare(there, 3)
        first = removal(of_machine(2) if how == "machines" else of_instance("mp-0002"))
        wanted, _ = step(there.provider(settings=ALLOWED), first)
        if lost:
            there.fault("PATCH", "/scale", close=True, late=True)
            with pytest.raises(Transient):
                there.provider(settings=ALLOWED).delete_nodes(wanted)
        else:
            wanted, _ = step(there.provider(settings=ALLOWED), wanted)
        there.change("mp", "MachinePool", replicas=3)
        cls, message = refused(there.provider(settings=ALLOWED).delete_nodes(wanted))
        assert (cls, "larger again" in message) == ("Conflict", True)
        assert (there.size("mp", "MachinePool"), there.marked()) == (3, {})


def test_capi_pool_removal_stays_in_its_step_until_the_machine_is_gone() -> None:
    with management() as there:
        backed(there, 2)
        wanted, notes = removal(of_machine(1)), []
        for _ in range(3):
            wanted, outcome = step(there.provider(), wanted)
            assert isinstance(outcome, InProgress)
            assert outcome.step == "remove"
            notes.append(outcome.note.rpartition(": ")[2])
        assert notes == ["the size 2 is to become 1", "the deletion has not begun", "not gone yet"]


def test_capi_pool_size_stays_while_instances_are_being_created() -> None:
    """A lower size would only cancel the creation of those."""
    with management() as there:
        backed(there, 3)
        there.change("mp", "MachinePool", replicas=4)
        wanted = removal(of_machine(0))
        for _ in range(3):
            wanted, outcome = step(there.provider(), wanted)
            assert isinstance(outcome, InProgress)
        assert (there.size("mp", "MachinePool"), there.marked()) == (4, {})


def test_capi_pool_already_lowered_by_others_is_left_unchanged() -> None:
    with management() as there:
        backed(there, 3)
        wanted, _ = step(there.provider(), removal(of_machine(2)))
        there.change("mp", "MachinePool", replicas=2)
        wanted = wanted.with_status(data={})
        for _ in range(3):
            wanted, _ = step(there.provider(), wanted)
        assert there.size("mp", "MachinePool") == 2
        assert isinstance(finish(there, wanted), Succeeded)
        assert (there.size("mp", "MachinePool"), there.machines()) == (2, ["m-0", "m-1"])


def test_capi_pool_ignoring_annotations_loses_one_machine_and_not_all() -> None:
    with management() as there:
        backed(there, 4, "heedless")
        cls, message = refused(finish(there, removal(of_machine(3))))
        assert cls == "Conflict"
        assert "took other instances" in message
        assert (there.size("mp", "MachinePool"), there.machines(), there.marked()) == (
            3,
            ["m-1", "m-2", "m-3"],
            {},
        )


def test_capi_removals_of_one_pool_run_one_after_another() -> None:
    with management() as there:
        backed(there, 5)
        ops = {
            name: removal(of_machine(at), op=name) for at, name in ((3, "a"), (1, "b"), (4, "c"))
        }
        results: dict[str, Outcome] = {}
        for _ in range(60):
            for name in [each for each in ops if each not in results]:
                ops[name], outcome = step(there.provider(), ops[name])
                if not isinstance(outcome, InProgress):
                    results[name] = outcome
                assert {"m-0", "m-2"} <= set(there.machines())
            there.clock.advance(3)
            there.controllers.step()
        assert [type(results[name]) for name in "abc"] == [Succeeded] * 3
        assert (there.size("mp", "MachinePool"), there.machines()) == (2, ["m-0", "m-2"])


def test_capi_first_of_two_concurrent_annotating_removals_by_id_proceeds() -> None:
    with management() as there:
        backed(there, 3)
        for index, op in ((0, "b"), (1, "a")):
            found = there.store.get("machines", f"m-{index}", "default", GROUP)
            assert found is not None
            found["metadata"]["annotations"] = {MARK: f"outscaler/{op}/{int(NOW)}"}
            there.store.update("machines", found, GROUP)
        first, outcome = step(there.provider(), removal(of_machine(1), op="a"))
        assert isinstance(outcome, InProgress)
        later, outcome = step(there.provider(), removal(of_machine(0), op="b"))
        assert isinstance(outcome, InProgress)
        assert "default/m-1 of this pool goes first" in outcome.note
        assert list(there.marked()) == ["m-1"]
        assert isinstance(finish(there, first), Succeeded)
        assert isinstance(finish(there, later), Succeeded)
        assert there.machines() == ["m-2"]


def test_capi_pool_with_machines_waits_for_an_instance_without_a_machine() -> None:
    with management() as there:
        backed(there, 2)
        there.change(
            "mp", "MachinePool", replicas=3, providerIDList=["c:///i-0", "c:///i-1", "c:///new"]
        )
        target = RemovalTarget("n-new", "c:///new", "listed:c:///new")
        cls, message = refused(there.provider(settings=ALLOWED).delete_nodes(removal(target)))
        assert (cls, "none yet for c:///new" in message) == ("Conflict", True)
        assert there.writes() == []
        # now it has one
        there.add(finalized(pool_machine("late", "mp", provider_id="c:///new", node="n-new")))
        assert isinstance(finish(there, removal(target)), Succeeded)
        assert there.machines() == ["m-0", "m-1"]


def test_capi_pool_without_machines_refuses_removal_and_names_the_setting() -> None:
    with management() as there:
        bare(there, 3)
        cls, message = refused(there.provider().delete_nodes(removal(of_instance("mp-0001"))))
        assert cls == "InvalidRequest"
        assert "allowPoolShrink" in message
        assert (there.writes(), there.size("mp", "MachinePool")) == ([], 3)


def test_capi_pool_without_machines_may_become_empty() -> None:
    with management() as there:
        bare(there, 2)
        names = [each.node for each in there.provider().observe(there.nodes()).groups[0].instances]
        assert names == ["mp-0000", "mp-0001"]
        assert isinstance(finish(there, removal(*(of_instance(name) for name in names))), Succeeded)
        assert (there.size("mp", "MachinePool"), nodes_left(there)) == (0, [])


def test_capi_pool_without_machines_allows_removal_by_the_setting() -> None:
    with management() as there:
        bare(there, 3)
        # chosen by the cloud
        assert isinstance(finish(there, removal(of_instance("mp-0000")), **ALLOWED), Succeeded)
        assert there.writes() == [f"PATCH {SCALE} 200"]
        assert (there.size("mp", "MachinePool"), nodes_left(there)) == (2, ["mp-0001", "mp-0002"])


def test_capi_pool_removal_ends_when_the_cloud_removed_another_instance() -> None:
    with management() as there:
        bare(there, 3)
        cls, message = refused(finish(there, removal(of_instance("mp-0002")), **ALLOWED))
        assert (cls, "took other instances" in message) == ("Conflict", True)
        assert (there.size("mp", "MachinePool"), nodes_left(there)) == (2, ["mp-0001", "mp-0002"])


@pytest.mark.parametrize("handle", ["listed:local:///default/gone", "listed:bare"])
def test_capi_pool_instance_that_is_not_listed_is_gone(handle: str) -> None:
    with management() as there:
        bare(there, 2)
        outcome = there.provider().delete_nodes(
            removal(RemovalTarget("gone", "local:///default/gone", handle))
        )
        assert isinstance(outcome, Succeeded)
        assert (there.writes(), there.size("mp", "MachinePool")) == ([], 2)


def test_capi_pool_removal_of_a_foreign_instance_is_refused_before_any_write() -> None:
    with management() as there:
        backed(there, 2)
        there.add(pool("other", replicas=1), pool_machine("theirs", "other", provider_id="c:///t"))
        for target in (
            RemovalTarget("t", "c:///t", "default/theirs"),
            RemovalTarget("n-0", "c:///before", "default/m-0"),
            RemovalTarget("n", "x", "a/b/c"),
        ):
            assert (
                refused(there.provider().delete_nodes(removal(of_machine(1), target)))[0]
                == "InvalidRequest"
            )
        assert (there.writes(), there.marked()) == ([], {})


def test_capi_pool_keeps_its_minimum_except_for_unregistered_instances() -> None:
    with management() as there:
        backed(there, 2, annotations=bounds(2, 5))
        assert refused(there.provider().delete_nodes(removal(of_machine(0))))[0] == "InvalidRequest"
        there.add(finalized(pool_machine("late", "mp")))
        there.change("mp", "MachinePool", replicas=3)
        dead = RemovalTarget("", "pending-machine-default_late", "default/late")
        done = finish(there, removal(dead, kind=OperationKind.DELETE_INSTANCES))
        assert isinstance(done, Succeeded)
        assert there.machines() == ["m-0", "m-1"]


def test_capi_pool_instance_that_joined_meanwhile_is_not_deleted() -> None:
    with management() as there:
        bare(there, 2)
        cls, message = refused(
            there.provider(settings=ALLOWED).delete_nodes(
                removal(of_instance("mp-0001"), kind=OperationKind.DELETE_INSTANCES)
            )
        )
        assert (cls, "joined as node mp-0001" in message) == ("Conflict", True)
        assert there.size("mp", "MachinePool") == 2


def test_capi_pool_unregistered_instance_is_deleted_if_the_setting_allows() -> None:
    with management() as there:
        there.controllers.fail_next("default/mp", "never-joins")
        bare(there, 2)
        [first, second] = there.provider().observe(there.nodes()).groups[0].instances
        assert (first.node, second.node) == ("", "mp-0001")
        done = finish(
            there,
            removal(RemovalTarget("", first.id, first.handle), kind=OperationKind.DELETE_INSTANCES),
            **ALLOWED,
        )
        assert isinstance(done, Succeeded)
        assert (done.facts["never_joined"], nodes_left(there)) == (1, ["mp-0001"])


def test_capi_pool_preparation_is_rolled_back_until_the_size_is_lowered() -> None:
    with management() as there:
        backed(there, 3)
        wanted, _ = step(there.provider(), removal(of_machine(1)))
        assert there.provider().cancel_delete(wanted) is True
        assert there.marked() == {}
        wanted, _ = step(there.provider(), wanted)
        step(there.provider(), wanted)
        assert there.provider().cancel_delete(wanted.with_status(data={})) is False
        there.work()
        assert there.provider().cancel_delete(wanted) is False  # its deletion has begun
        assert there.machines() == ["m-0", "m-2"]


def test_capi_pool_without_machines_rolls_back_only_before_the_decrease() -> None:
    with management() as there:
        bare(there, 3)
        wanted, _ = step(there.provider(settings=ALLOWED), removal(of_instance("mp-0000")))
        assert there.provider().cancel_delete(wanted) is True
        step(there.provider(settings=ALLOWED), wanted)
        assert there.provider().cancel_delete(wanted) is False


def test_capi_pool_managed_by_another_scaler_is_not_changed() -> None:
    with management() as there:
        backed(there, 2, managed_by="karpenter")
        assert "karpenter" in refused(there.provider().delete_nodes(removal(of_machine(0))))[1]
        assert (
            "karpenter"
            in refused(
                there.provider().scale_up(operation(OperationKind.SCALE_UP, 2, 3, group=GROUP_ID))
            )[1]
        )
        assert there.writes() == []
