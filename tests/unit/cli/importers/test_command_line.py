"""Flags are read as pflag reads them."""

from __future__ import annotations

from chalicelib.cli.migrate.command_line import MOST_WORDS, CommandLine, Word, read_command_line
from chalicelib.cli.migrate.flag_table import BOOLEANS, flag_name
from tests.cases import each_row


def read(*texts: str) -> CommandLine:
    return read_command_line(
        [Word(f"deploy.yaml:{line}", text) for line, text in enumerate(texts, 1)]
    )


@each_row(
    "texts, found",
    [
        (("--f=v",), [("f", "v")]),
        (("--nodes", "1:2:a"), [("nodes", "1:2:a")]),
        (("--nodes", "--v=4"), [("nodes", "--v=4")]),  # a value may look like a flag
        (("--nodes=", "--v="), [("nodes", ""), ("v", "")]),
        (("--cluster-name=a=b",), [("cluster-name", "a=b")]),
        (("--scale_down_enabled=f",), [("scale-down-enabled", "f")]),
        (("--scale-down-enabled", "--v=4"), [("scale-down-enabled", None), ("v", "4")]),
        (("-v", "4", "-v=5", "-v6", "--v", "7"), [("v", "4"), ("v", "5"), ("v", "6"), ("v", "7")]),
        (("--nonsense", "value"), [("nonsense", "value")]),
        (("--nonsense", "--v=1"), [("nonsense", None), ("v", "1")]),
        (
            ("--clusterapi-cloud-config-authoritative", "x"),
            [("clusterapi-cloud-config-authoritative", None)],
        ),
        (("--v=1", "--", "--v=2"), [("v", "1")]),
        (("-", "", "word"), []),
    ],
)
def test_flags_and_values_are_separated_as_upstream(
    texts: tuple[str, ...], found: list[tuple[str, str | None]]
) -> None:
    line = read(*texts)
    assert [(each.flag, each.value) for each in line.arguments] == found
    assert line.problems == ()


@each_row(
    "text, says",
    [
        ("--nodes", "'--nodes' needs a value and is the last word"),
        ("-v", "'-v' needs a value and is the last word"),
        ("-nodes=1:2:a", "write --nodes=1:2:a"),
        ("-vmodule=a", "write --vmodule=a"),
        ("-x", "write long flags with --"),
        ("--=x", "is not a flag"),
        ("---v", "is not a flag"),
    ],
)
def test_a_command_line_with_which_upstream_does_not_start_is_refused(text: str, says: str) -> None:
    (problem,) = read(text).problems
    assert says in str(problem)
    assert problem.place == "deploy.yaml:1"


def test_all_mistakes_of_a_command_line_are_found() -> None:
    assert len(read("-a", "-b", "--v=1", "--nodes").problems) == 3


@each_row(
    "value", ["1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"]
)
def test_a_truth_value_after_a_switch_is_a_word_of_its_own(value: str) -> None:
    line = read("--scale-down-enabled", value, value)
    assert [each.value for each in line.arguments] == [None]
    assert f"write --scale-down-enabled={value}" in line.arguments[0].read_as
    assert [each.verdict for each in line.remarks] == ["told", "no effect"]


def test_each_word_has_its_place_and_its_text() -> None:
    (first, second) = read("--nodes", "1:2:a", "--v=4").arguments
    assert (first.place, first.word) == ("deploy.yaml:1", "--nodes 1:2:a")
    assert (second.place, second.word) == ("deploy.yaml:3", "--v=4")


def test_a_command_line_of_too_many_words_is_refused() -> None:
    line = read(*["--v=4"] * (MOST_WORDS + 1))
    assert line.arguments == ()
    assert "more than" in line.problems[0].problem


def test_switches_are_the_flags_that_take_no_word() -> None:
    assert {
        "skip-nodes-with-system-pods",
        "leader-elect",
        "logtostderr",
        "parallel-drain",
    } <= BOOLEANS
    assert BOOLEANS.isdisjoint(
        {"nodes", "v", "expander", "configmap", "ignore-taint", "feature-gates"}
    )
    assert flag_name("scale_down_delay") == "scale-down-delay"
