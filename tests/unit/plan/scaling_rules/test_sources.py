"""Sources of the rules in force: the policy and HorizontalNodeAutoscaler objects, their limits, and
invalid objects (docs/reference/scaling-rules.md "Rules in force")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import Rule, RuleObject
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.unit.plan.scaling_rules.rule_harness import (
    MINUTE,
    Site,
    VendorPool,
    at,
    cpu,
    cron,
    grown,
    horizontal,
    noted,
    said,
    why,
)

DUE = at("2026-03-09 20:47:10")


def with_objects(*objects: RuleObject, rules: tuple[Rule, ...] = (), **more: Any) -> Site:
    """A full pool of two nodes."""
    site = Site(*rules, **more).group("g", 2).ask("g", ("4", "1Gi"), ("4", "1Gi"))
    site.objects = objects
    return site


def details(site: Site) -> list[str]:
    """Details of a pass's notes about objects."""
    return [
        str(note.params["detail"])
        for note in site.plan().notes
        if note.code is ReasonCode.RULE_OBJECT_INVALID
    ]


def test_CCE_A2_rules_of_objects_act_like_those_of_the_policy() -> None:
    plan = with_objects(horizontal("h", cpu(add=2))).plan()
    assert grown(plan) == {"g": 2}
    assert said(plan, "cpu").source == "kube-system/h"
    assert plan.scale_ups[0].rules == ("kube-system/h/cpu",)


def test_CCE_A2_rule_acts_on_each_of_its_pools_separately() -> None:
    pool = VendorPool("0255ac10", name="web")
    site = with_objects(horizontal("h", cron(groups=("g", "0255ac10", "web"), add=2)))
    site.group("0255ac10/a", 1, pool=pool).group("0255ac10/b", 3, pool=pool)
    site.plan()
    plan = site.plan(DUE)
    assert grown(plan) == {"g": 2, "0255ac10/a": 2}
    assert [each.pool for each in plan.rules] == ["g", "0255ac10"]


def test_CCE_2_second_object_with_a_cpu_rule_for_a_pool_is_rejected() -> None:
    early, late = (
        horizontal("z", cpu(add=2), created=10.0),
        horizontal("a", cpu(add=5), cron(), created=20.0),
    )
    site = with_objects(late, early)
    plan = site.plan()
    assert grown(plan) == {"g": 2}
    # refused as a whole
    assert {(each.source, each.rule) for each in plan.rules} == {("kube-system/z", "cpu")}
    assert [note.params["object"] for note in plan.notes] == ["kube-system/a"]
    assert details(site) == ["cpu: pool g has a rule for cpu already; one is allowed"]
    assert set(site.memory.rule_objects) == {"kube-system/z"}


@pytest.mark.parametrize("removals", [True, False])
def test_CCE_A3_2_object_below_the_removal_threshold_acts_and_is_noted(removals: bool) -> None:
    """The vendor's own sample has 40%, and its autoscaler removes nothing by default."""
    site = with_objects(horizontal("h", cpu(above=40, add=2)), scale_down_enabled=removals)
    plan = site.plan()
    assert (grown(plan), why(plan, "cpu")) == ({"g": 2}, None)
    assert noted(plan) == ({ReasonCode.RULE_THRESHOLD} if removals else set())
    again = site.arrive(plan).plan(site.now + 2 * 3600)
    assert grown(again) == {"g": 2}, "it is still above 40%"
    assert not again.removals, "what the rule needs is not removed"


@pytest.mark.parametrize("above", [0, 100])
def test_CCE_A3_6_threshold_that_requests_do_not_exceed_is_noted(above: int) -> None:
    """0 is the vendor's "-1": automatic, by default above 100%."""
    site = with_objects(horizontal("h", cpu(above=above)))
    assert noted(site.plan()) == {ReasonCode.RULE_THRESHOLD}
    site.scale_up = ScaleUp(cpu_threshold=70)
    assert noted(site.plan()) == ({ReasonCode.RULE_THRESHOLD} if above else set())


def test_CCE_A2_policy_rules_come_first_and_ten_rules_are_the_maximum() -> None:
    nine = tuple(cron(f"r{number}") for number in range(9))
    site = with_objects(
        horizontal("h", cron("a"), cron("b")), horizontal("i", cron("c"), created=1.0), rules=nine
    )
    assert {each.rule for each in site.plan().rules} == {*(rule.name for rule in nine), "c"}
    assert details(site) == ["b: pool g has 10 rules already, which is the most"]
    crowded = Site(*nine, cron("x"), cron("y")).group("g")
    plan = crowded.plan()
    assert (why(plan, "x"), why(plan, "y")) == (ReasonCode.RULE_NOT_DUE, ReasonCode.RULE_INVALID)


def test_CCE_A2_rule_limits_count_per_pool() -> None:
    site = with_objects(
        horizontal("h", cpu(groups=("g",))), horizontal("i", cpu(groups=("x",)), created=1.0)
    )
    assert details(site.group("x", 1)) == []


def test_CCE_A2_invalid_object_keeps_its_last_valid_version() -> None:
    site = with_objects(horizontal("h", cpu(add=2)))
    site.plan()
    bad = msgspec.structs.replace(
        horizontal("h", cpu(add=9)), problems=("spec.rules[0] is odd", "and more")
    )
    site.objects = (bad,)
    plan = site.plan()
    assert (grown(plan), noted(plan)) == ({"g": 2}, {ReasonCode.RULE_OBJECT_INVALID})
    assert details(site) == ["spec.rules[0] is odd; and more"]
    site.objects = (horizontal("h", cpu(add=3)),)
    assert (grown(site.plan()), noted(site.plan())) == ({"g": 3}, set())


