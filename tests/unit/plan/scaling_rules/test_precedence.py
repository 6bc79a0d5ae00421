"""Precedence and waiting between pods, metric rules and cron rules that scale up the same pool
(docs/reference/scaling-rules.md "Automatic increase")."""

from __future__ import annotations

import msgspec

from chalicelib.model.reason import ReasonCode
from tests.unit.plan.scaling_rules.rule_harness import (
    MINUTE,
    Site,
    at,
    cpu,
    cron,
    grown,
    memory_rule,
    said,
    why,
)

DUE = at("2026-03-09 20:47:10")


def busy(*rules: object, **more: object) -> Site:
    """Two groups of two nodes: g is fully requested in cpu and memory, h has a little room."""
    site = Site(*rules, **more).group("g", 2).group("h", 2)  # type: ignore[arg-type]
    return site.ask("g", ("4", "16Gi"), ("4", "16Gi")).ask("h", ("3", "12Gi"), ("3", "12Gi"))


def test_CCE_A5_1_metric_rules_add_nothing_in_a_pass_that_adds_nodes_for_pods() -> None:
    rules = cpu(groups=("g",)), cpu("other", groups=("h",))
    plan = busy(*rules).wait(1, "3").plan()
    assert sum(grown(plan).values()) == 1
    assert (why(plan, "cpu"), why(plan, "other")) == (
        ReasonCode.RULE_PODS_FIRST,
        ReasonCode.RULE_PODS_FIRST,
    )


def test_CCE_A5_1_metric_rules_act_in_a_pass_without_nodes_for_pods() -> None:
    assert grown(busy(cpu()).wait(1, "64").plan()) == {"g": 1}
    assert grown(busy(cpu()).plan()) == {"g": 1}
    assert grown(busy(cpu()).wait(1, "1").plan()) == {"g": 1}  # it fits on h


def test_CCE_8_metric_rules_act_only_if_pending_pods_got_no_nodes() -> None:
    served = busy(cpu(add=3)).wait(1, "4").plan()
    assert (sum(grown(served).values()), why(served, "cpu")) == (1, ReasonCode.RULE_PODS_FIRST)
    refused = busy(cpu(add=3)).wait(1, "5").plan()  # no node is large enough
    assert (grown(refused), len(refused.unschedulable)) == ({"g": 3}, 1)


def test_CCE_9_metric_rule_that_adds_most_acts_alone() -> None:
    plan = busy(cpu(add=2), memory_rule(add=5)).plan()
    assert (grown(plan), why(plan, "cpu"), said(plan, "memory").nodes) == (
        {"g": 5},
        ReasonCode.RULE_SUPERSEDED,
        5,
    )
    assert next(up.rules for up in plan.scale_ups) == ("memory",)


def test_CCE_A5_2_largest_metric_increase_before_limits_wins_and_cpu_wins_ties() -> None:
    site = busy(memory_rule(add=2), cpu(add=0, above=25), scale_down_utilization_threshold=0.2)
    plan = site.plan()  # 8 of 8 cores: 9 nodes in total bring the rate below a quarter
    assert (grown(plan), why(plan, "memory")) == ({"g": 7}, ReasonCode.RULE_SUPERSEDED)
    limited = busy(memory_rule(add=4), cpu(add=9), max_nodes_total=5).plan()
    assert (grown(limited), said(limited, "cpu").nodes, why(limited, "memory")) == (
        {"g": 1},
        1,
        ReasonCode.RULE_SUPERSEDED,
    )
    equal = busy(memory_rule(add=2), cpu(add=2)).plan()
    assert (said(equal, "cpu").nodes, why(equal, "memory")) == (2, ReasonCode.RULE_SUPERSEDED)


def test_CCE_10_cron_rule_suppresses_a_simultaneous_cpu_rule() -> None:
    site = busy(cpu(add=3), cron(add=1))
    site.ask("g", ("1", "1Gi")).plan()
    plan = site.ask("g", ("4", "1Gi"), ("4", "1Gi")).plan(DUE)
    assert (grown(plan), why(plan, "cpu")) == ({"g": 1}, ReasonCode.RULE_SUPERSEDED)


def test_CCE_10_cron_rule_runs_once_after_an_earlier_metric_rule() -> None:
    site = busy(cpu(add=3), cron(add=2))
    metric = site.plan()
    assert grown(metric) == {"g": 3}
    held = site.under_way(metric).plan(DUE)
    assert (grown(held), why(held, "evening")) == ({}, ReasonCode.RULE_SCALING)
    assert (grown(site.plan(DUE + 5 * MINUTE)), why(site.plan(), "evening")) == (
        {},
        ReasonCode.RULE_SCALING,
    )
    site.over().arrive(metric).ask("g", ("1", "1Gi"))
    plan = site.plan(DUE + 6 * MINUTE)
    assert grown(plan) == {"g": 2}
    assert grown(site.arrive(plan).plan(DUE + 7 * MINUTE)) == {}


