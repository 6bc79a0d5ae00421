"""Replacements while they drain, and after they have failed
(docs/reference/consolidation.md "Replacements").
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import (
    NOT_BEGUN,
    FailedRemoval,
    GroupMemory,
    PurchasedNodes,
    ReplacementState,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.replacement_rows import (
    FIRST_BACKOFF,
    LONGEST_BACKOFF,
    MOST_FAILED,
    REMEMBERED,
    failed,
    with_operations,
)
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW, node
from tests.unit.plan.replacement_story import (
    FULL,
    GROW,
    NO_PLACE,
    FakeJudge,
    draining,
    machines,
    removal_operation,
    replacement,
    turn,
)

PROPOSED, BUYING, WAITING, DRAINING, FAILED = (
    ReplacementState.PROPOSED,
    ReplacementState.BUYING,
    ReplacementState.WAITING,
    ReplacementState.DRAINING,
    ReplacementState.FAILED,
)
BUSY_PDB = Reason.of(
    ReasonCode.BLOCKED_BY_POD, pod="default/p", rule=ReasonCode.NOT_ENOUGH_PDB.value
)
replace = msgspec.structs.replace


def with_policy(**fields: Any) -> Consolidation:
    return replace(FULL, **fields)


# --- draining


def test_removal_that_was_not_begun_in_time_is_planned_again() -> None:
    row = draining("a", ends={GROW: "", "remove-a": NOT_BEGUN})
    played = turn(machines("a", new=1), row)
    assert played.removed == ["a"]
    assert played.row is not None
    assert (played.row.state, played.row.removals) == (DRAINING, {})


@pytest.mark.parametrize(
    ("labels", "state"), [({}, WAITING), ({"disk": "fast"}, FAILED)], ids=["lacks", "has"]
)
def test_move_without_a_place_waits_while_its_new_node_is_not_finished(
    labels: dict[str, str], state: ReplacementState
) -> None:
    build = machines("a", new=1, labels=labels)
    promised = node("s", "2", "8Gi", group="s", labels={"disk": "fast"})
    build.groups[-1] = replace(build.groups[-1], template=promised)

    played = turn(build, replacement(), judge=FakeJudge(lambda _: NO_PLACE))

    assert played.row is not None
    assert played.row.state is state
    assert played.removed == []


def test_first_node_goes_first_and_the_next_one_when_its_drain_is_over() -> None:
    build, row = machines("a", "b", new=1), replacement("a", "b")
    first = turn(build, row, max_drain_parallelism=1)
    assert first.removed == ["a"]
    assert first.row is not None
    begun = with_operations(first.result.rows, [removal_operation("a")])["r1"]
    assert begun.removals == {"a": "remove-a"}
    going = turn(build, begun, operations=[removal_operation("a")], max_drain_parallelism=1)
    assert (going.removed, going.row) == ([], begun)
    ended = replace(begun, ends={**begun.ends, "remove-a": ""})
    after = turn(machines("b", new=1), ended, max_drain_parallelism=1)
    assert after.removed == ["b"]
    assert after.row is not None
    assert (after.row.nodes, after.row.gone) == (("b",), ("a",))


def test_node_whose_removal_has_ended_well_is_gone_although_it_is_still_listed() -> None:
    row = draining("a", ends={GROW: "", "remove-a": ""})
    assert turn(machines("a", new=1), row).result.rows == {}


def test_cons_56_one_failed_removal_fails_the_row_and_the_others_stay_removed() -> None:
    ends = {GROW: "", "remove-a": "", "remove-b": "a PodDisruptionBudget allows no eviction"}
    row = draining("a", "b", "c", removals={name: f"remove-{name}" for name in "abc"}, ends=ends)
    waits = {"b": FailedRemoval(NOW + 300.0, 1, "stuck")}
    played = turn(
        machines("b", "c", new=1),
        row,
        operations=[removal_operation("c")],
        groups={"m": GroupMemory(failed_removals=waits)},
    )
    assert played.row is not None
    assert (played.row.state, played.row.nodes, played.row.gone) == (FAILED, ("b", "c"), ("a",))
    assert played.removed == []


def test_removal_that_is_not_known_fails_the_row() -> None:
    played = turn(machines("a", new=1), draining("a"))
    assert played.row is not None
    assert played.row.state is FAILED


def test_mode_shadow_lets_a_running_removal_end_and_begins_no_other() -> None:
    shadow = with_policy(mode=ConsolidationMode.SHADOW)
    row = draining("a", "b")
    build = machines("a", "b", new=1)
    played = turn(build, row, consolidation=shadow, operations=[removal_operation("a")])
    assert (played.removed, played.row) == ([], row)
    ended = replace(row, ends={**row.ends, "remove-a": ""})
    played = turn(machines("b", new=1), ended, consolidation=shadow)
    assert played.row is not None
    assert (played.row.state, played.removed) == (FAILED, [])


@pytest.mark.parametrize("build", [machines("a", "b"), machines("a", "b", new=1, ready=False)])
def test_no_further_node_is_drained_while_a_new_node_does_not_work(build: Any) -> None:
    played = turn(build, draining("a", "b"), operations=[removal_operation("a")])
    assert played.removed == []
    assert played.row is not None
    assert played.row.state is DRAINING


def test_what_was_bought_is_paid_back_by_the_nodes_that_have_gone() -> None:
    row = draining(
        "a",
        "b",
        ends={GROW: "", "remove-a": ""},
        purchases=(PurchasedNodes("s", 1, 250_000, GROW, ("s-0",)),),
    )
    played = turn(machines("b", new=1), row, policy={"prices": NodePrices(cpu=0.05)})
    assert played.judge.asked == [(("b",), 50_000)]


# --- failed


@pytest.mark.parametrize(
    ("times", "hours"), [(0, 1.0), (1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 24.0), (60, 24.0)]
)
def test_back_off_doubles_from_one_hour_to_a_day(times: int, hours: float) -> None:
    row = failed(replacement(times=times), NO_PLACE, NOW)
    assert (row.until, row.times, row.why) == (NOW + hours * 3600.0, times + 1, NO_PLACE)
    assert FIRST_BACKOFF <= row.until - NOW <= LONGEST_BACKOFF


def test_same_nodes_wait_for_the_end_of_the_back_off_which_grows_each_time() -> None:
    row = failed(replacement("a", "b", id="r0"), NO_PLACE, NOW)
    build = machines("a", "b")
    early = turn(build, row, propose=["a"], now=NOW + 3599.0)
    assert early.result.rows == {"r0": row}
    later = turn(build, row, propose=["b", "a"], now=NOW + 3600.0)
    (new,) = (made for made in later.result.rows.values() if made.id != "r0")
    assert (new.state, new.times) == (PROPOSED, 1)
    again = turn(
        build,
        row,
        replace(new, state=BUYING, bought_at=NOW + 3700.0),
        consolidation=with_policy(),
        now=NOW + 3700.0,
    )
    (only,) = again.result.rows.values()
    assert (only.state, only.until, only.times) == (FAILED, NOW + 3700.0 + 7200.0, 2)


def test_failure_of_other_nodes_lengthens_no_back_off() -> None:
    rows = [
        failed(replacement("b", id="r0"), NO_PLACE, NOW - 7200.0),
        failed(replacement("a", "b"), NO_PLACE, NOW),
    ]
    played = turn(machines("a", "b"), *rows, propose=["a"], now=NOW + 3600.0)
    (new,) = (row for row in played.result.rows.values() if row.state is PROPOSED)
    assert new.times == 0


def test_failure_is_forgotten_a_day_after_its_back_off_or_with_a_replacement() -> None:
    row = failed(replacement(id="r0"), NO_PLACE, NOW)
    assert turn(machines("a"), row, now=row.until + REMEMBERED - 1.0).result.rows == {"r0": row}
    assert turn(machines("a"), row, now=row.until).result.verdicts == {}
    assert turn(machines("a"), row, now=row.until + REMEMBERED).result.rows == {}
    done = draining("a", ends={GROW: "", "remove-a": ""})
    assert turn(machines("b", new=1), row, done).result.rows == {}


def test_only_the_newest_failures_are_kept() -> None:
    rows = [
        failed(replacement(f"n{at}", id=f"r{at}"), NO_PLACE, NOW + at)
        for at in range(MOST_FAILED + 5)
    ]
    kept = turn(machines("a"), *rows, now=NOW + 200.0).result.rows
    assert kept.keys() == {f"r{at}" for at in range(5, MOST_FAILED + 5)}


def test_instants_from_the_future_count_from_now() -> None:
    row = replacement(proposed_at=NOW + 1e6, since=NOW + 1e6, bought_at=NOW + 1e6)
    played = turn(machines("a"), row)
    assert played.row is not None
    assert (played.row.proposed_at, played.row.since, played.row.bought_at) == (NOW, NOW, NOW)
    late = replace(failed(replacement(), NO_PLACE, NOW), until=NOW + 1e7)
    played = turn(machines("a"), late)
    assert played.row is not None
    assert played.row.until == NOW + LONGEST_BACKOFF
