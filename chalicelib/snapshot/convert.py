"""Selectors and node terms from their wire form to the model's, for every kind of object that has one."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.selector import NodeTerm, Requirement, Selector
from chalicelib.snapshot import wire


def selector(raw: wire.LabelSelector | None) -> Selector | None:
    """A LabelSelector as data; None stays None, which matches nothing where Kubernetes says so."""
    if raw is None:
        return None
    equal = [Requirement(key, "In", (value,)) for key, value in sorted((raw.match_labels or {}).items())]
    return Selector(tuple(equal) + expressions(raw.match_expressions))


def expressions(raw: Iterable[wire.Expression] | None) -> tuple[Requirement, ...]:
    """matchExpressions or matchFields."""
    return tuple(Requirement(e.key, e.operator, tuple(e.values or ())) for e in raw or ())


def node_term(raw: wire.SelectorTerm) -> NodeTerm:
    """One nodeSelectorTerm."""
    return NodeTerm(expressions(raw.match_expressions), expressions(raw.match_fields))


def node_terms(raw: wire.NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """A NodeSelector; None: nothing is required, (): nothing matches."""
    return None if raw is None else tuple(map(node_term, raw.node_selector_terms or ()))
