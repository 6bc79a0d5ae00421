"""Growths of the other autoscaler, compared with our plan for the state before them."""

from __future__ import annotations

from chalicelib.shadow.other_status import GroupStatus, OtherStatus
from chalicelib.shadow.records import ShadowVerdict
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.unit.shadow.passes import MINUTE, ShadowPasses, status


def base(
    grown: dict[str, int] | None = None, at: float = 0.0, target: int | None = None
) -> ClusterBuilder:
    """Two groups of 2-core nodes with one full node each; `grown`: further nodes that
    were created at that minute."""
    built = cluster()
    for name in ("web", "job"):
        built.node(f"{name}-0", "2", group=name)
        built.running(f"{name}-0", 1, "1800m", name=f"old-{name}")
        for number in range(1, (grown or {}).get(name, 0) + 1):
            built.node(f"{name}-{number}", "2", group=name, created=NOW + at * MINUTE)
    return built


def groups(built: ClusterBuilder, **targets: int) -> ClusterBuilder:
    for name in ("web", "job"):
        built.group(name, template=node(f"template-{name}", "2"), target=targets.get(name))
    return built


def bound(built: ClusterBuilder, on: str, count: int, created: float) -> ClusterBuilder:
    """Pods of 900m that were created at that minute and run on the node now."""
    return built.running(on, count, "900m", name=f"new-{on}", created=NOW + created * MINUTE)


def test_SHA_1_growth_40_seconds_before_the_pass_is_rebuilt_and_same() -> None:
    shadow = ShadowPasses()
    shadow.look(groups(base()), 0, status(0))
    after = groups(bound(base({"web": 1}, at=1 / 3), "web-1", 2, created=0.1))
    for minute in (1, 2, 3, 4):
        shadow.look(after, minute, status(minute, "web", changed=0.5))
        assert shadow.ledger is not None
        assert shadow.ledger.wanted is None  # no plan of these passes wanted a node
    [match] = shadow.matches
    assert (match.theirs, sum(match.ours.values())) == ({"web": 1}, 1)
    assert match.verdict in {ShadowVerdict.SAME, ShadowVerdict.SAME_SIZE}
    assert not match.approximate


def one_group(count: int = 0, at: float = 0.0) -> ClusterBuilder:
    built = cluster().node("web-0", "2", group="web").running("web-0", 1, "1800m", name="old")
    for number in range(1, count + 1):
        built.node(f"web-{number}", "2", group="web", created=NOW + at * MINUTE)
    return built


def web(built: ClusterBuilder, target: int | None = None) -> ClusterBuilder:
    return built.group("web", template=node("template", "2"), target=target)


def test_SHA_1_single_group_growth_is_the_same() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, status(0))
    after = web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1))
    for minute in (1, 2, 3, 4):
        shadow.look(after, minute, status(minute, "web", changed=0.5))
    [match] = shadow.matches
    assert (match.verdict, match.theirs, match.ours) == (ShadowVerdict.SAME, {"web": 1}, {"web": 1})


def test_SHA_2_pods_created_after_the_episode_are_left_out() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, status(0))
    after = bound(one_group(1, at=1 / 3), "web-1", 1, created=0.1)
    after.pending(6, "900m", created=NOW + 1.5 * MINUTE)
    for minute in (1, 2, 3, 4):
        shadow.look(
            web(after) if minute == 1 else after, minute, status(minute, "web", changed=0.5)
        )
    assert [(match.verdict, match.ours) for match in shadow.matches if match.theirs] == [
        (ShadowVerdict.SAME, {"web": 1})
    ]


def test_SHA_3_another_group_of_the_same_size_agrees_where_the_expander_is_random() -> None:
    found = set()
    for wanted in ("web", "job"):
        shadow = ShadowPasses(expander=("random",))
        shadow.look(groups(base()), 0, status(0))
        after = groups(bound(base({wanted: 1}, at=1 / 3), f"{wanted}-1", 2, created=0.1))
        for minute in (1, 2, 3, 4):
            shadow.look(after, minute, status(minute, wanted, changed=0.5))
        found |= set(shadow.verdicts)
    assert found == {ShadowVerdict.SAME, ShadowVerdict.SAME_SIZE}


