"""How a cluster is, from what the tables say (journal/cluster_health.py)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.journal.cluster_health import (
    ClusterCounts,
    ClusterSituation,
    cluster_status,
    counts_of,
    with_groups,
)
from chalicelib.journal.metric_values import pass_gauges
from chalicelib.model.health import HealthState, Tone
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import (
    GroupVerdict,
    Health,
    NodeVerdict,
    Plan,
    ScaleUp,
    UnschedulablePods,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import ALL_GROUPS_OF_PROVIDER, MissingData
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.store.leases import PassFailure, ScanState
from chalicelib.views.cluster_view import ClusterStatus, health
from chalicelib.views.rows import group_rows
from tests.unit.journal.support import NOW

PASSED = ScanState(last_pass=NOW - 20, last_success=NOW - 20)
INTERVAL, LIMIT = 60.0, 240.0


def status(now: float = NOW, **changes: Any) -> ClusterStatus:
    given: dict[str, Any] = {
        "problem": "",
        "plans": True,
        "interval": INTERVAL,
        "applied_at": NOW - 9000,
        "scan": PASSED,
        "failure": "",
        "counts": ClusterCounts(),
    }
    return cluster_status(ClusterSituation(**given | changes), now)


def counted(plan: Plan, groups: dict[str, GroupMemory] | None = None) -> ClusterCounts:
    """What the gauges of a pass with this plan say."""
    return counts_of(pass_gauges(plan, Options(), {}, groups or {}))


def plan(**changes: Any) -> Plan:
    return Plan(
        id="p", cluster="shop", at=NOW - 20, health=Health(registered=3, ready=3), **changes
    )


# -- passes that never start


def test_cluster_without_any_pass_is_late_after_the_limit_of_passes() -> None:
    never: dict[str, Any] = {"scan": ScanState(), "applied_at": NOW - LIMIT}
    assert status(**never).word == "no pass yet"
    late = status(NOW + 1, **never)
    assert (late.word, late.tone, late.person, late.since) == (
        "no passes",
        Tone.BAD,
        True,
        NOW - LIMIT,
    )
    assert "none since the policy was applied:" in late.detail


def test_longer_interval_has_a_longer_limit() -> None:
    never: dict[str, Any] = {"scan": ScanState(), "applied_at": NOW - 600}
    assert status(**never, interval=3600.0).word == "no pass yet"


@pytest.mark.parametrize(
    ("scan", "cause"),
    [
        (ScanState(), "no tick has asked for one"),
        (ScanState(queued_until=NOW - 60), "passes are asked for, and none begins"),
        (
            ScanState(queued_until=NOW - 60, lease_until=NOW - 900),
            "passes begin and do not end",
        ),
    ],
)
def test_late_first_pass_names_what_is_known_of_its_cause(scan: ScanState, cause: str) -> None:
    assert status(scan=scan, applied_at=NOW - 2040).detail.endswith(cause)


def test_cluster_that_is_off_or_whose_time_is_unknown_is_not_late() -> None:
    assert status(scan=ScanState(), plans=False).word == "off"
    assert status(scan=ScanState(), applied_at=0.0).word == "no pass yet"


def test_stable_health_says_late_without_any_pass() -> None:
    def of(applied_at: float, planned: bool = True) -> str:
        return health(INTERVAL, ScanState(), applied_at, NOW, planned=planned)

    assert of(NOW - LIMIT) == "waiting"
    assert of(NOW - 2040) == "late"
    assert of(NOW - 2040, planned=False) == "off"
    assert health(None, ScanState(), NOW - 2040, NOW, planned=True) == "unreadable"


def test_what_no_pass_has_counted_is_unknown() -> None:
    counts = counts_of({})
    assert (counts.nodes, counts.coming, counts.most, counts.waiting, counts.without_node) == (
        None,
        None,
        None,
        None,
        None,
    )
    failing = ScanState(
        last_pass=NOW - 20, failure=PassFailure("Unavailable", "no answer", NOW - 80, NOW - 20, 2)
    )
    assert status(scan=failing, failure="Unavailable: no answer").word == "passes fail"


def test_size_is_not_known_while_a_vendor_cannot_be_read() -> None:
    unread = MissingData("provider/exoscale", "down", affected_decisions=(ALL_GROUPS_OF_PROVIDER,))
    gauges = pass_gauges(plan(gaps=(unread,)), Options(), {})
    assert not [name for name in gauges if name.startswith(("max_nodes", "node_groups_count"))]
    read = pass_gauges(plan(groups=(GroupVerdict("g", "clusterapi", 1, 9, 4),)), Options(), {})
    assert read["max_nodes_count"] == 9
    down = status(counts=counts_of(gauges))
    assert (down.word, down.tone) == ("1 vendor not read", Tone.BAD)


def test_doubt_about_one_object_of_a_vendor_leaves_the_vendor_read() -> None:
    doubts = (
        MissingData("provider/exoscale", "the name of an SKS cluster is unknown"),
        MissingData("provider/huaweicloud", "an add-on", affected_decisions=("two autoscalers",)),
    )
    gauges = pass_gauges(plan(gaps=doubts), Options(), {})
    assert gauges["max_nodes_count"] == 0
    assert status(counts=counts_of(gauges)).word == "ok"


# -- pods, groups and pauses


def test_paused_cluster_brings_no_pod_a_node_but_some_have_room() -> None:
    decided = msgspec.structs.replace(waiting(1, 3), fits_existing=("a/fits",))
    paused = counts_of(pass_gauges(decided, Options(), {}, is_paused=True))
    assert (paused.waiting, paused.without_node, paused.helped) == (5, 4, 1)


def waiting(without_node: int, coming: int) -> Plan:
    left = UnschedulablePods(tuple(f"a/left-{at}" for at in range(without_node)), {})
    grown = ScaleUp("g", "clusterapi", 1, 3, 9, tuple(f"a/new-{at}" for at in range(coming)))
    return plan(unschedulable=(left,) if without_node else (), scale_ups=(grown,) if coming else ())


def test_pods_with_a_node_coming_are_counted_apart() -> None:
    counts = counted(waiting(1, 19))
    assert (counts.waiting, counts.without_node, counts.helped) == (20, 1, 19)
    one_left = status(counts=counts)
    assert (one_left.word, one_left.person) == ("1 pod without a node", True)
    assert one_left.detail == "a node is coming for 19 other pods"
    all_helped = status(counts=counted(waiting(0, 20)))
    assert (all_helped.word, all_helped.tone) == ("node coming for 20 pods", Tone.INFO)
    assert all_helped.person is False


def test_pass_of_an_earlier_release_counts_all_waiting_pods() -> None:
    counts = counts_of({"unschedulable_pods_count;type=unschedulable": 3.0})
    assert status(counts=counts).word == "3 pods without a node"


@pytest.mark.parametrize(
    ("part", "word"),
    [
        (PausedPart.ALL, "paused"),
        (PausedPart.GROWTH, "growth paused"),
        (PausedPart.REMOVALS, "removals paused"),
    ],
)
def test_pause_of_the_cluster_is_a_state_of_its_own(part: PausedPart, word: str) -> None:
    pause = Pause(NOW + 600, NOW - 60, part, reason="release")
    paused = status(pauses=[pause])
    assert (paused.word, paused.person, paused.detail) == (word, False, "release")
    assert status(NOW + 601, pauses=[pause], scan=ScanState(last_pass=NOW + 590)).word == "ok"


def test_pause_of_one_group_is_not_a_state_of_the_cluster() -> None:
    assert status(pauses=[Pause(NOW + 600, NOW - 60, group="g")]).word == "ok"


STRICT = Reason.of(
    ReasonCode.BLOCKED_BY_POD, pod="default/a", rule="NotEnoughPdb", budget="default/a", required=2
)
REMEMBERED = Reason(
    ReasonCode.RECENTLY_UNREMOVABLE, {**STRICT.params, "was": "BlockedByPod", "until": NOW + 60}
)
BUSY = Reason.of(
    ReasonCode.BLOCKED_BY_POD, pod="default/b", rule="NotEnoughPdb", budget="default/b"
)


@pytest.mark.parametrize(
    ("reasons", "word"),
    [
        ([STRICT, REMEMBERED, BUSY], "2 nodes blocked by a budget"),
        ([STRICT], "1 node blocked by a budget"),
        ([BUSY], "ok"),
    ],
)
def test_nodes_behind_a_budget_that_never_allows_a_disruption_are_counted(
    reasons: list[Reason], word: str
) -> None:
    stays = tuple(NodeVerdict(f"n{at}", reason) for at, reason in enumerate(reasons))
    now = status(counts=counted(plan(unremovable=stays)))
    assert (now.word, now.person) == (word, word != "ok")


BACKOFF = Backoff(300.0, NOW + 60, NOW - 240, "OutOfStock")
REASON = Reason.of(ReasonCode.GROUP_BACKOFF, until=NOW + 60, error="x", **{"class": "OutOfStock"})
UNREADABLE = Reason.of(ReasonCode.GROUP_UNREADABLE, detail="no such group")


@pytest.mark.parametrize(
    ("group", "memory", "state"),
    [
        ({}, GroupMemory(), HealthState.WELL),
        ({"healthy": False}, GroupMemory(), HealthState.GROUPS_UNHEALTHY),
        ({"skipped": UNREADABLE}, GroupMemory(), HealthState.GROUPS_NOT_READ),
        ({"backoff": REASON}, GroupMemory(backoff=BACKOFF), HealthState.GROUPS_BACKING_OFF),
    ],
)
def test_tag_of_a_cluster_is_as_bad_as_the_worst_of_its_groups(
    group: dict[str, Any], memory: GroupMemory, state: HealthState
) -> None:
    verdicts = (
        GroupVerdict("g", "clusterapi", 1, 9, 4, **group),
        GroupVerdict("h", "clusterapi", 1, 9, 4),
    )
    decided = plan(groups=verdicts)
    remembered = Memory(groups={"g": memory})
    of_gauges = counted(decided, remembered.groups)
    from_list = status(counts=of_gauges)
    assert from_list.is_one_of(state)
    rows = group_rows(decided, remembered, ClusterOverview(), NOW)
    assert status(counts=with_groups(of_gauges, rows)) == from_list
    order = list(Tone)[::-1]
    worst = min((row.status.tone for row in rows), key=order.index)
    assert order.index(from_list.tone) <= order.index(worst)
