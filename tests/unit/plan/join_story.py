"""A node group over several passes of the whole planner, for tests of what it teaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.memory import GroupMemory, JoinStatistics, Memory, ScaleUpRequest
from chalicelib.model.node import Node
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from tests.builders import NOW, cluster, node

DAY = 86_400.0


def new_node(name: str, created: float, ready_at: float = 0.0, **more: Any) -> Node:
    """A node of the group `g`; ready_at: 0.0 if it is not ready."""
    return node(name, group="g", created=created, ready=ready_at > 0, ready_since=ready_at, **more)


def instance(name: str, created: float = 0.0, *, failed: bool = False) -> Instance:
    """An instance of the group `g`, which the node of this name becomes."""
    return Instance(
        f"test://g/{name}",
        InstanceState.CREATING if failed else InstanceState.RUNNING,
        InstanceError("OutOfStock") if failed else None,
        created=created,
    )


class JoinStory:
    """The memory of a cluster with the group `g`, pass by pass."""

    def __init__(self, **policy: Any) -> None:
        self.policy = Policy(name="test", mode=Mode.ACTIVE, **policy)
        self.memory = Memory()

    @property
    def group(self) -> GroupMemory:
        """Return what is remembered of the group."""
        return self.memory.groups["g"]

    @property
    def joins(self) -> JoinStatistics:
        """Return the statistics of the group."""
        assert self.group.joins is not None
        return self.group.joins

    def request(self, increase: int, at: float, takes: float = 900.0) -> None:
        """Remember a scale-up that was requested, as its operation does at its end."""
        request = ScaleUpRequest(increase, at, at + takes)
        self.memory = msgspec.structs.replace(
            self.memory, groups={"g": msgspec.structs.replace(self.group, request=request)}
        )

    def see(
        self,
        now: float,
        *nodes: Node,
        instances: Sequence[Instance] = (),
        target: int | None = None,
        **more: Any,
    ) -> Plan:
        """Run a pass at NOW + now, with these nodes and instances. instances: those of nodes that
        it does not name have no creation time."""
        build = cluster()
        build.nodes = [node("other", "8"), *nodes]
        listed = {one.id: one for one in (*(instance(one.name) for one in nodes), *instances)}
        size = len(listed) if target is None else target
        build.group("g", target=size, template=node("t"), **more)
        build.groups[0] = msgspec.structs.replace(build.groups[0], instances=tuple(listed.values()))
        plan, self.memory = plan_cluster(build.snapshot(), self.policy, self.memory, NOW + now, 0)
        return plan