def test_SHA_4_three_loops_of_one_growth_each_are_one_episode() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, status(0))
    for minute, count in ((1, 1), (2, 2), (3, 3), (4, 3), (5, 3), (6, 3)):
        built = one_group()
        for number in range(1, count + 1):
            built.node(f"web-{number}", "2", group="web", created=NOW + (number - 0.5) * MINUTE)
            bound(built, f"web-{number}", 2, created=0.1)
        growing = GroupStatus("InProgress", NOW + 0.5 * MINUTE)
        shadow.look(web(built), minute, OtherStatus(NOW + minute * MINUTE, groups={"web": growing}))
    [match] = shadow.matches
    assert (match.verdict, match.theirs, match.ours) == (ShadowVerdict.SAME, {"web": 3}, {"web": 3})


def test_SHA_6_growth_without_a_sign_in_the_status_is_somebody_elses() -> None:
    shadow = ShadowPasses()
    for minute in range(6):
        shadow.look(web(one_group(min(minute, 1), at=0.5)), minute, status(minute))
    assert shadow.verdicts == [ShadowVerdict.SOMEBODY]


def test_SHA_7_growths_are_judged_by_targets_without_a_status() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0)
    after = web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1))
    for minute in (1, 2, 3, 4):
        shadow.look(after, minute)
    assert shadow.verdicts == [ShadowVerdict.SAME]


def test_SHA_8_time_without_the_other_autoscaler_is_left_out() -> None:
    shadow = ShadowPasses()
    pending = web(one_group().pending(2, "900m"))
    for minute in range(0, 1440, 10):
        shadow.look(pending, minute, status(-10))
    assert shadow.matches == ()
    assert shadow.ledger is not None
    assert sum(day.dead for day in shadow.ledger.days.values()) == 1430 * MINUTE


def test_growth_that_our_plan_would_not_make_is_missed_with_the_pods_reason() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, status(0))
    after = one_group(1, at=1 / 3)
    for minute in (1, 2, 3, 4):
        shadow.look(
            web(after) if minute == 1 else after, minute, status(minute, "web", changed=0.5)
        )
    [match] = shadow.matches
    assert (match.verdict, match.cause) == (ShadowVerdict.MISSED, "unknown")


def limited(waiting: int, bought: int) -> ShadowPasses:
    """Passes of a cluster that our policy limits to two nodes, in which the other
    autoscaler buys further ones."""
    shadow = ShadowPasses(max_nodes_total=2)
    before = web(
        one_group() if waiting else one_group(1).running("web-1", 1, "1800m", name="old-1")
    )
    shadow.look(before, 0, status(0))
    first = 1 if waiting else 2
    after = one_group(first + bought - 1, at=1 / 3)
    if not waiting:
        after.running("web-1", 1, "1800m", name="old-1")
    for number in range(first, first + bought):
        bound(after, f"web-{number}", 2, created=0.1)
    for minute in (1, 2, 3, 4):
        shadow.look(
            web(after) if minute == 1 else after, minute, status(minute, "web", changed=0.5)
        )
    return shadow


def test_growth_that_our_limits_forbid_has_the_limit_as_its_cause() -> None:
    for waiting, bought, verdict in ((0, 1, ShadowVerdict.MISSED), (1, 2, ShadowVerdict.FEWER)):
        [match] = limited(waiting, bought).matches
        assert (match.verdict, match.cause) == (verdict, "Outscaler's plan: MaxNodesTotalReached")


def test_growth_of_our_plans_that_is_not_followed_is_extra_once() -> None:
    shadow = ShadowPasses()
    pending = web(one_group().pending(2, "900m"))
    for minute in range(8):
        shadow.look(pending, minute, status(minute))
    [match] = shadow.matches
    assert (match.verdict, match.ours, match.at) == (ShadowVerdict.EXTRA, {"web": 1}, NOW)


def test_growth_differs_because_nodes_offer_less_than_their_template() -> None:
    shadow = ShadowPasses()
    shadow.look(one_group().group("web", template=node("template", "3")), 0, status(0))
    after = one_group()
    for number in (1, 2):
        bound(
            after.node(f"web-{number}", "2", group="web", created=NOW + 20),
            f"web-{number}",
            1,
            created=0.1,
        )
    after.group("web", template=node("template", "3"))
    for minute in (1, 2, 3, 4):
        shadow.look(after, minute, status(minute, "web", changed=0.5))
    [match] = shadow.matches
    assert match.verdict is ShadowVerdict.FEWER
    assert match.cause == "the node reserves more than its template"


