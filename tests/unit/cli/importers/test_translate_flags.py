"""Flags become options with the values that Go's flags would read."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.cli.migrate.report import Draft, Verdict
from chalicelib.cli.migrate.translate_flags import translate_flags
from chalicelib.model.errors import InputErrors
from tests.cases import each_row
from tests.unit.cli.importers.autoscaler_inputs import argument


def translated(
    *words: str, version: tuple[int, int] | None = None, skip_unknown: bool = False
) -> Draft:
    draft = Draft()
    translate_flags([argument(word) for word in words], version, draft, skip_unknown=skip_unknown)
    draft.check()
    return draft


def verdicts(draft: Draft, word: str) -> list[Verdict]:
    return [row.verdict for row in draft.rows if word in row.word]


@each_row(
    "words, options",
    [
        (("--scale-down-unneeded-time=1m0s",), {"scaleDownUnneededTime": "1m"}),
        (("--cordon-node-before-terminating=f",), {"cordonNodeBeforeTerminating": False}),
        (("--balance-similar-node-groups",), {"balanceSimilarNodeGroups": True}),
        (
            ("--ignore-taint=a.example/x", "--startup-taint=b"),
            {"startupTaint": ["a.example/x", "b"]},
        ),
        (
            ("--balancing-ignore-label=a", "--balancing-ignore-label=b"),
            {"balancingIgnoreLabel": ["a", "b"]},
        ),
        (("--scale-down-delay=5m",), {"scaleDownDelayAfterAdd": "5m"}),
        (("--max-grateful-termination-sec=30",), {"maxGracefulTerminationSec": 30}),
        (("--unregistered-node-removal-time=20m",), {"maxNodeProvisionTime": "20m"}),
        (("--leader-elect=T", "--v=4"), {}),
        (("--kube-client-qps=50",), {"kubeClientQps": 50}),
        (("--max-empty-bulk-delete=100",), {}),
    ],
)
def test_values_are_written_as_a_policy_writes_them(
    words: tuple[str, ...], options: dict[str, Any]
) -> None:
    assert translated(*words).options == options


@each_row(
    "word, chain",
    [
        ("--expander=least-waste", None),
        ("--expander=priority,most-pods", ["priority", "most-pods"]),
        ("--expander=price", ["price"]),
    ],
)
def test_a_chain_that_may_leave_equal_groups_says_how_to_draw(
    word: str, chain: list[str] | None
) -> None:
    draft = translated(word)
    assert draft.options.get("expander") == chain
    (row,) = [row for row in draft.rows if row.word == word]
    assert row.verdict is Verdict.KEPT
    assert f"here the first id is taken; {word.partition('=')[2]},random draws" in row.text


def test_the_default_expander_says_how_to_draw() -> None:
    (row,) = [row for row in translated().rows if row.word == "no --expander"]
    assert (row.verdict, "least-waste,random draws" in row.text) == (Verdict.TOLD, True)
    assert not verdicts(translated(version=(1, 29)), "no --expander")  # whose default is random


@each_row(
    "word, chain",
    [
        ("--expander=random", ["random"]),
        ("--expander=most-pods,random", ["most-pods", "random"]),
        ("--expander=random,least-waste", ["random"]),
        ("--expander=priority, random, most-pods", ["priority", "random"]),
    ],
)
def test_a_chain_with_random_draws_and_ends_there(word: str, chain: list[str]) -> None:
    draft = translated(word)
    assert draft.options == {"expander": chain}
    assert not [row for row in draft.rows if "first id" in row.text]


def test_expanders_after_random_are_left_out_with_a_row_each() -> None:
    draft = translated("--expander=random,least-waste,price")
    rows = [
        (row.word, row.verdict, row.text)
        for row in draft.rows
        if row.word.startswith("--expander: ")
    ]
    text = "nothing is left to choose after random"
    assert rows == [
        ("--expander: least-waste", Verdict.NO_EFFECT, text),
        ("--expander: price", Verdict.NO_EFFECT, text),
    ]


def test_IMP_7_max_empty_bulk_delete_counts_in_old_releases_without_the_newer_flag() -> None:
    old = ("--max-empty-bulk-delete=100",)
    assert translated(*old, version=(1, 24)).options["maxScaleDownParallelism"] == 100
    both = translated(*old, "--max-scale-down-parallelism=20", version=(1, 24))
    assert both.options["maxScaleDownParallelism"] == 20


def test_the_last_of_two_scalars_counts_and_the_first_is_told() -> None:
    draft = translated("--expander=priority", "--expander=most-pods")
    assert draft.options == {"expander": ["most-pods"]}
    assert verdicts(draft, "--expander=priority") == [Verdict.TOLD]


@each_row(
    "word, says",
    [
        ("--scan-interval=1s", "from 5s to 1h"),
        ("--scan-interval=2h", "from 5s to 1h"),
        ("--expander=cheapest", "is unknown; write random"),
        ("--expander=grpc", "grpc asks a server"),
        ("--balancing-ignore-label=a,b", "one name in Cluster Autoscaler"),
        ("--leader-elections=true", "is not a flag of any release; did you mean --leader-elect?"),
        ("--scale-down-unneeded-time", "has no value"),
        ("--scale-down-enabled=yes", "is not true or false"),
        ("--max-nodes-total=many", "deploy.yaml:3: --max-nodes-total"),
        (
            "--max-nodes-total=0x10",
            "'0x10' is not a whole number; write a whole number of 0 or more, in digits",
        ),
        (
            "--max-nodes-total=010",
            "'010' is not a whole number; write a whole number of 0 or more without the leading",
        ),
        (
            "--max-nodes-total=1_000",
            "'1_000' is not a whole number; write a whole number of 0 or more, in digits",
        ),
        (
            "--scale-down-utilization-threshold=.25",
            "'.25' is not a number; write a number from 0 to",
        ),
    ],
)
def test_flags_that_upstream_or_a_policy_refuses_are_mistakes(word: str, says: str) -> None:
    with pytest.raises(InputErrors) as refused:
        translated(word)
    assert says in str(refused.value)


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InputErrors) as refused:
        translated("--scan-interval=1s", "--nonsense=1", "--max-nodes-total=x")
    assert len(refused.value.problems) == 3


def test_unknown_flags_are_only_told_where_the_author_skips_them() -> None:
    assert verdicts(translated("--nonsense=1", skip_unknown=True), "--nonsense") == [
        Verdict.UNKNOWN
    ]


def test_a_drain_order_with_a_changed_grace_period_is_refused() -> None:
    with pytest.raises(InputErrors, match="drain-priority-config"):
        translated("--drain-priority-config=0:60", "--max-graceful-termination-sec=30")


def test_options_of_a_later_version_are_not_here_unless_they_have_the_default() -> None:
    assert verdicts(translated("--kube-client-qps=50"), "qps") == [Verdict.NOT_HERE]
    assert verdicts(translated("--kube-client-qps=5"), "qps") == [Verdict.NO_EFFECT]


def test_IMP_38_a_label_to_ignore_had_no_effect_in_new_releases() -> None:
    flag = "--balancing-ignore-label=a"
    assert verdicts(translated(flag, version=(1, 36)), flag) == [Verdict.KEPT]
    assert verdicts(translated(flag, version=(1, 37)), flag) == [Verdict.KEPT, Verdict.TOLD]


def test_log_flags_share_one_row() -> None:
    rows = [
        row
        for row in translated("--v=4", "--logtostderr", "--stderrthreshold=info").rows
        if "--v" in row.word
    ]
    assert [row.word for row in rows] == ["--v=4, --logtostderr, --stderrthreshold=info"]
