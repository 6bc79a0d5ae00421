"""Removals of the other autoscaler, compared with our timers and plans."""

from __future__ import annotations

from typing import Any

from chalicelib.model.node import Taint
from chalicelib.shadow.records import ShadowVerdict
from chalicelib.shadow.verdicts import UNKNOWN
from tests.builders import ClusterBuilder, cluster, node
from tests.unit.shadow.passes import ShadowPasses, hard, soft, status


def fleet(
    *names: str,
    empty: str = "w-1",
    taints: dict[str, tuple[Taint, ...]] | None = None,
    target: int | None = None,
    cpu: str = "1500m",
    **pod: Any,
) -> ClusterBuilder:
    """2-core nodes; all but `empty` have a pod that keeps them."""
    built = cluster()
    for name in names or ("w-0", "w-1"):
        built.node(name, "2", group="w", taints=(taints or {}).get(name, ()))
        if name != empty:
            built.running(name, 1, cpu, **pod)
    return built.group("w", template=node("template", "2"), target=target)


def test_removal_of_a_node_that_was_unneeded_for_its_time_is_the_same() -> None:
    shadow = ShadowPasses()
    for minute in range(10):
        shadow.look(fleet(), minute, status(minute, candidates=1))
    shadow.look(fleet(taints={"w-1": (hard(9.5),)}), 10, status(10))
    shadow.look(fleet("w-0", empty=""), 11, status(11))
    assert [(match.verdict, match.node) for match in shadow.matches] == [
        (ShadowVerdict.SAME, "w-1")
    ]


def test_removal_after_one_whose_size_fell_before_its_node_went_counts() -> None:
    shadow = ShadowPasses()
    for minute in range(10):
        shadow.look(fleet("w-0", "w-1", "w-2"), minute, status(minute, candidates=1))
    # The size has fallen, and the first node is still there.
    shadow.look(
        fleet("w-0", "w-1", "w-2", taints={"w-1": (hard(9.9),)}, target=2),
        10,
        status(10, candidates=1),
    )
    shadow.look(fleet("w-0", empty="", target=1), 11, status(11, candidates=1))
    assert {match.node for match in shadow.matches} == {"w-1", "w-2"}


def test_removal_before_our_timer_ends_is_later() -> None:
    shadow = ShadowPasses()
    for minute in range(4):
        shadow.look(fleet(), minute, status(minute, candidates=1))
    shadow.look(fleet("w-0", empty=""), 4, status(4, candidates=1))
    [match] = shadow.matches
    assert (match.verdict, match.lead) == (ShadowVerdict.LATER, -360.0)
    assert match.cause == "Outscaler waits: NotUnneededLongEnough"


def test_removal_of_a_node_that_our_plan_keeps_names_the_reason() -> None:
    shadow = ShadowPasses()
    for minute in range(3):
        shadow.look(
            fleet(empty="", cpu="500m", owner="ds", kind="Custom", taints={"w-1": (soft(0),)}),
            minute,
            status(minute),
        )
    shadow.look(fleet("w-0", empty="", cpu="500m"), 3, status(3))
    [match] = shadow.matches
    assert match.verdict is ShadowVerdict.REFUSED
    assert match.detail != "it was not unneeded at the last pass"
    assert match.cause == "Outscaler keeps the node: NotReplicated"


def refused(**pod: Any) -> tuple[str, str]:
    """(detail, cause) of a removal after three passes in which our plan kept both
    nodes; each has such a pod."""
    shadow = ShadowPasses()
    for minute in range(3):
        shadow.look(fleet(empty="", taints={"w-1": (soft(0),)}, **pod), minute, status(minute))
    shadow.look(fleet("w-0", empty="", **pod), 3, status(3))
    [match] = shadow.matches
    assert match.verdict is ShadowVerdict.REFUSED
    return match.detail, match.cause


def test_refused_removal_has_the_reason_code_as_its_cause() -> None:
    assert refused(cpu="1500m") == (
        "NotUnderutilized",
        "Outscaler keeps the node: NotUnderutilized",
    )
    _, cause = refused(cpu="100m", owner="bare", kind="")
    assert cause == "Outscaler keeps the node: NotReplicated"


