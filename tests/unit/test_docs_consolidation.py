"""docs/reference/consolidation.md: its figures equal the code, and its example is right."""

from __future__ import annotations

import re

import pytest

from chalicelib.model.memory import ReplacementState
from chalicelib.model.quantity import format_duration
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.next_memory import MOST_OWNERS
from chalicelib.plan.removal.consolidation.costs import SETTLE_TIME
from chalicelib.plan.removal.consolidation.move_search import BRANCHES, MOST_CANDIDATES, ROUNDS
from chalicelib.plan.removal.consolidation.verdicts import MOST_ALONE
from chalicelib.plan.removal.methods.consolidation import MOST_REASONS, REPEAT_AFTER
from chalicelib.plan.removal.replacement_rows import (
    FIRST_BACKOFF,
    LONGEST_BACKOFF,
    MOST_FAILED,
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


def test_docs_consolidation_bounds_equal_the_code() -> None:
    bounds = dict(rows(PAGE, "Bounds"))
    numbers = {
        name: [int(text.replace(",", "")) for text in re.findall(r"\d[\d,]*", value)]
        for name, value in bounds.items()
    }
    assert numbers == {
        "candidates for which the programme is asked": [MOST_CANDIDATES],
        "rounds and branches of the programme": [ROUNDS, BRANCHES],
        "candidates whose reason comes from a move tried alone": [MOST_ALONE],
        "reasons that a search without result leaves for later passes": [MOST_REASONS],
        "replacements under way": [1000],
        "failed replacements that are remembered": [MOST_FAILED],
        "owners whose moves of the day are remembered": [MOST_OWNERS],
        "old nodes of a replacement of which one may be left out": [MOST_LEFT_OUT],
    }
    assert f"repeated for {REPEAT_AFTER / 60:g} minutes" in PAGE.read_text("utf-8")
    assert f"forgotten {REMEMBERED / 3600:g} hours after its back-off" in PAGE.read_text("utf-8")


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
        "Balanced",
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
