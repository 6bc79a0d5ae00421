"""Removing the names of secrets takes time in proportion to the text,
whoever has written the text.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.journal.redaction import MOST_NAMES, policy_without_secrets, without_secrets
from chalicelib.policy.load import load
from tests.unit.policy.policy_documents import GOOD

SHAPES: dict[str, Callable[[int], str]] = {
    "comments with names": lambda n: "".join(
        f"# aSecret: outscaler/name-{number}\n" for number in range(n)
    ),
    "slashes and dots after secret": lambda n: "# secret " + "/." * n,
    "secret repeated": lambda n: "secret " * n,
    "secret and white space": lambda n: ("secret:" + "\n" * 30) * n,
    "secret and dashes": lambda n: ("secret: - ' ' ") * n,
    "words of marks": lambda n: ("a" + "-" * 599 + " ") * (n // 20),
    "one word of marks": lambda n: "secret a/" + "-" * n * 10 + "." * n * 10,
    "parts of ARNs": lambda n: "arn:aws:secretsmanager::" * n,
    "dashes in an ARN": lambda n: "arn:" + "a-" * n * 5,
    "dots after parameter": lambda n: "parameter /" + "./" * n * 5,
    "prefixes of parameters": lambda n: "ssm:/" * n,
}


def _cost(work: Callable[[str], Any], text: str) -> float:
    """Processor time of the fastest of three runs: other processes do not count."""
    taken = []
    for _ in range(3):
        begun = time.process_time()
        work(text)
        taken.append(time.process_time() - begun)
    return min(taken)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "work",
    [policy_without_secrets, lambda text: without_secrets({"a": [text]}, text)],
    ids=["policy", "answer"],
)
def test_redaction_time_is_proportional_to_the_text(shape: str, work: Callable[[str], Any]) -> None:
    small, large = SHAPES[shape](2_000), SHAPES[shape](32_000)
    assert len(large) > 15 * len(small)
    # Sixteen times the text: sixteen times the work, and 256 times if it were quadratic.
    assert _cost(work, large) < 64 * max(_cost(work, small), 1e-4)


def test_names_come_from_the_policy_and_not_from_its_comments() -> None:
    text = GOOD + "# aSecret: an-ordinary-word\n"
    policy = load(text, place="p")[0]
    shown = without_secrets("an-ordinary-word, and outscaler/prod-geneva/kubeconfig.", text, policy)
    assert shown == "an-ordinary-word, and ***."


def test_unreadable_policy_has_a_bounded_number_of_names_and_its_own_text_shows_none() -> None:
    text = "".join(f"aSecret: name-number-{number}\n" for number in range(MOST_NAMES * 3))
    assert without_secrets("name-number-0, name-number-1.", text) == "***, ***."
    assert "name-number" not in policy_without_secrets(text)


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("team/key", "team/key", "***"),
        ("team/key", "(team/key)", "(***)"),
        ("team/key", "see team/key.", "see ***."),
        ("team/key", "team/key/", "***/"),
        ("team/key", "team/key-2", "team/key-2"),
        ("team/key", "my/team/key", "my/team/key"),
        ("team/key-", "team/key-", "***"),
        ("team/key-", "team/key", "team/key"),
        ("ssm:/team/key", "parameter /team/key is binary", "parameter *** is binary"),
        ("ssm:/team/key", "at ssm:/team/key", "at ***"),
        ("long-name", "long-name: absent", "***: absent"),
        ("word", "word: absent", "word: absent"),
    ],
)
def test_known_name_is_hidden_as_a_whole_word(name: str, text: str, shown: str) -> None:
    assert without_secrets(text, f"kubeconfigSecret: {name}\n") == shown
