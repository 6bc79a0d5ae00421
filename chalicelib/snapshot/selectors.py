"""Selectors and node terms from their wire form to the model's, for every kind of object that has one."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.errors import BadInput
from chalicelib.model.selector import NodeTerm, Requirement, Selector
from chalicelib.snapshot import api_types

MOST_REQUIREMENTS, MOST_VALUES = 200, 1_000


def selector(raw: api_types.LabelSelector | None) -> Selector | None:
    """A LabelSelector as data; None stays None, which matches nothing where Kubernetes says so."""
    if raw is None:
        return None
    equal = [Requirement(key, "In", (value,)) for key, value in sorted((raw.match_labels or {}).items())]
    return Selector(tuple(equal) + expressions(raw.match_expressions))


def bounded(raw: api_types.LabelSelector | None) -> Selector | None:
    """The same for objects other than pods; raises BadInput for one that is larger than any that is in use."""
    found = selector(raw)
    if found is not None and (
        len(found.requirements) > MOST_REQUIREMENTS
        or sum(len(each.values) for each in found.requirements) > MOST_VALUES
    ):
        raise BadInput("selector", f"has more than {MOST_REQUIREMENTS} requirements or {MOST_VALUES} values", "")
    return found


def expressions(raw: Iterable[api_types.Expression] | None) -> tuple[Requirement, ...]:
    """matchExpressions or matchFields."""
    return tuple(Requirement(e.key, e.operator, tuple(e.values or ())) for e in raw or ())


def node_term(raw: api_types.SelectorTerm) -> NodeTerm:
    """One nodeSelectorTerm."""
    return NodeTerm(expressions(raw.match_expressions), expressions(raw.match_fields))


def node_terms(raw: api_types.NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """A NodeSelector; None: nothing is required, (): nothing matches."""
    return None if raw is None else tuple(map(node_term, raw.node_selector_terms or ()))
