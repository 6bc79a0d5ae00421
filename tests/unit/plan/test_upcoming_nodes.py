"""Nodes that are coming are planned with the pods for which they were bought, so that nothing is
bought for these again (docs/reference/scale-up.md "Upcoming nodes")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory, Memory, PurchaseRow
from chalicelib.model.operation import AwaitedPods, OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.model.plan import Plan
from chalicelib.model.pod import PodClass
from chalicelib.model.purchases import digest_of, owner_of, request_of
from chalicelib.model.snapshot import Snapshot
from chalicelib.operations.memory_updates import memory_updates
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.what_if import GroupBounds, with_bounds
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from tests.builders import (
    NOW,
    ZONE,
    ClusterBuilder,
    cluster,
    coming,
    even,
    expected,
    growth,
    having,
    near,
    node,
)

TYPE = "node.kubernetes.io/instance-type"
HOST = "kubernetes.io/hostname"
TYPES = {"m": ("4", "16Gi"), "c": ("8", "16Gi"), "l": ("8", "64Gi")}
PLACES = ("a", "b", "c")
LEAST_WASTE = Options(expander=("least-waste",))
ACTIVE = Policy(name="test", mode=Mode.ACTIVE, options=LEAST_WASTE)

PLAIN = (
    ("500m", "1Gi", 11),
    ("500m", "2Gi", 7),
    ("1", "2Gi", 15),
    ("1", "4Gi", 15),
    ("2", "4Gi", 15),
)
MORE_PLAIN = (("1500m", "1Gi", 15), ("750m", "3Gi", 12), ("250m", "256Mi", 14))
BY_ZONE = (("500m", "1Gi", 15), ("1", "2Gi", 15), ("250m", "1Gi", 13))
BY_HOST = (("500m", "1Gi", 12), ("1", "1Gi", 12))
APART = (("500m", "2Gi", 10), ("1500m", "4Gi", 10))
IN_ZONE = (("500m", "1Gi", 15), ("1", "3Gi", 15))
OF_TYPE = (("1", "1Gi", 15),)


def _burst(first: int = 0) -> ClusterBuilder:
    """Full nodes of three types in three zones, and pods of fifteen owners that are refused. first:
    the owner whose pods are tried first."""
    build = cluster()
    for zone in PLACES:
        for kind, (cpu, memory) in TYPES.items():
            for at in range(6):
                name = f"{kind}-{zone}-{at}"
                build.node(
                    name, cpu, memory, group=f"{kind}-{zone}", zone=zone, labels={TYPE: kind}
                )
                build.running(name, 1, f"{int(cpu) * 1000 - 100}m", "1Gi", owner=f"full-{name}")
    for zone in PLACES:
        for kind, (cpu, memory) in TYPES.items():
            template = node(f"new-{kind}-{zone}", cpu, memory, zone=zone, labels={TYPE: kind})
            build.group(f"{kind}-{zone}", max=40, template=template)
    for at, (amounts, rules) in enumerate(_owners(first)):
        cpu, memory, count = amounts
        name = f"b{at:02d}"
        build.pending(count, cpu, memory, name=name, owner=name, created=NOW - 60, **rules(name))
    return build


def _owners(first: int) -> list[tuple[tuple[str, str, int], Any]]:
    """Return amounts, number and rules of the pods of each owner."""
    kinds: tuple[tuple[Any, Any], ...] = (
        (PLAIN, lambda _: {}),
        (MORE_PLAIN, lambda _: {}),
        (BY_ZONE, lambda name: {"spread": (even(ZONE, having(app=name)),)}),
        (BY_HOST, lambda name: {"spread": (even(HOST, having(app=name)),)}),
        (APART, lambda name: {"pod_anti_affinity": (near(HOST, having(app=name)),)}),
        (IN_ZONE, lambda _: {"node_selector": {ZONE: "b"}}),
        (OF_TYPE, lambda _: {"node_selector": {TYPE: "c"}}),
    )
    owners = [(amounts, rules) for pods, rules in kinds for amounts in pods]
    return [*owners[first:], *owners[:first]]


def _bought(plan: Plan) -> int:
    return sum(nodes for nodes, _ in growth(plan).values())


def _with_sizes(snapshot: Snapshot, memory: Memory, plan: Plan) -> tuple[Snapshot, Memory]:
    """Return what `--group ID:size=N` makes of the plan's sizes."""
    for up in plan.scale_ups:
        snapshot, memory = with_bounds(
            snapshot, memory, up.group, GroupBounds(size=up.to_size), NOW, LEAST_WASTE
        )
    return snapshot, memory