def test_extra_growth_names_the_back_off_of_the_other_autoscaler() -> None:
    shadow = ShadowPasses()
    pending = web(one_group().pending(2, "900m"))
    for minute in range(4):
        held = OtherStatus(NOW + minute * MINUTE, groups={"web": GroupStatus("Backoff")})
        shadow.look(pending, minute, held)
    assert [match.cause for match in shadow.matches] == [
        "known difference: Cluster Autoscaler reports Backoff of web"
    ]


def test_growth_after_our_plan_wanted_it_has_a_lead() -> None:
    shadow = ShadowPasses()
    waiting = web(one_group().pending(2, "900m", created=NOW - 40))
    shadow.look(waiting, 0, status(0))
    after = web(bound(one_group(1, at=0.5), "web-1", 2, created=-1))
    for minute in (1, 2, 3, 4):
        shadow.look(after, minute, status(minute, "web", changed=0.5))
    [match] = shadow.matches
    assert match.lead == 30.0
    assert match.approximate  # the pods of the first pass are gone


def test_vanished_growth_is_approximate() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, status(0))
    shadow.look(web(one_group(), target=3), 1, status(1, "web"))
    for minute in (2, 3, 4):
        shadow.look(web(one_group()), minute, status(minute))
    assert [match.approximate for match in shadow.matches] == [True]


def test_growth_with_slow_machines_is_no_extra_of_ours_over_an_hour() -> None:
    passes = ShadowPasses()
    for minute in range(60):
        asked, joined = minute >= 3, minute >= 16
        built = one_group(2 if joined else 0, 15.5)
        built = (
            built
            if joined
            else built.pending(2, "1500m", created=NOW + 120)
            if minute >= 2
            else built
        )
        passes.look(
            web(built, target=3 if asked else 1),
            minute,
            status(minute, "web") if asked else status(minute),
        )
    assert ShadowVerdict.EXTRA not in passes.verdicts


def test_second_growth_while_machines_of_the_first_are_coming_is_the_same() -> None:
    passes = ShadowPasses()
    for minute in range(20):
        asked = 1 if minute < 2 else 2 if minute < 8 else 3
        waiting = 0 if minute < 1 else 1 if minute < 7 else 2
        built = one_group()
        built = built.pending(min(1, waiting), "1500m", name="first", created=NOW + 60)
        built = built.pending(max(0, waiting - 1), "1500m", name="second", created=NOW + 420)
        passes.look(
            web(built, target=asked), minute, status(minute, "web") if asked > 1 else status(minute)
        )
    assert [match.ours for match in passes.matches if match.kind == "growth"] == [
        {"web": 1},
        {"web": 1},
    ]
    assert set(passes.verdicts) == {ShadowVerdict.SAME}


def test_what_passes_in_mode_active_bought_is_no_growth_of_the_other() -> None:
    shadow = ShadowPasses()
    for minute in range(3):
        shadow.look(web(one_group()), minute, status(minute))
    for minute in range(3, 9):
        shadow.act(web(one_group(1, at=4)), minute)
    for minute in range(9, 14):
        shadow.look(web(one_group(1, at=4)), minute, status(minute, "web", changed=4.0))
    assert shadow.verdicts == []


def test_time_in_another_mode_is_left_out_and_earlier_days_stay() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, status(0))
    after = web(bound(one_group(1, at=1 / 3), "web-1", 2, created=0.1))
    for minute in (1, 2, 3, 4):
        shadow.look(after, minute, status(minute, "web", changed=0.5))
    first = shadow.ledger
    for minute in range(5, 65):
        shadow.act(after, minute)
    for minute in (65, 66, 67):
        shadow.look(after, minute, status(minute))
    assert first is not None
    assert shadow.ledger is not None
    assert shadow.ledger.first == first.first
    assert shadow.matches == first.matches
    assert sum(day.dead for day in shadow.ledger.days.values()) >= 60 * MINUTE
    assert sum(day.passes for day in shadow.ledger.days.values()) <= 8


def test_growth_after_a_time_in_another_mode_is_compared_again() -> None:
    shadow = ShadowPasses()
    shadow.look(web(one_group()), 0, status(0))
    for minute in range(1, 5):
        shadow.act(web(one_group()), minute)
    shadow.look(web(one_group()), 5, status(5))
    after = web(bound(one_group(1, at=5 + 1 / 3), "web-1", 2, created=5.1))
    for minute in (6, 7, 8, 9):
        shadow.look(after, minute, status(minute, "web", changed=5.5))
    assert shadow.verdicts == [ShadowVerdict.SAME]
