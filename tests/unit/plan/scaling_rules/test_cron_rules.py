"""Cron rules: when they are due, and that each occurrence is handled once
(docs/reference/scaling-rules.md "Cron rules")."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.reason import ReasonCode
from chalicelib.model.scaling_rules import Rule
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.unit.plan.scaling_rules.rule_harness import (
    MINUTE,
    Site,
    VendorPool,
    at,
    cron,
    grown,
    horizontal,
    noted,
    said,
    why,
)

ZURICH = "Europe/Zurich"


def local(text: str, zone: str = ZURICH, fold: int = 0) -> float:
    """The instant at which the zone's clock shows this time."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def times(rule: Rule, start: float, end: float, step: float = MINUTE) -> list[float]:
    """Instants at which a rule adds nodes, with a pass every `step` seconds;
    requested nodes come at once."""
    site = Site(rule, now=start).group(count=0, max=10_000).group("calm", 1)
    site.plan()
    found, now = [], start
    while now < end:
        now += step
        plan = site.plan(now)
        if grown(plan):
            found.append(now)
            site.arrive(plan)
    return found


def around(instant: float, *, before: float = 600.0, after: float = 5400.0) -> tuple[float, float]:
    """A period whose passes run half a minute off the full minute."""
    return instant - before - 30.0, instant + after


@pytest.mark.parametrize(
    ("when", "due"),
    [
        ("47 20 * * *", "2026-03-09 20:47"),
        ("47 20 * * 1", "2026-03-09 20:47"),
        ("47 20 15 * *", "2026-04-15 20:47"),
        ("47 20 15 6 *", "2026-06-15 20:47"),
        ("47 20 15 6 1", "2026-06-15 20:47"),
        ("47 20 * * mon", "2026-03-09 20:47"),
        ("47 20 * * 0", "2026-03-08 20:47"),
        ("47 20 * * 7", "2026-03-08 20:47"),
        ("*/20 20-21 * * *", "2026-03-09 20:40"),
    ],
)
def test_CCE_7_daily_weekly_monthly_and_yearly_occurrences_fire_once(when: str, due: str) -> None:
    instant = at(due)
    assert times(cron(when=when), instant - 330.0, instant + 930.0) == [instant + 30.0]


def test_CCE_7_occurrence_between_two_passes_is_not_lost() -> None:
    instant = at("2026-03-09 20:47")
    assert times(cron(), instant - 330.0, instant + 1800.0, step=150.0) == [instant + 120.0]


@pytest.mark.parametrize(
    ("when", "first"),
    [
        # Clocks go forward from 2:00 to 3:00 on March 29th, and back from 3:00
        # to 2:00 on October 25th.
        ("30 2 * * *", "2026-03-29 03:00"),
        ("30 3 * * *", "2026-03-29 03:30"),
        ("30 2 * * *", "2026-10-25 02:30"),
        ("59 1 * * *", "2026-10-25 01:59"),
        ("30 2 25 10 *", "2026-10-25 02:30"),
        ("30 2 * * 0", "2026-10-25 02:30"),
    ],
)
def test_CCE_7_occurrence_fires_once_across_a_clock_change(when: str, first: str) -> None:
    instant = local(first)
    assert times(
        cron(when=when, time_zone=ZURICH), *around(instant, after=6 * 3600.0), step=300.0
    ) == [instant - 30.0 + 300.0]


def test_CCE_7_cron_rule_uses_its_own_time_zone() -> None:
    instant = local("2026-03-09 20:47")
    assert instant == at("2026-03-09 19:47")
    assert times(cron(time_zone=ZURICH), *around(instant)) == [instant + 30.0]


def test_CCE_7_occurrence_older_than_forty_minutes_is_dropped_until_the_next() -> None:
    site = Site(cron()).group()
    site.plan()
    late = site.plan(at("2026-03-09 21:27:00"))
    assert (grown(late), why(late, "evening")) == ({}, ReasonCode.RULE_EXPIRED)
    assert said(late, "evening").due == at("2026-03-09 20:47")
    assert ReasonCode.RULE_EXPIRED in noted(late)
    after = site.plan(site.now + MINUTE)
    assert (why(after, "evening"), noted(after)) == (ReasonCode.RULE_NOT_DUE, set())
    assert grown(site.plan(at("2026-03-10 20:47:10"))) == {"g": 1}


def test_CCE_A4_missed_occurrences_of_the_last_half_hour_fire_as_one() -> None:
    site = Site(cron(when="*/5 * * * *", add=2)).group()
    site.plan()
    plan = site.plan(at("2026-03-09 21:08:00"))
    assert (grown(plan), said(plan, "evening").due) == ({"g": 2}, at("2026-03-09 21:05"))
    assert grown(site.arrive(plan).plan(site.now + 30.0)) == {}


