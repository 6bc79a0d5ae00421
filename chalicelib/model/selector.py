"""Label selectors and node selector terms as data, with their matching rules.

Shared by the predicates, PodDisruptionBudgets, DaemonSets and discovery, so that `NotIn`
means the same everywhere: NotIn and DoesNotExist match when the key is missing; Gt and
Lt compare whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

LEAST_NUMBER, MOST_NUMBER = -(2**63), 2**63 - 1
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
# characters: a label has 63, and a value of a selector may have leading zeros
_LONGEST_NUMBER = 253


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """key operator values; operator one of In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether these labels satisfy it; an unknown operator matches nothing."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and _compare(self.operator, value, self.values)
            case _:
                return False


def _compare(operator: str, value: str, values: tuple[str, ...]) -> bool:
    have, want = whole_number(value), whole_number(values[0]) if len(values) == 1 else None
    if have is None or want is None:
        return False
    return have > want if operator == "Gt" else have < want


def whole_number(text: str) -> int | None:
    """Return a number as Go's ParseInt reads it, of 64 bits; None for any other text. Python's int
    also reads blanks, underscores and the digits of other scripts."""
    if _WHOLE_NUMBER.fullmatch(text) is None or len(text) > _LONGEST_NUMBER:
        return None
    number = int(text)
    return number if LEAST_NUMBER <= number <= MOST_NUMBER else None


class Selector(msgspec.Struct, frozen=True, gc=False):
    """A metav1.LabelSelector: all requirements must hold, so an empty one matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether all requirements match."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class NodeTerm(msgspec.Struct, frozen=True, gc=False):
    """One nodeSelectorTerm: all expressions (labels) and all fields (metadata.name). An
    empty one matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node with that name and those labels satisfies the term."""
        if not self.expressions and not self.fields:
            return False
        by_field = {"metadata.name": name}
        return all(r.matches(labels) for r in self.expressions) and all(
            r.key in by_field and r.matches(by_field) for r in self.fields
        )
