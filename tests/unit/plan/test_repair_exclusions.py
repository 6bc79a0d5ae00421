"""Cases in which a group or an instance is not repaired."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.plan import Plan
from tests.builders import NOW, ClusterBuilder, cluster, growth, node
from tests.unit.plan.instances_builder import (
    HOUR,
    STOCK,
    anchored,
    asked,
    facts_of,
    filled,
    operation,
    repaired,
    seen,
    with_machines,
)
from tests.unit.plan.test_repair import discarded, late, out_of_stock

# -- cases without a repair


def test_vendor_that_lists_no_instances_causes_no_target_decrease() -> None:
    build = filled(cluster(), "g", 50, cpu="2")
    build.group("g", target=50, template=node("t", "2"))
    build.groups[-1] = msgspec.structs.replace(build.groups[-1], instances=())
    wrong = Memory(groups={"g": GroupMemory(size_wrong=(0, 50), size_wrong_since=NOW - HOUR)})
    plan = build.plan(wrong)
    assert (plan.repairs, plan.removals) == ((), ())
    ran_out = build.plan(Memory(groups={"g": asked(2, 1000)}))
    assert repaired(ran_out) == {"g": ("shrink", 50, 48)}, (
        "no more than was asked for and did not come"
    )


def test_vendor_ids_unlike_node_ids_cause_no_deletion() -> None:
    build, known = late(5, template=node("t"))
    for at in range(5):
        build.node(f"worker-{at}")
    known = msgspec.structs.replace(known, first_seen=NOW - HOUR)
    assert build.plan(known).repairs == ()
    # Instances that appeared while these nodes already existed do not belong to them.
    assert discarded(build.plan(msgspec.structs.replace(known, first_seen=NOW - 100 * HOUR)))


def test_node_without_a_provider_id_does_not_hide_an_unregistered_instance() -> None:
    build = anchored().node("g-0", group="g").group("g")
    build.nodes[-1] = msgspec.structs.replace(build.nodes[-1], provider_id="")
    made = Instance("test://g/m-0", InstanceState.CREATING, handle="g/m-0")
    build.groups[-1] = msgspec.structs.replace(
        build.groups[-1], target=2, instances=(*build.groups[-1].instances, made)
    )
    facts = facts_of(build, seen(build, HOUR))
    assert (facts.unregistered, facts.long_unregistered) == (("test://g/m-0",), ("test://g/m-0",))
    assert discarded(build.plan(seen(build, HOUR))) == ["test://g/m-0"]


def test_instance_without_an_id_is_not_matched_by_guess() -> None:
    build, known = late(1)
    build.groups[-1] = msgspec.structs.replace(build.groups[-1], instances=(Instance(""),))
    assert build.plan(msgspec.structs.replace(known, unregistered={"": NOW - HOUR})).repairs == ()


def test_group_with_more_instances_than_its_target_is_not_decreased() -> None:
    for error in (None, STOCK):
        build = with_machines(filled(anchored(), "g", 2), "g", 1, error=error, target=2)
        assert build.plan(seen(build, HOUR)).repairs == ()


def test_instance_in_two_groups_is_not_deleted() -> None:
    build, known = late(1)
    build.group("h", target=1)
    build.groups[-1] = msgspec.structs.replace(
        build.groups[-1], instances=build.groups[-2].instances
    )
    assert build.plan(known).repairs == ()


@pytest.mark.parametrize(
    ("name", "provider_id", "repaired"),
    [
        ("m-0", "elsewhere://m-0", False),
        ("m-0", "elsewhere://other", False),
        ("other", "elsewhere://zone/m-0", False),
        ("other", "elsewhere://zone/m-0/", False),
        ("other", "elsewhere://other", True),
    ],
)
def test_node_with_an_instances_name_or_id_is_matched_to_that_instance(
    name: str, provider_id: str, repaired: bool
) -> None:
    build, known = late(1)
    build.node(name, provider_id=provider_id, labels={"node-role.kubernetes.io/control-plane": ""})
    assert bool(build.plan(known).repairs) is repaired


def _unhealthy_group(build: ClusterBuilder) -> None:
    filled(build, "sick", 9, ready=False).group("sick")


def _unhealthy_zone(build: ClusterBuilder) -> None:
    filled(build, "sick", 4, ready=False, zone="z")
    filled(build, "well", 9, zone="y").group("sick").group("well")


def _nothing_ready(build: ClusterBuilder) -> None:
    build.nodes[0] = node("anchor", ready=False)


@pytest.mark.parametrize("trouble", [_unhealthy_group, _unhealthy_zone, _nothing_ready])
def test_possible_network_failure_allows_deletion_of_failed_creations_only(trouble: Any) -> None:
    build, known = late(1, template=node("t", zone="z"))
    trouble(build)
    wrong = Memory(groups={"g": GroupMemory(size_wrong=(0, 3), size_wrong_since=NOW - HOUR)})
    assert build.plan(known).repairs == ()
    build.groups[0] = msgspec.structs.replace(build.groups[0], instances=(), target=3)
    assert build.plan(wrong).repairs == ()
    build, known = out_of_stock(1, template=node("t", zone="z"))
    trouble(build)
    assert repaired(build.plan(known)) == {"g": ("discard", 1, 0)}


@pytest.mark.parametrize("field", ["error", "scale_down_held"])
def test_unreadable_or_rolling_group_is_not_repaired_and_other_groups_are(field: str) -> None:
    build, _ = late(1)
    build.groups[-1] = msgspec.structs.replace(build.groups[-1], **{field: "a rollout"})
    with_machines(build, "other", 1)
    assert repaired(build.plan(seen(build, HOUR))) == {"other": ("discard", 1, 0)}


def test_instance_held_by_the_provider_is_not_deleted_and_others_are() -> None:
    build, known = late(2, target=3)
    first, *rest = build.groups[-1].instances
    held = (msgspec.structs.replace(first, held="protected"), *rest)
    build.groups[-1] = msgspec.structs.replace(build.groups[-1], instances=held)
    assert discarded(build.plan(known)) == [rest[-1].id]


@pytest.mark.parametrize(
    ("kind", "discards", "shrinks"),
    [
        (OperationKind.SCALE_UP, False, False),
        (OperationKind.DECREASE_TARGET, False, False),
        (OperationKind.DELETE_INSTANCES, False, False),
        (OperationKind.DELETE_NODES, True, False),
    ],
)
def test_no_repair_is_planned_while_the_group_has_an_open_operation(
    kind: OperationKind, *, discards: bool, shrinks: bool
) -> None:
    busy = operation(kind, "g", RemovalTarget("x", "i-x"), from_size=3, to_size=3)
    elsewhere = operation(kind, "other", RemovalTarget("x", "i-x"), from_size=3, to_size=3)
    build, known = late(1, build=filled(anchored(), "g", 2))
    assert bool(build.plan(msgspec.structs.replace(known, operations=(busy,))).repairs) is discards
    assert build.plan(msgspec.structs.replace(known, operations=(elsewhere,))).repairs
    build = filled(anchored(), "g", 1).group("g", target=3)
    wrong = Memory(
        groups={"g": GroupMemory(size_wrong=(1, 3), size_wrong_since=NOW - HOUR)},
        operations=(busy,),
    )
    assert bool(build.plan(wrong).repairs) is shrinks


def test_group_scaled_up_in_this_plan_is_repaired_later() -> None:
    build, known = late(
        1, template=node("t", "8"), build=cluster().node("a", "8", "64Gi", group="g")
    )
    plan = build.running("a", 1, "7").pending(1, "6").plan(known)
    assert growth(plan) == {"g": (1, 1)}
    assert plan.repairs == ()


def test_removal_in_the_same_plan_allows_repair_of_failed_instances_only() -> None:
    def plan(build: ClusterBuilder) -> Plan:
        return build.plan(seen(build, HOUR), unneeded=7200)

    build = filled(anchored(), "g", 2)
    assert repaired(plan(with_machines(build, "g", 1, min=1))) == {}
    assert plan(build).removals
    failed = plan(with_machines(filled(anchored(), "g", 2), "g", 1, error=STOCK, min=1))
    assert repaired(failed) == {"g": ("discard", 3, 2)}
    assert len(failed.removals) == 1, "what failed never was a part of the size"
