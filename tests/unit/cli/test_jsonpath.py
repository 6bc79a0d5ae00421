"""`-o jsonpath=TEMPLATE` prints what kubectl prints for the same template."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from chalicelib.cli.jsonpath import _parsed, rendered
from chalicelib.cli.output import emit
from chalicelib.model.errors import BadInput
from tests.terminal import Terminal

GROUPS: Any = [
    {
        "name": "workers",
        "ready": 5,
        "aliases": ["a", "b"],
        "status": {"word": "steady"},
        "price": None,
    },
    {
        "name": "bürst",
        "ready": 0,
        "aliases": [],
        "labels": {"app.kubernetes.io/name": "x"},
        "healthy": True,
    },
]
NODES: Any = {"cluster": "shop", "nodes": [{"node": "w-1", "cpu": 12}, {"node": "w-2", "cpu": 90}]}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{[*].name}", "workers bürst"),
        ("{$[*].name}", "workers bürst"),
        ("{.items[*].name}", "workers bürst"),
        ("{[0].name}", "workers"),
        ("{[-1:].name}", "bürst"),
        ("{[*]['name','ready']}", "workers 5 bürst 0"),
        ("{[?(@.ready>0)].name}", "workers"),
        ('{[?(@.status.word=="steady")].name}', "workers"),
        ("{..word}", "steady"),
        ("{[0].aliases}", '["a","b"]'),
        ("{[0].status}", '{"word":"steady"}'),
        ("{[1].healthy}", "true"),
        ("{[1].labels.app\\.kubernetes\\.io/name}", "x"),
        ("{[1].labels['app.kubernetes.io/name']}", "x"),
        ("groups: {[*].name}!", "groups: workers bürst!"),
        ('{range [*]}{.name}{"\\t"}{.ready}{"\\n"}{end}', "workers\t5\nbürst\t0"),
        ("{range [*]}{@.name} of {$[0].name}; {end}", "workers of workers; bürst of workers; "),
        ("{range [*]}{range .aliases[*]}<{@}>{end}{end}", "<a><b>"),
    ],
)
def test_template_prints_the_values_of_its_paths(template: str, text: str) -> None:
    assert rendered(template, GROUPS) == f"{text}\n"


@pytest.mark.parametrize("template", ["{.missing}", "{[0].price}", "{[9].name}", ""])
def test_path_that_matches_nothing_prints_nothing(template: str) -> None:
    assert rendered(template, GROUPS) == ""


def test_paths_begin_at_the_answer_that_json_prints() -> None:
    assert rendered("{.cluster}: {.nodes[*].node}", NODES) == "shop: w-1 w-2\n"
    assert rendered("{.nodes[?(@.cpu>50)].node}", NODES) == "w-2\n"


def test_values_on_a_terminal_cannot_control_it(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    emit('jsonpath={.text}{"\\n"}', {"text": "one\n\x1b[31mtwo\u202e"}, list)
    assert out.getvalue() == "one\n\N{REPLACEMENT CHARACTER}[31mtwo\N{REPLACEMENT CHARACTER}\n"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{[*}", "'[*' is not a path"),
        ("{.a b}", "'.a b' is not a path"),
        ("{.name", "'{.name' is not complete"),
        ("}", "'}' is not complete"),
        ("{range [*]}{.name}", "a range has no {end}"),
        ("{end}", "{end} ends no range"),
        (f"{{{'.a' * 5000}}}", f"'{{{'.a' * 19}.'… has too many steps"),
        (
            "{range .a}" * 3000 + "{end}" * 3000,
            "'{range .a}{range .a}{range .a}{range .a}'… has too many steps",
        ),
    ],
)
def test_wrong_template_is_an_error_with_an_example(template: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        rendered(template, GROUPS)
    assert str(caught.value).startswith(f"-o jsonpath: {problem}")
    assert "write a template such as '{[*].name}'" in str(caught.value)


def test_jsonpath_of_a_range_is_parsed_once_for_all_elements() -> None:
    template = '{range .nodes[*]}{.name}{"\\t"}{.pods[*].cpu}{"\\n"}{end}'
    nodes = [
        {"name": f"n-{number}", "pods": [{"cpu": "1"}, {"cpu": "2"}]} for number in range(2000)
    ]
    before = _parsed.cache_info().misses
    lines = rendered(template, {"nodes": nodes}).splitlines()
    assert lines[-1] == "n-1999\t1 2"
    assert len(lines) == 2000
    assert _parsed.cache_info().misses - before <= 3
