"""What groups teach is counted by whole passes: who joined, how fast, and who did not come
(docs/reference/learning.md "What is counted")."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.join_summary import NOTHING_KNOWN, JoinSummary, join_summary
from chalicelib.model.memory import GroupMemory, JoinStatistics
from chalicelib.model.node import Condition, Node, Taint
from chalicelib.store.codec import canonical, decode
from tests.builders import NOW, OLD
from tests.unit.plan.join_story import DAY, JoinStory, instance, new_node

STARTUP = Taint("startup-taint.cluster-autoscaler.kubernetes.io/cni", "", "NoSchedule")
OLD_NODE = new_node("old", OLD, OLD)


def begun(**policy: object) -> JoinStory:
    """A story whose first pass has seen one node, which is old."""
    story = JoinStory(**policy)
    story.see(0, OLD_NODE)
    return story


def counts(story: JoinStory) -> tuple[tuple[int, ...], float, float]:
    """Return the times, and how many joined and failed."""
    return story.joins.ready, story.joins.joined, story.joins.failed


# -- joins


def test_nodes_that_existed_when_statistics_begin_are_never_counted() -> None:
    story = JoinStory()
    story.see(0, OLD_NODE, new_node("young", NOW - 60))
    assert counts(story) == ((), 0, 0)
    story.see(60, OLD_NODE, new_node("young", NOW - 60, NOW + 30))
    assert counts(story) == ((), 0, 0)


def test_time_is_from_the_request_until_the_kubelet_is_ready() -> None:
    story = begun()
    story.request(1, NOW + 10)
    story.see(120, OLD_NODE, new_node("a", NOW + 100), instances=[instance("a", NOW + 20)])
    assert story.joins.starting == {"a": NOW + 10}
    story.see(
        180, OLD_NODE, new_node("a", NOW + 100, NOW + 130), instances=[instance("a", NOW + 20)]
    )
    assert counts(story) == ((120,), 1, 0)
    assert story.joins.starting == {}


def test_node_that_is_ready_when_first_seen_is_counted_once() -> None:
    story = begun()
    story.request(1, NOW + 10)
    for now in (180, 240, 300):
        story.see(now, OLD_NODE, new_node("a", NOW + 100, NOW + 130))
        assert counts(story) == ((120,), 1, 0)


def test_node_of_the_second_of_the_request_belongs_to_it() -> None:
    story = begun()
    story.request(1, NOW + 100.7)
    story.see(180, OLD_NODE, new_node("a", NOW + 100, NOW + 130))
    assert story.joins.ready == (29,)


@pytest.mark.parametrize(
    ("created", "times"),
    [
        (NOW + 20, (110,)),  # the instance was created before this request: it belongs to another
        (0.0, (40,)),  # of an instance without a creation time, the request counts
    ],
)
def test_request_counts_unless_the_instance_is_older(
    created: float, times: tuple[int, ...]
) -> None:
    story = begun()
    story.request(1, NOW + 90)
    story.see(
        180, OLD_NODE, new_node("a", NOW + 100, NOW + 130), instances=[instance("a", created)]
    )
    assert story.joins.ready == times


def test_node_that_nobody_requested_joins_without_a_time() -> None:
    story = begun()
    story.see(180, OLD_NODE, new_node("a", NOW + 100, NOW + 130))
    assert counts(story) == ((), 1, 0)


@pytest.mark.parametrize("created", [NOW + 140, NOW - DAY])
def test_time_that_only_a_wrong_clock_explains_is_not_kept(created: float) -> None:
    story = begun()
    story.see(
        180, OLD_NODE, new_node("a", NOW + 100, NOW + 130), instances=[instance("a", created)]
    )
    assert counts(story) == ((), 1, 0)


@pytest.mark.parametrize(("seen_at", "times"), [(None, ()), (5000, ()), (60, (5130,))])
def test_instance_that_was_a_node_before_has_no_time(
    seen_at: int | None, times: tuple[int, ...]
) -> None:
    """It is first seen without a Node long after its creation; a slow one is seen at once."""
    story = begun()
    x = instance("x", NOW + 10)
    if seen_at is not None:
        story.see(seen_at, OLD_NODE, instances=[x])
    story.see(5200, OLD_NODE, new_node("x", NOW + 5100, NOW + 5140), instances=[x])
    assert story.joins.ready == times


def test_ready_time_of_another_life_is_replaced_by_the_pass() -> None:
    story = begun()
    story.request(1, NOW + 10)
    story.see(180, OLD_NODE, new_node("a", NOW + 100, OLD))
    assert story.joins.ready == (170,)


def test_node_with_a_startup_taint_is_ready_when_the_taint_is_gone() -> None:
    story = begun()
    story.request(1, NOW + 10)
    story.see(120, OLD_NODE, new_node("a", NOW + 100, NOW + 110, taints=[STARTUP]))
    assert (story.joins.ready, story.joins.unfinished) == ((), ("a",))
    story.see(240, OLD_NODE, new_node("a", NOW + 100, NOW + 110))
    assert (story.joins.ready, story.joins.unfinished) == ((230,), ())


def test_last_hundred_times_are_kept() -> None:
    story = begun()
    nodes = [OLD_NODE]
    for number in range(120):
        at = NOW + 1000 + number
        nodes.append(new_node(f"n-{number:03d}", at, at))
    story.request(120, NOW + 1000)
    story.see(2000, *nodes)
    assert len(story.joins.ready) == 100
    assert (story.joins.ready[0], story.joins.ready[-1], story.joins.joined) == (20, 119, 120)


def test_further_nodes_than_are_followed_are_not_counted() -> None:
    story = begun()
    nodes = [new_node(f"n-{number:04d}", NOW + 100) for number in range(1010)]
    story.see(200, OLD_NODE, *nodes)
    assert len(story.joins.starting) == 1000


def test_node_of_a_far_future_neither_counts_nor_hides_others() -> None:
    story = begun()
    story.see(60, OLD_NODE, new_node("future", NOW + DAY, NOW + DAY))
    story.see(
        180, OLD_NODE, new_node("future", NOW + DAY, NOW + DAY), new_node("a", NOW + 100, NOW + 130)
    )
    assert counts(story) == ((), 1, 0)


# -- failures


def test_node_that_vanishes_while_it_starts_has_failed() -> None:
    story = begun()
    story.see(120, OLD_NODE, new_node("a", NOW + 100))
    story.see(180, OLD_NODE)
    assert counts(story) == ((), 0, 1)
    story.see(240, OLD_NODE)
    assert counts(story) == ((), 0, 1)


def test_node_that_its_group_does_not_list_for_a_while_has_not_failed() -> None:
    story = begun()
    story.see(120, OLD_NODE, new_node("a", NOW + 100))
    build = new_node("a", NOW + 100)
    story.see(
        180, OLD_NODE, msgspec.structs.replace(build, provider_id="test://unknown"), instances=[]
    )
    assert (story.joins.failed, set(story.joins.starting)) == (0, {"a"})


def test_creation_error_counts_once_per_instance() -> None:
    story = begun()
    story.request(2, NOW + 10)
    broken = [instance("x", failed=True), instance("y", failed=True)]
    for now in (60, 120):
        story.see(now, OLD_NODE, instances=broken)
        assert counts(story) == ((), 0, 2)


def test_request_that_times_out_counts_what_never_became_an_instance() -> None:
    story = begun()
    story.request(3, NOW + 10, takes=900)
    story.see(60, OLD_NODE, target=4)
    assert counts(story) == ((), 0, 0)
    story.see(1000, OLD_NODE, target=4)
    assert counts(story) == ((), 0, 3)
    story.see(1060, OLD_NODE, target=4)
    assert counts(story) == ((), 0, 3)


def test_late_instance_counts_once_and_not_again_with_its_request() -> None:
    story = begun()
    story.request(1, NOW + 60, takes=900)
    story.see(10, OLD_NODE, instances=[instance("x")])
    story.see(920, OLD_NODE, instances=[instance("x")])
    assert counts(story) == ((), 0, 1), "it is late before its request"
    story.see(1000, OLD_NODE, instances=[instance("x")])
    assert counts(story) == ((), 0, 1)


def test_instance_that_joins_after_it_was_late_has_joined() -> None:
    story = begun()
    story.request(1, NOW + 10, takes=900)
    story.see(10, OLD_NODE, instances=[instance("x")])
    story.see(1000, OLD_NODE, instances=[instance("x", NOW + 15)])
    assert counts(story) == ((), 0, 1)
    story.see(
        1100, OLD_NODE, new_node("x", NOW + 1040, NOW + 1065), instances=[instance("x", NOW + 15)]
    )
    assert counts(story) == ((1050,), 1, 0)


def test_late_instance_that_joins_takes_back_one_of_two_failures() -> None:
    story = begun()
    story.request(2, NOW + 10, takes=900)
    late = [instance(name, NOW + 15) for name in ("x", "y")]
    story.see(10, OLD_NODE, instances=late)
    story.see(1000, OLD_NODE, instances=late)
    assert story.joins.failed == 2
    story.see(1100, OLD_NODE, new_node("x", NOW + 1040, NOW + 1065), instances=late)
    assert (story.joins.joined, story.joins.failed) == (1, 1)


def test_late_instance_whose_error_is_reported_then_counts_once() -> None:
    story = begun()
    story.request(1, NOW + 10, takes=900)
    story.see(10, OLD_NODE, instances=[instance("x")])
    for failed in (False, True):
        story.see(1000 + 60 * failed, OLD_NODE, instances=[instance("x", failed=failed)])
        assert counts(story) == ((), 0, 1)


# -- memory


def test_statistics_of_a_clock_that_was_wrong_begin_anew_and_keep_their_times() -> None:
    story = begun()
    wrong = JoinStatistics(
        ready=(100,), joined=1, counted_at=NOW, starting={"b": NOW}, seen_until=NOW + 2 * DAY
    )
    group = msgspec.structs.replace(story.group, joins=wrong)
    story.memory = msgspec.structs.replace(story.memory, groups={"g": group})
    story.see(60, OLD_NODE)
    assert (story.joins.ready, story.joins.starting, story.joins.seen_until) == ((100,), {}, OLD)
    story.see(180, OLD_NODE, new_node("a", NOW + 100, NOW + 130))
    assert counts(story) == ((100,), 2, 0)


def test_pass_without_a_join_changes_nothing_of_the_statistics() -> None:
    story = begun()
    story.request(1, NOW + 10)
    story.see(180, OLD_NODE, new_node("a", NOW + 100, NOW + 130))
    before = story.joins
    for now in (240, 5000, 50_000):
        story.see(now, OLD_NODE, new_node("a", NOW + 100, NOW + 130))
        assert story.joins == before


def test_group_that_cannot_be_read_keeps_its_statistics() -> None:
    story = begun()
    story.see(120, OLD_NODE, new_node("a", NOW + 100))
    before = story.joins
    story.see(180, OLD_NODE, error="HTTP 500")
    assert story.joins == before


def test_counts_are_halved_every_seven_days() -> None:
    story = begun()
    story.see(120, OLD_NODE, new_node("a", NOW + 100, NOW + 110))
    story.see(120 + 7 * DAY, OLD_NODE, new_node("b", NOW + 100 + 7 * DAY, NOW + 110 + 7 * DAY))
    assert (story.joins.joined, story.joins.counted_at) == (1.5, NOW + 120 + 7 * DAY)
    assert join_summary(story.joins, NOW + 120 + 14 * DAY).joined == 0.75
    assert join_summary(story.joins, NOW).joined == 1.5, "an instant before does not add weight"


def test_largest_statistics_fit_a_row_of_the_table() -> None:
    names = [
        f"ip-10-0-{number:04d}.eu-central-1.compute.internal.example" for number in range(1000)
    ]
    statistics = JoinStatistics(
        ready=(86_400,) * 100,
        joined=12_345.678,
        failed=12_345.678,
        counted_at=NOW + 0.123456,
        starting=dict.fromkeys(names, NOW + 0.123456),
        seen_until=NOW,
        unfinished=tuple(names),
        late=tuple(f"alicloud://cn-hangzhou.i-{name}" for name in names),
        since_timeout=100,
    )
    data = canonical(GroupMemory(joins=statistics), GroupMemory)
    assert len(data) < 300_000, "a row of DynamoDB holds 400 KB"
    assert decode(data, GroupMemory).joins == statistics


def test_usual_statistics_are_small() -> None:
    statistics = JoinStatistics(
        ready=(180,) * 100, joined=99.5, failed=1.25, counted_at=NOW, seen_until=NOW
    )
    assert len(canonical(GroupMemory(joins=statistics), GroupMemory)) < 600


# -- figures


def test_cold_start_knows_nothing() -> None:
    assert join_summary(None, NOW) == NOTHING_KNOWN
    assert join_summary(begun().joins, NOW) == NOTHING_KNOWN
    assert JoinSummary(0, None, None, None, 0, 0, None) == NOTHING_KNOWN


def test_figures_are_nearest_ranks_of_the_times() -> None:
    figures = join_summary(
        JoinStatistics(ready=tuple(range(100, 0, -1)), joined=98, counted_at=NOW), NOW
    )
    assert (figures.joins, figures.median, figures.p95, figures.p99) == (100, 50, 95, 99)
    single = join_summary(JoinStatistics(ready=(7,), joined=1, counted_at=NOW), NOW)
    assert (single.joins, single.median, single.p95, single.p99) == (1, 7, 7, 7)


@pytest.mark.parametrize(
    ("joined", "failed", "rate"),
    [
        (0, 0, None),
        (0, 1, 0.333333),
        (9, 1, 0.083333),
        (98, 10, 0.090909),
        (0, 98, 0.98),
        (1, 0, 0.0),
    ],
)
def test_failure_rate_assumes_two_joins(joined: float, failed: float, rate: float | None) -> None:
    statistics = JoinStatistics(joined=joined, failed=failed, counted_at=NOW)
    assert join_summary(statistics, NOW).failure_rate == rate


def test_old_failures_lose_their_weight() -> None:
    statistics = JoinStatistics(joined=4, failed=4, counted_at=NOW)
    rates = [join_summary(statistics, NOW + days * DAY).failure_rate for days in (0, 7, 14)]
    assert rates == [0.4, 0.333333, 0.25]


def test_condition_of_another_type_is_not_readiness() -> None:
    story = begun()
    story.request(1, NOW + 10)
    conditions = (
        Condition("GpuChecked", "True", "", NOW + 50),
        Condition("Ready", "True", "", NOW + 130),
    )
    joined: Node = msgspec.structs.replace(new_node("a", NOW + 40), conditions=conditions)
    story.see(180, OLD_NODE, joined)
    assert story.joins.ready == (120,)
