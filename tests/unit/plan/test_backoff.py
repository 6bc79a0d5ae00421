"""Backoff durations and reset."""

from __future__ import annotations

import pytest

from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.state.backoff import fail, in_backoff, stale
from chalicelib.policy.settings.cluster_options import Options
from tests.builders import NOW, cluster, growth, node
from tests.unit.plan.instances_builder import STOCK, anchored, asked, with_machines

OPTIONS = Options(initial_node_group_backoff_duration=60, max_node_group_backoff_duration=180)


def test_group_stays_backed_off_through_the_last_second() -> None:
    first = fail(None, 0.0, OPTIONS)
    assert in_backoff(first, 60.0)
    assert not in_backoff(first, 60.001)


def test_failure_during_backoff_restarts_its_length_and_a_later_failure_doubles_it() -> None:
    first = fail(None, 0.0, OPTIONS)
    assert fail(first, 60.0, OPTIONS).until == 120.0
    second = fail(first, 61.0, OPTIONS)
    assert (second.duration, second.until) == (120.0, 181.0)
    assert fail(second, 182.0, OPTIONS).duration == 180.0


def test_backoff_history_is_forgotten_after_the_reset_time() -> None:
    first = fail(None, 0.0, OPTIONS)
    assert not stale(first, 10800.0, OPTIONS)
    assert stale(first, 10801.0, OPTIONS)
    assert fail(fail(first, 61.0, OPTIONS), 61.0 + 10801.0, OPTIONS).duration == 60.0


def test_several_failures_in_one_pass_are_one_backoff_step() -> None:
    once = fail(None, 5.0, OPTIONS)
    assert fail(fail(once, 5.0, OPTIONS), 5.0, OPTIONS).duration == once.duration


def test_default_backoff_doubles_up_to_thirty_minutes() -> None:
    record: Backoff | None = None
    lengths = []
    now = 0.0
    for _ in range(5):
        record = fail(record, now, Options())
        lengths.append(record.duration / 60)
        now = record.until + 1
    assert lengths == [5, 10, 20, 30, 30]


def test_success_between_failures_does_not_shorten_the_next_backoff() -> None:
    first = fail(None, 0.0, OPTIONS)
    build = cluster().node("n", group="g").group("g")
    known = Memory(
        groups={
            "g": GroupMemory(
                request=ScaleUpRequest(1, NOW - 60, NOW + 840),
                backoff=fail(None, NOW - 100, OPTIONS),
            )
        }
    )
    after = build.decide(known)[1].groups["g"]
    assert after.request is None, "what was asked for has come"
    assert after.backoff == fail(None, NOW - 100, OPTIONS)
    assert (
        fail(after.backoff, NOW, OPTIONS).duration == fail(first, 100.0, OPTIONS).duration == 120.0
    )


def test_backoff_of_two_groups_is_independent_and_one_pass_is_one_step() -> None:
    build = with_machines(with_machines(anchored(), "a", 3, error=STOCK), "b", 1)
    known = Memory(groups={"a": asked(3, 60), "b": asked(1, 60)})
    after = build.decide(known)[1].groups
    assert after["a"].backoff == fail(
        None, NOW, Options(), "OutOfStock", "OUT_OF_QUOTA", "none left"
    )
    assert after["b"].backoff is None


@pytest.mark.parametrize(("until", "grows"), [(NOW, False), (NOW - 1, True)])
def test_backed_off_group_is_skipped_with_its_error_and_the_next_group_is_used(
    until: float, grows: bool
) -> None:
    build = (
        cluster()
        .group("a", template=node("t", "2"))
        .group("b", template=node("t", "2", "64Gi"))
        .pending(1, "1")
    )
    failed = Backoff(
        duration=300, until=until, last_failed=NOW - 300, cls="OutOfStock", message="sold out"
    )
    plan = build.plan(Memory(groups={"a": GroupMemory(backoff=failed)}))
    assert growth(plan) == ({"a": (1, 1)} if grows else {"b": (1, 1)})
    if not grows:
        skipped = next(g.skipped for g in plan.groups if g.group == "a")
        assert skipped is not None
        assert skipped.code is ReasonCode.GROUP_BACKOFF
        assert "sold out" in str(skipped.params["error"])
