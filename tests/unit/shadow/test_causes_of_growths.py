"""Growths whose state before cannot be rebuilt, or that differ for a reason that can be named."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.node import Taint
from chalicelib.shadow.other_status import GroupStatus, OtherStatus
from chalicelib.shadow.records import AGREEING, Match, ShadowVerdict
from chalicelib.shadow.verdicts import UNKNOWN
from tests.builders import NOW, ClusterBuilder, cluster, node
from tests.unit.shadow.passes import MINUTE, ShadowPasses, status

UNINITIALIZED = Taint("node.cluster.x-k8s.io/uninitialized", "NoSchedule")


def fleet(
    grown: dict[str, int] | None = None, at: float = 0.5, names: tuple[str, ...] = ("a", "b")
) -> ClusterBuilder:
    """Groups of 2-core nodes with one full node each, and new nodes that
    were created at that minute."""
    built = cluster()
    for name in names:
        built.node(f"{name}-0", "2", group=name)
        built.running(f"{name}-0", 1, "1800m", name=f"old-{name}")
        for number in range(1, (grown or {}).get(name, 0) + 1):
            built.node(f"{name}-{number}", "2", group=name, created=NOW + at * MINUTE)
    return built


def groups(built: ClusterBuilder, cpu: str = "2", **targets: int) -> ClusterBuilder:
    for name in sorted({member.name.partition("-")[0] for member in built.nodes}):
        built.group(name, template=node(f"template-{name}", cpu), target=targets.get(name))
    return built


def jobs(built: ClusterBuilder, count: int, created: float = -1.0) -> ClusterBuilder:
    return built.pending(count, "900m", name="job", created=NOW + created * MINUTE)


def only(shadow: ShadowPasses) -> Match:
    [match] = shadow.matches
    return match


# -- pods that end


def test_plans_of_the_passes_decide_where_the_pods_have_ended() -> None:
    shadow = ShadowPasses()
    for minute in (0, 1):
        shadow.look(groups(jobs(fleet(names=("a",)), 4)), minute, status(minute))
    for minute in range(2, 7):  # both nodes came and stayed empty: the pods ended in between
        shadow.look(
            groups(fleet({"a": 2}, at=1.5, names=("a",))), minute, status(minute, "a", changed=1.5)
        )
    match = only(shadow)
    assert (match.verdict, match.ours, match.approximate) == (ShadowVerdict.SAME, {"a": 2}, True)


def test_pods_that_came_between_two_passes_are_asked_for_while_they_exist() -> None:
    shadow = ShadowPasses()
    shadow.look(groups(fleet(names=("a",))), 0, status(0))
    shadow.look(
        groups(jobs(fleet(names=("a",)), 4, created=0.2), a=3), 1, status(1, "a", changed=0.4)
    )
    for minute in range(2, 7):
        shadow.look(
            groups(fleet({"a": 2}, at=1.5, names=("a",))), minute, status(minute, "a", changed=0.4)
        )
    assert (only(shadow).verdict, only(shadow).ours) == (ShadowVerdict.SAME, {"a": 2})


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_waves_of_jobs_are_the_same_whenever_they_end(length: int) -> None:
    shadow = ShadowPasses(scale_down_unneeded_time=36000.0)
    for minute in range(40):
        wave, age = divmod(minute, 10)
        built = fleet(names=("a",))
        for number in range(1, 2 * (wave + (age >= 3)) + 1):
            bought = NOW + (10 * ((number - 1) // 2) + 2.5) * MINUTE
            built.node(f"a-{number}", "2", group="a", created=bought)
        if age < length:
            waiting = age < 3
            if waiting:
                jobs(built, 4, created=10 * wave - 0.5)
            else:
                for number in (1, 2):
                    built.running(
                        f"a-{2 * wave + number}", 2, "900m", name=f"job-{wave}", created=NOW
                    )
        for used in range(1, 2 * wave + 1):  # what earlier waves bought is full of other pods
            built.running(f"a-{used}", 1, "1800m", name=f"later-{used}")
        growing = ("a",) if age >= 2 else ()
        target = 1 + 2 * (wave + (age >= 2))
        shadow.look(
            groups(built, a=target), minute, status(minute, *growing, changed=10 * wave + 1.7)
        )
    assert [match.verdict for match in shadow.matches if match.theirs] == [ShadowVerdict.SAME] * 4


def test_pods_that_are_gone_are_a_cause() -> None:
    shadow = ShadowPasses()
    shadow.look(groups(fleet(names=("a",))), 0, status(0))
    shadow.look(
        groups(jobs(fleet(names=("a",)), 1, created=0.2), a=3), 1, status(1, "a", changed=0.4)
    )
    for minute in range(2, 7):
        shadow.look(
            groups(fleet({"a": 2}, at=1.5, names=("a",))), minute, status(minute, "a", changed=0.4)
        )
    assert only(shadow).verdict is ShadowVerdict.FEWER
    assert (
        only(shadow).cause
        == "pods gone: 1 of 1 that waited ended or were deleted before the comparison"
    )


def test_nodes_wanted_for_pods_that_still_wait_are_another_need() -> None:
    shadow = ShadowPasses()
    for minute in range(8):
        built = fleet({"a": 1} if minute >= 6 else {}, at=5.5, names=("a", "b"))
        # Cluster Autoscaler does nothing for it
        built.pending(1, "3", name="large", created=NOW - 60)
        if minute == 6:
            built.pending(2, "900m", name="job", created=NOW + 5.2 * MINUTE)
        groups(built)
        built.group("c", template=node("template-c", "4"))
        shadow.look(built, minute, status(minute, *(("a",) if minute >= 6 else ()), changed=5.5))
    for minute in range(8, 11):
        built = groups(fleet({"a": 1}, at=5.5)).pending(1, "3", name="large", created=NOW - 60)
        built.group("c", template=node("template-c", "4"))
        shadow.look(built, minute, status(minute, "a", changed=5.5))
    [match] = [match for match in shadow.matches if match.theirs]
    # the plans for the large pod came first, and are none for this growth
    assert match.lead is None or match.lead <= 0


# -- ties, back-off, double purchases


@pytest.mark.parametrize("expander", ["least-waste", "most-pods", "least-nodes"])
@pytest.mark.parametrize("group", ["a", "b", "c"])
def test_exact_tie_that_the_other_autoscaler_draws_agrees(expander: str, group: str) -> None:
    shadow = ShadowPasses(expander=(expander,))
    names = ("a", "b", "c")
    shadow.look(groups(fleet(names=names)), 0, status(0))
    built = fleet({group: 2}, names=names)
    for number in (1, 2):
        built.running(f"{group}-{number}", 2, "900m", name=f"new-{number}", created=NOW + 6)
    for minute in range(1, 6):
        shadow.look(
            groups(built) if minute == 1 else built, minute, status(minute, group, changed=0.4)
        )
    assert only(shadow).verdict in {ShadowVerdict.SAME, ShadowVerdict.SAME_SIZE}
    assert only(shadow).cause == ""


def test_tie_of_pods_that_have_ended_agrees() -> None:
    shadow = ShadowPasses()
    shadow.look(groups(fleet()), 0, status(0))
    shadow.look(groups(jobs(fleet(), 4, created=0.2), b=3), 1, status(1, "b", changed=0.4))
    for minute in range(2, 7):
        shadow.look(groups(fleet({"b": 2}, at=1.5)), minute, status(minute, "b", changed=0.4))
    assert only(shadow).verdict is ShadowVerdict.SAME_SIZE


def test_group_that_is_better_is_a_choice_and_no_tie() -> None:
    shadow = ShadowPasses()
    shadow.look(groups(fleet()).group("c", template=node("template-c", "8", "64Gi")), 0, status(0))
    built = groups(fleet())
    built.node("c-1", "8", "64Gi", group="c", created=NOW + 30)
    built.running("c-1", 2, "900m", name="new", created=NOW + 6)
    built.group("c", template=node("template-c", "8", "64Gi"))
    for minute in range(1, 6):
        shadow.look(built, minute, status(minute, "c", changed=0.4))
    assert (only(shadow).verdict, only(shadow).cause) == (ShadowVerdict.CHOICE, UNKNOWN)


@pytest.mark.parametrize("ends", [2, 10])
def test_back_off_of_a_group_is_a_known_cause_of_a_growth_elsewhere(ends: int) -> None:
    """ends: the minute at which the group leaves its back-off, possibly
    before the growth is judged."""
    shadow = ShadowPasses()
    shadow.look(unlike(groups(fleet(names=("a",)))), 0, status(0))
    for minute in range(1, 6):
        built = groups(fleet(names=("a",)))
        built.node("big-1", "8", "64Gi", group="big", created=NOW + 30)
        built.running("big-1", 2, "900m", name="new", created=NOW + 6)
        held = status(minute, "big", changed=0.4)
        word = "Backoff" if minute < ends else "NoActivity"
        held = msgspec.structs.replace(
            held, groups={**held.groups, "a": GroupStatus(word, NOW - 60)}
        )
        shadow.look(unlike(built), minute, held)
    match = only(shadow)
    assert match.verdict is ShadowVerdict.CHOICE
    assert match.cause == "known difference: Cluster Autoscaler reports Backoff of a"


def unlike(built: ClusterBuilder) -> ClusterBuilder:
    return built.group("big", template=node("template-big", "8", "64Gi"))


def test_growth_that_the_vendor_refused_is_replaced_by_the_one_elsewhere() -> None:
    shadow = ShadowPasses()
    shadow.look(unlike(groups(fleet(names=("a",)))), 0, status(0))
    waiting = unlike(groups(jobs(fleet(names=("a",)), 2, created=0.2), a=2))
    shadow.look(waiting, 1, status(1, "a", changed=0.4))
    for minute in range(2, 7):
        built = groups(fleet(names=("a",)))
        built.node("big-1", "8", "64Gi", group="big", created=NOW + 90)
        built.running("big-1", 2, "900m", name="new", created=NOW + 6)
        held = status(minute, "big", changed=1.4)
        held = msgspec.structs.replace(
            held, groups={**held.groups, "a": GroupStatus("Backoff", NOW + 80)}
        )
        shadow.look(unlike(built), minute, held)
    match = only(shadow)
    assert (match.theirs, sum(match.ours.values())) == ({"big": 1}, 1)
    assert match.cause == "known difference: Cluster Autoscaler reports Backoff of a"


@pytest.mark.parametrize("seen", [True, False], ids=["taint-seen", "between-two-passes"])
def test_nodes_bought_twice_for_a_startup_taint_have_that_cause(seen: bool) -> None:
    shadow = ShadowPasses()
    shadow.look(groups(fleet(names=("a",))), 0, status(0))
    young = jobs(fleet({"a": 1}, names=("a",)), 2, created=0.2)
    if seen:
        young.nodes[-1] = node("a-1", "2", group="a", created=NOW + 30, taints=(UNINITIALIZED,))
    shadow.look(groups(young, a=3), 1, status(1, "a", changed=0.4))
    built = fleet({"a": 2}, names=("a",))
    served = [
        msgspec.structs.replace(pod, node="a-1", phase="Running", scheduled="True")
        for pod in young.pods[-2:]
    ]
    built.classes = young.classes
    built.pods += served
    for minute in range(2, 7):
        shadow.look(
            groups(built) if minute == 2 else built, minute, status(minute, "a", changed=1.2)
        )
    match = only(shadow)
    assert match.verdict is ShadowVerdict.FEWER
    words = "known difference: Cluster Autoscaler bought a node that never took a pod"
    hint = (
        f": {UNINITIALIZED.key} is no startup taint to it without "
        f"--startup-taint={UNINITIALIZED.key}"
    )
    assert match.cause == (words + hint if seen else words)


def test_second_purchase_of_its_own_has_that_cause() -> None:
    shadow = ShadowPasses()
    served = fleet({"a": 1}, at=-3, names=("a",))
    waiting = jobs(fleet({"a": 1}, at=-3, names=("a",)), 2, created=-5)
    waiting.nodes[-1] = node(
        "a-1", "2", group="a", created=NOW - 3 * MINUTE, taints=(UNINITIALIZED,)
    )
    shadow.look(groups(waiting), 0, status(0))
    shadow.look(
        groups(waiting, a=3) if not waiting.groups else retargeted(waiting, 3),
        1,
        status(1, "a", changed=0.5),
    )
    served.classes = waiting.classes
    served.pods += [
        msgspec.structs.replace(pod, node="a-1", phase="Running", scheduled="True")
        for pod in waiting.pods[-2:]
    ]
    served.node("a-2", "2", group="a", created=NOW + 120)
    for minute in range(2, 7):
        shadow.look(
            groups(served) if minute == 2 else served, minute, status(minute, "a", changed=0.5)
        )
    match = only(shadow)
    assert match.verdict not in AGREEING
    assert "--startup-taint=node.cluster.x-k8s.io/uninitialized" in match.cause


def retargeted(built: ClusterBuilder, target: int) -> ClusterBuilder:
    built.groups = [msgspec.structs.replace(group, target=target) for group in built.groups]
    return built


def test_unhealthy_group_is_named_only_where_the_growth_is_elsewhere() -> None:
    shadow = ShadowPasses()
    shadow.look(groups(fleet(names=("a",))), 0, status(0))
    for minute in range(1, 6):
        built = fleet({"a": 1}, names=("a",)).running("a-1", 1, "900m", name="new", created=NOW + 6)
        part = OtherStatus(NOW + minute * MINUTE, groups={"a": GroupStatus("Unhealthy", NOW + 24)})
        shadow.look(groups(built), minute, part)
    assert all("Unhealthy" not in match.cause for match in shadow.matches)


def test_lead_is_dated_by_the_status_and_not_by_the_pass() -> None:
    shadow = ShadowPasses()
    shadow.look(groups(jobs(fleet(names=("a",)), 2)), 0, status(0))
    for minute in range(1, 6):
        growing = OtherStatus(
            NOW + minute * MINUTE, groups={"a": GroupStatus("InProgress", NOW + 15)}
        )
        shadow.look(groups(jobs(fleet(names=("a",)), 2), a=2), minute, growing)
    [match] = [match for match in shadow.matches if match.theirs]
    assert match.lead == 15.0
