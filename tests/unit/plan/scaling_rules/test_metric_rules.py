"""Metric rules: measurement, trigger and number of nodes added
(docs/reference/scaling-rules.md "Metric rules").
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.group import GroupOptions, Instance, InstanceState
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.operation import OperationKind
from chalicelib.model.pod import Owner
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.scale_up.rule_purchases import BelowThreshold
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.builders import node
from tests.operations import new_operation
from tests.unit.plan.scaling_rules.rule_harness import (
    MINUTE,
    Site,
    VendorPool,
    cpu,
    cron,
    grown,
    memory_rule,
    noted,
    said,
    why,
)

# R, A in millicores, T in percent, N, nodes to add: the example table of automatic
# increases in docs/rules.md.
TABLE = [
    (13000, 3920, 60, 5, 1),
    (14112, 3920, 60, 5, 2),
    (11761, 3920, 60, 5, 1),
    (9500, 1930, 80, 5, 2),
    (11760, 3920, 60, 5, 0),
]


def full(*rules: object, count: int = 5, asks: str = "13", **more: object) -> Site:
    """Five nodes of 3920 millicores with pods that request that many cores."""
    return (
        Site(*rules, **more)  # type: ignore[arg-type]
        .group(count=count, each="3920m", utilization=0.3)
        .ask("g", (asks, "1Gi"))
    )


@pytest.mark.parametrize(("asked", "each", "above", "count", "add"), TABLE)
def test_CCE_4_calculated_nodes_match_the_documented_table(
    asked: int, each: int, above: int, count: int, add: int
) -> None:
    site = (
        Site(cpu(above=above, add=0))
        .group(count=count, each=f"{each}m")
        .ask("g", (f"{asked}m", "1Gi"))
    )
    assert grown(site.plan()) == ({"g": add} if add else {})


def test_CCE_A3_6_documented_table_matches_the_planner() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "reference/scaling-rules.md").read_text(
        "utf-8"
    )
    rows = re.findall(
        r"^\| (\d+)m \| (\d+)m \| (\d+) \| (\d+) \| ([\d.]+) % \| (\d+) \| ([\d.]+) % \|$",
        page,
        re.M,
    )
    assert [tuple(int(row[at]) for at in (0, 1, 2, 3, 5)) for row in rows] == [
        row for row in TABLE if row[4]
    ]
    for asked, each, above, count, now, add, after in rows:
        r, a, n = int(asked), int(each), int(count)
        assert (f"{100 * r / (a * n):.1f}", f"{100 * r / (a * (n + int(add))):.1f}") == (now, after)
        assert BelowThreshold("cpu", r, a * n, int(above)).nodes(node("t", f"{each}m")) == int(add)


def test_CCE_A3_6_automatic_goes_below_the_threshold_and_custom_adds_its_number() -> None:
    assert grown(full(cpu(add=0), asks="14112m").plan()) == {"g": 2}
    assert grown(full(cpu(add=7), asks="14112m").plan()) == {"g": 7}


def test_CCE_A3_6_automatic_increase_uses_the_rules_own_threshold() -> None:
    site = full(cpu(above=0, add=0), asks="15680m", scale_up=ScaleUp(cpu_threshold=70))  # 80 %
    plan = site.plan()
    assert grown(plan) == {"g": 1}  # 66.7 %
    assert said(plan, "cpu").rate == 80.0
    other = (
        full(memory_rule(above=0, add=0), scale_up=ScaleUp(memory_threshold=70))
        .ask("g", ("1", "60Gi"))
        .plan()
    )
    assert grown(other) == {"g": 1}
    # measured against its own template it is 100 %
    assert grown(full(cpu(above=0, add=0), asks="15680m").plan()) == {}


def test_CCE_4_formula_for_mixed_sizes_equals_that_for_equal_sizes() -> None:
    for asked, each, above, count, add in TABLE:
        wanted = BelowThreshold("cpu", asked, count * each, above).nodes(node("t", f"{each}m"))
        assert wanted == (100 * asked) // (each * above) - count + 1
        # the rate is not above the threshold, so no rule fires
        assert wanted == add or 100 * asked == above * count * each


def test_CCE_4_mixed_sizes_use_the_size_of_the_added_flavour() -> None:
    pool = VendorPool("pool")
    site = Site(cpu(add=0, groups=("pool",))).group("pool/big", 2, "8", pool=pool, rank=0)
    # 14 of 18, 77.8 %
    site.group("pool/small", 1, "2", pool=pool, rank=5).ask("pool/big", ("14", "1Gi"))
    assert grown(site.plan()) == {"pool/small": 3}  # 14 of 22 would be 63.6 %, 14 of 24 is 58.3 %


def test_CCE_4_nodes_a_flavour_cannot_add_are_recalculated_for_the_next() -> None:
    pool = VendorPool("pool")
    site = Site(cpu(add=0, groups=("pool",))).group("pool/small", 1, "2", pool=pool, rank=5, max=2)
    site.group("pool/big", 2, "8", pool=pool).ask("pool/big", ("14", "1Gi"))
    # 14 of 20 is 70 %, of 28 it is 50 %
    assert grown(site.plan()) == {"pool/small": 1, "pool/big": 1}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 10**9), st.integers(1, 10**7), st.integers(1, 100), st.integers(1, 1000))
def test_CCE_4_calculated_node_count_is_the_smallest_below_the_threshold(
    asked: int, each: int, above: int, count: int
) -> None:
    want = BelowThreshold("cpu", asked, count * each, above)
    add = want.nodes(node("t", f"{each}m"))
    if 100 * asked > above * count * each:
        assert add >= 1
        assert 100 * asked < above * (count + add) * each
        assert 100 * asked >= above * (count + add - 1) * each
        assert add == (100 * asked) // (each * above) - count + 1


def test_CCE_A3_1_rate_is_pod_requests_divided_by_node_allocatable() -> None:
    plan = full(cpu(above=70), memory_rule(above=70)).ask("g", ("12", "1Gi"), ("1", "20Gi")).plan()
    assert (said(plan, "cpu").rate, said(plan, "memory").rate) == (66.327, 26.25)


def test_CCE_A3_1_daemonset_pods_count_and_pods_that_ended_do_not() -> None:
    site = full(cpu(above=70), asks="10")
    read = site.snapshot()
    daemon = msgspec.structs.replace(read.classes[0], owner=Owner("DaemonSet", "logs", "uid-logs"))
    both = (
        msgspec.structs.replace(read.pods[0], name="d", cls=1),
        msgspec.structs.replace(read.pods[0], name="e", cls=1, phase="Succeeded"),
    )
    more = msgspec.structs.replace(read, classes=(*read.classes, daemon), pods=(*read.pods, *both))
    site.snapshot = lambda: more  # type: ignore[method-assign]
    assert said(site.plan(), "cpu").rate == 102.041


def test_CCE_A3_1_unready_and_leaving_nodes_are_excluded_from_the_rate() -> None:
    site = full(cpu(above=70), asks="3")
    site.unready = 1  # g-000, with its pod
    assert said(site.plan(), "cpu").rate == 0.0
    leaving = full(cpu(above=70)).ask("g", ("3", "1Gi"), ("3", "1Gi"))
    leaving.groups["g"].count = 2
    read = leaving.snapshot()
    gone = msgspec.structs.replace(read.nodes[1], taints=(Taint(TO_BE_DELETED, "NoSchedule"),))
    leaving.snapshot = lambda: msgspec.structs.replace(read, nodes=(read.nodes[0], gone))  # type: ignore[method-assign]
    assert said(leaving.plan(), "cpu").rate == 76.531


@pytest.mark.parametrize(
    ("above", "own", "valid"),
    [
        (50, None, False),
        (51, None, True),
        (55, 0.6, False),
        (60, 0.6, False),
        (61, 0.6, True),
        (57, 0.57, False),
        (58, 0.57, True),
    ],
)
def test_CCE_3_rule_threshold_must_be_above_the_removal_threshold(
    above: int, own: float | None, valid: bool
) -> None:
    site = Site(cpu(above=above)).group(count=2, utilization=own).ask("g", ("8", "1Gi"))
    site.options["scale_down_enabled"] = True
    plan = site.plan()
    assert why(plan, "cpu") is (None if valid else ReasonCode.RULE_INVALID)
    assert grown(plan) == ({"g": 1} if valid else {})


def test_CCE_A3_2_any_rule_threshold_is_valid_if_nothing_is_ever_removed() -> None:
    site = Site(cpu(above=40)).group(count=2).ask("g", ("8", "1Gi"))
    assert site.options["scale_down_enabled"] is False
    assert grown(site.plan()) == {"g": 1}


def test_CCE_A3_2_invalid_rule_for_one_group_of_a_pool_stops_no_other_rule() -> None:
    pool = VendorPool("pool")
    site = Site(cpu(above=55, groups=("pool", "g"))).group("g", 1).ask("g", ("4", "1Gi"))
    site.group("pool/a", 1, pool=pool).group("pool/b", 1, pool=pool, utilization=0.6).ask(
        "pool/a", ("4", "1Gi")
    )
    site.options["scale_down_enabled"] = True
    plan = site.plan()
    assert (why(plan, "cpu", "pool"), why(plan, "cpu", "g")) == (ReasonCode.RULE_INVALID, None)
    assert grown(plan) == {"g": 1}
    assert ReasonCode.RULE_INVALID in noted(plan)


def test_CCE_A3_3_metric_rules_ignore_an_empty_pool() -> None:
    site = Site(cpu(add=0), cron()).group("other", 1).group("g", 0)
    assert why(site.plan(), "cpu") is ReasonCode.RULE_NO_DATA
    assert grown(site.plan(site.now + MINUTE)) == {"g": 1}  # the cron rule does not need the rate


def test_memory_rule_buys_nothing_for_nodes_that_offer_no_memory() -> None:
    site = Site(memory_rule()).group(count=2, memory="0").ask("g", ("1", "1Gi"))
    plan = site.plan()
    assert (why(plan, "memory"), grown(plan)) == (ReasonCode.RULE_NO_DATA, {})


def gpu_site() -> Site:
    """A pool of so few nodes that it stays healthy. They should have a GPU, and do not have it."""
    site = full(cpu(), cron(), count=3, asks="8")
    site.groups["g"].model["labels"] = {"accelerator": "tesla-t4"}
    return site


def test_CCE_A3_4_node_without_its_gpu_suppresses_metric_rules() -> None:
    site = gpu_site()
    plan = site.plan()
    assert (why(plan, "cpu"), grown(plan)) == (ReasonCode.RULE_DEVICES, {})
    reason = said(plan, "cpu").reason
    assert reason is not None
    assert reason.params == {"node": "g-000"}
    site.groups["g"].model["extra"] = {"nvidia.com/gpu": 1}
    assert grown(site.plan()) == {"g": 1}


def test_CCE_A3_4_device_promised_by_a_template_but_missing_suppresses_rules() -> None:
    site = full(cpu(), count=3, asks="8")
    site.groups["g"].bare = True
    site.groups["g"].more["template"] = node("t", "3920m", extra={"vendor.example/npu-310": 1})
    with_template = site.read()
    site.groups["g"].more.pop("template")
    assert why(site.plan(changed=[with_template]), "cpu") is ReasonCode.RULE_DEVICES
    site.groups["g"].model["extra"] = {"vendor.example/npu-310": 8}
    assert grown(site.plan(changed=[with_template])) == {"g": 1}


def test_CCE_5_missing_data_or_device_suppresses_metric_but_not_cron_rules() -> None:
    plan = gpu_site().plan(Site().now + MINUTE)
    assert (why(plan, "cpu"), grown(plan), said(plan, "evening").nodes) == (
        ReasonCode.RULE_SUPERSEDED,
        {"g": 1},
        1,
    )
    plan = Site(cpu(), cron()).group("x", 1).group("g", 0).plan(Site().now + MINUTE)
    assert (why(plan, "cpu"), grown(plan)) == (ReasonCode.RULE_SUPERSEDED, {"g": 1})


def test_CCE_5_young_node_waiting_for_its_driver_does_not_delay_cron_rules() -> None:
    site = gpu_site()
    site.groups["g"].model.update(
        {"created": site.now - 30, "labels": {"cluster-api/accelerator": "t4"}}
    )
    site.group("calm", 1)
    assert why(site.plan(), "cpu") is ReasonCode.RULE_DEVICES
    assert grown(site.plan(site.now + MINUTE)) == {"g": 1}


def test_CCE_A3_5_metric_rule_adds_nothing_to_a_backed_off_or_limited_pool() -> None:
    site = full(cpu())
    site.plan()
    assert why(site.sold_out("g").plan(), "cpu") is ReasonCode.GROUP_BACKOFF
    assert why(full(cpu(), max_nodes_total=5).plan(), "cpu") is ReasonCode.MAX_NODES_TOTAL
    assert why(full(cpu(), memory_total=(0, 80 * 2**30)).plan(), "cpu") is ReasonCode.RESOURCE_LIMIT


def test_CCE_6_rules_respect_pool_maximum_flavour_maximum_and_cores_limit() -> None:
    pool = VendorPool("pool", max=2)
    both = (
        Site(cpu(add=3, groups=("pool",)))
        .group("pool/a", 1, "4", pool=pool)
        .group("pool/b", 1, "4", pool=pool)
    )
    plan = both.ask("pool/a", ("4", "1Gi"), ("4", "1Gi")).plan()
    assert (grown(plan), why(plan, "cpu")) == ({}, ReasonCode.POOL_MAX_SIZE)
    full_up = Site(cpu(add=3)).group(count=2, max=2).ask("g", ("4", "1Gi"), ("4", "1Gi")).plan()
    assert (grown(full_up), why(full_up, "cpu")) == ({}, ReasonCode.GROUP_MAX_SIZE)
    room = (
        Site(cpu(add=3), cores_total=(0, 12))
        .group(count=2)
        .ask("g", ("4", "1Gi"), ("4", "1Gi"))
        .plan()
    )
    assert (grown(room), why(room, "cpu")) == ({"g": 1}, ReasonCode.RESOURCE_LIMIT)


def test_CCE_A6_1_metric_and_cron_rules_respect_the_pool_bounds() -> None:
    assert grown(
        full(cpu(add=9)).group(count=5, each="3920m", max=7).ask("g", ("13", "1Gi")).plan()
    ) == {"g": 2}
    site = full(cron(add=9)).group(count=5, max=7)
    plan = site.plan(site.now + MINUTE)
    assert (grown(plan), why(plan, "evening")) == ({"g": 2}, ReasonCode.GROUP_MAX_SIZE)
    # nodes cut by a limit are not requested later
    again = site.arrive(plan).plan(site.now + MINUTE)
    assert (grown(again), why(again, "evening")) == ({}, ReasonCode.RULE_NOT_DUE)


def test_CCE_A1_6_one_measurement_above_the_threshold_triggers_a_rule() -> None:
    site = full(cpu(), asks="9")
    assert grown(site.plan()) == {}
    assert grown(site.ask("g", ("13", "1Gi")).plan(site.now + 10)) == {"g": 1}


def test_CCE_A1_1_rules_can_be_disabled_without_catching_up_later() -> None:
    site = full(cpu(), cron(), now=Site().now - 5 * MINUTE)
    site.plan()
    assert site.memory.rules
    site.scale_up = ScaleUp(rules=False)
    plan = site.plan(site.now + 6 * MINUTE)
    assert (grown(plan), why(plan, "cpu"), why(plan, "evening")) == (
        {},
        ReasonCode.RULES_OFF,
        ReasonCode.RULES_OFF,
    )
    assert site.memory.rules == {}
    site.scale_up = ScaleUp()
    plan = site.ask("g").plan(site.now + 5 * MINUTE)
    assert (grown(plan), why(plan, "evening")) == ({}, ReasonCode.RULE_NOT_DUE)


def test_CCE_A3_5_minimum_interval_between_metric_actions_of_a_pool() -> None:
    site = full(cpu(), memory_rule(), scale_up=ScaleUp(metric_min_interval=600.0))
    plan = site.plan()
    site.arrive(plan).ask("g", ("16", "80Gi"))
    held = site.plan(site.now + 9 * MINUTE)
    assert (grown(held), why(held, "cpu"), why(held, "memory")) == (
        {},
        ReasonCode.RULE_INTERVAL,
        ReasonCode.RULE_INTERVAL,
    )
    assert grown(site.plan(site.now + MINUTE)) == {"g": 1}
    site.arrive(plan)
    assert grown(site.plan(site.now - 30 * 86400.0)) == {"g": 1}  # the clock was far ahead


@pytest.mark.parametrize(
    "change", ["operation", "creating", "deleting", "more wanted", "fewer wanted"]
)
def test_CCE_A5_6_no_rule_acts_on_a_pool_that_is_scaling(change: str) -> None:
    site = full(cpu(), cron())
    read = site.read()
    extra = Instance(
        "test://g/x", InstanceState.DELETING if change == "deleting" else InstanceState.CREATING
    )
    moving = {
        "creating": msgspec.structs.replace(read, target=6, instances=(*read.instances, extra)),
        "deleting": msgspec.structs.replace(read, instances=(*read.instances, extra)),
        "more wanted": msgspec.structs.replace(read, target=6),
        "fewer wanted": msgspec.structs.replace(read, target=4),
    }.get(change, read)
    if change == "operation":
        site.memory = msgspec.structs.replace(
            site.memory,
            operations=(
                new_operation(
                    "shrink-x",
                    "test",
                    "test",
                    "g",
                    OperationKind.DECREASE_TARGET,
                    "p",
                    site.now,
                    from_size=6,
                    to_size=5,
                ),
            ),
        )
    plan = site.plan(changed=[moving])
    assert (grown(plan), why(plan, "cpu")) == ({}, ReasonCode.RULE_SCALING)
    plan = site.plan(site.now + MINUTE, changed=[moving])
    assert (grown(plan), why(plan, "evening"), why(plan, "cpu")) == (
        {},
        ReasonCode.RULE_SCALING,
        ReasonCode.RULE_SUPERSEDED,
    )
    assert grown(site.over().plan(site.now + MINUTE)) == {"g": 1}


def test_CCE_A5_6_one_scaling_flavour_blocks_rules_of_the_pool_but_not_pods() -> None:
    pool = VendorPool("pool")
    site = Site(cpu(groups=("pool",)), cpu("alone", groups=("pool/b",))).group(
        "pool/a", 1, pool=pool
    )
    site.group("pool/b", 1, pool=pool).ask("pool/b", ("4", "1Gi"))
    moving = msgspec.structs.replace(site.read("pool/a"), target=2)
    plan = site.plan(changed=[moving])
    assert (grown(plan), why(plan, "cpu"), why(plan, "alone")) == (
        {},
        ReasonCode.RULE_SCALING,
        ReasonCode.RULE_SCALING,
    )
    assert grown(site.wait(3, "4").plan(changed=[moving])) != {}


def test_unreadable_group_blocks_rules_of_its_own_pool_only() -> None:
    pool = VendorPool("pool", max=10)
    site = Site(cpu(groups=("pool", "g"))).group("g", 1, "4").ask("g", ("4", "1Gi"))
    site.group("pool/a", 1, pool=pool).group("pool/b", 1, pool=pool).ask("pool/a", ("4", "1Gi"))
    plan = site.plan(
        changed=[msgspec.structs.replace(site.read("pool/b"), error="HTTP 500", instances=())]
    )
    assert (grown(plan), why(plan, "cpu", "pool")) == ({"g": 1}, ReasonCode.GROUP_UNREADABLE)


def test_rule_does_not_use_nodes_that_lack_the_measured_resource() -> None:
    site = Site(cpu(add=0)).group(
        count=1, options=GroupOptions(scale_down_utilization_threshold=0.1)
    )
    read = site.read()
    assert (
        BelowThreshold("cpu", 10, 5, 60).nodes(msgspec.structs.replace(node("t"), allocatable={}))
        == 0
    )
    assert why(site.plan(changed=[read]), "cpu") is ReasonCode.RULE_BELOW
