"""The shadow command and `history --compare` against a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.cli.main import main
from chalicelib.shadow.records import (
    AGREEING,
    GROWTH,
    REMOVAL,
    Ledger,
    Match,
    Observation,
    ShadowVerdict,
    add,
    match_id,
)
from chalicelib.shadow.verdicts import UNKNOWN
from chalicelib.store import Store
from tests.cases import each_row
from tests.functional.conftest import ACCOUNT_NOW as NOW
from tests.unit.policy.policy_documents import GOOD

Said = pytest.CaptureFixture[str]
DAY = 86400.0
NAME = "prod-geneva"
ME = "arn:aws:sts::123456789012:user/moto"  # the caller in moto


@pytest.fixture
def store(account: Store) -> Store:
    account.policies.put(NAME, GOOD, "d", None)
    return account


def grew(verdict: ShadowVerdict, ours: int, theirs: int, ago: float, cause: str = "") -> Match:
    at = NOW - ago * DAY
    name = match_id(GROWTH, at, "web")
    return Match(
        name, GROWTH, at, verdict, ours={"web": ours}, theirs={"web": theirs}, cause=cause, lead=4.0
    )


def removed(verdict: ShadowVerdict, node: str, ago: float = 1.0, **more: Any) -> Match:
    at = NOW - ago * DAY
    return Match(match_id(REMOVAL, at, node), REMOVAL, at, verdict, node, **more)


def compared(store: Store, *more: Match) -> None:
    ledger = add(
        Ledger(NOW - 9 * DAY, Observation(NOW - 30)),
        *(grew(ShadowVerdict.SAME, 1, 1, number / 10) for number in range(20)),
        *(removed(ShadowVerdict.SAME, f"w-{number}") for number in range(20)),
        *more,
    )
    store.shadow().save(NAME, ledger, 7)


def answer(capsys: Said, *arguments: str) -> Any:
    """The JSON that the command prints."""
    capsys.readouterr()
    assert main([*arguments, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(capsys: Said, *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_dangerous_removal_is_shown_first_and_accepted_by_node(store: Store, capsys: Said) -> None:
    danger = removed(
        ShadowVerdict.ONLY_OURS, "worker-17", detail="no pods to move; no soft taint", cause=UNKNOWN
    )
    compared(store, grew(ShadowVerdict.FEWER, 2, 3, 0.5, "expander random"), danger)
    text = said(capsys, "shadow", NAME)
    assert text.startswith(
        f"{NAME}, 9 days: 21 growths, 20 removals by Cluster Autoscaler\ngrowth 0.96 (1 fewer, 20"
    )
    assert "only ours 1 -> look at 1" in text
    assert text.index("ONLY OURS") < text.index("FEWER")
    assert "web +3, Outscaler +2" in text
    assert text.endswith(
        f"Next: outscaler explain node worker-17 --cluster {NAME}\nthen: outscaler shadow accept "
        f"{NAME}/worker-17\n"
    )
    both = (
        f"outscaler explain node worker-17 --cluster {NAME}, then outscaler shadow accept "
        f"{NAME}/worker-17"
    )
    assert answer(capsys, "shadow", NAME)["next"] == both
    accepted = said(capsys, "shadow", "accept", f"{NAME}/worker-17")
    assert accepted.startswith("accepted: ONLY OURS, ")
    assert accepted.endswith(
        f", worker-17 ({danger.id})\noutscaler shadow {NAME} shows what is left\n"
    )
    text = said(capsys, "shadow", NAME)
    assert "ONLY OURS (accepted)" in text
    assert "Next: kubectl -n kube-system scale deployment cluster-autoscaler --replicas=0\n" in text
    assert (
        text.index("--replicas=0")
        < text.index("lease")
        < text.index("mode: active")
        < text.index("Way back")
    )
    [entry] = store.journal.recent(NAME)
    assert (entry.kind, entry.facts) == ("accept", {"by": ME, "accepted": "worker-17"})


def test_result_is_accepted_by_id(store: Store, capsys: Said) -> None:
    danger = removed(ShadowVerdict.ONLY_OURS, "worker-17")
    compared(store, danger)
    assert answer(capsys, "shadow", NAME)["open"] is False
    assert answer(capsys, "shadow", "accept", NAME, danger.id)["accepted"] == danger.id
    assert answer(capsys, "shadow", NAME)["open"] is True


@each_row(
    "verdict",
    [verdict for verdict in ShadowVerdict if verdict not in AGREEING],
    ids=[verdict.name for verdict in ShadowVerdict if verdict not in AGREEING],
)
def test_accepted_result_of_every_verdict_no_longer_counts_at_the_gate(
    store: Store, capsys: Said, verdict: ShadowVerdict
) -> None:
    removals = (
        ShadowVerdict.EARLIER,
        ShadowVerdict.LATER,
        ShadowVerdict.REFUSED,
        ShadowVerdict.ONLY_OURS,
    )
    apart = removed(verdict, "w-17") if verdict in removals else grew(verdict, 1, 19, 0.55, UNKNOWN)
    compared(store, apart)
    answered = answer(capsys, "shadow", "accept", NAME, apart.id)
    assert [(match["id"], match["accepted"]) for match in answered["results"]] == [(apart.id, True)]
    found = answer(capsys, "shadow", NAME)
    assert found["open"] is True
    assert [match["id"] for match in found["matches"] if match["accepted"]] == [apart.id]


def test_missed_growth_is_accepted_by_the_command_that_is_shown(store: Store, capsys: Said) -> None:
    missed = grew(ShadowVerdict.MISSED, 0, 1, 0.55, UNKNOWN)
    compared(store, missed)
    assert f"Next: find why {missed.id} was missed" in said(capsys, "shadow", NAME)
    assert said(capsys, "shadow", "accept", f"{NAME}/{missed.id}").startswith("accepted: MISSED, ")
    assert "MISSED (accepted)" in said(capsys, "shadow", NAME)


def test_table_is_narrow_where_ids_are_long(store: Store, capsys: Said) -> None:
    groups = [f"MachineDeployment/a-namespace-with-a-name/workers-{number}" for number in range(3)]
    cause = f"known difference: Cluster Autoscaler reports Backoff of {groups[0]}"
    detail = "; ".join(f"default/pod-{number}: no group fits" for number in range(9))
    at = NOW - DAY / 2
    theirs, ours = {groups[1]: 2}, {groups[0]: 2}
    compared(
        store, Match("1f0c9a2e", GROWTH, at, ShadowVerdict.CHOICE, "", theirs, ours, detail, cause)
    )
    text = said(capsys, "shadow", NAME)
    assert "workers-1 +2, Outscaler workers-0 +2" in text
    assert "Backoff of workers-0" in text
    [row] = [line for line in text.splitlines() if line.startswith("CHOICE")]
    assert len(row) <= 140
    assert "a-namespace-with-a-name" not in row


def test_json_has_all_figures_and_results_and_history_shows_the_same(
    store: Store, capsys: Said
) -> None:
    compared(store, grew(ShadowVerdict.MISSED, 0, 2, 0.5, UNKNOWN))
    found = answer(capsys, "shadow", NAME)
    assert found["figures"] == {
        "shadow_growth_agreement": 0.9091,
        "shadow_growth_agreement_per_group": 0.9091,
        "shadow_unneeded_overlap": None,
        "shadow_only_ours_total": 0,
        "shadow_missed_total": 1,
        "shadow_lead_seconds": 4.0,
        "shadow_cost_ratio": None,
        "growths": {"missed": 1, "same": 20},
        "removals": {"same": 20},
        "comparedGrowths": 21,
        "comparedRemovals": 20,
        "exactGrowths": 21,
        "onlyOursOpen": 0,
        "missedWithoutCause": 1,
        "days": 9.0,
        "passes": 0,
        "secondsWithoutTheOther": 0,
    }
    assert len(found["matches"]) == 41
    assert [each["name"] for each in found["gate"] if not each["met"]] == [
        "growth agreement",
        "missed without a known cause",
    ]
    assert answer(capsys, "history", NAME, "--compare") == found
    assert answer(capsys, "history", NAME, "--compare", "--since", "1d")["figures"]["days"] == 1.0


def test_cluster_without_a_comparison_says_so(store: Store, capsys: Said) -> None:
    assert "no pass has compared anything yet" in said(capsys, "shadow", NAME)
    assert answer(capsys, "shadow", NAME)["figures"] is None


@each_row(
    ("line", "problem"),
    [
        ("shadow prod-genev", "prod-genev: no such cluster; did you mean prod-geneva?"),
        ("shadow accept prod-geneva/worker-18", "did you mean worker-17?"),
        ("shadow accept prod-geneva 1f0c9a2e", "is neither the id nor the node of a disagreement"),
        ("shadow accept prod-geneva/w-3", "is no disagreement; there is nothing to accept"),
        ("shadow accept prod-geneva", "needs one cluster with one node or one id"),
        ("shadow accept prod-geneva/a b", "needs one cluster with one node or one id"),
        ("shadow prod-geneva b", "takes one cluster"),
        ("shadow prod-geneva --since 31d", "is not a duration up to 30d"),
        ("shadow prod-geneva --since ²d", "is not a duration up to 30d"),
    ],
)
def test_shadow_command_line_mistakes_are_one_line(
    store: Store, capsys: Said, line: str, problem: str
) -> None:
    compared(store, removed(ShadowVerdict.ONLY_OURS, "worker-17"))
    text = said(capsys, *line.split(), code=2)
    assert problem in text
    assert text.count("\n") == 1


def test_terminal_codes_of_hostile_names_are_not_printed(store: Store, capsys: Said) -> None:
    compared(store, removed(ShadowVerdict.ONLY_OURS, "worker\x1b[2J", detail="\x1b]0;x\x07"))
    assert "\x1b" not in said(capsys, "shadow", NAME)


def test_older_pass_does_not_replace_the_row_of_a_newer_one(store: Store, capsys: Said) -> None:
    compared(store)
    store.shadow().save(NAME, Ledger(NOW, Observation(NOW)), 6)
    assert len(answer(capsys, "shadow", NAME)["matches"]) == 40