def _carried_out(
    snapshot: Snapshot, memory: Memory, plan: Plan, now: float
) -> tuple[Snapshot, Memory]:
    """Return the cluster and the memory after the scale-ups of a plan, none
    of whose nodes has joined."""
    groups, sizes = dict(memory.groups), {}
    for operation in plan.operations:
        if operation.spec.kind is OperationKind.SCALE_UP:
            patch, _ = memory_updates(operation, Succeeded(), LEAST_WASTE, now)
            assert patch is not None
            groups[operation.spec.group] = patch(groups[operation.spec.group])
            sizes[operation.spec.group] = operation.spec.to_size
    grown = tuple(
        msgspec.structs.replace(group, target=sizes.get(group.id, group.target))
        for group in snapshot.groups
    )
    return msgspec.structs.replace(snapshot, groups=grown), msgspec.structs.replace(
        memory, groups=groups
    )


@pytest.mark.parametrize("first", range(0, 15, 3))
def test_nothing_more_is_bought_for_a_burst_whose_nodes_are_coming(first: int) -> None:
    snapshot = _burst(first).snapshot()
    plan, _ = plan_cluster(snapshot, ACTIVE, Memory(), NOW, 0)
    assert _bought(plan) > 30
    assert plan.unschedulable == ()
    again, _ = plan_cluster(*_with_memory(snapshot, plan), NOW, 0)
    assert _bought(again) == 0


def _with_memory(snapshot: Snapshot, plan: Plan) -> tuple[Snapshot, Policy, Memory]:
    changed, memory = _with_sizes(snapshot, Memory(), plan)
    return changed, ACTIVE, memory


def test_nothing_more_is_bought_in_later_passes_that_remember_the_purchase() -> None:
    snapshot, memory, now = _burst(2).snapshot(), Memory(), NOW
    bought = []
    for _ in range(4):
        plan, memory = plan_cluster(snapshot, ACTIVE, memory, now, 0)
        bought.append(_bought(plan))
        memory = msgspec.structs.replace(memory, operations=())
        snapshot, memory = _carried_out(snapshot, memory, plan, now)
        now += 20.0
    assert bought[1:] == [0, 0, 0]
    requests = [group.request for group in memory.groups.values() if group.request is not None]
    assert all(row.pods for request in requests for row in request.purchases)


def _entry(build: ClusterBuilder, owner: str, count: int) -> AwaitedPods:
    cls = next(cls for cls in build.classes if cls.owner is not None and cls.owner.name == owner)
    return AwaitedPods(owner_of(cls), digest_of(cls), count)


def _coming(build: ClusterBuilder, group: str, nodes: int, *pods: AwaitedPods) -> Memory:
    """Memory of one purchase of that many nodes a minute ago."""
    request = request_of([PurchaseRow(nodes, NOW - 60, NOW + 840, NOW - 65, pods)])
    return Memory(groups={group: GroupMemory(target=nodes, request=request)})


def _two_groups(coming: int) -> ClusterBuilder:
    """Group g, of which nodes are coming, and a full group h of a type that pods may ask for."""
    build = cluster().group(
        "g", target=coming, template=node("t", "2", "8Gi", labels={TYPE: "g"}), max=20
    )
    return build.group("h", template=node("u", "2", "8Gi", labels={TYPE: "h"}), max=20)


IN_ANY_ORDER = pytest.mark.parametrize("owners", [("old", "new"), ("new", "old")], ids=str)


def _waiting(build: ClusterBuilder, owners: tuple[str, ...]) -> ClusterBuilder:
    """Two pods of each owner that take a node each; those of the new owner wait for longer."""
    for owner in owners:
        age = {"new": 600.0, "old": 100.0}[owner]
        build.pending(2, "2", name=owner, owner=owner, created=NOW - age)
    return build


def _owners_on_coming_nodes(plan: Plan) -> set[str]:
    return {
        pod.removeprefix("default/").partition("-")[0]
        for pod, place in expected(plan).items()
        if place.startswith("upcoming")
    }


@IN_ANY_ORDER
def test_coming_nodes_take_the_pods_first_for_which_they_were_bought(
    owners: tuple[str, ...],
) -> None:
    build = _waiting(_two_groups(2), owners)
    plan = build.plan(_coming(build, "g", 2, _entry(build, "old", 2)))
    assert _owners_on_coming_nodes(plan) == {"old"}
    assert _bought(plan) == 2, "for the new pods"


