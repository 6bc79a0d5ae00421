"""Builds groups with instances that have not registered, will never
register, or are being deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.model.group import GroupOptions, Instance, InstanceError, InstanceState
from chalicelib.model.memory import GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind, OperationState, RemovalTarget
from chalicelib.model.plan import GroupVerdict, Plan
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState, build_cluster_state
from chalicelib.plan.state.scale_up_requests import resolve_scale_up_requests
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from tests.builders import NOW, ClusterBuilder, cluster
from tests.operations import new_operation

STOCK = InstanceError("OutOfStock", "OUT_OF_QUOTA", "none left")
HOUR = 3600.0


def with_machines(
    build: ClusterBuilder,
    name: str,
    absent: int = 0,
    *,
    target: int | None = None,
    error: InstanceError | None = None,
    template: Node | None = None,
    **fields: Any,
) -> ClusterBuilder:
    """Group `name` of the nodes built with group=name, plus `absent`
    unregistered instances `<name>-0` …"""
    options = {
        key: fields.pop(key) for key in tuple(fields) if key in GroupOptions.__struct_fields__
    }
    build.group(name, target=target, template=template, options=GroupOptions(**options), **fields)
    made = build.groups[-1]
    start = sum(i.id.startswith(f"test://{name}/m-") for i in made.instances)
    more = tuple(
        Instance(f"test://{name}/m-{at}", InstanceState.CREATING, error, handle=f"{name}/m-{at}")
        for at in range(start, start + absent)
    )
    size = len(made.instances) + absent if target is None else target
    build.groups[-1] = msgspec.structs.replace(
        made, instances=(*made.instances, *more), target=size
    )
    return build


def anchored() -> ClusterBuilder:
    """A cluster with one ready node that belongs to no group."""
    return cluster().node(
        "anchor", "64", "256Gi", labels={"node-role.kubernetes.io/control-plane": ""}
    )


def seen(
    build: ClusterBuilder, ago: float, groups: Mapping[str, GroupMemory] | None = None
) -> Memory:
    """Memory in which every unregistered instance was first seen that long ago."""
    return Memory(
        unregistered={
            i.id: NOW - ago for group in build.groups for i in group.instances if not i.node
        },
        groups=dict(groups or {}),
        first_seen=NOW - 100 * HOUR,
    )


def asked(count: int, ago: float, takes: float = 900.0, **more: Any) -> GroupMemory:
    """A scale-up request for that many instances, made that long ago."""
    return GroupMemory(request=ScaleUpRequest(count, NOW - ago, NOW - ago + takes), **more)


def operation(
    kind: OperationKind, group: str = "g", *targets: RemovalTarget, **fields: Any
) -> Operation:
    """An open operation."""
    return new_operation(
        id=f"{kind.value}-{group}",
        cluster="test",
        provider="test",
        group=group,
        kind=kind,
        plan="p",
        created_at=NOW - 30,
        state=OperationState.WAITING,
        targets=targets,
        **fields,
    )


def world_of(
    build: ClusterBuilder, memory: Memory | None = None, *, now: float = NOW, **options: Any
) -> ClusterState:
    """The cluster state of one pass, with scale-up requests resolved."""
    policy = Policy(
        name="test", mode=Mode.ACTIVE, options=msgspec.structs.replace(Options(), **options)
    )
    return resolve_scale_up_requests(
        build_cluster_state(build.snapshot(), policy, memory or Memory(), now)
    )


def facts_of(
    build: ClusterBuilder, memory: Memory | None = None, group: str = "g", **more: Any
) -> NodeGroupState:
    """The state of one group."""
    return world_of(build, memory, **more).groups[group]


def group_verdict(plan: Plan, group: str = "g") -> GroupVerdict:
    """The plan's verdict on a group."""
    return next(each for each in plan.groups if each.group == group)


def repaired(plan: Plan) -> dict[str, tuple[str, int, int]]:
    """Repairs by group: group -> (kind, from, to)."""
    return {each.group: (each.kind, each.from_size, each.to_size) for each in plan.repairs}


def filled(build: ClusterBuilder, name: str, count: int, **more: Any) -> ClusterBuilder:
    """Adds `count` nodes of a group, `<name>-<n>`; call it before the group is built."""
    for at in range(count):
        build.node(f"{name}-{at}", group=name, **more)
    return build