def test_CCE_A4_cron_rule_ignores_the_rate_and_scales_up_an_empty_pool() -> None:
    assert times(cron(add=3), at("2026-03-09 20:46:30"), at("2026-03-09 20:50")) == [
        at("2026-03-09 20:47:30")
    ]


def test_CCE_A4_last_handled_occurrence_survives_a_restart() -> None:
    site = Site(cron()).group()
    site.plan()
    plan = site.plan(at("2026-03-09 20:47:20"))
    stored = msgspec.json.decode(msgspec.json.encode(site.memory), type=Memory)
    again = Site(cron(), now=at("2026-03-09 20:47:40")).group()
    again.memory = stored
    assert grown(again.arrive(plan).plan()) == {}
    assert stored.rules["evening@g"].last_occurrence == at("2026-03-09 20:47")


def test_CCE_A4_repeated_pass_makes_the_same_cron_decision() -> None:
    site = Site(cron(add=4)).group()
    site.plan()
    before = site.memory
    first = site.plan(at("2026-03-09 20:47:20"))
    site.memory = before  # it crashed before anything was stored
    assert site.plan() == first
    assert grown(site.under_way(first).plan(site.now + 20.0)) == {}
    assert why(site.plan(), "evening") is ReasonCode.RULE_SCALING


def test_CCE_A4_new_rule_looks_back_a_minute_and_an_object_to_its_creation() -> None:
    assert grown(Site(cron(), now=at("2026-03-09 20:47:50")).group().plan()) == {"g": 1}
    assert grown(Site(cron(), now=at("2026-03-09 20:48:10")).group().plan()) == {}
    for made, expected in (("20:47:20", {}), ("20:46:40", {"g": 1})):
        site = Site(now=at("2026-03-09 20:47:50")).group()
        site.objects = (horizontal("h", cron(), created=at(f"2026-03-09 {made}")),)
        assert grown(site.plan()) == expected


def test_CCE_A4_rule_with_a_changed_time_starts_without_history() -> None:
    site = Site(cron(), now=at("2026-03-09 20:40")).group()
    site.plan()
    site.rules = (cron(when="30 20 * * *"),)
    assert grown(site.plan(at("2026-03-09 20:45"))) == {}
    site.rules = (cron(when="30 20 * * *", time_zone=ZURICH),)
    assert why(site.plan(at("2026-03-09 20:50")), "evening") is ReasonCode.RULE_NOT_DUE


def test_CCE_A4_time_zone_of_objects_is_a_setting() -> None:
    site = Site(now=at("2026-03-09 19:46:30"), scale_up=ScaleUp(cron_time_zone=ZURICH)).group()
    site.objects = (horizontal("h", cron()),)
    site.plan()
    assert grown(site.plan(site.now + MINUTE)) == {"g": 1}


def test_CCE_A4_clock_errors_neither_repeat_nor_suppress_occurrences() -> None:
    site = Site(cron()).group()
    site.plan()
    plan = site.plan(at("2026-03-09 20:47:10"))
    site.arrive(plan)
    assert grown(site.plan(at("2026-03-09 20:46:50"))) == {}
    assert grown(site.plan(at("2026-03-09 20:47:05"))) == {}
    site.plan(at("2027-03-09 20:50"))  # a pass with a wrong clock
    site.plan(at("2026-03-10 20:46:30"))
    assert grown(site.plan(at("2026-03-10 20:47:10"))) == {"g": 1}


def test_pass_without_due_cron_rules_leaves_memory_unchanged() -> None:
    site = Site(cron(), cron("night", "0 3 * * *"), cron("h", groups=("h",))).group().group("h", 2)
    site.plan()
    before = site.memory.rules
    plan = site.plan(site.now + 10.0)
    assert site.memory.rules == before
    reported = said(plan, "night").reason
    assert reported is not None
    assert reported.params == {"until": at("2026-03-10 03:00")}
    assert [(each.rule, each.pool) for each in plan.rules] == [
        ("evening", "g"),
        ("night", "g"),
        ("h", "h"),
    ]


def test_pending_occurrence_is_saved_once() -> None:
    site = Site(cron()).group()
    site.plan()
    site.sold_out("g", until=at("2026-03-09 21:00")).plan(at("2026-03-09 20:47:10"))
    kept = site.memory.rules
    assert (kept["evening@g"].pending_occurrence, kept["evening@g"].why) == (
        at("2026-03-09 20:47"),
        "BackOff",
    )
    site.plan(site.now + 10.0)
    assert site.memory.rules == kept


