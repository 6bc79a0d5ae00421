"""Schedules: the policy in force at one instant."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import NodeGroup, Pool
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.open_schedules import apply_scheduled_bounds, apply_schedules
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.runtime.mode_guard import permitted
from tests.builders import ClusterBuilder, cluster, growth, node

HOUR = 3600.0


def instant(text: str) -> float:
    """Epoch seconds of RFC 3339."""
    return datetime.fromisoformat(text).timestamp()


EVENING = instant("2027-01-18T20:00:00+01:00")  # a Monday


def night(**fields: Any) -> Schedule:
    """Every weekday at eight in the evening in Zurich, for eleven hours."""
    return Schedule(
        **{
            "name": "night",
            "cron": "0 20 * * 1-5",
            "duration": 11 * HOUR,
            "time_zone": "Europe/Zurich",
            **fields,
        }
    )


def policy(*schedules: Schedule, **fields: Any) -> Policy:
    return Policy(name="test", **{"mode": Mode.ACTIVE, "schedules": schedules, **fields})


def word(schedules: tuple[Schedule, ...], now: float, mode: Mode = Mode.ACTIVE) -> str:
    return permitted(apply_schedules(policy(*schedules, mode=mode), now)).word


@pytest.mark.parametrize(
    ("now", "mode"),
    [
        (EVENING - 1, "active"),
        (EVENING, "shadow"),
        (EVENING + 11 * HOUR - 1, "shadow"),
        (EVENING + 11 * HOUR, "active"),
        (EVENING + 24 * HOUR, "shadow"),
        (EVENING - 24 * HOUR, "active"),
    ],
)
def test_schedule_applies_from_its_opening_until_its_end(now: float, mode: str) -> None:
    assert word((night(mode="shadow"),), now) == mode


@pytest.mark.parametrize(
    ("cron", "zone", "opens"),
    [
        pytest.param(
            "30 2 * * *",
            "Europe/Zurich",
            "2026-03-29T01:00:00+00:00",
            id="skipped-by-the-clock-in-spring",
        ),
        pytest.param(
            "30 2 * * *", "Europe/Zurich", "2026-03-30T00:30:00+00:00", id="the-day-after"
        ),
        pytest.param(
            "30 2 * * *",
            "Europe/Zurich",
            "2026-10-25T00:30:00+00:00",
            id="shown-twice-in-autumn-the-first",
        ),
        pytest.param(
            "30 2 * * *",
            "Asia/Shanghai",
            "2026-10-24T18:30:00+00:00",
            id="a-zone-that-never-changes",
        ),
        pytest.param(
            "0 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T15:30:00+00:00",
            id="half-an-hour-of-summer-time",
        ),
        pytest.param("30 2 * * *", "UTC", "2026-10-25T02:30:00+00:00", id="utc"),
    ],
)
def test_schedule_uses_the_hour_of_its_zone_across_clock_changes(
    cron: str, zone: str, opens: str
) -> None:
    at, spring = instant(opens), (Schedule("s", cron, HOUR, time_zone=zone, mode="off"),)
    assert [word(spring, at + late) for late in (-1, 0, HOUR - 1, HOUR)] == [
        "active",
        "off",
        "off",
        "active",
    ]


def test_schedule_lasts_its_real_duration_in_a_night_with_an_extra_hour() -> None:
    opens = instant("2026-10-24T22:00:00+02:00")
    late = (Schedule("s", "0 22 * * *", 10 * HOUR, time_zone="Europe/Zurich", mode="off"),)
    assert [word(late, opens + 10 * HOUR + step) for step in (-1, 0)] == ["off", "active"]
    assert opens + 10 * HOUR == instant("2026-10-25T07:00:00+01:00"), (
        "seven by the clock, and not eight"
    )


def test_schedule_may_switch_on_a_cluster_that_is_off() -> None:
    assert [word((night(mode="active"),), EVENING + step, Mode.OFF) for step in (-1, 0)] == [
        "off",
        "active",
    ]


def test_applying_schedules_twice_equals_once_and_no_schedules_change_nothing() -> None:
    full = policy(
        night(mode="shadow", headroom=20, max=3),
        night(name="g", groups=("g",), headroom=5, min=1),
        headroom=(Headroom("all", percent=10),),
        node_groups=(GroupPolicy("test", "g", 0, 9),),
    )
    once = apply_schedules(full, EVENING)
    assert apply_schedules(once, EVENING) == once != full
    plain = policy()
    assert apply_schedules(plain, EVENING) is plain
    assert apply_schedules(full, EVENING - 1) is full


# -- headroom


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param({}, {"all": 10, "g": 30, "pair": 5}, id="says-nothing"),
        pytest.param({"headroom": 0}, {"all": 0, "g": 30, "pair": 5}, id="cluster-wide"),
        pytest.param(
            {"headroom": 50, "groups": ("g",)},
            {"all": 10, "g": 50, "pair": 50},
            id="all-that-have-the-group",
        ),
        pytest.param(
            {"headroom": 50, "groups": ("other",)},
            {"all": 10, "g": 30, "pair": 5, "night": 50},
            id="of-its-own",
        ),
        pytest.param(
            {"headroom": 0, "groups": ("other",)},
            {"all": 10, "g": 30, "pair": 5},
            id="none-of-its-own",
        ),
    ],
)
def test_schedule_replaces_the_headroom_of_its_scope(
    schedule: dict[str, Any], expected: dict[str, int]
) -> None:
    entries = (
        Headroom("all", percent=10),
        Headroom("g", groups=("g",), percent=30),
        Headroom("pair", groups=("g", "h"), percent=5),
    )
    found = apply_schedules(policy(night(min=0, **schedule), headroom=entries), EVENING).headroom
    assert {each.name: each.percent for each in found} == expected


def test_scheduled_percentage_replaces_headroom_of_fixed_pods() -> None:
    found = apply_schedules(
        policy(night(headroom=20), headroom=(Headroom("all", pods=3, cpu=500),)), EVENING
    ).headroom
    assert found == (Headroom("all", percent=20),)


# -- bounds


def bounds(
    group: NodeGroup, *schedules: Schedule, now: float = EVENING, others: tuple[NodeGroup, ...] = ()
) -> tuple[int, int, bool]:
    found = apply_scheduled_bounds(
        Snapshot("test", now, groups=(group, *others)), policy(*schedules), now
    ).groups[0]
    return found.min, found.max, found.options.enforce_min


GROUP = NodeGroup("g", "test", min=1, max=5, aliases=("workers",))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param({"min": 3, "groups": ("g",)}, (3, 5, True), id="by-id"),
        pytest.param({"min": 3, "groups": ("workers",)}, (3, 5, True), id="by-another-name"),
        pytest.param({"min": 3}, (3, 5, True), id="everybody"),
        pytest.param({"min": 3, "groups": ("h",)}, (1, 5, False), id="somebody-else"),
        pytest.param({"max": 9}, (1, 9, False), id="a-maximum-replaces-the-groups-own"),
        pytest.param({"max": 0}, (0, 0, False), id="a-maximum-below-the-minimum-holds-for-both"),
        pytest.param({"min": 7}, (5, 5, True), id="a-minimum-above-the-maximum-stops-there"),
        pytest.param({"min": 7, "max": 8}, (7, 8, True), id="both"),
    ],
)
def test_schedule_sets_the_bounds_of_a_group(
    schedule: dict[str, Any], expected: tuple[int, int, bool]
) -> None:
    assert bounds(GROUP, night(**schedule)) == expected
    assert bounds(GROUP, night(**schedule), now=EVENING - 1) == (1, 5, False)


@pytest.mark.parametrize(
    ("entry", "schedule", "expected"),
    [
        pytest.param((0, 5), {"max": 9}, (0, 9), id="a-larger-maximum"),
        pytest.param(
            (3, 3), {"max": 1}, (1, 3), id="a-smaller-one-which-only-the-planner-keeps-to"
        ),
        pytest.param((2, 5), {"min": 0}, (0, 5), id="a-lower-minimum"),
        pytest.param(
            (1, None), {"min": 6}, (1, None), id="a-higher-one-may-be-above-the-providers-maximum"
        ),
        pytest.param((1, None), {"max": 9}, (1, 9), id="a-maximum-beside-a-known-minimum"),
        pytest.param(
            (None, 5), {"max": 0}, (None, 5), id="none-at-all-may-be-below-the-providers-minimum"
        ),
        pytest.param((None, None), {"max": 0}, (None, None), id="nothing-to-pair-it-with"),
        pytest.param((None, None), {"min": 6, "max": 8}, (6, 8), id="both-of-the-schedule"),
    ],
)
def test_providers_receive_wider_bounds_and_never_narrower_ones(
    entry: tuple[int | None, int | None],
    schedule: dict[str, Any],
    expected: tuple[int | None, int | None],
) -> None:
    full = policy(night(groups=("g",), **schedule), node_groups=(GroupPolicy("test", "g", *entry),))
    once = apply_schedules(full, EVENING)
    assert [(each.min, each.max) for each in once.node_groups] == [expected]
    assert apply_schedules(once, EVENING) == once


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param({"min": 6, "max": 8}, (5, 5), id="above-what-it-takes"),
        pytest.param({"max": 0}, (1, 1), id="below-what-it-keeps"),
        pytest.param({"min": 2, "max": 4}, (2, 4), id="within"),
    ],
)
def test_size_that_a_provider_would_reject_is_not_planned(
    schedule: dict[str, Any], expected: tuple[int, int]
) -> None:
    found = apply_scheduled_bounds(
        Snapshot("test", EVENING, groups=(GROUP,)),
        policy(night(**schedule), providers={"test": {}}),
        EVENING,
    ).groups[0]
    assert (found.min, found.max) == expected


def test_default_scheduled_minimum_never_raises_the_minimum_of_an_entry() -> None:
    entries = (GroupPolicy("test", "g", 0, 5), GroupPolicy("test", "i", 3, 5))
    for least, expected in ((2, [0, 2]), (0, [0, 0]), (4, [0, 3])):
        found = apply_schedules(policy(night(min=least), node_groups=entries), EVENING).node_groups
        assert [each.min for each in found] == expected


def flavours(**pool: Any) -> tuple[NodeGroup, NodeGroup]:
    """Two groups of one pool; the second is preferred."""
    shared = Pool("uid", "pool", **pool)
    made = [
        NodeGroup(
            f"uid/{name}",
            "test",
            max=8,
            rank=rank,
            pool=shared,
            aliases=("uid", "pool", f"pool/{name}"),
        )
        for rank, name in enumerate(("small", "large"))
    ]
    return made[0], made[1]


@pytest.mark.parametrize(
    ("schedule", "pool", "own"),
    [
        pytest.param({"groups": ("pool",)}, (2, 4), (0, 8), id="by-the-pools-name"),
        pytest.param({"groups": ("uid",)}, (2, 4), (0, 8), id="by-its-id"),
        pytest.param({}, (2, 4), (0, 8), id="everybody"),
        pytest.param({"groups": ("uid/small",)}, (1, 9), (2, 4), id="one-group-of-it"),
        pytest.param({"groups": ("pool/small",)}, (1, 9), (2, 4), id="one-group-of-it-by-name"),
    ],
)
def test_schedule_bounds_a_pool_of_several_groups_as_a_whole(
    schedule: dict[str, Any], pool: tuple[int, int], own: tuple[int, int]
) -> None:
    groups = flavours(min=1, max=9)
    found = apply_scheduled_bounds(
        Snapshot("test", EVENING, groups=groups), policy(night(min=2, max=4, **schedule)), EVENING
    ).groups
    assert [(each.pool.min, each.pool.max) for each in found[:1] if each.pool] == [pool]
    assert (found[0].min, found[0].max) == own


def test_schedule_bounds_a_pools_only_group_like_the_pool() -> None:
    only = flavours(min=1, max=9)[0]
    for name in ("pool", "uid/small"):
        found = apply_scheduled_bounds(
            Snapshot("test", EVENING, groups=(only,)),
            policy(night(min=2, max=4, groups=(name,))),
            EVENING,
        ).groups[0]
        assert found.pool is not None
        assert (found.min, found.max, found.pool.min, found.pool.max) == (2, 4, 2, 4)


# -- effects on the plan


def plan(build: ClusterBuilder, *schedules: Schedule, now: float = EVENING, **options: Any) -> Plan:
    changed = policy(*schedules, options=msgspec.structs.replace(Options(), **options))
    snapshot = msgspec.structs.replace(build.snapshot(), taken_at=now)
    return plan_cluster(snapshot, changed, Memory(), now, 0, assume_unneeded_for=HOUR)[0]


def empty_group(**fields: Any) -> ClusterBuilder:
    """A group without nodes, and one node without a group."""
    return cluster().node("anchor").group("g", template=node("t", "4"), **fields)


def test_scheduled_minimum_is_reached_at_its_opening_even_from_zero_nodes() -> None:
    morning = night(min=3, groups=("g",))
    assert growth(plan(empty_group(), morning)) == {"g": (3, 0)}
    assert growth(plan(empty_group(), morning, now=EVENING - 1)) == {}
    assert growth(plan(empty_group(), morning, max_nodes_total=2)) == {"g": (1, 0)}, (
        "as far as limits allow"
    )


def test_scheduled_minimum_of_a_pool_is_raised_in_its_best_group_first() -> None:
    build = cluster().node("anchor")
    template = node("t", "4")
    build.groups = [
        msgspec.structs.replace(each, template=template, max=2 if each.rank else 8)
        for each in flavours(max=9)
    ]
    assert growth(plan(build, night(min=3, groups=("pool",)))) == {
        "uid/large": (2, 0),
        "uid/small": (1, 0),
    }
    build.groups = [
        msgspec.structs.replace(each, error="403") if each.rank else each for each in build.groups
    ]
    assert growth(plan(build, night(min=3, groups=("pool",)))) == {}, (
        "how large it is cannot be known"
    )


def test_pool_without_a_schedule_keeps_its_size() -> None:
    build = cluster().node("anchor")
    build.groups = [
        msgspec.structs.replace(each, template=node("t", "4")) for each in flavours(min=3, max=9)
    ]
    assert growth(plan(build, night(min=1, groups=("uid/small",)))) == {"uid/small": (1, 0)}
    assert growth(plan(build)) == {}
    assert growth(plan(build, enforce_node_group_min_size=True)) == {"uid/large": (3, 0)}


def test_scheduled_minimum_keeps_unneeded_nodes() -> None:
    build = cluster().node("g-0", group="g").node("g-1", group="g").group("g")
    assert len(plan(build).removals) == 2
    assert len(plan(build, night(min=1)).removals) == 1
    assert plan(build, night(min=2)).removals == ()


def test_scheduled_maximum_below_the_size_removes_nothing_and_adds_nothing() -> None:
    build = cluster().node("g-0", "1", group="g").node("g-1", "1", group="g").group("g")
    build.running("g-0", 1, "900m").running("g-1", 1, "900m").pending(2, "900m")
    assert growth(plan(build)) == {"g": (2, 2)}
    found = plan(build, night(max=1))
    assert (growth(found), found.removals) == ({}, ())


def test_larger_scheduled_maximum_lets_a_full_group_scale_up() -> None:
    build = (
        cluster()
        .node("g-0", "1", group="g")
        .group("g", max=1)
        .running("g-0", 1, "900m")
        .pending(2, "900m")
    )
    assert (growth(plan(build)), growth(plan(build, night(max=2)))) == ({}, {"g": (1, 1)})


def test_scheduled_maximum_alone_enforces_no_minimum() -> None:
    assert bounds(NodeGroup("g", "test", min=2, max=5), night(max=4)) == (2, 4, False)
