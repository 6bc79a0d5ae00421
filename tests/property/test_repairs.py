"""Repairs for any vendor response and any memory: a repair removes no node and no
more instances than allowed.

The groups here are mostly broken, some of them impossible: mismatched sizes, ids listed twice or by
two groups, instances with the names of nodes, memory from the future. The test states the
invariants independently, from the snapshot alone.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.model.group import GroupOptions, Instance, InstanceError, InstanceState, NodeGroup
from chalicelib.model.memory import GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from tests.amounts import examples
from tests.builders import NOW, node
from tests.operations import new_operation

GROUPS = ("a", "b", "c")
_TIMES = st.sampled_from(
    [NOW - 9000.0, NOW - 1000.0, NOW - 901.0, NOW - 900.0, NOW - 10.0, NOW + 5000.0]
)
_SEEN = st.sampled_from([0.0, NOW - 100_000.0, NOW - 2000.0])
_ERRORS = st.sampled_from(
    [None, None, InstanceError("OutOfStock", "X", "none"), InstanceError("Unknown")]
)


@st.composite
def instances(draw: st.DrawFn, group: str) -> tuple[Instance, ...]:
    found = []
    # a number that is drawn twice is listed twice
    for at in draw(st.lists(st.integers(0, 5), max_size=7)):
        named = draw(st.sampled_from(["", "", f"{group}-{at}"]))
        # sometimes another group's instance
        owner = draw(st.sampled_from([group, group, group, "a"]))
        found.append(
            Instance(
                f"test://{owner}/{owner}-{at}",
                draw(st.sampled_from(list(InstanceState))),
                draw(_ERRORS),
                handle=f"{owner}/h-{at}",
                node=named,
            )
        )
    return tuple(found)


@st.composite
def group(draw: st.DrawFn, name: str) -> NodeGroup:
    least = draw(st.integers(0, 4))
    options = GroupOptions(
        zero_or_max=draw(st.booleans()) and draw(st.booleans()),
        allow_non_atomic_scale_up_to_max=draw(st.booleans()),
        max_node_provision_time=draw(st.sampled_from([None, 60.0])),
    )
    return NodeGroup(
        name,
        "test",
        least,
        least + draw(st.integers(0, 8)),
        draw(st.integers(-1, 12)),
        draw(instances(name)),
        draw(st.sampled_from([None, node("t")])),
        options=options,
        error=draw(st.sampled_from(["", "", "", "403"])),
    )


@st.composite
def group_memory(draw: st.DrawFn) -> GroupMemory:
    asked = draw(st.none() | st.builds(ScaleUpRequest, st.integers(1, 6), _TIMES, _TIMES))
    return GroupMemory(
        request=asked,
        size_wrong_since=draw(st.just(0.0) | _TIMES),
        size_wrong=(draw(st.integers(0, 6)), draw(st.integers(0, 12))),
        repair_failures=draw(st.integers(0, 3)),
        repair_after=draw(st.sampled_from([0.0, NOW, NOW + 60])),
    )


@st.composite
def operations(draw: st.DrawFn) -> tuple[Operation, ...]:
    found = []
    for name in draw(st.lists(st.sampled_from(GROUPS), max_size=2, unique=True)):
        kind, at = draw(st.sampled_from(list(OperationKind))), draw(st.integers(0, 5))
        targets = (RemovalTarget(f"{name}-{at}", f"test://{name}/{name}-{at}"),)
        found.append(
            new_operation(
                f"{kind}-{name}",
                "test",
                "test",
                name,
                kind,
                "p",
                NOW - 60,
                3,
                5,
                targets,
                state=OperationState.RUNNING,
            )
        )
    return tuple(found)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Snapshot, Policy, Memory]:
    groups = tuple(
        draw(group(name))
        for name in draw(st.lists(st.sampled_from(GROUPS), min_size=1, unique=True))
    )
    nodes = [node("anchor", "64")]
    nodes += [
        node(f"{name}-{at}", group=name, ready=draw(st.booleans()))
        for name, at in draw(
            st.lists(st.tuples(st.sampled_from(GROUPS), st.integers(0, 5)), unique=True)
        )
    ]
    if draw(st.booleans()):  # kubelets that report no provider id
        nodes = [msgspec.structs.replace(each, provider_id="") for each in nodes]
    memory = Memory(
        groups={name: draw(group_memory()) for name in draw(st.sets(st.sampled_from(GROUPS)))},
        unregistered={
            i.id: draw(_TIMES) for each in groups for i in each.instances if draw(st.booleans())
        },
        operations=draw(operations()),
        first_seen=draw(_SEEN),
    )
    options = Options(
        force_delete_unregistered_nodes=draw(st.booleans()) and draw(st.booleans()),
        enforce_node_group_min_size=draw(st.booleans()) and draw(st.booleans()),
    )
    return (
        Snapshot("test", NOW, nodes=tuple(nodes), groups=groups),
        Policy("test", options=options),
        memory,
    )


def _is_node(instance: Instance, nodes: tuple[Node, ...]) -> bool:
    return any(instance.node == each.name or instance.id == each.provider_id for each in nodes)


def _check(plan: Plan, snapshot: Snapshot, policy: Policy, memory: Memory) -> None:
    groups = {each.id: each for each in snapshot.groups}
    busy = {(op.spec.group, op.spec.kind) for op in memory.operations}
    owners = Counter(name for each in snapshot.groups for name in {i.id for i in each.instances})
    by_id = {op.spec.id: op for op in plan.operations}
    assert len(by_id) == len(plan.operations), "one intent, one id"
    assert len({each.group for each in plan.repairs}) == len(plan.repairs), (
        "one repair of a group at a time"
    )
    repairs = [
        op
        for op in plan.operations
        if op.spec.kind in {OperationKind.DELETE_INSTANCES, OperationKind.DECREASE_TARGET}
    ]
    assert [op.spec.group for op in repairs] == [each.group for each in plan.repairs]
    for op, said in zip(repairs, plan.repairs, strict=True):
        found = groups[op.spec.group]
        assert not found.error
        assert found.target == op.spec.from_size >= 0
        assert 0 <= op.spec.to_size < op.spec.from_size
        assert memory.groups.get(op.spec.group, GroupMemory()).repair_after <= plan.at
        assert (
            not {
                (op.spec.group, kind)
                for kind in (
                    OperationKind.SCALE_UP,
                    OperationKind.DECREASE_TARGET,
                    OperationKind.DELETE_INSTANCES,
                )
            }
            & busy
        )
        assert not any(up.group == op.spec.group for up in plan.scale_ups)
        listed = {i.id: i for i in found.instances}
        if op.spec.kind is OperationKind.DECREASE_TARGET:
            assert (op.spec.group, OperationKind.DELETE_NODES) not in busy
            assert op.spec.to_size >= found.min
            assert op.spec.to_size >= len(listed), "every machine that is there stays"
            continue
        assert (
            len([i for i in listed.values() if i.state is not InstanceState.DELETING])
            <= op.spec.from_size
        )
        assert said.instances == tuple(target.instance for target in op.spec.targets)
        assert len(set(said.instances)) == len(said.instances)
        for target in op.spec.targets:
            instance = listed[target.instance]
            assert not _is_node(instance, snapshot.nodes)
            assert instance.state is not InstanceState.DELETING
            assert owners[target.instance] == 1
        _check_minimum(op, found, plan, policy)


def _check_minimum(op: Operation, found: NodeGroup, plan: Plan, policy: Policy) -> None:
    """Deletion of unregistered instances does not take the group below its minimum,
    unless the user allowed it."""
    options = policy.options
    named = {target.instance for target in op.spec.targets}
    if any(i.id in named and i.error is not None for i in found.instances):
        return  # instances that could not be created never counted towards it
    if not (options.force_delete_unregistered_nodes or options.enforce_node_group_min_size):
        gone = sum(removal.group == op.spec.group for removal in plan.removals)
        assert op.spec.to_size - gone >= found.min


@pytest.mark.more
@settings(
    max_examples=examples(75, 500),
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(scenes())
def test_repair_removes_no_node_and_no_more_instances_than_allowed(
    scene: tuple[Snapshot, Policy, Memory],
) -> None:
    snapshot, policy, memory = scene
    plan, after = plan_cluster(snapshot, policy, memory, NOW, 0)
    _check(plan, snapshot, policy, memory)
    again, _ = plan_cluster(snapshot, policy, memory, NOW, 0)
    assert again.operations == plan.operations, "the same pass intends the same"
    stored = msgspec.json.decode(msgspec.json.encode(after), type=Memory)
    assert stored == after
    later, _ = plan_cluster(snapshot, policy, stored, NOW + 2000.0, 0)
    _check(later, snapshot, policy, stored)


@pytest.mark.more
@settings(max_examples=examples(20, 100), deadline=None, database=None, derandomize=True)
@given(scenes(), st.randoms(use_true_random=False))
def test_repairs_do_not_depend_on_the_listing_order(
    scene: tuple[Snapshot, Policy, Memory], chance: random.Random
) -> None:
    snapshot, policy, memory = scene
    nodes = list(snapshot.nodes)
    chance.shuffle(nodes)
    mixed = msgspec.structs.replace(snapshot, nodes=tuple(nodes))
    assert (
        plan_cluster(mixed, policy, memory, NOW, 0)[0].repairs
        == plan_cluster(snapshot, policy, memory, NOW, 0)[0].repairs
    )