@pytest.mark.parametrize(("freed", "outcome"), [("21:05", {"g": 1}), ("21:30", {})])
def test_CCE_A4_blocked_occurrence_stays_pending_for_half_an_hour(
    freed: str, outcome: dict[str, int]
) -> None:
    site = Site(cron()).group()
    site.plan()
    held = site.sold_out("g", until=at(f"2026-03-09 {freed}")).plan(at("2026-03-09 20:47:10"))
    assert (grown(held), why(held, "evening")) == ({}, ReasonCode.GROUP_BACKOFF)
    plan = site.plan(at(f"2026-03-09 {freed}:10"))
    assert grown(plan) == outcome
    assert why(plan, "evening") is (None if outcome else ReasonCode.RULE_EXPIRED)


def test_CCE_A4_occurrence_for_a_group_without_a_template_stays_pending() -> None:
    site = Site(cron()).group("g", 0, bare=True).group("calm", 1)
    site.plan()
    assert why(site.plan(site.now + MINUTE), "evening") is ReasonCode.NO_TEMPLATE
    site.groups["g"].bare = False
    assert grown(site.plan(site.now + MINUTE)) == {"g": 1}


def two_flavours() -> Site:
    """A pool with a preferred flavour and a second one."""
    pool = VendorPool("pool", max=20)
    site = Site(cron(add=5, groups=("pool",))).group("pool/first", 2, pool=pool, rank=9)
    return site.group("pool/second", 1, pool=pool)


def test_CCE_A9_1_sold_out_flavour_does_not_lose_a_cron_rules_nodes() -> None:
    site = two_flavours()
    site.plan()
    plan = site.plan(site.now + MINUTE)
    assert grown(plan) == {"pool/first": 5}
    assert grown(site.under_way(plan).plan(site.now + MINUTE)) == {}
    site.over().groups["pool/first"].count = 4  # two came
    plan = site.sold_out("pool/first").plan(site.now + MINUTE)
    assert (grown(plan), said(plan, "evening").nodes) == ({"pool/second": 3}, 3)
    assert grown(site.arrive(plan).plan(site.now + MINUTE)) == {}
    assert site.memory.rules["evening@pool"].target_size == 0
    site.groups["pool/second"].count = 1  # nodes removed later are not replaced
    assert grown(site.plan(site.now + MINUTE)) == {}


def test_CCE_A9_1_occurrence_with_all_flavours_backed_off_expires_in_half_an_hour() -> None:
    site = two_flavours()
    site.plan()
    begun = site.now + MINUTE
    site.plan(begun)
    late = at("2026-03-09 23:00")
    plan = site.sold_out("pool/first", late).sold_out("pool/second", late).plan(begun + 20 * MINUTE)
    assert (grown(plan), why(plan, "evening")) == ({}, ReasonCode.GROUP_BACKOFF)
    assert site.memory.rules["evening@pool"].target_size == 8
    plan = site.plan(begun + 31 * MINUTE)
    assert (why(plan, "evening"), site.memory.rules["evening@pool"].target_size) == (
        ReasonCode.RULE_NOT_DUE,
        0,
    )


def test_CCE_A9_1_backed_off_flavour_adds_the_rest_after_the_other_is_full() -> None:
    site = two_flavours()
    site.groups["pool/second"].more["max"] = 3
    site.plan()
    plan = site.sold_out("pool/first", until=site.now + 5 * MINUTE).plan(site.now + MINUTE)
    assert grown(plan) == {"pool/second": 2}
    site.arrive(plan)
    assert grown(site.plan(site.now + MINUTE)) == {}
    assert grown(site.plan(site.now + 6 * MINUTE)) == {"pool/first": 3}


def test_nodes_of_a_group_missing_from_the_list_are_not_requested_again() -> None:
    site = two_flavours()
    site.groups["pool/second"].count = 12
    site.plan()
    site.plan(site.now + MINUTE)
    site.groups.pop("pool/second")
    assert grown(site.plan(site.now + MINUTE)) == {"pool/first": 5}  # of 17 that seem to be missing


def test_nodes_removed_since_a_cron_rule_fired_are_not_requested_again() -> None:
    site = two_flavours()
    site.plan()
    plan = site.plan(site.now + MINUTE)
    site.arrive(plan).groups["pool/first"].count = 5
    known = site.memory.groups["pool/first"]
    site.memory = msgspec.structs.replace(
        site.memory,
        groups={
            **site.memory.groups,
            "pool/first": msgspec.structs.replace(known, last_delete=site.now + 5.0),
        },
    )
    assert grown(site.plan(site.now + MINUTE)) == {}
    assert site.memory.rules["evening@pool"].target_size == 0


def test_invalid_cron_expression_is_reported_and_stops_no_other_rule() -> None:
    site = Site(cron("bad", "61 * * * *"), cron("lost", time_zone="Nowhere/City"), cron()).group()
    site.plan()
    plan = site.plan(site.now + MINUTE)
    assert (why(plan, "bad"), why(plan, "lost"), grown(plan)) == (
        ReasonCode.RULE_INVALID,
        ReasonCode.RULE_INVALID,
        {"g": 1},
    )
