"""The scheduler may place pods of a drained node elsewhere than the plan; headroom is
preserved in every case.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.selector import Selector
from chalicelib.policy.settings.headroom import Headroom
from tests.builders import NOW, ZONE, ClusterBuilder, cluster, coming, growth, near, node, stays
from tests.unit.plan.headroom_builder import GIB, busy, decided, gone, plan

Free = dict[str, tuple[int, int]]  # node -> millicores, bytes
SCHEDULERS: dict[str, Callable[[Free], str]] = {
    "first-by-name": min,
    "emptiest": lambda free: max(free, key=lambda name: (free[name], name)),
    "fullest": lambda free: min(free, key=lambda name: (free[name], name)),
}


class _Lots:
    """Random groups and pods, whose evicted pods are placed by a simulated scheduler.
    New nodes register at once."""

    def __init__(self, seed: int, schedule: Callable[[Free], str]) -> None:
        lot = Random(seed)
        self.schedule, self.memory, self.now = schedule, Memory(), NOW
        self.shapes = {
            f"g{at}": (lot.choice([2, 4, 8]), lot.choice([4, 8, 32]))
            for at in range(lot.randint(1, 3))
        }
        self.nodes = {
            f"{group}-{at}": group for group in self.shapes for at in range(lot.randint(2, 5))
        }
        self.born = dict.fromkeys(self.nodes, NOW - 7200.0)
        self.pods: dict[str, tuple[str, int, int]] = {}
        for name, group in self.nodes.items():
            left = self.shapes[group][0] * 1000
            while lot.random() < 0.6 and (cpu := lot.choice([250, 500, 1000, 1900])) <= left:
                self.pods[f"p{len(self.pods)}"] = (name, cpu, 2**20 * lot.choice([128, 512, 1024]))
                left -= cpu
        self.headroom = (
            Headroom(
                "any",
                pods=lot.randint(1, 8),
                cpu=lot.choice([250, 1000, 3000]),
                memory=lot.choice([0, GIB]),
            ),
            *(
                [Headroom("in-g0", groups=("g0",), percent=lot.choice([10, 50, 200]))]
                if lot.random() < 0.6
                else []
            ),
        )

    def step(self) -> Plan:
        self.now += 60
        found, self.memory = decided(
            self.build(),
            *self.headroom,
            memory=self.memory,
            now=self.now,
            unneeded=None,
            scale_down_unneeded_time=120.0,
            scale_down_delay_after_add=0.0,
        )
        for up in found.scale_ups:
            for at in range(up.to_size - up.from_size):
                name = f"{up.group}-{int(self.now)}-{at}"
                self.nodes[name], self.born[name] = up.group, self.now
        for removal in found.removals:
            del self.nodes[removal.node]
        for name, (where, cpu, memory) in sorted(self.pods.items()):
            if where not in self.nodes:
                free = {
                    at: left
                    for at, left in self.free().items()
                    if left[0] >= cpu and left[1] >= memory
                }
                self.pods[name] = (self.schedule(free) if free else "", cpu, memory)
        return found

    def free(self) -> Free:
        free = {
            name: (1000 * self.shapes[group][0], GIB * self.shapes[group][1])
            for name, group in self.nodes.items()
        }
        for where, cpu, memory in self.pods.values():
            if where in free:
                free[where] = (free[where][0] - cpu, free[where][1] - memory)
        return free

    def build(self) -> ClusterBuilder:
        build = cluster()
        for name, group in sorted(self.nodes.items()):
            cpu, memory = self.shapes[group]
            build.node(
                name,
                str(cpu),
                f"{memory}Gi",
                group=group,
                created=self.born[name],
                ready_since=self.born[name],
            )
        for name, (where, milli, amount) in sorted(self.pods.items()):
            if where:
                build.running(where, 1, f"{milli}m", str(amount), name=name)
            else:
                build.pending(1, f"{milli}m", str(amount), name=name)
        for group, (cpu, memory) in self.shapes.items():
            build.group(group, max=9, template=node("t", str(cpu), f"{memory}Gi"))
        return build


@pytest.mark.parametrize(
    ("seed", "scheduler"), [(413, "first-by-name"), (3, "emptiest"), (10, "fullest")]
)
def test_headroom_never_oscillates_wherever_the_scheduler_places_pods(
    seed: int, scheduler: str
) -> None:
    world = _Lots(seed, SCHEDULERS[scheduler])
    plans = [world.step() for _ in range(24)]
    assert not any(found.scale_ups for found in plans[4:]), "what removals leave is enough"
    assert not any(found.removals for found in plans[20:]), "and it comes to an end"


def test_drain_waits_while_its_pods_could_take_the_only_headroom() -> None:
    """The pod would fit on `g-0`, but a scheduler prefers the empty node, and a
    third node would be bought."""
    assert gone(plan(busy(3, 0, 1), Headroom("spare", pods=1, cpu=4000))) == []
    assert gone(plan(busy(3, 0, 0, 1), Headroom("spare", pods=1, cpu=4000))) == ["g-1"], (
        "the empty one may go"
    )
    assert (
        gone(plan(busy(3, 0, 0, 1), Headroom("spare", pods=1, cpu=1000), max_drain_parallelism=1))
        != []
    )


def test_drain_waits_while_pods_that_ask_for_memory_alone_could_take_the_headroom() -> None:
    build = busy(3, 0, 0).running("g-2", 1, 0, "4Gi", owner="memory-only")
    assert gone(plan(build, Headroom("spare", pods=1, cpu=1000, memory=16 * GIB))) == []
    assert gone(plan(build, Headroom("spare", pods=1, cpu=1000, memory=8 * GIB))) == ["g-1"]


def test_ample_free_room_allows_as_many_removals_as_without_headroom() -> None:
    """Small pods fragment little room: eight pods of a quarter core cost four
    virtual pods, not eight."""
    build = cluster()
    for at in range(8):
        build.node(f"g-{at}", "16", "64Gi", group="g")
        build.running(f"g-{at}", 4, "250m", "256Mi")
    build.group("g")
    with_headroom = plan(build, Headroom("spare", pods=4, cpu=1000, memory=GIB))
    assert len(with_headroom.unneeded) == len(plan(build).unneeded) > 4
    assert len(gone(with_headroom)) == len(gone(plan(build))) == 1
    pair = (
        cluster()
        .node("g-0", "16", "64Gi", group="g")
        .node("g-1", "16", "64Gi", group="g")
        .group("g")
    )
    pair.running("g-0", 8, "250m", "256Mi").running("g-1", 8, "250m", "256Mi")
    assert [
        len(gone(plan(pair, Headroom("spare", pods=count, cpu=1000)))) for count in (11, 12, 13)
    ] == [1, 1, 0]


def test_unready_node_is_drained_beside_two_kinds_of_headroom() -> None:
    """No room is counted on it."""
    build = cluster()
    for at in range(4):
        build.node(f"g-{at}", "4", "16Gi", group="g").running(f"g-{at}", 1, "2", owner=f"o{at}")
    build.node("dead", "4", "16Gi", group="g", ready=False).running(
        "dead", 1, "500m", owner="x"
    ).group("g")
    small, large = Headroom("small", pods=1, cpu=250), Headroom("large", pods=1, cpu=1000)
    assert gone(plan(build, small, large, scale_down_utilization_threshold=0.4)) == ["dead"]
    assert (
        gone(
            plan(
                build,
                small,
                Headroom("full", pods=9, cpu=1000),
                scale_down_utilization_threshold=0.4,
            )
        )
        == []
    )


@pytest.mark.parametrize(("at_once", "pods", "drained"), [(1, 3, 1), (2, 3, 1), (2, 2, 2)])
def test_drains_of_one_pass_are_counted_together_against_headroom(
    at_once: int, pods: int, drained: int
) -> None:
    """Every pod may be placed on another of the four empty nodes, each of
    which has one virtual pod."""
    build = cluster()
    for at in range(4):
        build.node(
            f"keep-{at}",
            "4",
            "16Gi",
            group="g",
            annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"},
        )
    for at in range(2):
        build.node(f"drain-{at}", "4", "16Gi", group="g").running(f"drain-{at}", 1, "500m")
    build.group("g")
    found = plan(build, Headroom("spare", pods=pods, cpu=4000), max_drain_parallelism=at_once)
    assert len(gone(found)) == drained


def test_evicted_pod_with_zone_anti_affinity_may_take_a_whole_zone() -> None:
    build = busy(0, 0, 0)
    everybody = near(ZONE, Selector(()), namespace_selector=Selector(()))
    build.running("g-2", 1, "100m", owner="alone", pod_anti_affinity=(everybody,))
    assert "g-2" not in gone(plan(build, Headroom("spare", pods=1, cpu=100)))


@pytest.mark.parametrize(("pods", "others"), [(1, ["g-0", "g-1", "g-2"]), (8, ["g-0"]), (12, [])])
def test_node_named_like_an_upcoming_node_does_not_end_the_pass_beside_headroom(
    pods: int, others: list[str]
) -> None:
    """Upcoming nodes have no room for headroom: the node itself keeps its own."""
    build, name = cluster(), "upcoming-0-for-g"
    for each in ("g-0", "g-1", "g-2", name):
        build.node(each, "4", "16Gi", group="g")
    build.running(name, 1, "1", owner="x").group("g", target=5, template=node("t", "4", "16Gi"))
    found = plan(build, Headroom("spare", pods=pods, cpu=1000), memory=coming({"g": 5}))
    assert [each for each in gone(found) if each != name] == others
    assert stays(found).keys() | set(gone(found)) == {"g-0", "g-1", "g-2", name}


@pytest.mark.parametrize(("pods", "removed"), [(1, 1), (7, 0)])
def test_node_named_like_a_new_node_does_not_end_the_pass_beside_headroom(
    pods: int, removed: int
) -> None:
    """A new node of that name is tried for the small pod and proves
    superfluous beside the large node."""
    build, names = cluster(), {"new-1-for-a", "a2", "a3"}
    for each in sorted(names):
        build.node(each, "1", "8Gi", group="a").running(
            each, 1, "200m" if each[0] == "a" else "100m", owner=each
        )
    build.group("a", template=node("t", "1", "1Gi")).group("b", template=node("t", "8", "64Gi"))
    build.pending(1, "6", "1Gi", name="big", owner="big").pending(
        1, "1", "1Gi", name="small", owner="small"
    )
    found = plan(build, Headroom("spare", pods=pods, cpu=300))
    assert growth(found) == {"b": (1, 2)}
    assert len(gone(found)) == removed
    assert stays(found).keys() | set(gone(found)) == names


def test_headroom_survives_a_real_node_named_like_an_upcoming_node() -> None:
    """Only the upcoming node has the label that the pod needs."""
    build, name, pool = cluster(), "upcoming-0-for-g", {"pool": "new"}
    build.node("g-0", "4", "16Gi", group="g", labels=pool).node(name, "4", "16Gi", group="g")
    build.running("g-0", 1, "500m", owner="x", node_selector=pool).running(name, 1, "1", owner="y")
    build.group("g", target=3, template=node("t", "4", "16Gi", labels=pool))
    found = plan(build, Headroom("spare", pods=1, cpu=100), memory=coming({"g": 3}))
    assert stays(found).keys() | set(gone(found)) == {"g-0", name}
