"""The cost of foreign YAML is bounded by its length: aliases, depth and unusual scalars
are limited before parsing.
"""

from __future__ import annotations

import time

import pytest
import yaml

from chalicelib.cluster.kubeconfig import from_kubeconfig
from chalicelib.model.errors import BadInput
from chalicelib.net.safe_yaml import parsed
from chalicelib.policy.yaml_document import read
from tests.cases import each_row


def _laughs(levels: int, seed: str = "x") -> str:
    """A billion-laughs document: each level has nine aliases of the previous one."""
    lines = [f"l0: &l0 [{', '.join([seed] * 9)}]"]
    lines += [f"l{at}: &l{at} [{', '.join([f'*l{at - 1}'] * 9)}]" for at in range(1, levels)]
    return "\n".join(lines) + "\n"


@each_row("levels", [6, 8, 12])
def test_yaml_nested_aliases_are_refused_before_expansion(levels: int) -> None:
    started = time.process_time()
    with pytest.raises(yaml.YAMLError, match="once aliases are written out"):
        parsed(_laughs(levels))
    with pytest.raises(BadInput, match="aliases"):
        read(_laughs(levels), place="policy")
    assert time.process_time() - started < 1.0


def test_yaml_long_text_repeated_by_aliases_is_refused() -> None:
    text = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1_000)}]\n"
    with pytest.raises(yaml.YAMLError, match="once aliases are written out"):
        parsed(text)
    with pytest.raises(BadInput, match="aliases"):
        read(text, place="policy")


def test_yaml_ordinary_aliases_are_read() -> None:
    text = "base: &base {a: 1}\nlist: [*base, *base]\n"
    assert parsed(text) == {"base": {"a": 1}, "list": [{"a": 1}, {"a": 1}]}


def test_yaml_alias_inside_its_own_anchor_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="inside its own anchor"):
        parsed("a: &a [*a]\n")


@each_row(
    "text",
    [
        "contexts: 2026-13-45\n",
        "a: " + "9" * 10_000 + "\n",
        "a: 0x" + "f" * 100_000 + "\n",
        "a: 2026-02-31T00:00:00Z\n",
        "a: 190:20:30\n",
        "? [a, b]\n: c\n",
        'a: "\\ud800"\n',
        "a: !!python/none x\n",
        _laughs(8) + "current-context: c\ncontexts: [{name: *l7}]\n",
        "{" * 200,
        "- " * 200 + "\n",
        "a: &a [*a]\n",
        "contexts: [{name: 2026-01-01}]\ncurrent-context: c\n",
        "a: !!int x\n",
        "a: !!timestamp x\n",
        "a: .inf\n",
    ],
)
def test_yaml_invalid_kubeconfig_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadInput) as raised:
        from_kubeconfig(text, place="kubeconfig")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 1_000
