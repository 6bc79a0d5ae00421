"""Repairs of groups, and cases in which a group is left unchanged
(docs/reference/node-groups.md "Repairs").
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Instance
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.plan import Plan
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ClusterBuilder, growth, node
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

MINUTES_45 = 2700.0


def late(
    count: int,
    ago: float = HOUR,
    *,
    build: ClusterBuilder | None = None,
    groups: dict[str, GroupMemory] | None = None,
    **fields: Any,
) -> tuple[ClusterBuilder, Memory]:
    """Group g with `count` instances that did not join in time."""
    build = with_machines(build or anchored(), "g", count, **fields)
    return build, seen(build, ago, groups)


def discarded(plan: Plan) -> list[str]:
    """Instances that the operations delete."""
    return [
        target.instance
        for op in plan.operations
        if op.spec.kind is OperationKind.DELETE_INSTANCES
        for target in op.spec.targets
    ]


# -- instances that do not join


@pytest.mark.parametrize(
    ("target", "options", "goes"),
    [
        pytest.param(2, {}, True, id="C12-above-the-minimum"),
        pytest.param(1, {}, False, id="C12-at-the-minimum"),
        pytest.param(1, {"force_delete_unregistered_nodes": True}, True, id="C12-forced"),
        pytest.param(
            1, {"enforce_node_group_min_size": True}, True, id="the-minimum-grows-it-again"
        ),
    ],
)
def test_instance_that_never_registered_is_deleted(
    target: int, options: dict[str, Any], *, goes: bool
) -> None:
    build, known = late(1, min=1, target=target, max_node_provision_time=MINUTES_45)
    plan = build.plan(known, **options)
    assert discarded(plan) == (["test://g/m-0"] if goes else [])
    if goes:
        found = plan.repairs[0]
        assert (found.kind, found.from_size, found.to_size) == ("discard", target, target - 1)
        assert sentence(found.reason).startswith(
            "instance test://g/m-0 never became a node (first seen"
        )
        assert found.reason.params["needs"] == MINUTES_45


@pytest.mark.parametrize(("ago", "goes"), [(MINUTES_45, False), (MINUTES_45 + 1, True)])
def test_registration_deadline_is_the_instance_groups_own(ago: float, *, goes: bool) -> None:
    build, known = late(1, ago, max_node_provision_time=MINUTES_45)
    assert bool(discarded(build.plan(known))) is goes


# At the minimum, dead instances are replaced and running ones are not touched
# (docs/reference/node-groups.md "Repairs").
def test_group_at_its_minimum_deletes_dead_instances_and_scales_up_again() -> None:
    build, known = late(2, build=filled(anchored(), "g", 1), min=3, template=node("t"))
    plan = build.plan(known, enforce_node_group_min_size=True)
    assert repaired(plan) == {"g": ("discard", 3, 1)}
    assert growth(plan) == {}
    after = filled(anchored(), "g", 1).group("g", min=3, template=node("t"))
    assert growth(after.plan(enforce_node_group_min_size=True)) == {"g": (2, 0)}


def test_deletion_stops_at_the_minimum_and_takes_the_oldest_first() -> None:
    build, known = late(3, build=filled(anchored(), "g", 1), min=2)
    known.unregistered["test://g/m-1"] = NOW - 3 * HOUR
    assert discarded(build.plan(known)) == ["test://g/m-1", "test://g/m-0"]


def test_incomplete_zero_or_max_group_is_deleted() -> None:
    build, known = late(10, max=10, zero_or_max=True)
    known.unregistered["test://g/m-9"] = NOW - 60
    assert repaired(build.plan(known)) == {"g": ("discard", 10, 0)}
    build, known = late(9, build=filled(anchored(), "g", 1), max=10, zero_or_max=True)
    plan = build.plan(known)
    assert repaired(plan) == {"g": ("discard", 10, 1)}, (
        "the node that did join is left to scale-down, which drains it"
    )
    build, known = late(
        9,
        build=filled(anchored(), "g", 1),
        max=10,
        zero_or_max=True,
        allow_non_atomic_scale_up_to_max=True,
    )
    assert build.plan(known).repairs == ()


# -- instances that could not be created


def out_of_stock(
    count: int, memory: GroupMemory | None = None, *, absent: int = 0, **fields: Any
) -> tuple[ClusterBuilder, Memory]:
    """Group g with that many failed instances, and `absent` instances that are being created."""
    build = with_machines(anchored(), "g", count, error=STOCK, **fields)
    if absent:
        group = build.groups[-1]
        more = tuple(Instance(f"test://g/c-{at}", group.instances[0].state) for at in range(absent))
        build.groups[-1] = msgspec.structs.replace(
            group, instances=(*group.instances, *more), target=group.target + absent
        )
    return build, Memory(groups={"g": memory or GroupMemory()}, first_seen=NOW - HOUR)


def test_failed_instances_are_deleted_at_once_and_counted_once() -> None:
    build, known = out_of_stock(2, asked(3, 60), target=3, min=3)
    plan, after = build.decide(known)
    group = after.groups["g"]
    assert group.request is not None
    assert group.request.increase == 1
    assert group.backoff is not None
    assert (group.backoff.cls, group.backoff.code) == ("OutOfStock", "OUT_OF_QUOTA")
    assert repaired(plan) == {"g": ("discard", 3, 1)}
    assert (
        sentence(plan.repairs[0].reason)
        == "instance test://g/m-0 could not be created (OUT_OF_QUOTA: none left)"
    )
    plan, later = build.decide(after, now=NOW + 60)
    assert later.groups["g"].backoff == group.backoff, "no second failure"
    assert later.groups["g"].request == group.request
    assert repaired(plan) == {"g": ("discard", 3, 1)}, "still listed, discarded again"


# The next group is used in the same pass.
@pytest.mark.parametrize("growing", [False, True])
def test_failed_instance_sends_its_pods_to_the_next_group_in_the_same_pass(
    *, growing: bool
) -> None:
    build = with_machines(anchored(), "a", 1, error=STOCK, template=node("t", "2"))
    build.group("b", template=node("t", "4")).pending(1, "1500m")
    build.nodes[0] = msgspec.structs.replace(build.nodes[0], unschedulable=True)
    known = Memory(groups={"a": asked(1, 60)}, first_seen=NOW - HOUR)
    if growing:
        known = Memory(
            operations=(operation(OperationKind.SCALE_UP, "a", from_size=0, to_size=1),),
            first_seen=NOW - HOUR,
        )
    plan, after = build.decide(known)
    assert growth(plan) == {"b": (1, 1)}
    assert after.groups["a"].backoff is not None
    assert repaired(plan) == ({} if growing else {"a": ("discard", 1, 0)}), (
        "a size that is being set is left alone"
    )


@pytest.mark.parametrize(
    ("some", "options", "gone"),
    [
        (0, {}, 2),
        (3, {}, 5),
        (0, {"allow_non_atomic_scale_up_to_max": True}, 2),
        (3, {"allow_non_atomic_scale_up_to_max": True}, 0),
    ],
)
def test_zero_or_max_group_with_failed_instances_is_deleted_whole_or_not_at_all(
    some: int, options: dict[str, Any], gone: int
) -> None:
    build, known = out_of_stock(2, absent=some, max=5, zero_or_max=True, **options)
    assert len(discarded(build.plan(known))) == gone


# -- targets without instances


def test_size_mismatch_is_remembered_as_long_as_both_sizes_stay() -> None:
    def wrong(
        nodes: int, absent: int, memory: Memory | None = None, ago: float = 60
    ) -> GroupMemory:
        build = with_machines(filled(anchored(), "g", nodes), "g", absent, target=10)
        first = msgspec.structs.replace(
            memory or Memory(), unregistered=seen(build, ago).unregistered
        )
        return build.decide(first)[1].groups["g"]

    assert (wrong(8, 0).size_wrong, wrong(8, 0).size_wrong_since) == ((8, 10), NOW)
    assert wrong(8, 2).size_wrong == wrong(8, 2, ago=HOUR).size_wrong == (0, 0)
    assert wrong(12, 0).size_wrong == (12, 10)
    before = Memory(groups={"g": GroupMemory(size_wrong=(7, 10), size_wrong_since=NOW - 500)})
    assert wrong(7, 0, before).size_wrong_since == NOW - 500
    assert wrong(8, 0, before).size_wrong_since == NOW
    ahead = Memory(groups={"g": GroupMemory(size_wrong=(8, 10), size_wrong_since=NOW + 500)})
    assert wrong(8, 0, ahead).size_wrong_since == NOW, "a clock that was wrong"


@pytest.mark.parametrize(
    ("ago", "repairs"), [(HOUR, {"g": ("shrink", 3, 1)}), (600.0, {}), (MINUTES_45, {})]
)
def test_target_above_the_real_size_is_lowered(ago: float, repairs: dict[str, Any]) -> None:
    build = with_machines(
        filled(anchored(), "g", 1), "g", target=3, max_node_provision_time=MINUTES_45
    )
    known = Memory(groups={"g": GroupMemory(size_wrong=(1, 3), size_wrong_since=NOW - ago)})
    plan = build.plan(known)
    assert repaired(plan) == repairs
    if repairs:
        assert (
            plan.operations[0].spec.kind,
            plan.operations[0].spec.from_size,
            plan.operations[0].spec.to_size,
        ) == (
            OperationKind.DECREASE_TARGET,
            3,
            1,
        )
        assert "1 nodes, target 3" in sentence(plan.repairs[0].reason)


@pytest.mark.parametrize(("arrived", "to_size"), [(0, 0), (2, 2)])
def test_expired_scale_up_lowers_the_target_by_the_missing_instances(
    arrived: int, to_size: int
) -> None:
    build = with_machines(filled(anchored(), "g", arrived), "g", target=4)
    plan, after = build.decide(Memory(groups={"g": asked(4, 180, 120)}))
    assert repaired(plan) == {"g": ("shrink", 4, to_size)}
    assert plan.repairs[0].reason.params == {"nodes": 4 - to_size, "since": NOW - 180}
    assert after.groups["g"].request is None
    assert after.groups["g"].backoff is not None
    assert build.plan(after, now=NOW + 60).repairs == (), (
        "once; what stays wrong is seen by its size"
    )


def test_unregistered_instances_are_deleted_when_late_and_not_by_a_target_decrease() -> None:
    build = with_machines(anchored(), "g", 2, target=4)
    known = Memory(groups={"g": asked(4, 1000)}, unregistered=seen(build, 870).unregistered)
    assert repaired(build.plan(known)) == {"g": ("shrink", 4, 2)}


@pytest.mark.parametrize(
    "groups",
    [{"g": asked(2, 1000)}, {"g": GroupMemory(size_wrong=(1, 3), size_wrong_since=NOW - HOUR)}],
)
def test_target_is_never_lowered_below_the_minimum(groups: dict[str, GroupMemory]) -> None:
    build = with_machines(filled(anchored(), "g", 1), "g", target=3, min=2)
    assert repaired(build.plan(Memory(groups=groups))) == {"g": ("shrink", 3, 2)}
    build = with_machines(filled(anchored(), "g", 1), "g", target=3, min=3)
    assert build.plan(Memory(groups=groups)).repairs == ()


def test_failed_repair_is_delayed_and_then_each_instance_is_tried_alone() -> None:
    build, known = late(3)
    for failures, instance in ((1, "test://g/m-1"), (2, "test://g/m-2"), (3, "test://g/m-0")):
        memory = GroupMemory(repair_failures=failures, repair_after=NOW)
        assert discarded(build.plan(msgspec.structs.replace(known, groups={"g": memory}))) == [
            instance
        ]
    waits = GroupMemory(repair_failures=1, repair_after=NOW + 1)
    plan = build.pending(1, "100").plan(msgspec.structs.replace(known, groups={"g": waits}))
    assert plan.repairs == ()


def test_group_waiting_for_its_repair_is_still_scaled_up() -> None:
    build, known = late(
        1, template=node("t", "128"), groups={"g": GroupMemory(repair_after=NOW + 600)}
    )
    assert growth(build.pending(1, "100").plan(known)) == {"g": (1, 1)}


# -- planned operations


def test_repair_operation_names_instances_and_handles_and_is_deterministic() -> None:
    build, known = late(2)
    first, second = build.plan(known), build.plan(known)
    assert first.operations == second.operations
    (made,) = first.operations
    assert (made.spec.kind, made.spec.from_size, made.spec.to_size, made.spec.deadline) == (
        OperationKind.DELETE_INSTANCES,
        2,
        0,
        NOW + 600,
    )
    assert made.spec.targets == (
        RemovalTarget("", "test://g/m-0", "g/m-0"),
        RemovalTarget("", "test://g/m-1", "g/m-1"),
    )
    other = build.plan(seen(build, 30)).operations
    assert other == ()


def test_failed_instance_during_backoff_is_counted_without_a_longer_backoff() -> None:
    failed = Backoff(duration=300, until=NOW + 100, last_failed=NOW - 200)
    build, known = out_of_stock(1, asked(2, 60, backoff=failed), target=2)
    after = build.decide(known)[1].groups["g"]
    assert after.backoff is not None
    assert (after.backoff.duration, after.backoff.until) == (300, NOW + 300)


def test_group_state_lists_instances_that_could_not_be_created() -> None:
    build, known = out_of_stock(2, absent=1)
    facts = facts_of(build, known)
    assert (len(facts.failed), len(facts.unregistered), facts.leaving) == (2, 1, 2)


# -- marks that removals have left


def marked(**fields: Any) -> ClusterBuilder:
    """Group g with two nodes, one of which has a mark of a removal that is over."""
    build = filled(anchored(), "g", 2).group("g", **fields)
    first, second = build.groups[-1].instances
    instances = (msgspec.structs.replace(first, left_mark=True), second)
    build.groups[-1] = msgspec.structs.replace(build.groups[-1], instances=instances)
    return build


@pytest.mark.parametrize("held", ["", "a rollout replaces its machines"])
def test_mark_that_a_removal_has_left_is_taken_off_and_the_size_stays(held: str) -> None:
    plan = marked(scale_down_held=held).plan()
    assert repaired(plan) == {"g": ("shrink", 2, 2)}
    [entry] = plan.operations
    assert (entry.spec.kind, entry.spec.from_size, entry.spec.to_size) == (
        OperationKind.DECREASE_TARGET,
        2,
        2,
    )
    assert entry.spec.targets == ()
    [repair] = plan.repairs
    assert sentence(repair.reason).startswith("a removal that is over has left its mark on")


@pytest.mark.parametrize(
    "memory",
    [
        Memory(operations=(operation(OperationKind.DELETE_NODES),)),
        Memory(operations=(operation(OperationKind.DECREASE_TARGET),)),
        Memory(groups={"g": GroupMemory(repair_after=NOW + 60.0)}),
    ],
)
def test_mark_waits_for_the_operations_of_its_group_and_for_its_back_off(memory: Memory) -> None:
    assert repaired(marked().plan(memory)) == {}