def test_CCE_A2_never_valid_object_has_no_effect_and_a_recreated_one_no_history() -> None:
    bad = RuleObject("kube-system", "h", uid="2", problems=("no",))
    site = with_objects(bad)
    assert (grown(site.plan()), site.memory.rule_objects) == ({}, {})
    site.objects = (msgspec.structs.replace(horizontal("h", cpu()), uid="1"),)
    site.plan()
    site.objects = (bad,)
    assert (grown(site.plan()), site.memory.rule_objects) == ({}, {})


def test_CCE_A2_unread_objects_stay_in_force_and_deleted_ones_do_not() -> None:
    site = with_objects(horizontal("h", cpu(add=2)))
    site.plan()
    site.objects = None
    assert grown(site.plan()) == {"g": 2}
    site.objects = ()
    assert (grown(site.plan()), site.memory.rule_objects, site.memory.rules) == ({}, {}, {})


def test_CCE_A2_object_over_the_limit_returns_to_its_last_valid_version() -> None:
    site = with_objects(horizontal("h", cron("n")), rules=(cpu(add=2),))
    site.plan()
    site.objects = (horizontal("h", cron("n"), cpu(add=9)),)
    plan = site.plan(DUE)
    assert (noted(plan), grown(plan)) == ({ReasonCode.RULE_OBJECT_INVALID}, {"g": 1})
    assert site.memory.rule_objects["kube-system/h"].rules == horizontal("h", cron("n")).rules
    site.rules = (cpu(add=2), *(cron(f"r{number}") for number in range(9)))
    assert any("last good version" in each for each in details(site))


def test_CCE_A2_disabled_object_does_nothing_and_catches_up_nothing() -> None:
    site = with_objects(horizontal("h", cron(), cpu()))
    site.plan()
    site.objects = (horizontal("h", cron(), cpu(), disabled=True),)
    plan = site.plan(DUE)
    assert (grown(plan), plan.rules, site.memory.rules) == ({}, (), {})
    site.objects = (horizontal("h", cron()),)
    assert grown(site.plan(DUE + 2 * MINUTE)) == {}


def test_CCE_A2_unknown_target_is_reported_and_other_targets_stay_in_force() -> None:
    site = with_objects(horizontal("h", cpu(groups=("gone", "g"))))
    plan = site.plan()
    assert (grown(plan), why(plan, "cpu", "gone")) == ({"g": 1}, ReasonCode.RULE_NO_GROUP)
    assert plan.notes == (
        Reason.of(ReasonCode.RULE_NO_GROUP, rule="kube-system/h/cpu", group="gone"),
    )


def test_unreadable_provider_neither_loses_nor_repeats_an_occurrence() -> None:
    site = with_objects(rules=(cron(),)).group("x", 1)
    site.plan()
    plan = site.plan(DUE)
    group = site.arrive(plan).groups.pop("g")
    site.gaps = (MissingData("provider/test", "HTTP 503"),)
    away = site.plan(DUE + 20.0)
    assert (why(away, "evening"), noted(away)) == (ReasonCode.GROUP_UNREADABLE, set())
    site.groups["g"], site.gaps = group, ()
    assert grown(site.plan(DUE + 40.0)) == {}
    site.groups.pop("g")
    site.plan(at("2026-03-10 20:47:10"))
    site.groups["g"] = group
    assert grown(site.plan(site.now + 10 * MINUTE)) == {"g": 1}


def test_CCE_A1_1_objects_are_remembered_while_rules_are_off() -> None:
    site = with_objects(horizontal("h", cpu()))
    site.scale_up = ScaleUp(rules=False)
    plan = site.plan()
    assert (grown(plan), why(plan, "cpu"), set(site.memory.rule_objects)) == (
        {},
        ReasonCode.RULES_OFF,
        {"kube-system/h"},
    )


def test_CCE_A2_flavour_name_targets_the_flavour_and_pool_name_the_pool() -> None:
    pool = VendorPool("uid", "pool")
    site = Site(
        cron(groups=("pool/small",)), cron("all", groups=("uid-alias",)), now=at("2026-03-09 20:47")
    )
    for rank, name in enumerate(("small", "large")):
        site.group(f"uid/{name}", 1, pool=pool, rank=rank, aliases=("uid-alias", f"pool/{name}"))
    plan = site.plan()
    assert (grown(plan), said(plan, "evening").pool, said(plan, "all").pool) == (
        {"uid/small": 1},
        "uid/small",
        "uid",
    )


def test_CCE_A2_hundreds_of_thousands_of_unknown_targets_do_not_fill_a_plan() -> None:
    gone = [tuple(f"gone-{number}-{at}" for at in range(100)) for number in range(50)]
    site = with_objects(
        *(
            horizontal(f"h{number}", *(cron(f"r{at}", groups=names) for at in range(10)))
            for number, names in enumerate(gone)
        ),
        rules=(cron("mine"),),
    )
    plan = site.plan(at("2026-03-09 20:47"))
    assert grown(plan) == {"g": 1}
    assert (len(plan.rules), len(plan.notes)) == (101, 100)
