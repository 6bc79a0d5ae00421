"""Reading any text as a policy ends in a policy or in InputErrors, and in no other error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chalicelib.cli.option_overrides import with_options
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.load import digest, load
from chalicelib.policy.settings.cluster_policy import Policy
from tests.amounts import examples
from tests.unit.policy.policy_documents import ARCHITECTURE, GOOD

yamlish = st.text(
    alphabet="abc:-?&*!|>'\"[]{},#%@`~ \n\t0123456789\\<=\u2028é\ud800\x00", max_size=200
)
snippets = st.sampled_from(
    [
        "*a",
        "&a ",
        "<<: ",
        "!!int ",
        "---\n",
        "...\n",
        "[",
        "]",
        "{",
        "}",
        ": ",
        "- ",
        "\t",
        "|\n",
        "~",
        "null",
        "on",
        "012",
        "1e999h",
        "9" * 400,
        "spec:",
        "  options: {",
        "expander: [random, random]",
        "nodeGroups:\n",
        "12:30",
        "\u202e",
        "\ud800",
        "\x00",
        "%YAML 9\n",
    ]
)


def outcome(text: str) -> tuple[str, ...]:
    """Every line that a user would see."""
    try:
        return load(text, place="p.yaml")[1]
    except InputErrors as refused:
        return tuple(str(problem) for problem in refused.problems)


def check(text: str) -> None:
    assert all(line.startswith("p.yaml") and len(line.splitlines()) == 1 for line in outcome(text))
    assert len(digest(text)) == 64


@pytest.mark.more
@settings(max_examples=examples(100, 300), deadline=None)
@given(st.one_of(st.text(max_size=200), yamlish))
def test_any_text_is_a_policy_or_an_input_error(text: str) -> None:
    check(text)


@pytest.mark.more
@settings(max_examples=examples(100, 400), deadline=None)
@given(
    st.sampled_from([GOOD, ARCHITECTURE]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), snippets), min_size=1, max_size=4),
)
def test_policy_with_pieces_removed_and_inserted_is_read_or_rejected(
    text: str, edits: list[tuple[float, int, str]]
) -> None:
    for where, torn, put in edits:
        at = int(where * len(text))
        text = text[:at] + put + text[at + torn :]
    check(text)


@pytest.mark.more
@settings(max_examples=examples(100, 300), deadline=None)
@given(st.data())
def test_policy_with_one_value_replaced_is_read_or_rejected(data: st.DataObject) -> None:
    lines = ARCHITECTURE.splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    key, colon, _ = lines[number].partition(":")
    value = data.draw(
        st.one_of(
            yamlish,
            snippets,
            st.sampled_from(["[]", "{}", "[[]]", "{a: {b: c}}", "''", '"\\0"', "-1", "0"]),
        )
    )
    lines[number] = f"{key}{colon} {value}"
    check("\n".join(lines))


@pytest.mark.more
@settings(max_examples=examples(50, 200), deadline=None)
@given(st.text(max_size=40))
@example("=")
@example("startupTaint=[")
@example("coresTotal={min: {a: b}}")
@example("\ud800=1")
def test_any_provider_setting_is_read_or_rejected(setting: str) -> None:
    with contextlib.suppress(BadInput):
        assert isinstance(with_options(Policy(name="a"), [setting]), Policy)
