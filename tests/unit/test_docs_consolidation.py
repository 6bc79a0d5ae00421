"""docs/reference/consolidation.md: its figures equal the code, and its example is right."""

from __future__ import annotations

import re

import pytest

from chalicelib.model.memory import ReplacementState
from chalicelib.model.node import LEAVING_MARKS
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.removal.consolidation.costs import SETTLE_TIME
from chalicelib.plan.removal.consolidation.move_search import BRANCHES, MOST_CANDIDATES, ROUNDS
from chalicelib.plan.removal.methods.consolidation import REPEAT_AFTER
from chalicelib.plan.removal.replacement_rows import (
    FIRST_BACKOFF,
    LONGEST_BACKOFF,
    REMEMBERED,
)
from chalicelib.plan.removal.replacements import MOST_LEFT_OUT
from tests.unit.test_docs import RULES, rows

SUBJECT = "consolidation"
PAGE = RULES / f"{SUBJECT}.md"


def test_docs_consolidation_constants_equal_the_code() -> None:
    constants = dict(row[:2] for row in rows(PAGE, "Hysteresis"))
    assert constants["time in which a price settles"] == format_duration(SETTLE_TIME)
    assert constants["back-off of failed replacements"] == "1h, doubled up to 24h"
    assert (FIRST_BACKOFF, LONGEST_BACKOFF) == (3600.0, 86_400.0)


@pytest.mark.parametrize(
    "words",
    [
        f"If at most {MOST_CANDIDATES} candidates",
        f"in at most {ROUNDS} rounds of {BRANCHES:,} branches",
        f"one of at most {MOST_LEFT_OUT} old nodes",
        f"repeated for {REPEAT_AFTER / 60:g} minutes",
        f"forgotten {REMEMBERED / 3600:g} hours after its back-off",
    ],
)
def test_docs_consolidation_bounds_equal_the_code(words: str) -> None:
    assert words in " ".join(PAGE.read_text("utf-8").split())


def test_docs_consolidation_list_every_state_of_a_replacement_in_order() -> None:
    assert [row[0].strip("`") for row in rows(PAGE, "Replacements")] == [
        state.value for state in ReplacementState
    ]


def test_docs_consolidation_name_only_codes_that_exist_and_every_one_of_its_own() -> None:
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", PAGE.read_text("utf-8")))
    codes = list(ReasonCode)
    own = codes[
        codes.index(ReasonCode.CONSOLIDATION_OFF) : codes.index(ReasonCode.REPLACEMENT_FAILED) + 1
    ]
    assert {code.value for code in own} - named == set()
    assert named - {code.value for code in codes} == {
        "ConsolidationHorizon",
        "NodeReplacement",
        "NodeReplacementFailed",
    }


@pytest.mark.parametrize("row", [0, 1, 2])
def test_docs_consolidation_example_follows_its_own_rule(row: int) -> None:
    _, disruption, price, saves, gain, score = rows(PAGE, "Price of a disruption")[row]
    total, sum_of_disruption, k = 4.80, 200.0, 2.0
    own = total / (k * sum_of_disruption) * float(disruption)
    assert float(price) == pytest.approx(own)
    assert float(gain) == pytest.approx(float(saves) - own)
    number, _, verdict = score.partition(":")
    assert float(number) == pytest.approx(
        float(saves) / (total * float(disruption) / sum_of_disruption), abs=0.005
    )
    assert ("goes" in verdict) is (float(gain) > 0)


def test_docs_consolidation_list_every_mark_by_its_level() -> None:
    assert [row[0].strip("`") for row in rows(PAGE, "Marks")] == list(LEAVING_MARKS)


def test_docs_consolidation_scores_by_patience_follow_the_formula_on_the_page() -> None:
    hours = {"0": 0.0, "1h": 1.0, "2h": 2.0, "3h": 3.0, "6h": 6.0, "12h and more": 12.0}
    needed = {row[0]: float(row[1]) for row in rows(PAGE, "Patience")}
    assert needed.keys() == hours.keys()
    for words, score in needed.items():
        assert score == pytest.approx(max(0.5 * 2 ** (-hours[words] / 6), 0.125), abs=0.005)
    assert 0.5 * 2 ** (-(1 + 56 / 60) / 6) < 0.40 < 0.5 * 2 ** (-(1 + 55 / 60) / 6)
