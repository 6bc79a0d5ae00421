"""Plans are those that were recorded, byte for byte: what `plan -o json` prints and
the memory that it saves.

`python -m tests.recorded.record` says how a recording is made.
"""

from __future__ import annotations

import difflib
import gzip
import json

import pytest

from tests.recorded.plans import CAPTURES, RANDOM, Case, cases, record
from tests.recorded.record import DIGESTS, EXAMPLES, SHOWN

CASES = {case.name: case for case in cases()}
RECORDED = {
    name: (read, answered)
    for name, read, answered in (line.split() for line in DIGESTS.read_text().splitlines())
}
SHOWN_TEXTS: dict[str, str] = json.loads(gzip.decompress(EXAMPLES.read_bytes()))


def difference(case: Case, answered: bytes) -> str:
    """The first lines that differ, where the recording has the document; else how to see them."""
    if case.name not in SHOWN_TEXTS:
        return "compare `python -m tests.recorded.record --to DIR` of both trees with diff -r"
    lines = difflib.unified_diff(
        SHOWN_TEXTS[case.name].splitlines(),
        answered.decode().splitlines(),
        "recorded",
        "now",
        lineterm="",
    )
    return "\n".join(line for _, line in zip(range(40), lines, strict=False))


def test_every_case_has_a_recording_and_every_recording_a_case() -> None:
    assert list(CASES) == list(RECORDED)
    assert set(SHOWN_TEXTS) == set(SHOWN) <= set(CASES)
    assert sum(name.startswith("random/") for name in CASES) == RANDOM


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.shared])
def test_plans_of_random_clusters_are_the_recorded_bytes(name: str) -> None:
    check(name)


@pytest.mark.shared
@pytest.mark.skipif(
    not CAPTURES.is_dir(), reason="no captured clusters (../shared) beside this checkout"
)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.shared])
def test_plans_of_captured_clusters_are_the_recorded_bytes(name: str) -> None:
    check(name)


def check(name: str) -> None:
    made, (read, answered) = record(CASES[name]), RECORDED[name]
    assert made.read == read, (
        f"{name}: the input is another one: its generator has changed, not the planner"
    )
    assert made.answered == answered, f"{name}:\n{difference(CASES[name], made.documents)}"
