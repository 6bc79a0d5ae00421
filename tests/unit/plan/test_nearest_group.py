"""Why pods get no node: the group in whose way the least stands comes first
(docs/reference/scale-up.md "Nearest group").
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.node import Taint
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Toleration
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.reasons.no_place import NoPlace, no_place
from chalicelib.views.rows import group_rows
from tests.builders import NOW, ClusterBuilder, amounts, cluster, node, verdict, words

FULL = "max node group size reached"
LABELS = "node(s) didn't match Pod's node affinity/selector"
TAINTS = "node(s) had untolerated taint(s)"
CPU = "Insufficient cpu"


def pool(name: str, **more: Any) -> Any:
    return node(f"t-{name}", "4", "16Gi", labels={"pool": name, **more.pop("labels", {})}, **more)


def dedicated(name: str) -> Taint:
    return Taint("dedicated", "NoSchedule", name)


def add_full(build: ClusterBuilder, name: str, most: int) -> None:
    """Adds a group at its maximum, whose nodes have no room."""
    for at in range(most):
        build.node(f"{name}-{at}", "4", "16Gi", group=name, labels={"pool": name})
        build.running(f"{name}-{at}", 1, "4")
    build.group(name, max=most, template=pool(name))


def pools(count: int, *, full: str, tainted: int = 3) -> ClusterBuilder:
    """Groups pool-00 and so on, one of them at its maximum of 2, every third with a taint."""
    build = cluster()
    for at in range(count):
        name = f"pool-{at:02d}"
        if name == full:
            add_full(build, name, 2)
        else:
            taints = () if at % tainted else (dedicated(name),)
            build.group(name, max=9, template=pool(name, taints=taints))
    return build


def of(build: ClusterBuilder, pod: str = "", **more: Any) -> NoPlace:
    return no_place(verdict(build.plan(**more), pod))


def with_pauses(build: ClusterBuilder, *pauses: Pause) -> Plan:
    policy = Policy(name="test", mode=Mode.ACTIVE, pauses=pauses)
    plan, _ = plan_cluster(build.snapshot(), policy, Memory(), NOW, 0)
    return plan


def test_pods_that_only_a_full_group_takes_name_its_maximum_first() -> None:
    build = pools(14, full="pool-07").pending(12, "2", node_selector={"pool": "pool-07"})
    why = of(build)
    assert why.nearest == ("pool-07",)
    assert why.cause == f"pool-07: {FULL} (max 2)"
    assert why.others == "13 other groups: labels 8, taints 5"
    assert next(iter(verdict(build.plan()).reasons)) == "pool-07"


def test_pod_larger_than_every_machine_is_never_told_a_maximum() -> None:
    build = pools(14, full="pool-07").pending(1, "40", node_selector={"pool": "pool-07"})
    assert of(build).cause == f"pool-07: {CPU} (needs 40, template offers 4)"
    assert FULL not in str(words(build.plan()))


def test_pods_that_a_full_group_would_take_are_those_that_need_another_node() -> None:
    build = pools(3, full="pool-01").pending(4, "2", node_selector={"pool": "pool-01"})
    plan = build.pending(3, "40", node_selector={"pool": "pool-01"}).plan()
    rows = group_rows(plan, Memory(), ClusterOverview(), NOW)
    [status] = [row.status for row in rows if row.group == "pool-01"]
    assert (status.word, status.detail) == ("at its maximum", "4 pods would need another node")


@pytest.mark.parametrize("cpu", ["2", "40"])
@pytest.mark.parametrize("kind", ["full", "back-off", "paused", "cluster-full", "cores"])
def test_what_a_pod_needs_is_judged_before_what_a_group_waits_for(kind: str, cpu: str) -> None:
    full = kind == "full"
    build = cluster().node("a", "4", group="g", labels={"pool": "g"}).running("a", 1, "4")
    build.group("g", max=1 if full else 9, template=pool("g"))
    build.group("other", template=pool("other")).pending(1, cpu, node_selector={"pool": "g"})
    memory = Memory()
    options: dict[str, Any] = {}
    if kind == "back-off":
        failed = Backoff(300.0, NOW + 60, NOW - 240, "OutOfStock", "SoldOut", "none left")
        memory = Memory(groups={"g": GroupMemory(target=1, backoff=failed)})
    if kind == "cluster-full":
        options = {"max_nodes_total": 1}
    if kind == "cores":
        options = {"cores_total": (0, 4)}
    pauses = (Pause(NOW + 900, NOW, PausedPart.GROWTH, "g", "disk swap"),)
    plan = with_pauses(build, *pauses) if kind == "paused" else build.plan(memory, **options)
    [why] = words(plan)["g"]
    own = {
        "full": FULL,
        "back-off": "in backoff after failed scale-up",
        "paused": "an operator has paused group g (outscaler resume ends it)",
        "cluster-full": "max total nodes in cluster reached",
        "cores": 'exceeded quota: "cluster-wide", resources: cpu',
    }
    assert why == (own[kind] if cpu == "2" else CPU)
    assert no_place(verdict(plan)).nearest == ("g",)


def test_group_that_lacks_a_label_and_room_is_further_than_one_that_lacks_the_label() -> None:
    build = cluster().group("a", max=0, template=pool("a")).group("b", template=pool("b"))
    plan = build.pending(1, "1", node_selector={"pool": "none"}).plan()
    assert list(words(plan)) == ["b", "a"]
    assert no_place(verdict(plan)).nearest == ("b",)


def test_group_with_fewer_obstacles_is_nearer_and_all_of_its_own_are_named() -> None:
    build = cluster()
    build.group("a", template=pool("a", taints=(dedicated("a"),)))
    build.group("b", template=node("t-b", "2", "1Gi", labels={"pool": "b"}))
    build.group("c", template=node("t-c", "2", "1Gi", taints=(dedicated("c"),)))
    plan = build.pending(1, "3", "2Gi", node_selector={"pool": "b"}).plan()
    assert list(words(plan)) == ["b", "a", "c"]
    assert words(plan)["b"] == [CPU, "Insufficient memory"]
    plan = (
        cluster()
        .group("c", template=build.groups[2].template)
        .pending(1, "3", node_selector={"pool": "b"})
        .plan()
    )
    assert words(plan)["c"] == [TAINTS, LABELS, CPU]


def test_taint_of_machines_with_gpus_is_nearer_than_machines_without() -> None:
    gpu = pool("gpu", taints=(dedicated("gpu"),), extra=amounts(gpu=1))
    build = cluster().group("gpu", template=gpu)
    for name in ("a", "b", "c"):
        build.group(name, template=pool(name))
    why = of(build.pending(1, "1", extra=amounts(gpu=1)))
    assert why.cause == f"gpu: {TAINTS} (dedicated=gpu:NoSchedule)"
    assert why.others == "3 other groups: too little nvidia.com/gpu 3"


def test_largest_of_machines_that_are_all_too_small_is_the_nearest() -> None:
    build = cluster()
    for name, cpu in (("small", "2"), ("large", "16"), ("medium", "8"), ("like-large", "16")):
        build.group(name, template=node(f"t-{name}", cpu))
    why = of(build.pending(1, "40"))
    assert why.cause == f"large, like-large: {CPU} (needs 40, template offers 16)"
    assert why.others == "2 other groups: too little cpu 2"


def test_tolerated_pods_of_a_label_that_no_group_has_name_every_group() -> None:
    build = pools(14, full="", tainted=99)
    everywhere = (Toleration(operator="Exists"),)
    why = of(build.pending(1, "1", node_selector={"disk": "ssd"}, tolerations=everywhere))
    assert why.line == f"all 14 groups: {LABELS} (disk=ssd: has no such label)"


def test_groups_that_are_all_full_are_named_together() -> None:
    build = cluster()
    for name, most in (("a", 0), ("b", 0), ("c", 1)):
        add_full(build, name, most)
    build.group("d", template=pool("d", taints=(dedicated("d"),)))
    why = of(build.pending(1, "1"))
    assert why.cause == f"a, b: {FULL} (max 0); likewise c"
    assert why.others == "1 other group: taints 1"


def test_group_that_grows_again_by_itself_is_nearer_than_a_full_one() -> None:
    build = cluster().group("a", max=0, template=pool("a")).group("b", template=pool("b"))
    failed = Backoff(300.0, NOW + 60, NOW - 240, "OutOfStock", "SoldOut", "none left")
    memory = Memory(groups={"b": GroupMemory(backoff=failed)})
    why = no_place(verdict(build.pending(1, "1").plan(memory)))
    assert why.nearest == ("b",)
    assert why.cause.startswith("b: in backoff after failed scale-up (until ")
    assert "OutOfStock" in why.cause
    assert why.others == "1 other group: at maximum 1"


def test_group_of_unknown_machines_is_further_than_a_full_one_that_fits() -> None:
    build = cluster().group("a", error="403 Forbidden").group("b", template_error="no annotations")
    build.group("c", max=0, template=pool("c")).pending(1, "1")
    assert list(words(build.plan())) == ["c", "a", "b"]
    assert of(build).others == "2 other groups: no template 1, not read 1"


def test_pod_that_fits_no_node_at_all_is_told_that_by_every_group() -> None:
    build = cluster().group("a", max=0, template=pool("a")).group("b", template=pool("b"))
    build.pending(1, "1", resource_claims=("claim",))
    assert of(build).line == "a, b: NotSimulated(resource claims)"


def test_pods_without_any_group_say_what_existing_nodes_lack() -> None:
    build = cluster().node("a", "1").pending(1, "2")
    assert of(build).line == "there are no node groups; existing nodes: Insufficient cpu 1"


def test_group_that_a_pass_fills_names_its_maximum_for_the_rest() -> None:
    build = cluster().group("g", max=2, template=pool("g")).group("h", template=pool("h"))
    plan = build.pending(12, "2", node_selector={"pool": "g"}).plan()
    assert [len(pods.pods) for pods in plan.unschedulable] == [8]
    assert no_place(verdict(plan)).cause == f"g: {FULL} (max 2)"


def test_plan_of_an_earlier_release_is_put_into_order_when_it_is_read() -> None:
    build = pools(14, full="pool-07").pending(12, "2", node_selector={"pool": "pool-07"})
    pods = verdict(build.plan())
    stored = msgspec.to_builtins(pods)
    del stored["nearest"]
    stored["reasons"] = dict(sorted(stored["reasons"].items()))
    assert no_place(msgspec.convert(stored, type(pods))) == no_place(pods)


def test_stored_plan_keeps_the_order_of_groups() -> None:
    build = pools(14, full="pool-07").pending(12, "2", node_selector={"pool": "pool-07"})
    plan = build.plan()
    stored = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)
    assert list(verdict(stored).reasons) == list(verdict(plan).reasons)
    assert no_place(verdict(stored)) == no_place(verdict(plan))
