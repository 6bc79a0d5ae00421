"""Every scanner of text that a user or a tenant writes ends, in time proportional to the text.

Time is counted in lines of Python that run, and not by a clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.cli.migrate.command_line import (
    Word,
    read_command_line,
    remedy_for,
    template_problems,
)
from chalicelib.cli.migrate.public_values import public_config
from chalicelib.cli.migrate.read_autoscaler import read_autoscaler
from chalicelib.cli.migrate.scripts import (
    Environment,
    invocations_of_script,
    invocations_of_words,
    read_script,
    split_script,
)
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.quantity import parse_duration, parse_quantity
from chalicelib.policy.diagnostics import Diagnostics, Scalar
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.settings.names_and_times import CRON
from chalicelib.providers.cherryservers import gcfg, pool_definition
from chalicelib.providers.clusterapi.node_template import parse_taint
from chalicelib.providers.clusterapi.settings import parse_labels, parse_spec
from tests.amounts import examples
from tests.cases import each_row

# no blanks of a shell
_FOREIGN = ("\x0b", "\x0c", "\x1c", "\x85", "\u00a0", "\u2028", "\u2029", "\u3000")
BLANKS = (" ", "\t", "\n", "\r", "\r\n", *_FOREIGN, "\ufeff")
_PIECES = (
    *BLANKS,
    *"\\\"'`$#%@!|&;<>(){}[]=:,./*?-+~^",
    *(
        "a",
        "A=b",
        "env ",
        "export ",
        "$A",
        "${A}",
        "${A:-b}",
        "$(",
        "2>&1",
        "{{",
        "}}",
        "{{.A}}",
        "/*",
        "*/",
        "\0",
    ),
    *(
        "cluster-autoscaler ",
        "--nodes=1:2:a ",
        "sh -c ",
        "docker run ",
        "go run ",
        "- --v=1",
        "# - --v=1\n",
        "[Global]\n",
    ),
    *(
        "[Global]\n",
        "key = value\n",
        "\\\n",
        "\\x41",
        "0 0 * * *",
        "1Gi",
        "10m",
        "NoSchedule",
        "é",
        "²",
    ),
)
_TEXTS = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)


def _words(text: str) -> list[Word]:
    return [Word("a:1", word) for word in text.split(" ")]


def _labels(text: str) -> None:
    section = vendor_section(PROVIDERS["clusterapi"])
    reader = next(field.kind for field in section.fields if field.key == "labels")
    reader.read(Scalar(text, plain=False, line=1, column=1), (), Diagnostics("a"))


_SCANNERS: dict[str, Callable[[str], Any]] = {
    "shell": lambda text: split_script(text, "a", 1, {"A": "b c"}),
    "programs": lambda text: invocations_of_script(text, "a", 1, {"A": "b c"}),
    "words": lambda text: invocations_of_words(_words(text), "a", {}),
    "pflag": lambda text: read_command_line(_words(text)),
    "script": lambda text: read_script("a", text, {"A": "b c"}, ""),
    "environment": lambda text: Environment({"A": "b"}).expanded(text, "a"),
    "import": lambda text: read_autoscaler(
        {"a": text}, workload="", container="", environment={}, image_version=""
    ),
    "placeholder": remedy_for,
    "helm": lambda text: template_problems("a", text),
    "public config": public_config,
    "gcfg": lambda text: gcfg.parse_gcfg(text, "a"),
    "readable gcfg": lambda text: gcfg.readable_sections(f"[Global]\n{text}"),
    "gcfg value": lambda text: gcfg.parse_gcfg(f"[Global]\na = {text}", "a"),
    "go template": lambda text: pool_definition.parse_template(text.encode(), ("A",), "a"),
    "cron": lambda text: CRON.read(
        Scalar(text, plain=False, line=1, column=1), (), Diagnostics("a")
    ),
    "quantity": parse_quantity,
    "duration": parse_duration,
    "spec": lambda text: parse_spec(text, "a"),
    "labels": lambda text: parse_labels(text, "a"),
    "policy labels": _labels,
    "taint": parse_taint,
}


class _DidNotEnd(Exception):
    pass


def steps_of(scanner: Callable[[str], Any], text: str, most: int) -> int:
    """Return the lines of chalicelib that the scanner of a text ran, and raise beyond
    `most`. A refused text counts."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if "chalicelib" not in frame.f_code.co_filename:
            return None
        if event == "line":
            count += 1
            if count > most:
                raise _DidNotEnd
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        scanner(text)
    except BadInput:
        pass
    finally:
        sys.settrace(before)
    return count


