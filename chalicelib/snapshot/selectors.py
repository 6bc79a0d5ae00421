"""Converts selectors and node terms from the API's types to the model's, for every kind of object that has them."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.errors import BadInput
from chalicelib.model.selector import NodeTerm, Requirement, Selector
from chalicelib.snapshot import api_types

MOST_REQUIREMENTS, MOST_VALUES = 200, 1_000


def selector(raw: api_types.LabelSelector | None) -> Selector | None:
    """Return a LabelSelector as data; None stays None, which matches nothing where Kubernetes defines it so."""
    if raw is None:
        return None
    equal = [Requirement(key, "In", (value,)) for key, value in sorted((raw.match_labels or {}).items())]
    return Selector(tuple(equal) + expressions(raw.match_expressions))


def bounded(raw: api_types.LabelSelector | None) -> Selector | None:
    """Return a selector of an object other than a pod; raises BadInput for one that is larger than any in real use."""
    found = selector(raw)
    if found is not None and (
        len(found.requirements) > MOST_REQUIREMENTS
        or sum(len(each.values) for each in found.requirements) > MOST_VALUES
    ):
        raise BadInput("selector", f"has more than {MOST_REQUIREMENTS} requirements or {MOST_VALUES} values", "")
    return found


def expressions(raw: Iterable[api_types.Expression] | None) -> tuple[Requirement, ...]:
    """Return matchExpressions or matchFields as requirements."""
    return tuple(Requirement(e.key, e.operator, tuple(e.values or ())) for e in raw or ())


def node_term(raw: api_types.SelectorTerm) -> NodeTerm:
    """Return one nodeSelectorTerm as data."""
    return NodeTerm(expressions(raw.match_expressions), expressions(raw.match_fields))


def node_terms(raw: api_types.NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """Return a NodeSelector as terms; None: nothing is required, (): nothing matches."""
    return None if raw is None else tuple(map(node_term, raw.node_selector_terms or ()))
