"""Reads the priority expander's ConfigMap: a YAML mapping of whole numbers to lists of patterns
(docs/reference/expanders.md "priority").

It is read here because the planner does not depend on YAML; a mistake becomes a sentence in the
plan's notes, for which upstream posts an event. One mistake invalidates the whole ConfigMap, and
the expander then filters nothing. For duplicate keys the last one applies, as in upstream's reader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Map

from chalicelib.model.errors import BadInput
from chalicelib.model.snapshot import PriorityConfig
from chalicelib.policy import yaml_document
from chalicelib.policy.diagnostics import Mapping, Node, Scalar, Sequence, quote

CONFIG_MAP, KEY = "cluster-autoscaler-priority-expander", "priorities"
MOST_RULES, MOST_INSTRUCTIONS = 1000, 250_000
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})\Z")

Rules = tuple[tuple[int, tuple[str, ...]], ...]


def read(data: Map[str, str] | None) -> PriorityConfig:
    """Read the ConfigMap's data as the snapshot has it. data None or {}: a ConfigMap without data.

    A missing ConfigMap is Snapshot.priorities None, which the caller sets. Never raises.
    """
    text = (data or {}).get(KEY)
    if text is None:
        return PriorityConfig(problem=f"the ConfigMap has no key {KEY}")
    try:
        return PriorityConfig(text=text, rules=parse(text))
    except BadInput as error:
        return PriorityConfig(text=text, problem=f"{error.place}: {error.problem}")


def parse(text: str) -> Rules:
    """Return the rules, highest priority first; raises BadInput for the first mistake,
    with its line as the place."""
    if text == "":
        raise BadInput(KEY, "is empty")
    if all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        return ()
    root = yaml_document.read(text, place=KEY)
    if isinstance(root, Scalar) and root.is_null:
        return ()
    if not isinstance(root, Mapping):
        raise _bad(root, "is not a mapping of priorities to lists of patterns")
    rules: dict[int, tuple[str, ...]] = {}
    instructions = 0
    for key, value in root.entries:
        patterns: list[str] = []
        for item in _items(value):
            text, size = _pattern(item)
            patterns.append(text)
            instructions += size
            if instructions > MOST_INSTRUCTIONS:
                raise BadInput(KEY, "its patterns repeat too much taken together")
        if not key.plain or not _WHOLE.match(key.text):
            raise _bad(key, f"the priority {quote(key.text)} is not a whole number")
        rules[int(key.text)] = tuple(patterns)
        if sum(map(len, rules.values())) > MOST_RULES:
            raise BadInput(KEY, f"has more than {MOST_RULES} patterns")
    return tuple(sorted(rules.items(), reverse=True))


def _items(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Scalar) and node.is_null:
        return ()
    if not isinstance(node, Sequence):
        raise _bad(node, "a priority's patterns are not a list")
    if len(node.items) > MOST_RULES:
        raise BadInput(KEY, f"has more than {MOST_RULES} patterns")
    return node.items


def _pattern(node: Node) -> tuple[str, int]:
    """Return a pattern's text and size."""
    # Imported here because its package loads all expanders; functions that only need this
    # ConfigMap's name start without them.
    from chalicelib.policy.go_patterns import pattern

    if not isinstance(node, Scalar) or node.is_null:
        raise _bad(node, "a pattern is not text")
    try:
        return node.text, pattern(node.text).size
    except BadInput as error:
        raise _bad(node, f"the pattern {quote(node.text)}: {error.problem}") from None


def _bad(node: Node, problem: str) -> BadInput:
    return BadInput(f"{KEY}:{node.line}", problem)