@pytest.mark.more
@settings(max_examples=examples(100, 400), deadline=None, derandomize=True, database=None)
@given(st.sampled_from(sorted(_SCANNERS)), _TEXTS)
def test_every_scanner_ends_on_any_text(scanner: str, text: str) -> None:
    steps_of(_SCANNERS[scanner], text, 20_000 + 2_000 * len(text))


def test_no_scanner_stays_at_a_blank_between_words() -> None:
    passed = 0
    for blank in BLANKS:
        for scanner in _SCANNERS.values():
            steps_of(scanner, f"cluster-autoscaler{blank}--v=1", 50_000)
            passed += 1
    assert passed == len(BLANKS) * len(_SCANNERS)


@each_row("blank", [" ", "\t", "\r", *_FOREIGN])
def test_every_blank_separates_the_words_of_a_command(blank: str) -> None:
    text = f"cluster-autoscaler{blank}--v=1{blank}{blank}--nodes=1:2:a"
    steps_of(_SCANNERS["shell"], text, 50_000)
    (command,) = split_script(text, "a", 1, {})
    assert [word.text for word in command.words] == ["cluster-autoscaler", "--v=1", "--nodes=1:2:a"]
    assert [remark.word for remark in command.remarks] == (
        [f"U+{ord(blank):04X}"] if blank in _FOREIGN else []
    )


@each_row(
    "piece",
    [
        "env A=b ",
        "A=b;",
        "A=b cluster-autoscaler;",
        "docker run -e A=b ",
        "sh -c x;",
        "$A ",
        "\\ ",
        "'a' ",
        "${A ",
        "# - --v=1\n",
        "- {{\n",
        "[Global]\na = b\n",
        "{{.A}}",
    ],
)
def test_twice_the_text_takes_about_twice_the_steps(piece: str) -> None:
    for name, scanner in _SCANNERS.items():
        small, large = (steps_of(scanner, piece * count, 10_000_000) for count in (200, 400))
        assert large <= 2.5 * small + 200, name


class _CountedWords(tuple[Word, ...]):  # noqa: SLOT001
    """Words that count how many of them were read or copied."""

    read = 0

    def __iter__(self) -> Any:
        for word in super().__iter__():
            _CountedWords.read += 1
            yield word

    def __getitem__(self, at: Any, /) -> Any:
        found = super().__getitem__(at)
        _CountedWords.read += len(found) if isinstance(at, slice) else 1
        return found


def test_words_before_the_program_are_not_copied_again_and_again() -> None:
    counts = []
    for size in (1_000, 2_000):
        _CountedWords.read = 0
        (found,) = invocations_of_words(
            _CountedWords(_words("env " * size + "cluster-autoscaler --v=1")), "a", {}
        )
        assert [word.text for word in found.words] == ["--v=1"]
        counts.append(_CountedWords.read)
    assert 1_000 <= counts[0] < counts[1] <= 2.1 * counts[0]


def test_variables_that_hold_long_values_do_not_multiply_a_script() -> None:
    text = f"A={'x' * 10_000}\ncluster-autoscaler {'--f=$A ' * 2_000}\n"
    with pytest.raises(InputErrors) as raised:
        read_script("a", text, {}, "")
    # the values that were replaced have 1,000,000 characters
    assert 1_900 < len(raised.value.problems) < 2_000


def test_variables_that_hold_long_values_do_not_multiply_a_container() -> None:
    environment = Environment({"A": "x" * 10_000})
    environment.add_values()
    texts = [environment.expanded("--f=$(A)", "a") for _ in range(2_000)]
    assert sum(map(len, texts)) < 1_100_000
    assert texts[0] != texts[-1] == "--f=$(A)"
