"""Scripts are split as a shell splits them, and nothing is run."""

from __future__ import annotations

import pytest

from chalicelib.cli.migrate.autoscaler_input import Remark
from chalicelib.cli.migrate.report import Verdict
from chalicelib.cli.migrate.scripts import (
    BLANKS,
    invocations_of_script,
    is_autoscaler,
    split_script,
)
from chalicelib.model.errors import BadInput
from tests.cases import each_row


def words(text: str, **known: str) -> list[list[str]]:
    return [
        [word.text for word in command.words] for command in split_script(text, "run.sh", 1, known)
    ]


@each_row(
    "text, found",
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a b'c'\"d\"", [["a", "bcd"]]),
        ("a ''", [["a", ""]]),
        ("a \\\n b\r\nc", [["a", "b"], ["c"]]),
        ("a # b\nc#d", [["a"], ["c#d"]]),
        ("a | b; c && d || e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a > x 2>&1 b", [["a", "b"]]),
        ("a 1>>/var/log/x 2>&1", [["a"]]),
        ("a &>x b", [["a", "b"]]),
        ("A=1 B='2 3' a $A $B \"$B\"", [["a", "1", "2", "3", "2 3"]]),
        ("export A=1\na ${A} ${B:-2} ${C}", [["export"], ["a", "1", "2", "${C}"]]),
        ("a '$K' \\$K $K \"${K}s\" $", [["a", "$K", "$K", "v", "vs", "$"]]),
        ('a "b\\"c\\d" $(date) x', [["a", 'b"c\\d', "$(date)", "x"]]),
        ("a 'never closed", [["a", "never closed"]]),
        ("a ${never closed", [["a", "${never closed"]]),
    ],
)
def test_a_script_is_split_as_a_shell_does(text: str, found: list[list[str]]) -> None:
    assert words(text, K="v") == found


def test_each_word_has_the_line_that_it_begins_in() -> None:
    (command,) = split_script("a \\\n  'b\nc' \\\n d", "run.sh", 5, {})
    assert [word.place for word in command.words] == ["run.sh:5", "run.sh:6", "run.sh:8"]


def test_a_backslash_before_blanks_continues_the_command_with_a_remark() -> None:
    (command,) = split_script("a b \\   \n  c", "run.sh", 1, {})
    assert [word.text for word in command.words] == ["a", "b", "c"]
    assert command.remarks == (Remark("run.sh:1", "\\", Verdict.TOLD, BLANKS),)


def test_values_of_secret_variables_are_not_repeated() -> None:
    (command,) = split_script("API_SECRET=hidden a $API_SECRET", "run.sh", 1, {})
    assert [word.text for word in command.words] == ["a", "$API_SECRET"]


@each_row(
    "text, is_one",
    [
        ("cluster-autoscaler", True),
        ("./bin/autoscaler", True),
        ("registry.example:5000/x/cluster-autoscaler:v1.2", True),
        ("registry.example/cluster-autoscaler-arm64@sha256:00", True),
        ("registry.example/horizontal-pod-autoscaler:v1", False),
        ("cluster-proportional-autoscaler-amd64", False),
        ("autoscaler-proxy", False),
        ("", False),
    ],
)
def test_programs_and_images_are_recognised_by_the_end_of_their_names(
    text: str, is_one: bool
) -> None:
    assert is_autoscaler(text) is is_one


@each_row(
    "text, flags",
    [
        ("cluster-autoscaler --v=1", ["--v=1"]),
        ("sudo -E nohup cluster-autoscaler --v=1", ["--v=1"]),
        ("tini -s -- cluster-autoscaler --v=1", ["--v=1"]),
        ("sh -c 'bash -ec \"cluster-autoscaler --v=1 | tee x\"'", ["--v=1"]),
        ("$ cluster-autoscaler --v=1", ["--v=1"]),
        ("--v=1 --nodes=1:2:a", ["--v=1", "--nodes=1:2:a"]),
    ],
)
def test_the_autoscaler_is_found_behind_other_programs(text: str, flags: list[str]) -> None:
    (found,) = invocations_of_script(text, "run.sh", 1, {})
    assert [word.text for word in found.words] == flags


@each_row(
    "text",
    [
        "kubectl logs deploy/cluster-autoscaler",
        "helm install cluster-autoscaler autoscaler/cluster-autoscaler",
        "docker run nginx",
        "docker run",
        "go run",
        "sh -c",
        "echo cluster-autoscaler",
        "",
    ],
)
def test_a_command_that_only_names_the_autoscaler_does_not_run_it(text: str) -> None:
    assert [each for each in invocations_of_script(text, "run.sh", 1, {}) if each.words] == []


@each_row(
    "text",
    [
        "podman run -e A=1 --env=B=2 --name x quay.example/autoscaler:1 --v=1",
        "docker run -it --rm image /cluster-autoscaler --v=1",
    ],
)
def test_a_container_runner_is_refused_because_its_options_are_not_read(text: str) -> None:
    with pytest.raises(BadInput, match="give the autoscaler's own words with --command"):
        invocations_of_script(text, "run.sh", 1, {})