def crowded(*names: str) -> ClusterBuilder:
    """2-core nodes of which the first has no room for the pod of the second."""
    built = cluster()
    for name in names:
        built.node(name, "2", group="w", taints=(soft(0),) if name == "w-1" else ())
        built.running(name, 1, "1500m" if name == "w-0" else "900m")
    return built.group("w", template=node("template", "2"))


def test_refused_removal_of_a_node_whose_pods_have_no_place_says_so() -> None:
    shadow = ShadowPasses()
    for minute in range(3):
        shadow.look(crowded("w-0", "w-1"), minute, status(minute))
    shadow.look(crowded("w-0"), 3, status(3))
    [match] = shadow.matches
    assert (match.verdict, match.cause) == (
        ShadowVerdict.REFUSED,
        "its pods had no place: not looked at again until 2027-01-15T08:05:00Z",
    )


def test_refused_removal_without_a_reason_has_no_known_cause() -> None:
    shadow = ShadowPasses()
    shadow.look(fleet(empty=""), 0, status(0, candidates=1))
    shadow.look(fleet("w-0", empty=""), 1, status(1, candidates=1))
    [match] = shadow.matches
    assert (match.verdict, match.cause) == (ShadowVerdict.REFUSED, UNKNOWN)


def test_SHA_5_removal_after_a_restart_of_the_other_autoscaler_is_earlier_with_that_cause() -> None:
    shadow = ShadowPasses()
    for minute in range(13):
        since = soft(0 if minute < 6 else 6)
        shadow.look(fleet(taints={"w-1": (since,)}), minute, status(minute, candidates=1))
    for minute in (13, 14, 15, 16):
        shadow.look(fleet(taints={"w-1": (soft(6),)}), minute, status(minute, candidates=1))
    shadow.look(fleet("w-0", empty=""), 17, status(17))
    [match] = shadow.matches
    assert match.verdict is ShadowVerdict.EARLIER
    assert match.cause.startswith("Cluster Autoscaler restarted at 2027-01-15T08:06:00Z")


def test_SHA_6_removal_without_a_sign_of_the_other_autoscaler_is_somebody_elses() -> None:
    shadow = ShadowPasses()
    shadow.look(fleet(), 0, status(0, candidates=0))
    shadow.look(fleet("w-0", empty=""), 1, status(1, candidates=0))
    assert shadow.verdicts == [ShadowVerdict.SOMEBODY]


def test_SHA_10_spot_node_reclaimed_by_the_vendor_is_removed_by_no_autoscaler() -> None:
    shadow = ShadowPasses()
    shadow.look(fleet(), 0, status(0, candidates=1))
    shadow.look(fleet("w-0", empty="", target=2), 1, status(1, candidates=1))
    shadow.look(fleet("w-0", "w-2", empty="w-2"), 3, status(3, candidates=1))
    assert shadow.matches == ()


def test_node_that_only_our_plan_removes_is_told_once_after_half_an_hour() -> None:
    shadow = ShadowPasses()
    for minute in range(60):
        shadow.look(fleet(), minute, status(minute, candidates=0))
    [match] = shadow.matches
    assert (match.verdict, match.node, match.detail) == (
        ShadowVerdict.ONLY_OURS,
        "w-1",
        "no pods to move; no soft taint",
    )
    assert match.cause == "unknown"


def test_node_with_the_hard_taint_is_counted_once() -> None:
    shadow = ShadowPasses()
    for minute in range(12):
        shadow.look(fleet(), minute, status(minute, candidates=1))
    for minute in (12, 13, 14):
        shadow.look(fleet(taints={"w-1": (hard(11.5),)}), minute, status(minute))
    shadow.look(fleet("w-0", empty=""), 15, status(15))
    assert shadow.verdicts == [ShadowVerdict.SAME]


def test_passes_in_which_nothing_changes_write_the_row_every_ten_minutes() -> None:
    shadow = ShadowPasses()
    for minute in range(31):
        shadow.look(fleet("w-0", empty=""), minute, status(minute))
    assert shadow.writes == 4