@IN_ANY_ORDER
def test_pods_of_a_purchase_that_is_still_open_come_first_on_its_nodes(
    owners: tuple[str, ...],
) -> None:
    before = _waiting(_two_groups(0), ("old",)).snapshot()
    first, memory = plan_cluster(before, ACTIVE, Memory(), NOW, 0)
    memory = msgspec.structs.replace(memory, operations=first.operations)
    after = _waiting(_two_groups(0), owners).snapshot()
    plan, _ = plan_cluster(after, ACTIVE, memory, NOW + 20.0, 0)
    assert _owners_on_coming_nodes(plan) == {"old"}
    assert _bought(plan) == 2, "for the new pods"


def test_room_that_is_left_on_coming_nodes_takes_anybody() -> None:
    build = _two_groups(2)
    build.pending(2, "1", name="new", owner="new").pending(2, "1", name="old", owner="old")
    plan = build.plan(_coming(build, "g", 2, _entry(build, "old", 2)))
    assert (_bought(plan), len(plan.fits_existing)) == (0, 4)


def test_pods_of_higher_priority_come_before_those_for_which_nodes_were_bought() -> None:
    build = _two_groups(1)
    build.pending(1, "2", name="old", owner="old").pending(
        1, "2", name="urgent", owner="urgent", priority=10
    )
    plan = build.plan(_coming(build, "g", 1, _entry(build, "old", 1)))
    assert plan.fits_existing == ("default/urgent-00001",)


def test_preference_ends_with_its_pods() -> None:
    build = _two_groups(1)
    build.pending(1, "2", name="old", owner="old").pending(1, "2", name="new", owner="new")
    gone = _entry(build, "old", 1)
    build.pods = [pod for pod in build.pods if pod.name.startswith("new")]
    plan = build.plan(_coming(build, "g", 1, gone))
    assert (plan.fits_existing, _bought(plan)) == (("default/new-00001",), 0)


def _owners_of(memory: Memory, group: str) -> dict[str, int]:
    request = memory.groups[group].request
    assert request is not None
    return {
        entry.owner.rpartition("/")[2]: entry.count
        for row in request.purchases
        for entry in row.pods
    }


@pytest.mark.parametrize(("more", "expected_pods"), [(4, {"old": 1, "new": 3}), (3, {"old": 4})])
def test_further_purchase_updates_for_whom_earlier_nodes_are_coming(
    more: int, expected_pods: dict[str, int]
) -> None:
    build = cluster().group("g", target=2, template=node("t", "2", "8Gi"), max=20)
    build.pending(1, "1", name="old", owner="old", created=NOW - 600)
    build.pending(more, "1", name="new", owner="new", created=NOW - 100)
    before = _coming(build, "g", 2, _entry(build, "old", 4))
    plan, after = plan_cluster(build.snapshot(), ACTIVE, before, NOW, 0)
    assert _bought(plan) == (1 if more == 4 else 0)
    assert _owners_of(after, "g") == expected_pods


def test_preference_is_of_an_owner_and_all_that_its_pods_ask_for() -> None:
    one = PodClass("default", {"app": "web"}, {"cpu": 1000})
    assert digest_of(one) == digest_of(PodClass("default", {"app": "web"}, {"cpu": 1000}))
    assert digest_of(one) != digest_of(PodClass("default", {"app": "web"}, {"cpu": 1001}))


def test_picky_pods_keep_their_places_without_any_memory() -> None:
    build = _two_groups(2)
    build.groups[1] = msgspec.structs.replace(build.groups[1], target=2)
    memory = Memory(
        groups={
            name: GroupMemory(target=2, request=request_of([PurchaseRow(2, NOW, NOW + 900)]))
            for name in ("g", "h")
        }
    )
    build.pending(2, "2", name="a-any", owner="any", created=NOW - 600)
    build.pending(
        2, "2", name="b-picky", owner="picky", node_selector={TYPE: "g"}, created=NOW - 100
    )
    plan = build.plan(memory)
    assert (_bought(plan), len(plan.fits_existing)) == (0, 4)


def test_two_coming_nodes_are_packed_anew_for_pods_that_fill_them_exactly() -> None:
    """5 + 5 + 10 and 8 + 4 + 8; no order of the pods and no single move finds it."""
    build = cluster().group("g", target=2, max=2, template=node("t", "20", "64Gi"))
    for at, cpu in enumerate(("5", "8", "10", "5", "4", "8")):
        build.pending(1, cpu, "100Mi", name=f"p{at}", owner=f"o{at}", created=NOW - 600 + at)
    assert len(build.plan(coming({"g": 2})).fits_existing) == 6
