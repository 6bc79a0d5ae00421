"""Figures of the comparison, the conditions for mode active, and the limits of what is kept."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.cli.migrate.shadow_view import Figures, Report, blocks, figures, gate, is_open
from chalicelib.shadow.records import (
    GROWTH,
    KEPT,
    MOST_AGREEMENTS,
    MOST_DISAGREEMENTS,
    REMOVAL,
    Ledger,
    Match,
    Observation,
    ShadowVerdict,
    add,
    match_id,
    sample,
    trimmed,
)
from chalicelib.shadow.verdicts import OWN_PLAN, UNKNOWN, Situation, cause
from chalicelib.store.codec import encode, pack
from tests.builders import NOW
from tests.cases import each_row

DAY = 86400.0


def ledger(*matches: Match, days: float = 9.0) -> Ledger:
    return add(Ledger(NOW - days * DAY, Observation(NOW)), *matches)


def grew(verdict: ShadowVerdict, ours: int, theirs: int, ago: float = 1.0, **more: object) -> Match:
    at = NOW - ago * DAY
    groups = {"web": ours} if ours else {}
    other = {"job" if verdict is ShadowVerdict.SAME_SIZE else "web": theirs}
    known = {"ours": groups, "theirs": other, **more}
    return Match(
        match_id(GROWTH, at, f"{verdict}{ours}{theirs}{ago}"),
        GROWTH,
        at,
        verdict,
        **known,  # type: ignore[arg-type]
    )


def removed(verdict: ShadowVerdict, node: str = "w", ago: float = 1.0) -> Match:
    at = NOW - ago * DAY
    return Match(match_id(REMOVAL, at, node), REMOVAL, at, verdict, node)


def figures_of(
    found: Ledger, accepted: dict[str, float] | None = None, since: float = 30.0
) -> Figures:
    return figures(found, accepted or {}, NOW - since * DAY, NOW)


def test_growth_agreement_is_weighted_by_nodes() -> None:
    found = figures_of(
        ledger(
            grew(ShadowVerdict.SAME, 3, 3),
            grew(ShadowVerdict.FEWER, 2, 4, ago=2),
            grew(ShadowVerdict.SAME_SIZE, 5, 5, ago=3),
            grew(ShadowVerdict.SOMEBODY, 0, 50, ago=4),
        )
    )
    assert found.growth_agreement == pytest.approx(1 - 2 / 12)
    assert found.growth_agreement_groups == pytest.approx(1 - 2 / 12)
    assert (found.growths, found.compared_growths, found.exact) == (
        {"by somebody else": 1, "fewer": 1, "same": 1, "same size": 1},
        3,
        3,
    )


def test_costs_and_leads() -> None:
    found = figures_of(
        ledger(
            grew(ShadowVerdict.SAME, 1, 1, lead=10.0, costs=(1.0, 1.0)),
            grew(ShadowVerdict.FEWER, 1, 2, ago=2, lead=-30.0, costs=(1.0, 2.0)),
            grew(ShadowVerdict.SAME, 2, 2, ago=3, lead=20.0),
        )
    )
    assert found.lead == 10.0
    assert found.cost_ratio == pytest.approx(2 / 3)


def test_lead_is_rounded_and_of_growths_only() -> None:
    late = msgspec.structs.replace(removed(ShadowVerdict.LATER), lead=-360.0)
    found = figures_of(ledger(grew(ShadowVerdict.SAME, 1, 1, lead=10.04), late))
    assert found.lead == 10.0


@each_row(
    ("days", "words"),
    [
        (9.0, "9 days"),
        (2.0, "2 days"),
        (1.9, "46 hours"),
        (1 / 24, "1 hour"),
        (0.9 / 24, "54 minutes"),
        (1 / 1440, "1 minute"),
        (0.0, "0 minutes"),
    ],
)
def test_length_of_the_comparison_is_grammatical(days: float, words: str) -> None:
    found = Ledger(NOW - days * DAY, Observation(NOW))
    [headline, *_] = blocks(Report("prod", found, {}, 0.0, NOW))
    assert str(headline).startswith(f"prod, {words}: ")


def test_figures_begin_on_the_day_of_since() -> None:
    found = ledger(grew(ShadowVerdict.SAME, 1, 1), grew(ShadowVerdict.FEWER, 1, 9, ago=8))
    assert figures_of(found, since=7).growth_agreement == 1.0
    assert figures_of(found, since=7).days == 7.0
    assert figures_of(found).days == 9.0


def test_acceptance_covers_a_node_until_then_and_a_match_by_its_id() -> None:
    old, new = (
        removed(ShadowVerdict.ONLY_OURS, "a", ago=3),
        removed(ShadowVerdict.ONLY_OURS, "a", ago=1),
    )
    found = ledger(old, new)
    assert figures_of(found).only_ours_open == 2
    assert figures_of(found, {"a": NOW - 2 * DAY}).only_ours_open == 1
    assert figures_of(found, {"a": NOW - 2 * DAY, new.id: NOW}).only_ours_open == 0


def test_median_of_the_overlap() -> None:
    found = Ledger(NOW - DAY, Observation(NOW))
    for number, soft in enumerate(({"a"}, {"a", "b"}, {"a", "b"}, set())):
        found = sample(found, {"a", "b"}, set(soft), NOW - 3000 + 600 * number)
    assert figures_of(found).unneeded_overlap == 0.5
    assert figures_of(ledger()).unneeded_overlap is None


def test_gate_opens_when_all_conditions_are_met() -> None:
    found = ledger(
        *(grew(ShadowVerdict.SAME, 1, 1, ago=number / 10) for number in range(20)),
        *(removed(ShadowVerdict.SAME, str(number)) for number in range(20)),
    )
    assert is_open(gate(figures_of(found)))


@each_row(
    ("change", "missing"),
    [
        ([removed(ShadowVerdict.ONLY_OURS)], ["only ours, not accepted"]),
        ([grew(ShadowVerdict.MISSED, 0, 1, cause=UNKNOWN)], ["missed without a known cause"]),
        (
            [grew(ShadowVerdict.MISSED, 0, 1, cause=f"{OWN_PLAN}TooManyPods")],
            ["missed without a known cause"],
        ),
        ([grew(ShadowVerdict.MISSED, 0, 1, cause="options differ: x")], []),
        ([grew(ShadowVerdict.FEWER, 1, 9)], ["growth agreement"]),
        ([grew(ShadowVerdict.MORE, 2, 2, ago=3, costs=(4.0, 2.0))], ["cost ratio"]),
    ],
)
def test_gate_names_what_is_missing(change: list[Match], missing: list[str]) -> None:
    found = ledger(
        *(grew(ShadowVerdict.SAME, 1, 1, ago=number / 10) for number in range(20)),
        *(removed(ShadowVerdict.SAME, str(number)) for number in range(20)),
        *change,
    )
    assert [each.name for each in gate(figures_of(found)) if not each.met] == missing


def test_gate_of_a_new_comparison_lacks_acts_and_days() -> None:
    missing = [each.name for each in gate(figures_of(ledger(days=0.5))) if not each.met]
    assert missing == ["growth agreement", "growths", "removals", "days"]


@each_row(
    ("situation", "words"),
    [
        (Situation(random=True, apart=1.0), "expander random"),
        (
            Situation(restarted=NOW, apart=1.0),
            "Cluster Autoscaler restarted at 2027-01-15T08:00:00Z",
        ),
        (Situation(apart=-59.0, gaps=("Pod",)), "timing: under one interval apart"),
        (Situation(apart=60.0, gaps=("Pod", "Job")), "this pass could not read Pod, Job"),
        (
            Situation(known="docs/differences.md", reserved=True),
            "known difference: docs/differences.md",
        ),
        (Situation(reserved=True), "the node reserves more than its template"),
        (Situation(), UNKNOWN),
    ],
)
def test_first_cause_that_applies_is_named(situation: Situation, words: str) -> None:
    assert cause(situation) == words


def test_SHA_11_row_of_30_days_and_5000_nodes_is_far_below_a_megabyte() -> None:
    nodes = tuple(
        f"ip-10-{number // 250}-{number * 7919 % 251}-{number * 104729 % 253}"
        for number in range(5000)
    )
    found = Ledger(
        NOW - 40 * DAY,
        Observation(NOW, {"web": 5000}, {"web": nodes}, dict.fromkeys(nodes[:1000], 1_800_000_000)),
    )
    for hour in range(40 * 24):
        ago = 40 - hour / 24
        detail = (
            f"default/pod-{match_id('', hour, 'x')}: no group fits, because its memory is too small"
        )
        found = trimmed(
            add(
                found,
                *(
                    grew(ShadowVerdict.FEWER, 2, 3 + n, ago=ago, detail=detail, cause=UNKNOWN)
                    for n in range(10)
                ),
                *(
                    removed(ShadowVerdict.SAME, nodes[(hour * 20 + n) % 5000], ago=ago)
                    for n in range(20)
                ),
            ),
            NOW - ago * DAY,
        )
    assert len(found.matches) == MOST_AGREEMENTS + MOST_DISAGREEMENTS
    assert len(found.days) <= KEPT / DAY + 1
    [piece] = pack(encode(found))
    assert len(piece) < 200_000
