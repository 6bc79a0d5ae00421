"""Label selectors, node selector terms and taints, as the Kubernetes API defines them.

The planner has its own implementation. This second one is intentional, because this scheduler
checks the planner independently. A selector is a tuple of expressions that must all match; `()`
matches everything, `None` nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_NUMBER = re.compile("[-+]?[0-9]{1,300}")
Json = Mapping[str, Any]
Labels = Mapping[str, str]


class Expression(msgspec.Struct, frozen=True):
    """One requirement on a label (or, in a node term, on a field)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Labels) -> bool:
        """Return whether labels match. NotIn and DoesNotExist match if the key is missing; Gt
        and Lt compare integers."""
        present = self.key in labels
        value = labels.get(self.key, "")
        match self.operator:
            case "In":
                return present and value in self.values
            case "NotIn":
                return not present or value not in self.values
            case "Exists":
                return present
            case "DoesNotExist":
                return not present
            case "Gt" | "Lt":
                return present and _compares(self.operator, value, self.values)
        return False


def _compares(operator: str, value: str, values: Sequence[str]) -> bool:
    texts = (value, *values)
    if len(texts) != 2 or not all(map(_NUMBER.fullmatch, texts)):
        return False
    left, right = map(int, texts)
    if not all(-(1 << 63) <= number < 1 << 63 for number in (left, right)):
        return False
    return left > right if operator == "Gt" else left < right


Selector = tuple[Expression, ...] | None


def read_expressions(raw: Sequence[Json] | None) -> tuple[Expression, ...]:
    """Read matchExpressions (or matchFields) of any selector."""
    return tuple(
        Expression(e["key"], e["operator"], tuple(e.get("values") or ())) for e in raw or ()
    )


def pairs(labels: Labels | None) -> tuple[Expression, ...]:
    return tuple(Expression(key, "In", (value,)) for key, value in (labels or {}).items())


def read_selector(raw: Json | None) -> Selector:
    """Read a metav1.LabelSelector: an absent one matches nothing, `{}` matches everything."""
    if raw is None:
        return None
    return pairs(raw.get("matchLabels")) + read_expressions(raw.get("matchExpressions"))


def selects(selector: Selector, labels: Labels) -> bool:
    """Return whether every expression matches; None never matches."""
    return selector is not None and all(expression.holds(labels) for expression in selector)


class NodeTerm(msgspec.Struct, frozen=True):
    """One alternative of a node selector: all its expressions must match; an
    empty one matches no node."""

    labels: tuple[Expression, ...]
    fields: tuple[Expression, ...]

    def holds(self, labels: Labels, node_name: str) -> bool:
        if not self.labels and not self.fields:
            return False
        fields = {"metadata.name": node_name}
        return all(e.holds(labels) for e in self.labels) and all(
            e.holds(fields) for e in self.fields
        )


def read_node_terms(raw: Json | None) -> tuple[NodeTerm, ...] | None:
    """Read a core/v1 NodeSelector. None: no requirement. An empty list: no node matches."""
    if raw is None:
        return None
    return tuple(read_node_term(term) for term in raw.get("nodeSelectorTerms") or ())


def read_node_term(raw: Json) -> NodeTerm:
    """Read a core/v1 NodeSelectorTerm."""
    return NodeTerm(
        read_expressions(raw.get("matchExpressions")), read_expressions(raw.get("matchFields"))
    )


def any_term(terms: tuple[NodeTerm, ...] | None, labels: Labels, node_name: str) -> bool:
    """Return whether one term matches. Without requirement every node matches."""
    return terms is None or any(term.holds(labels, node_name) for term in terms)


class SelectorTaint(msgspec.Struct, frozen=True):
    """A node's taint."""

    key: str
    value: str
    effect: str


class Toleration(msgspec.Struct, frozen=True):
    """A pod's toleration; the operator defaults to Equal."""

    key: str
    operator: str
    value: str
    effect: str

    def accepts(self, taint: SelectorTaint) -> bool:
        """Return whether it tolerates a taint. An empty effect or key matches all."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (
            self.operator in {"", "Equal"} and self.value == taint.value
        )


def read_tolerations(raw: Sequence[Json] | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            t.get("key") or "", t.get("operator") or "", t.get("value") or "", t.get("effect") or ""
        )
        for t in raw or ()
    )


def untolerated(taints: Sequence[SelectorTaint], tolerations: Sequence[Toleration]) -> bool:
    return any(
        taint.effect in {"NoSchedule", "NoExecute"}
        and not any(t.accepts(taint) for t in tolerations)
        for taint in taints
    )
