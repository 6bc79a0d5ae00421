"""The table of words for how a cluster, a group and a pod are (model/health.py)."""

from __future__ import annotations

import pytest

from chalicelib.model.health import CLUSTER, OF_PODS, HealthState, Tone, of_backoff
from chalicelib.model.notification import NOTICE_TYPES
from tests.source_trees import ROOT

SEVERITY = {Tone.BAD: 0, Tone.WARN: 1, Tone.INFO: 2, Tone.OK: 3}
OF_CLUSTER = [state for state in HealthState if state.row.subject == CLUSTER]


def test_words_of_a_cluster_get_milder_downwards() -> None:
    tones = [SEVERITY[state.row.tone] for state in OF_CLUSTER if state is not HealthState.OFF]
    assert tones == sorted(tones)


def test_word_means_one_thing_about_a_subject() -> None:
    pairs = [(state.row.subject, state.word) for state in HealthState if "{}" not in state.word]
    assert len(pairs) == len(set(pairs))


def test_word_that_needs_nobody_is_never_the_worst_tone() -> None:
    bad = [state for state in HealthState if state.row.tone is Tone.BAD]
    assert all(state.row.person for state in bad)


def test_word_leads_to_a_part_of_the_runbook_and_to_types_that_exist() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    headings = [line.lstrip("# ") for line in runbook.splitlines() if line.startswith("#")]
    places = {heading.lower().replace(" ", "-").replace(".", "") for heading in headings}
    places |= {part.partition('"')[0] for part in runbook.split('<a id="')[1:]}
    named = {state.row.anchor for state in HealthState} - {""}
    assert named - places == set()
    types = {kind for state in HealthState for kind in state.row.notices}
    assert types <= set(NOTICE_TYPES)


def test_decision_of_a_pod_has_one_word() -> None:
    assert set(OF_PODS) == {"unschedulable", "newNode", "fitsExisting", "notLookedAt"}


@pytest.mark.parametrize(
    ("error_class", "attempt", "state"),
    [
        ("OutOfStock", 1, HealthState.GROUP_BACKING_OFF),
        ("OutOfStock", 9, HealthState.GROUP_BACKING_OFF),
        ("Throttled", 9, HealthState.GROUP_BACKING_OFF),
        ("timeout", 2, HealthState.GROUP_BACKING_OFF),
        ("timeout", 3, HealthState.GROUP_CANNOT_GROW),
        ("Unknown", 3, HealthState.GROUP_CANNOT_GROW),
        ("QuotaExceeded", 1, HealthState.GROUP_CANNOT_GROW),
        ("Unauthorized", 1, HealthState.GROUP_CANNOT_GROW),
    ],
)
def test_back_off_needs_a_person_only_where_it_does_not_end_by_itself(
    error_class: str, attempt: int, state: HealthState
) -> None:
    assert of_backoff(error_class, attempt) is state