def test_CCE_A5_3_metric_rule_suppressed_by_cron_is_measured_again_later() -> None:
    site = busy(cpu(add=3), cron(add=2))
    site.ask("g", ("1", "1Gi")).plan()
    plan = site.ask("g", ("4", "1Gi"), ("4", "1Gi")).plan(DUE)
    assert grown(plan) == {"g": 2}
    after = site.arrive(plan).ask("g", ("4", "1Gi"), ("4", "1Gi")).plan(DUE + MINUTE)
    assert (grown(after), why(after, "cpu"), said(after, "cpu").rate) == (
        {},
        ReasonCode.RULE_BELOW,
        50.0,
    )


def test_CCE_A5_4_pending_cron_occurrence_waits_while_the_pool_scales() -> None:
    site = busy(cpu(add=3), cron(add=2))
    metric = site.plan()
    site.under_way(metric).plan(DUE)
    assert why(site.plan(DUE + 50 * MINUTE), "evening") is ReasonCode.RULE_SCALING
    assert grown(site.over().ask("g").plan(DUE + 51 * MINUTE)) == {"g": 2}


def test_CCE_A5_4_newer_occurrence_replaces_a_pending_one() -> None:
    site = busy(cpu(add=3), cron(when="47 * * * *", add=2))
    metric = site.plan()
    site.under_way(metric).plan(DUE)
    assert said(site.plan(DUE + 61 * MINUTE), "evening").due == at("2026-03-09 21:47")
    site.over().arrive(metric).ask("g")
    plan = site.plan(DUE + 65 * MINUTE)
    assert grown(plan) == {"g": 2}
    assert grown(site.arrive(plan).plan(DUE + 66 * MINUTE)) == {}


def test_CCE_A5_4_occurrence_missed_between_passes_does_not_stay_pending() -> None:
    site = busy(cpu(add=3), cron(add=2))
    metric = site.plan()
    assert why(site.under_way(metric).plan(DUE + 40 * MINUTE), "evening") is ReasonCode.RULE_EXPIRED


def test_CCE_A5_5_cron_rules_run_with_pods_of_other_pools_and_wait_on_the_same() -> None:
    site = busy(cron(groups=("g", "h")))
    site.plan()
    plan = site.wait(1, "4").plan(DUE)
    first = next(up.group for up in plan.scale_ups if up.pods)
    other = {"g": "h", "h": "g"}[first]
    assert grown(plan) == {first: 1, other: 1}
    assert (why(plan, "evening", first), why(plan, "evening", other)) == (
        ReasonCode.RULE_SCALING,
        None,
    )
    again = site.arrive(plan).wait(0, "").plan(DUE + MINUTE)
    assert grown(again) == {first: 1}


def test_CCE_A5_5_two_simultaneous_cron_rules_of_a_pool_run_in_sequence() -> None:
    site = busy(cron("one", add=1), cron("two", add=2))
    site.plan()
    plan = site.plan(DUE)
    assert (grown(plan), why(plan, "two")) == ({"g": 1}, ReasonCode.RULE_SCALING)
    second = site.arrive(plan).plan(DUE + MINUTE)
    assert (grown(second), why(second, "one")) == ({"g": 2}, ReasonCode.RULE_NOT_DUE)
    assert grown(site.arrive(second).plan(DUE + 2 * MINUTE)) == {}


def test_pool_with_two_rules_scales_up_for_one_while_other_pools_scale_up() -> None:
    site = busy(cpu(groups=("g", "h", "g")), cron("h", groups=("h",)))
    site.plan()
    site.groups["g"].count = 2
    assert grown(busy(cpu(groups=("g", "h", "g"))).plan()) == {"g": 1, "h": 1}


def test_CCE_16_unhealthy_cluster_stops_rules_and_a_small_cluster_does_not() -> None:
    rules = cpu(groups=("h",)), cron(groups=("h",))
    site = Site(*rules).group("g", 8).group("h", 2).ask("h", ("4", "1Gi"), ("4", "1Gi"))
    site.unready = 5
    plan = site.plan(DUE)
    assert (grown(plan), why(plan, "cpu"), why(plan, "evening")) == (
        {},
        ReasonCode.CLUSTER_UNHEALTHY,
        ReasonCode.CLUSTER_UNHEALTHY,
    )
    small = Site(*rules).group("g", 2).group("h", 2).ask("h", ("4", "1Gi"), ("4", "1Gi"))
    small.unready = 2
    assert grown(small.plan(DUE)) == {"h": 1}


def test_CCE_A10_rule_blocked_by_the_health_check_runs_in_half_an_hour_or_expires() -> None:
    for minutes, expected in ((20, {"h": 1}), (35, {})):
        site = Site(cron(groups=("h",))).group("g", 8).group("h", 2)
        site.plan()
        site.unready = 5
        assert why(site.plan(DUE), "evening") is ReasonCode.CLUSTER_UNHEALTHY
        site.unready = 0
        assert grown(site.plan(DUE + minutes * MINUTE)) == expected


def test_CCE_A10_without_ready_nodes_and_scale_up_from_zero_no_rule_adds_nodes() -> None:
    site = Site(cron(), scale_up_from_zero=False).group("g", 0)
    site.plan()
    assert why(site.plan(DUE), "evening") is ReasonCode.CLUSTER_UNHEALTHY
    assert msgspec.json.encode(site.memory.rules)