def test_overlap_of_unneeded_nodes_is_sampled() -> None:
    shadow = ShadowPasses()
    for minute in range(25):
        shadow.look(fleet(taints={"w-1": (soft(0),)}), minute, status(minute, candidates=1))
    assert shadow.ledger is not None
    [day] = shadow.ledger.days.values()
    assert sum(day.overlap) == day.overlap[-1] == 3  # after 1, 11 and 21 minutes


def test_nodes_that_just_became_unneeded_are_no_difference_in_the_overlap() -> None:
    shadow = ShadowPasses()
    for minute in range(25):
        # It taints a new node for which pods are on their way.
        taints: dict[str, tuple[Taint, ...]] = {"w-2": (soft(minute - 0.2),), "w-1": (soft(0),)}
        shadow.look(fleet("w-0", "w-1", "w-2", taints=taints), minute, status(minute, candidates=1))
    assert shadow.ledger is not None
    [day] = shadow.ledger.days.values()
    assert sum(day.overlap) == day.overlap[-1] == 3


def test_samples_of_the_overlap_do_not_depend_on_other_changes() -> None:
    shadow = ShadowPasses()
    for minute in range(61):
        changes = minute % 7 == 0  # its soft taint is missing in this pass
        taints = () if changes else (soft(0),)
        shadow.look(fleet(taints={"w-1": taints}), minute, status(minute, candidates=1))
    assert shadow.ledger is not None
    [day] = shadow.ledger.days.values()
    assert sum(day.overlap) == 6
    assert day.overlap[-1] >= 5


# -- causes ----------------------------------------------------------------------------------------


def pair(taints: tuple[Taint, ...] = ()) -> ClusterBuilder:
    """Of w-1 and w-2 one can go: the pod of each has a place on the other
    one only. taints: of w-2."""
    built = fleet("w-0", empty="")
    built.node("w-1", "2", group="w").node("w-2", "2", group="w", taints=taints)
    return (
        built.running("w-1", 1, "900m")
        .running("w-2", 1, "900m")
        .group("w", template=node("template", "2"))
    )


def test_another_node_of_the_group_is_the_cause_for_both_nodes() -> None:
    shadow = ShadowPasses()
    for minute in range(12):
        shadow.look(pair((soft(0),)), minute, status(minute, candidates=1))
    for minute in range(12, 50):
        rest = fleet("w-0", empty="").node("w-1", "2", group="w").running("w-1", 2, "900m")
        shadow.look(
            rest.group("w", template=node("template", "2")), minute, status(minute, candidates=0)
        )
    assert [(match.verdict, match.node, match.cause) for match in shadow.matches] == [
        (ShadowVerdict.REFUSED, "w-2", "another node of its group: w-1"),
        (ShadowVerdict.ONLY_OURS, "w-1", "another node of its group: w-2"),
    ]


def with_room(*, full: bool) -> ClusterBuilder:
    """The pod of w-1 has a place on w-0, unless that is full."""
    built = cluster().node("w-0", "2", group="w").node("w-1", "2", group="w", taints=(soft(0),))
    built.running("w-0", 1, "1900m" if full else "1100m").running("w-1", 1, "800m")
    return built.group("w", template=node("template", "2"))


def after_rest(minutes: int) -> ShadowPasses:
    """At first w-1 cannot go, and the other autoscaler removes it after these minutes."""
    shadow = ShadowPasses()
    for minute in range(minutes):
        shadow.look(with_room(full=minute < 1), minute, status(minute, candidates=1))
    shadow.look(
        cluster().node("w-0", "2", group="w").running("w-0", 1, "1900m").group("w"),
        minutes,
        status(minutes),
    )
    return shadow


def test_rest_of_a_node_that_could_not_go_is_the_cause_of_a_refusal() -> None:
    [match] = after_rest(4).matches
    assert match.verdict is ShadowVerdict.REFUSED
    assert match.cause == "its pods had no place: not looked at again until 2027-01-15T08:05:00Z"


def test_rest_of_a_node_that_could_not_go_is_the_cause_of_a_later_removal() -> None:
    [match] = after_rest(11).matches
    assert match.verdict is ShadowVerdict.LATER
    assert match.cause == "its pods had no place: not looked at again until 2027-01-15T08:05:00Z"
