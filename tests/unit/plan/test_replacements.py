"""Replacements from pass to pass: each state, each way out of it, and what is not done meanwhile
(docs/reference/consolidation.md "Replacements")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Pool
from chalicelib.model.memory import (
    NOT_BEGUN,
    Backoff,
    BreakerState,
    GroupMemory,
    PurchasedNodes,
    Replacement,
    ReplacementState,
)
from chalicelib.model.node import TO_BE_DELETED, Taint
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import MissingData
from chalicelib.plan.removal.replacement_rows import on_their_way_out, propose_row, softly_tainted
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.node_prices import NodePrices
from tests.builders import NOW
from tests.unit.plan.replacement_story import (
    BOUGHT,
    COST,
    FULL,
    GROW,
    NO_PLACE,
    PRICE,
    FakeJudge,
    machines,
    purchase_operation,
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


def refusing(why: Reason) -> FakeJudge:
    return FakeJudge(lambda _: why)


def with_policy(**fields: Any) -> Consolidation:
    return replace(FULL, **fields)


# --- proposed


def test_wanted_move_becomes_a_row_and_nothing_is_bought_before_it_is_confirmed() -> None:
    played = turn(machines("a"), propose=["a"])
    (row,) = played.result.rows.values()
    assert (row.state, row.nodes, row.purchases) == (
        PROPOSED,
        ("a",),
        (PurchasedNodes("s", 1, COST),),
    )
    assert (row.price, row.disruption, row.score, row.pool) == (PRICE, 3.0, 1.0, "m")
    assert (row.proposed_at, row.since, row.bought_at) == (NOW, NOW, 0.0)
    assert played.bought == []
    assert played.result.verdicts == {
        "a": Reason.of(ReasonCode.NOT_CONFIRMED, since=NOW, needs=60.0)
    }
    assert played.result.reserved == frozenset()
    assert softly_tainted(played.result.rows.values()) == {"a"}


def test_id_of_a_row_follows_from_nodes_purchases_and_instant() -> None:
    played = turn(machines("a", "b"))
    played.judge.state = played.state
    ids = {
        propose_row(played.judge.move(nodes, COST, bought), replace(played.state, now=now)).id
        for nodes, bought, now in (
            (["a", "b"], {"s": 1}, NOW),
            (["b", "a"], {"s": 1}, NOW),
            (["a"], {"s": 1}, NOW),
            (["a"], {"s": 2}, NOW),
            (["a"], {"s": 2}, NOW + 1.0),
        )
    }
    assert len(ids) == 4


@pytest.mark.parametrize(("age", "begins"), [(59.0, False), (60.0, True), (4000.0, True)])
def test_proposed_row_begins_when_a_pass_wants_it_after_confirm_after(
    age: float, begins: bool
) -> None:
    played = turn(
        machines("a"), replacement(state=PROPOSED, proposed_at=NOW - age, since=NOW - age)
    )
    assert played.row is not None
    assert played.row.state is (BUYING if begins else PROPOSED)
    assert played.bought == ([("s", 0, 1, "r1")] if begins else [])
    assert (played.row.since, played.row.bought_at) == ((NOW, NOW) if begins else (NOW - age, 0.0))


def test_confirm_after_zero_begins_at_once() -> None:
    played = turn(machines("a"), propose=["a"], consolidation=with_policy(confirm_after=0.0))
    (row,) = played.result.rows.values()
    assert row.state is BUYING
    assert played.bought == [("s", 0, 1, row.id)]


def test_cons_42_row_begins_when_it_is_confirmed_and_ends_below_the_score() -> None:
    row = replacement(state=PROPOSED, proposed_at=NOW, since=NOW)
    at_30 = turn(machines("a"), row, now=NOW + 30.0)
    assert at_30.row is not None
    assert (at_30.row.state, at_30.bought) == (PROPOSED, [])
    at_60 = turn(machines("a"), at_30.row, now=NOW + 60.0)
    assert at_60.bought == [("s", 0, 1, "r1")]
    poor = Reason.of(
        ReasonCode.NOT_WORTH_DISRUPTION, saves=0.1, disruption=3.0, score=0.39, needs=0.4
    )
    refused = turn(machines("a"), row, now=NOW + 30.0, judge=refusing(poor))
    assert refused.result.rows == {}
    assert refused.result.verdicts == {"a": poor}


def test_proposed_row_stays_while_nothing_can_be_judged() -> None:
    row = replacement(state=PROPOSED)
    assert turn(machines("a"), row, judged=False).result.rows == {"r1": row}
    late = Reason.of(ReasonCode.NOT_EVALUATED, seconds=30.0)
    assert turn(machines("a"), row, judge=refusing(late)).result.rows == {"r1": row}


@pytest.mark.parametrize(
    "mode", [ConsolidationMode.OFF, ConsolidationMode.SHADOW, ConsolidationMode.REMOVE]
)
def test_proposed_row_is_forgotten_where_nothing_is_bought(mode: ConsolidationMode) -> None:
    played = turn(machines("a"), replacement(state=PROPOSED), consolidation=with_policy(mode=mode))
    assert (played.result.rows, played.bought) == ({}, [])


def test_proposed_row_is_forgotten_when_its_node_goes_for_another_reason() -> None:
    row = replacement("a", "b", state=PROPOSED)
    assert turn(machines("a"), row).result.rows == {}
    leaving = machines("a").node("b", group="m", taints=[Taint(TO_BE_DELETED, "NoSchedule", "1")])
    assert turn(leaving, row).result.rows == {}


def test_node_is_in_one_row_at_most() -> None:
    mine = replacement("a", state=WAITING)
    other = replacement("a", "b", state=PROPOSED, id="r2")
    assert turn(machines("a", "b"), mine, other).result.rows.keys() == {"r1"}
    assert turn(
        machines("a", "b"), replacement("a", state=PROPOSED), propose=["a"]
    ).result.rows.keys() == {"r1"}


def several(count: int) -> list[Replacement]:
    return [
        replacement(
            f"n{at}",
            id=f"other-{at}",
            state=WAITING,
            purchases=(PurchasedNodes("s", 1, COST, GROW),),
        )
        for at in range(count)
    ]


def blocked_by(build: Any = None, rows: Any = (), **fields: Any) -> Reason | None:
    """Why a confirmed row buys nothing yet; None: it buys."""
    build = build or machines("a", *(row.nodes[0] for row in rows))
    played = turn(build, replacement(state=PROPOSED), *rows, **fields)
    assert played.row is not None
    assert (played.row.state is BUYING) is bool(played.bought)
    return None if played.bought else played.result.verdicts["a"]


def test_purchases_wait_for_max_replacements_and_max_surge() -> None:
    most = with_policy(max_surge=NodeLimit(nodes=9))
    assert blocked_by(rows=several(2), consolidation=most) is None
    assert blocked_by(rows=several(3), consolidation=most) == Reason.of(
        ReasonCode.SURGE_LIMIT, limit=3
    )
    ten = with_policy(max_replacements=10, max_surge=NodeLimit(nodes=3))
    assert blocked_by(rows=several(2), consolidation=ten) is None
    assert blocked_by(rows=several(3), consolidation=ten) == Reason.of(
        ReasonCode.SURGE_LIMIT, limit=3
    )
    least = with_policy(max_surge=NodeLimit(share=0.01))
    assert blocked_by(consolidation=least) is None, "at least one"


def test_node_that_is_paid_back_by_a_removal_uses_no_surge() -> None:
    one = with_policy(max_surge=NodeLimit(nodes=2))
    rows = [replacement("b", "c", id="r2", state=DRAINING, buys=2, removals={}, gone=("d",))]
    assert blocked_by(machines("a", "b", "c", new=2), rows, consolidation=one) is None
    rows = [replace(rows[0], gone=())]
    reason = blocked_by(machines("a", "b", "c", new=2), rows, consolidation=one)
    assert reason == Reason.of(ReasonCode.SURGE_LIMIT, limit=2)


def test_purchase_waits_while_its_group_grows_for_pods() -> None:
    growing = Reason.of(ReasonCode.GROUP_GROWING)
    assert blocked_by(grown=["s"]) == growing
    assert blocked_by(operations=[purchase_operation(id="grow-pods", replacement="")]) == growing
    assert blocked_by(grown=["m"]) is None


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"max": 0}, ReasonCode.GROUP_MAX_SIZE),
        ({"pool": Pool("p", max=0)}, ReasonCode.POOL_MAX_SIZE),
        ({"error": "no answer"}, ReasonCode.GROUP_UNHEALTHY),
    ],
)
def test_purchase_obeys_the_limits_of_group_and_pool(
    limits: dict[str, Any], code: ReasonCode
) -> None:
    build = machines("a")
    build.groups[1] = replace(build.groups[1], **limits)
    reason = blocked_by(build)
    assert reason is not None
    assert reason.code is code


def test_purchase_obeys_the_limits_of_the_cluster() -> None:
    assert blocked_by(max_nodes_total=1) == Reason.of(ReasonCode.MAX_NODES_TOTAL, max=1)
    assert blocked_by(max_nodes_total=2) is None


def test_two_rows_of_one_pass_do_not_use_the_same_room() -> None:
    rows = [replacement("a", state=PROPOSED), replacement("b", id="r2", state=PROPOSED)]
    build = machines("a", "b")
    build.groups[1] = replace(build.groups[1], max=1)
    played = turn(build, *rows)
    assert played.bought == [("s", 0, 1, "r1")]
    assert played.result.verdicts["b"] == Reason.of(ReasonCode.GROUP_GROWING)


def test_purchase_waits_while_removals_are_blocked() -> None:
    reason = blocked_by(
        policy={"max_disruption": MaxDisruption(share=0.5)}, scale_down_enabled=False
    )
    assert reason == Reason.of(ReasonCode.SCALE_DOWN_DISABLED)


def window(minutes: float, *, removals: bool = True) -> Window:
    """A window that has been open for an hour (or, where removals are forbidden, opens)
    and closes after minutes."""
    # NOW is 2027-01-15 08:00 UTC
    return Window("0 7 * * *", 3600.0 + minutes * 60.0, removals, name="w")


@pytest.mark.parametrize(
    ("minutes", "timeout", "buys"), [(10.0, 900.0, False), (15.0, 900.0, True), (10.0, 600.0, True)]
)
def test_cons_55_nothing_is_bought_if_the_window_closes_within_replace_timeout(
    minutes: float, timeout: float, buys: bool
) -> None:
    policy = {"maintenance_windows": (window(minutes),)}
    reason = blocked_by(policy=policy, consolidation=with_policy(replace_timeout=timeout))
    assert reason == (
        None if buys else Reason.of(ReasonCode.OUTSIDE_WINDOW, window="w", needs=timeout)
    )


def test_nothing_is_bought_before_a_window_that_forbids_removals() -> None:
    forbids = Window("10 8 * * *", 3600.0, removals=False, name="calm")
    reason = blocked_by(policy={"maintenance_windows": (forbids,)})
    assert reason == Reason.of(ReasonCode.OUTSIDE_WINDOW, window="calm", needs=900.0)
    assert (
        blocked_by(policy={"maintenance_windows": (replace(forbids, cron="20 8 * * *"),)}) is None
    )


# --- buying


def test_row_waits_while_its_purchase_is_open() -> None:
    row = replacement(state=BUYING)
    played = turn(machines("a"), row, operations=[purchase_operation()])
    assert played.result.rows == {"r1": row}
    assert played.result.verdicts == {"a": Reason.of(ReasonCode.IN_REPLACEMENT, id="r1")}
    assert played.result.reserved == {"a"}
    assert on_their_way_out([row]) == {"a"}
    assert played.judge.asked == []


def test_row_waits_for_the_nodes_once_its_purchase_has_succeeded() -> None:
    played = turn(machines("a"), replacement(state=BUYING, ends={GROW: ""}))
    assert played.row is not None
    assert (played.row.state, played.row.since) == (WAITING, NOW)


def test_end_in_the_row_counts_although_memory_still_shows_the_operation_as_open() -> None:
    row = replacement(state=BUYING, ends={GROW: ""})
    played = turn(machines("a"), row, operations=[purchase_operation()])
    assert played.row is not None
    assert played.row.state is WAITING


@pytest.mark.parametrize(
    ("ends", "detail"),
    [({GROW: "OutOfStock: no s is left"}, "OutOfStock: no s is left"), ({}, "grow-1 is not known")],
)
def test_cons_49_row_fails_with_its_purchase_and_drains_nothing(
    ends: dict[str, str], detail: str
) -> None:
    played = turn(machines("a"), replacement(state=BUYING, ends=ends))
    assert played.row is not None
    assert (played.row.state, played.row.until, played.row.times) == (FAILED, NOW + 3600.0, 1)
    assert played.result.verdicts == {
        "a": Reason.of(ReasonCode.REPLACEMENT_FAILED, until=NOW + 3600.0, detail=detail)
    }
    assert (played.removed, played.bought) == ([], [])
    assert softly_tainted(played.result.rows.values()) == frozenset()
    assert played.result.reserved == frozenset()


def test_row_whose_purchase_never_reached_the_provider_buys_again_if_wanted() -> None:
    row = replacement(state=BUYING, ends={GROW: NOT_BEGUN})
    again = turn(
        machines("a"),
        row,
        consolidation=with_policy(max_replacements=1, max_surge=NodeLimit(nodes=1)),
    )
    assert again.bought == [("s", 0, 1, "r1")]
    assert again.row is not None
    assert (again.row.state, again.row.bought_at, again.row.ends) == (BUYING, NOW, {})
    assert again.row.purchases == (PurchasedNodes("s", 1, COST),)
    assert turn(machines("a"), row, judge=refusing(NO_PLACE)).result.rows == {}
    later = turn(machines("a"), row, judged=False)
    assert later.row is not None
    assert (later.row.state, later.row.bought_at) == (PROPOSED, 0.0)
    two = (PurchasedNodes("s", 1, COST, GROW), PurchasedNodes("m", 1, PRICE, "grow-2"))
    played = turn(machines("a"), replace(row, purchases=two, ends={GROW: NOT_BEGUN, "grow-2": ""}))
    assert played.row is not None
    assert played.row.state is FAILED, "something was bought"


def test_row_without_an_operation_is_given_up() -> None:
    row = replacement(state=BUYING, purchases=(PurchasedNodes("s", 1, COST),))
    played = turn(machines("a"), row)
    assert played.row is not None
    assert played.row.state is FAILED


def test_one_failed_purchase_of_two_fails_the_row() -> None:
    two = (PurchasedNodes("s", 1, COST, GROW), PurchasedNodes("m", 1, PRICE, "grow-2"))
    row = replacement("b", state=BUYING, purchases=two, ends={"grow-2": "refused"})
    played = turn(machines("b"), row, operations=[purchase_operation()])
    assert played.row is not None
    assert played.row.state is FAILED


@pytest.mark.parametrize(
    ("timeout", "age", "fails"),
    [(None, 900.0, False), (None, 901.0, True), (2700.0, 2000.0, False), (60.0, 61.0, True)],
)
def test_row_fails_after_replace_timeout(timeout: float | None, age: float, fails: bool) -> None:
    row = replacement(bought_at=NOW - age)
    consolidation = with_policy(replace_timeout=timeout)
    for build in (machines("a"), machines("a", new=1, created=NOW - 1.0, ready=False)):
        played = turn(build, row, consolidation=consolidation)
        assert played.row is not None
        assert (played.row.state is FAILED) is fails
        assert played.removed == []


def test_replace_timeout_is_the_groups_own_provision_time_if_not_given() -> None:
    build = machines("a")
    options = replace(build.groups[1].options, max_node_provision_time=3600.0)
    build.groups[1] = replace(build.groups[1], options=options)
    played = turn(build, replacement(bought_at=NOW - 3000.0))
    assert played.row is not None
    assert played.row.state is WAITING


# --- waiting


def test_row_learns_its_new_nodes_by_creation_and_leaves_those_of_others() -> None:
    build = machines("a", "b", new=4)
    build.node("s-old", "2", group="s", created=BOUGHT - 1.0)
    mine = replacement("a", buys=2)
    other = replacement("b", id="r2", purchases=(PurchasedNodes("s", 1, COST, GROW, ("s-3",)),))
    played = turn(build, mine, other, judged=False)
    assert played.row is not None
    assert played.row.new_nodes == ("s-2", "s-1")
    assert played.result.rows["r2"].new_nodes == ("s-3",)
    assert played.result.reserved == {"a", "b", "s-1", "s-2", "s-3"}


def test_new_nodes_that_are_known_stay_those_of_the_row() -> None:
    row = replacement(buys=2, purchases=(PurchasedNodes("s", 2, COST, GROW, ("s-0",)),))
    played = turn(machines("a", new=3), row, judged=False)
    assert played.row is not None
    assert played.row.new_nodes == ("s-0", "s-2")


@pytest.mark.parametrize(
    ("fields", "ready"),
    [
        ({}, True),
        ({"ready": False}, False),
        (
            {
                "taints": [
                    Taint("startup-taint.cluster-autoscaler.kubernetes.io/x", "NoSchedule", "")
                ]
            },
            False,
        ),
        ({"labels": {"cloud.google.com/gke-accelerator": "nvidia"}}, False),
    ],
)
def test_drain_begins_when_all_new_nodes_are_ready_with_their_devices(
    fields: dict[str, Any], ready: bool
) -> None:
    played = turn(machines("a", new=1, **fields), replacement())
    assert played.row is not None
    assert played.removed == (["a"] if ready else [])
    assert played.row.state is (DRAINING if ready else WAITING)


def test_drain_does_not_begin_while_one_of_two_new_nodes_is_missing() -> None:
    played = turn(machines("a", new=1), replacement(buys=2))
    assert played.removed == []
    assert played.judge.asked == []


def test_ready_move_is_judged_again_with_its_purchases_paid_and_then_drained() -> None:
    played = turn(machines("a", new=1), replacement())
    assert played.judge.asked == [(("a",), COST)]
    assert played.judge.open == [{"a", "s-0"}]
    ((command,),) = (played.result.commands,)
    (removal,) = command.candidates
    assert (removal.node, removal.group, removal.kind, removal.replacement) == (
        "a",
        "m",
        "drain",
        "r1",
    )
    assert removal.reason == "consolidation"
    assert len(removal.destinations) == 2
    assert played.row is not None
    assert (played.row.state, played.row.since, played.row.nodes) == (DRAINING, NOW, ("a",))


def test_nodes_of_a_replacement_are_closed_for_everything_else() -> None:
    played = turn(machines("a", "b", new=1), replacement(), judged=False)
    index = played.simulated.table.index
    assert {name for name, row in index.items() if played.simulated.open[row]} == {"b"}


def test_places_and_disruptions_of_a_drain_are_missing_for_later_moves() -> None:
    played = turn(machines("a", new=1), replacement())
    free = played.simulated.table.free[played.simulated.table.index["s-0"]]
    cpu = played.simulated.table.columns.at("cpu")
    assert free[cpu] == 1000, "two pods of 500m are on it by now"
    assert played.budgets.taken == {"a"}


@pytest.mark.parametrize(
    "why",
    [
        Reason.of(ReasonCode.DO_NOT_DISRUPT, pod="default/p"),
        NO_PLACE,
        Reason.of(ReasonCode.SAVINGS_TOO_SMALL, saves=0.01, needs=0.02),
        Reason.of(ReasonCode.BLOCKED_BY_POD, pod="default/p", rule=ReasonCode.LOCAL_STORAGE.value),
    ],
)
def test_cons_51_and_52_move_that_is_not_possible_any_more_is_given_up(why: Reason) -> None:
    played = turn(machines("a", new=1), replacement(), judge=refusing(why))
    assert played.removed == []
    assert played.row is not None
    assert (played.row.state, played.row.why, played.row.until) == (FAILED, why, NOW + 3600.0)
    assert played.result.reserved == frozenset(), "the new node is an ordinary one"
    assert played.result.verdicts["a"].code is ReasonCode.REPLACEMENT_FAILED


@pytest.mark.parametrize("why", [BUSY_PDB, Reason.of(ReasonCode.PROMISED, pod="default/p")])
def test_ready_row_waits_for_what_passes_but_not_for_ever(why: Reason) -> None:
    played = turn(machines("a", new=1), replacement(since=NOW - 1800.0), judge=refusing(why))
    assert played.row is not None
    assert played.row.state is WAITING
    played = turn(machines("a", new=1), replacement(since=NOW - 1801.0), judge=refusing(why))
    assert played.row is not None
    assert (played.row.state, played.row.why) == (FAILED, why)


@pytest.mark.parametrize(
    "mode", [ConsolidationMode.OFF, ConsolidationMode.SHADOW, ConsolidationMode.REMOVE]
)
@pytest.mark.parametrize("state", [BUYING, WAITING])
def test_cons_54_row_is_given_up_when_nothing_is_bought_any_more(
    state: ReplacementState, mode: ConsolidationMode
) -> None:
    played = turn(
        machines("a", new=1),
        replacement(state=state),
        consolidation=with_policy(mode=mode),
        operations=[purchase_operation()] if state is BUYING else [],
    )
    assert played.row is not None
    assert (played.row.state, played.removed) == (FAILED, [])
    assert played.judge.asked == []


def test_row_is_given_up_when_its_group_is_not_autoscaled_any_more() -> None:
    build = machines("a")
    del build.groups[1]
    played = turn(build, replacement())
    assert played.row is not None
    assert played.row.state is FAILED


def test_row_waits_while_the_provider_of_its_group_cannot_be_read() -> None:
    build = machines("a")
    del build.groups[1]
    build.more["gaps"] = (MissingData("provider/test", "no answer"),)
    row = replacement()
    assert turn(build, row).result.rows == {"r1": row}


def test_row_fails_when_its_new_node_dies() -> None:
    row = replacement(purchases=(PurchasedNodes("s", 1, COST, GROW, ("s-0",)),))
    for build in (
        machines("a"),
        machines("a", new=1, taints=[Taint(TO_BE_DELETED, "NoSchedule", "1")]),
    ):
        played = turn(build, row)
        assert played.row is not None
        assert (played.row.state, played.removed) == (FAILED, [])


def test_row_fails_when_the_group_is_backed_off_and_nodes_are_missing() -> None:
    failure = Backoff(300.0, NOW + 200.0, NOW - 100.0, message="out of stock")
    played = turn(machines("a"), replacement(), groups={"s": GroupMemory(backoff=failure)})
    assert played.row is not None
    assert played.row.state is FAILED
    complete = turn(machines("a", new=1), replacement(), groups={"s": GroupMemory(backoff=failure)})
    assert complete.removed == ["a"], "its own nodes are all there"
    earlier = replace(failure, last_failed=BOUGHT - 1.0)
    played = turn(machines("a"), replacement(), groups={"s": GroupMemory(backoff=earlier)})
    assert played.row is not None
    assert played.row.state is WAITING


def test_cons_53_row_whose_old_node_has_vanished_is_done_and_the_new_node_stays() -> None:
    for state in (BUYING, WAITING, DRAINING):
        played = turn(
            machines("b", new=1), replacement("a", state=state), operations=[purchase_operation()]
        )
        assert (played.result.rows, played.removed, played.bought) == ({}, [], [])
        assert played.result.reserved == frozenset()


def test_old_node_that_has_vanished_is_dropped_from_the_set_and_counts_as_paid_back() -> None:
    build = machines("b", new=1)
    played = turn(build, replacement("a", "b"), policy={"prices": NodePrices(cpu=0.05)})
    assert played.row is not None
    assert (played.row.nodes, played.row.gone) == (("b",), ("a",))
    assert played.judge.asked == [(("b",), 0)], "0.20 of 0.40 have gone, which is more than 0.10"


def test_nodes_that_have_gone_count_with_their_providers_price() -> None:
    build = machines("b", new=1)
    build.groups[0] = replace(build.groups[0], price=0.35)
    played = turn(build, replacement("a", "b"))
    assert played.judge.asked == [(("b",), 50_000)], "0.05 of 0.40 have gone, and 0.10 were bought"


def test_node_that_could_not_be_read_has_not_vanished() -> None:
    build = machines("b", new=1)
    build.more["gaps"] = (MissingData("Node", "malformed", name="a", node="a"),)
    played = turn(build, replacement("a"), judged=False)
    assert played.row is not None
    assert played.row.nodes == ("a",)


def test_move_of_several_nodes_goes_on_without_one_that_cannot_go() -> None:
    judge = FakeJudge(lambda nodes: NO_PLACE if "b" in nodes else None)
    played = turn(machines("a", "b", "c", new=1), replacement("a", "b", "c"), judge=judge)
    assert played.removed == ["a", "c"]
    assert played.row is not None
    assert played.row.nodes == ("a", "c")
    assert played.result.reserved == {"a", "c", "s-0"}


def test_breaker_is_never_tripped_and_its_share_is_kept() -> None:
    build = machines(*"abcdefgh", new=1)
    policy = {"max_disruption": MaxDisruption(share=0.25)}
    played = turn(build, replacement(*"abcdef"), policy=policy)
    assert played.removed == ["a", "b"]
    assert played.budgets.paused is None
    assert played.budgets.breaker.after() == BreakerState(removals=((NOW, 2, 4),))


@pytest.mark.parametrize(("minutes", "drains"), [(15.0, False), (40.0, True)])
def test_drain_does_not_begin_within_the_last_drain_deadline_of_a_window(
    minutes: float, drains: bool
) -> None:
    played = turn(
        machines("a", new=1), replacement(), policy={"maintenance_windows": (window(minutes),)}
    )
    assert played.removed == (["a"] if drains else [])
    assert played.row is not None
    assert played.row.state is (DRAINING if drains else WAITING)


def test_drain_waits_for_a_disruption_budget_and_its_own_nodes_count_once() -> None:
    build = machines("a", "b", new=1)
    row = replacement("a", "b")
    for nodes, goes in ((2, ["a", "b"]), (1, []), (0, [])):
        budget = DisruptionBudget("few", NodeLimit(nodes=nodes))
        played = turn(build, row, policy={"disruption_budgets": (budget,)})
        assert played.removed == goes
        assert played.row is not None
        assert played.row.state is (DRAINING if goes else WAITING)


def test_nodes_of_a_row_that_begins_use_the_disruption_budget() -> None:
    budget = DisruptionBudget("few", NodeLimit(nodes=3))
    played = turn(
        machines("a", "b", "c"),
        replacement("a", "b", state=PROPOSED),
        policy={"disruption_budgets": (budget,)},
    )
    assert played.bought == [("s", 0, 1, "r1")]
    assert [
        left for left, _ in played.budgets.disruption_room("m", DisruptionReason.CONSOLIDATION)
    ] == [1]


def test_nothing_is_judged_while_removals_are_blocked() -> None:
    played = turn(machines("a", new=1), replacement(), scale_down_enabled=False)
    assert (played.removed, played.judge.asked) == ([], [])
    assert played.row is not None
    assert played.row.state is FAILED, "it does not pass by itself"
