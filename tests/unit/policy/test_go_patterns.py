"""Go's regular expressions: matches, rejected patterns, and bounded matching time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.errors import BadInput
from chalicelib.policy.go_patterns import MOST_CHARACTERS, Pattern, pattern
from tests.cases import each_row

_ATOMS = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", "[a-c1]", r"\d", r"\w", r"\W", r"\.", "^", "$", r"\b", ""]
)
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(_PATTERNS, st.text("ab-1c", max_size=8))
def test_regex_matches_equal_pythons_for_common_syntax(text: str, name: str) -> None:
    assert pattern(text).found_in(name) == (re.search(text, name, re.ASCII) is not None)


@each_row(
    ("text", "found", "not_found"),
    [
        (r"\Aa\z", "a", "ab"),
        ("(?i)eks-A", "my-EKS-a", "my-gke-a"),
        ("a(?i)b", "aB", "Ab"),
        ("(?i:a)b", "Ab", "AB"),
        ("(?i)a(?-i)b", "Ab", "aB"),
        ("(?P<zone>a)b", "ab", "a"),
        ("(?<zone>a)b", "ab", "a"),
        ("(?U)a+", "a", "b"),
        ("[[:upper:][:digit:]]x", "4x", "ax"),
        ("[[:^alpha:]]", "a1", "ab"),
        ("[]a]b", "]b", "bb"),
        (r"[\]\-]", "a-b", "ab"),
        (r"[^\D]", "a1", "ab"),
        ("[a-]", "-", "b"),
        ("a{,2}", "a{,2}", "aa"),
        ("a{", "a{", "a"),
        (r"\Qa.b\E", "a.b", "axb"),
        (r"\x41\x{42}\103", "ABC", "abc"),
        ("", "anything", None),
        ("a|", "b", None),
        ("(?s)a.b", "a\nb", "ab"),
        ("a.b", "axb", "a\nb"),
        ("(?m)^b$", "a\nb", "ab"),
        ("ü", "Zürich", "Zurich"),
        (r"\pL-\p{Greek}", "é-λ", "1-l"),
        ("(?i)λ", "Λ", "l"),
        (r"\\C", r"a\C", "aC"),
        (r"\Q\C\E", r"\C", "C"),
    ],
)
def test_regex_supports_go_specific_syntax(text: str, found: str, not_found: str | None) -> None:
    assert pattern(text).found_in(found)
    assert not_found is None or not pattern(text).found_in(not_found)


@each_row(
    "text",
    [
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        r"(a)\1",
        "(?P=n)",
        "(?P>n)",
        "(?#c)",
        "(?>a)",
        "(?x)a",
        "a**",
        "a*+",
        "a{2}{3}",
        "*a",
        "+",
        "a|*",
        "(a",
        "a)",
        "[a",
        "[]",
        "[b-a]",
        r"[a-\d]",
        "[[:nope:]]",
        "a{1001}",
        "a{3,2}",
        r"\Z",
        r"\u0041",
        r"\q",
        "\\",
        r"\x4",
        r"\x{110000}",
        r"\8",
        r"\C",
        r"a\\\C",
        "(?",
        "(?P<>a)",
        "(?-)",
        "x" * 1001,
        "((a{100}){100}){100}",
        "(?:(?:(?:){1000}){1000}){1000}b",
        "(.{999}){1,2}",
        "a\ud800",
    ],
    ids=lambda text: text[:12],
)
def test_regex_rejects_what_go_rejects_or_does_not_support(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        pattern(text)
    assert refused.value.problem


@each_row(
    "text",
    [
        "^(a+)+$",
        "^(a|a)*$",
        "(a*)*b",
        "(?:a?){50}a{50}c",
    ],
)
def test_regex_with_exponential_backtracking_in_python_returns_at_once(text: str) -> None:
    assert not pattern(text).found_in("a" * 2000 + "!"), (
        "a backtracking engine would not come to an end"
    )


def test_refused_pattern_writes_nothing_and_its_problem_stays_short(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(BadInput) as refused:
        pattern("(" * 1000)
    assert len(refused.value.problem) <= 120
    with pytest.raises(BadInput, match="too large"):
        pattern(r"\pL{500}")
    assert capfd.readouterr() == ("", "")


def test_half_of_a_surrogate_pair_in_a_text_is_searched_over() -> None:
    assert pattern("b$").found_in("a\ud800b")


def test_pattern_that_is_too_long_is_refused_without_a_place() -> None:
    """The caller knows the place."""
    with pytest.raises(BadInput) as refused:
        Pattern("a" * (MOST_CHARACTERS + 1))
    assert (refused.value.place, refused.value.remedy) == ("", f"at most {MOST_CHARACTERS}")
    assert Pattern("a" * MOST_CHARACTERS).size > 0
