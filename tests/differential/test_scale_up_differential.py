"""Compares upstream's recorded decisions on 500 random clusters with ours: ours are equal or
better, or known_differences.md gives the reason.

The table is checked in both directions: an unlisted difference fails, and so does a row that no
longer applies. `python -m tests.differential.compare` prints the differences.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.differential.compare import Figure, as_good, differences, generator, upstream
from tests.reference_data import needs_shared

DIFFERENCES = Path(__file__).with_name("known_differences.md")
SEEDS, PART, QUICK = 500, 20, 40
_ROW = re.compile(r"^\| (\d+) \| `([\w-]+)` \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)

Row = tuple[int, str, str, str]  # seed, group, ours, upstream's


def listed() -> dict[Row, str]:
    """The exceptions listed in the document, each with its reason."""
    return {
        (int(seed), group, ours.strip(), theirs.strip()): why.strip()
        for seed, group, ours, theirs, why in _ROW.findall(DIFFERENCES.read_text("utf-8"))
    }


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.slow] if first >= QUICK else [])
        for first in range(0, SEEDS, PART)
    ],
)
def test_every_option_is_as_good_as_upstreams_or_listed(first: int) -> None:
    cases, make = upstream(), generator().make
    seeds = range(first, first + PART)
    found = {
        (each.seed, each.group, str(each.ours), " or ".join(map(str, each.theirs)))
        for seed in seeds
        for each in differences(seed, cases[seed], make)
    }
    known = {row for row in listed() if row[0] in seeds}
    assert sorted(found - known) == [], "not listed in known_differences.md"
    assert sorted(known - found) == [], "listed in known_differences.md, and no longer so"


@needs_shared
@pytest.mark.shared
def test_upstreams_scale_up_decisions_cover_every_seed() -> None:
    assert sorted(upstream()) == list(range(SEEDS))


def test_at_most_five_results_are_worse_than_the_replay_of_upstreams_rules() -> None:
    assert sum(why.startswith("Worse") for why in listed().values()) <= 5


def test_every_listed_scale_up_difference_has_a_reason() -> None:
    assert [row for row, why in listed().items() if len(why) < 10] == []


@pytest.mark.parametrize(
    ("ours", "theirs", "good"),
    [
        (Figure(3, 9), Figure(3, 9), True),
        (Figure(2, 9), Figure(3, 9), True),
        (Figure(7, 10), Figure(3, 9), True),
        (Figure(4, 9), Figure(3, 9), False),
        (Figure(1, 8), Figure(3, 9), False),
    ],
    ids=["equal", "fewer nodes", "more pods", "more nodes", "fewer pods"],
)
def test_more_pods_or_as_many_on_no_more_nodes_is_as_good(
    ours: Figure, theirs: Figure, good: bool
) -> None:
    assert as_good(ours, theirs) is good
