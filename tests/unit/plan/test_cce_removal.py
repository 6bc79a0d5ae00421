"""When nodes of a pool may be removed: rates, times, exceptions, concurrency and cooldowns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions, Pool
from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import SCALE_DOWN_DISABLED
from chalicelib.model.reason import ReasonCode
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from tests.builders import NOW, OLD, ClusterBuilder, cluster, growth, having, node, stays
from tests.unit.plan.selection_builder import SelectionBuilderPool as Candidates
from tests.unit.plan.selection_builder import counts, goes, why

POOL = Pool("p", "pool-a", max=100)
IDLE = Memory(nodes={"n": NodeMemory(unneeded_since=OLD, confirmed_at=NOW - 10)})


def _one(
    used: str | int = 0,
    memory: str | int = 0,
    *,
    options: GroupOptions | None = None,
    **fields: Any,
) -> ClusterBuilder:
    """Node n of a pool, with 1 cpu and 4Gi; its pods have room on another node."""
    build = cluster().node("home", "8", "64Gi").node("n", "1", "4Gi", group="g", **fields)
    build.group("g", pool=POOL, options=options or GroupOptions())
    return build.running("n", 1, used, memory) if used or memory else build


@pytest.mark.parametrize(
    ("cpu", "memory", "goes"),
    [
        ("300m", "1200Mi", True),
        ("300m", "2460Mi", False),
        ("600m", "1200Mi", False),
        ("499m", "2047Mi", True),
    ],
)
def test_CCE_A8_1_cpu_and_memory_rates_must_both_be_under_the_threshold(
    cpu: str, memory: str, goes: bool
) -> None:
    assert bool(_one(cpu, memory).plan(IDLE).removals) is goes


def test_CCE_A8_1_interruption_restarts_the_unneeded_time() -> None:
    idle = Memory(nodes={"n": NodeMemory(unneeded_since=NOW - 599, confirmed_at=NOW - 10)})
    assert stays(_one("300m").plan(idle))["n"] == "NotUnneededLongEnough"
    busy = _one("700m").decide(idle)[1]
    again = _one("300m").decide(busy, now=NOW + 10)[1]
    assert again.nodes["n"].unneeded_since == NOW + 10


@pytest.mark.parametrize(("ago", "code"), [(1199.0, "NotUnreadyLongEnough"), (1201.0, "")])
def test_CCE_A8_2_a_node_that_is_not_ready_is_removed_after_twenty_minutes(
    ago: float, code: str
) -> None:
    known = Memory(nodes={"n": NodeMemory(unneeded_since=NOW - ago, confirmed_at=NOW - 10)})
    plan = _one(ready=False, ready_since=NOW - ago).plan(known)
    assert stays(plan).get("n", "") == code
    assert [each.node for each in plan.removals] == ([] if code else ["n"])


def _full() -> ClusterBuilder:
    build = (
        cluster()
        .node("home", "1", "4Gi")
        .running("home", 1, "900m", owner="other")
        .node("n", group="g")
    )
    return build.group("g", pool=POOL).running("n", 1, "300m")


@pytest.mark.parametrize(
    ("made", "code"),
    [
        pytest.param(_full, "NoPlaceToMovePods", id="1-no-room-elsewhere"),
        pytest.param(
            lambda: _one(annotations={SCALE_DOWN_DISABLED: "true"}),
            "ScaleDownDisabledAnnotation",
            id="2-protected",
        ),
        pytest.param(
            lambda: _one("100m").running("n", 1, "10m", owner="kept", safe_to_evict="false"),
            "BlockedByPod",
            id="3-not-to-be-moved",
        ),
        pytest.param(
            lambda: _one("100m").budget("b", 0, having(app="rs")),
            "BlockedByPod",
            id="4-a-disruption-budget",
        ),
        pytest.param(
            lambda: _one().running(
                "n", 1, "10m", owner="dns", namespace="kube-system", created=NOW - 600
            ),
            "BlockedByPod",
            id="5-a-pod-of-the-system-in-its-first-hour",
        ),
        pytest.param(
            lambda: _one().running("n", 1, "10m", owner="own", kind="CloneSet"),
            "BlockedByPod",
            id="6-a-third-partys-controller",
        ),
        pytest.param(
            lambda: _one().running("n", 1, "10m", owner=None), "BlockedByPod", id="no-controller"
        ),
        pytest.param(
            lambda: _one().running("n", 1, "10m", node_selector={"kubernetes.io/hostname": "n"}),
            "NoPlaceToMovePods",
            id="fits-nowhere-else",
        ),
    ],
)
def test_CCE_A8_3_protected_and_unmovable_nodes_stay(
    made: Callable[[], ClusterBuilder], code: str
) -> None:
    plan = made().plan(IDLE)
    assert (stays(plan)["n"], plan.removals) == (code, ())


def test_CCE_A8_3_option_lets_custom_controller_pods_not_block_a_node() -> None:
    build = _one().running("n", 1, "10m", owner="own", kind="CloneSet")
    assert [
        each.node
        for each in build.plan(IDLE, skip_nodes_with_custom_controller_pods=False).removals
    ] == ["n"]


def test_CCE_A8_3_node_protected_by_the_provider_stays() -> None:
    build = _one()
    held = tuple(
        msgspec.structs.replace(each, held="it is locked") for each in build.groups[0].instances
    )
    build.groups[0] = msgspec.structs.replace(build.groups[0], instances=held)
    assert stays(build.plan(IDLE))["n"] == "UnexpectedError"


@pytest.mark.parametrize(
    ("pool", "least", "code"),
    [
        (Pool("p", min=1), 0, "PoolMinSizeReached"),
        (POOL, 1, "NodeGroupMinSizeReached"),
    ],
)
def test_CCE_A8_3_minimums_of_pool_and_flavour_are_respected(
    pool: Pool, least: int, code: str
) -> None:
    plan = cluster().node("n", group="g").group("g", min=least, pool=pool).plan(IDLE)
    assert stays(plan) == {"n": code}


def test_CCE_A8_4_node_with_only_daemonset_pods_is_idle() -> None:
    build = _one().running("n", 1, "100m", owner="agent", kind="DaemonSet", namespace="kube-system")
    (removal,) = build.plan(IDLE).removals
    assert (removal.kind, removal.evict) == ("empty", ())


def test_CCE_A8_4_idle_nodes_are_removed_together_and_busy_ones_one_by_one() -> None:
    assert counts(Candidates().group("g", 12, 3).pick(max_drain_parallelism=1)) == (10, 0)
    assert counts(Candidates().group("g", 2, 3).pick(max_drain_parallelism=1)) == (2, 1)
    busy = Candidates().group("g", 0, 3).going("g", "x", drained=True)
    assert counts(busy.pick(max_drain_parallelism=1)) == (0, 0)


def test_CCE_A8_5_blocked_node_is_simulated_again_after_five_minutes() -> None:
    build = _full()
    after = build.decide()[1]
    assert stays(build.plan(after, now=NOW + 299))["n"] == "RecentlyUnremovable"
    assert stays(build.plan(after, now=NOW + 300))["n"] == "NoPlaceToMovePods"


def test_CCE_A8_5_removal_candidate_has_the_soft_taint_first() -> None:
    plan = _one("300m").plan()
    assert [(mark.node, mark.action) for mark in plan.marks] == [("n", "soften")]
    assert plan.removals == ()


@pytest.mark.parametrize(
    ("memory", "options", "left"),
    [
        ({"last_scale_up": NOW - 599}, {}, 1.0),
        ({"last_scale_down": NOW - 599}, {"scale_down_delay_after_delete": 600.0}, 1.0),
        ({"last_scale_down_failure": NOW - 179}, {}, 1.0),
        (
            {
                "last_scale_up": NOW - 600,
                "last_scale_down": NOW - 600,
                "last_scale_down_failure": NOW - 180,
            },
            {"scale_down_delay_after_delete": 600.0},
            0.0,
        ),
    ],
)
def test_CCE_A8_6_cooldowns_apply_to_the_whole_cluster(
    memory: dict[str, float], options: dict[str, Any], left: float
) -> None:
    """Upstream has no delay after a deletion; the vendor's ten minutes are an option here."""
    plan = _one().plan(msgspec.structs.replace(IDLE, **memory), **options)
    assert stays(plan).get("n") == ("InCooldown" if left else None)


