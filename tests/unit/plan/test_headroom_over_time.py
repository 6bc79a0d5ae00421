"""Headroom over many passes: it neither oscillates nor is bought twice."""

from __future__ import annotations

import msgspec

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.plan import Plan
from chalicelib.policy.settings.headroom import Headroom
from tests.builders import NOW, ClusterBuilder, cluster, coming, growth
from tests.unit.plan.headroom_builder import SPARE, decided, said


class _Clouds:
    """A group of four-core nodes whose instances take time to register.
    Plans are applied at once."""

    def __init__(self, *headroom: Headroom, nodes: int = 1) -> None:
        self.headroom, self.memory, self.now = headroom, Memory(), NOW
        self.pods: dict[str, tuple[str, int]] = {}  # name -> node, millicores
        self.nodes = [f"g-{at}" for at in range(nodes)]
        self.coming: list[tuple[str, float]] = []
        self.bought = self.removed = 0

    def build(self) -> ClusterBuilder:
        build = cluster()
        for name in self.nodes:
            build.node(name, "4", "16Gi", group="g", created=NOW - 86400)
        for name, (where, cpu) in sorted(self.pods.items()):
            if where in self.nodes:
                build.running(where, 1, f"{cpu}m", "1Gi", name=name)
            else:
                build.pending(1, f"{cpu}m", "1Gi", name=name, created=NOW - 3600)
        build.group("g", target=len(self.nodes) + len(self.coming))
        machines = tuple(
            Instance(f"test://g/{name}", InstanceState.CREATING) for name, _ in self.coming
        )
        build.groups[0] = msgspec.structs.replace(
            build.groups[0], instances=(*build.groups[0].instances, *machines)
        )
        return build

    def step(self, seconds: float = 60.0, *, crash: bool = False) -> Plan:
        self.now += seconds
        here = [name for name, at in self.coming if at <= self.now]
        self.nodes += here
        self.coming = [(name, at) for name, at in self.coming if at > self.now]
        found, after = decided(
            self.build(), *self.headroom, memory=self.memory, now=self.now, unneeded=None
        )
        self.memory = after
        if crash:  # saved, and not applied
            self.memory = msgspec.structs.replace(
                after, operations=(*after.operations, *found.operations)
            )
            return found
        for up in found.scale_ups:
            self.bought += up.to_size - up.from_size
            self.arrive(up.to_size - up.from_size)
        for removal in found.removals:
            self.removed += 1
            self.nodes.remove(removal.node)
            for name, (where, cpu) in list(self.pods.items()):
                if where == removal.node:
                    self.pods[name] = ("", cpu)
        for promise in found.promises:
            for key in promise.pods if promise.node in self.nodes else ():
                name = key.partition("/")[2].rpartition("-")[0]
                self.pods[name] = (promise.node, self.pods[name][1])
        return found

    def arrive(self, count: int) -> None:
        """Registers that many requested instances."""
        self.coming += [
            (f"n-{self.bought}-{at}-{int(self.now)}", self.now + 180) for at in range(count)
        ]
        asked = coming({"g": count}).groups["g"]
        assert asked.request is not None
        request = msgspec.structs.replace(asked.request, since=self.now, expected_at=self.now + 900)
        known = self.memory.groups.get("g", GroupMemory())
        self.memory = msgspec.structs.replace(
            self.memory,
            groups={**self.memory.groups, "g": msgspec.structs.replace(known, request=request)},
        )


def test_headroom_day_without_load_causes_no_action_and_no_memory_write() -> None:
    world = _Clouds(Headroom("tenth", percent=10), SPARE, nodes=3)
    world.pods = {f"p{at}": (f"g-{at % 3}", 1000) for at in range(7)}
    world.step()
    before = world.memory
    for _ in range(48):
        found = world.step(1800)
        assert (found.scale_ups, found.removals, found.marks) == ((), (), ())
        assert msgspec.structs.replace(world.memory, templates={}) == msgspec.structs.replace(
            before, templates={}
        )
    assert all(one.held == one.wanted for one in found.headroom)


def test_upcoming_headroom_nodes_are_not_bought_again_even_after_a_crash() -> None:
    world = _Clouds(Headroom("spare", pods=6, cpu=1000), nodes=1)
    first = world.step(crash=True)
    assert growth(first) == {"g": (1, 0)}
    assert growth(world.step(crash=True)) == {}, "the operation is saved: it will be carried out"
    assert said(world.step(crash=True)) == (6, 6, 0)
    world.memory = msgspec.structs.replace(world.memory, operations=())
    world.arrive(1)
    for _ in range(20):
        assert growth(world.step()) == {}
    assert (len(world.nodes), world.removed) == (2, 0)


def test_pods_that_come_and_go_within_headroom_cause_no_scaling() -> None:
    world = _Clouds(Headroom("spare", pods=3, cpu=1000), nodes=3)
    world.pods = {f"p{at}": (f"g-{at % 3}", 1000) for at in range(7)}
    for hour in range(16):
        if hour % 2:
            del world.pods["guest"]
        else:
            world.pods["guest"] = ("", 1000)
        for _ in range(2):
            world.step(900)
    assert (world.bought, world.removed) == (0, 0)


def test_burst_uses_headroom_which_is_refilled_and_removed_afterwards() -> None:
    world = _Clouds(Headroom("spare", pods=4, cpu=1000), nodes=2)
    world.pods = {f"p{at}": ("g-0", 1000) for at in range(4)}
    world.step()
    world.pods.update({f"b{at}": ("", 1000) for at in range(4)})
    world.step()
    assert all(where == "g-1" for name, (where, _) in world.pods.items() if name.startswith("b")), (
        "at once"
    )
    for _ in range(10):
        world.step()
    assert (world.bought, len(world.nodes)) == (1, 3)
    for at in range(4):
        del world.pods[f"b{at}"]
    for _ in range(30):
        world.step(120)
    assert (world.bought, world.removed, len(world.nodes)) == (1, 1, 2)