def test_CCE_A8_7_zero_cooldown_after_scale_up_lets_removals_continue() -> None:
    grown = msgspec.structs.replace(IDLE, last_scale_up=NOW - 1)
    assert _one().plan(grown).removals == ()
    assert len(_one().plan(grown, scale_down_delay_after_add=0.0).removals) == 1


@pytest.mark.parametrize(
    ("age", "grown", "code"),
    [
        (899.0, 0.0, ReasonCode.NODE_COOLDOWN),
        (900.0, 0.0, None),
        (900.0, NOW - 100, ReasonCode.IN_COOLDOWN),
    ],
)
def test_CCE_A8_8_node_goes_after_its_pools_and_the_clusters_cooldowns(
    age: float, grown: float, code: ReasonCode | None
) -> None:
    pool = Candidates().group(
        "p", 1, node={"created": NOW - age}, options=GroupOptions(scale_down_cooldown=900.0)
    )
    picked = pool.pick(Memory(last_scale_up=grown), scale_down_unneeded_time=0.0)
    assert (why(picked), len(goes(picked))) == (({code}, 0) if code else (set(), 1))


def test_CCE_A8_8_scale_up_waits_for_no_cooldown() -> None:
    build = (
        cluster()
        .node("n", group="g", created=NOW - 5)
        .running("n", 1, "1")
        .group(
            "g", pool=POOL, template=node("t", "1"), options=GroupOptions(scale_down_cooldown=900.0)
        )
    )
    quiet = Memory(last_scale_up=NOW - 1, last_scale_down=NOW - 1, last_scale_down_failure=NOW - 1)
    assert growth(build.pending(1, "1").plan(quiet)) == {"g": (1, 1)}


@pytest.mark.parametrize(
    "rule",
    [
        Rule("cpu", ("p",), metric=Metric.CPU, above=60, add=1),
        Rule("night", ("p",), cron="0 3 * * *", add=1),
    ],
)
def test_CCE_A8_9_no_rule_removes_anything(rule: Rule) -> None:
    snapshot = _one("700m").snapshot()
    plan, _ = plan_cluster(
        snapshot, Policy(name="test", mode=Mode.ACTIVE, rules=(rule,)), IDLE, NOW, 0
    )
    assert (plan.removals, plan.repairs) == ((), ())
    assert stays(plan)["n"] == "NotUnderutilized"
    for value in (-1, 0):
        less, _ = plan_cluster(
            snapshot,
            Policy(
                name="test", mode=Mode.ACTIVE, rules=(msgspec.structs.replace(rule, add=value),)
            ),
            IDLE,
            NOW,
            0,
        )
        assert all(up.to_size >= up.from_size for up in less.scale_ups)
        assert less.removals == ()
