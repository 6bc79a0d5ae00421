"""Sets of values of one node label: what a requirement allows, and what two of them allow together.

They compare two sets of requirements, where a Requirement alone only judges labels that a node has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.selector import LEAST_NUMBER, MOST_NUMBER, Requirement, whole_number

ABSENT = frozenset({"NotIn", "DoesNotExist"})
"""Operators that a node without the label satisfies."""


class LabelValues(msgspec.Struct, frozen=True):
    """The values of a label that are allowed. complement: all but `values`. least, most: whole
    numbers between which the value must be; it need not be a number where neither is set."""

    values: frozenset[str] = frozenset()
    complement: bool = False
    least: int = LEAST_NUMBER
    most: int = MOST_NUMBER

    @property
    def operator(self) -> str:
        """The operator of a requirement that allows the same."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    def common(self, values: LabelValues) -> LabelValues:
        """Return what both allow."""
        least, most = max(self.least, values.least), min(self.most, values.most)
        if least > most:
            return _NOTHING
        if self.complement and values.complement:
            return LabelValues(self.values | values.values, complement=True, least=least, most=most)
        if self.complement:
            common = values.values - self.values
        else:
            common = (
                self.values - values.values if values.complement else self.values & values.values
            )
        if (least, most) == (LEAST_NUMBER, MOST_NUMBER):
            return LabelValues(common)
        numbers = ((value, whole_number(value)) for value in common)
        return LabelValues(
            frozenset(
                value for value, number in numbers if number is not None and least <= number <= most
            )
        )

    def agrees(self, values: LabelValues) -> bool:
        """Return whether a node can have a label, or lack it, as both want."""
        common = self.common(values)
        return (
            common.complement or bool(common.values) or {self.operator, values.operator} <= ABSENT
        )


LabelRequirements = Mapping[str, LabelValues]


_NOTHING, ANYTHING = LabelValues(), LabelValues(complement=True)
_PLAIN: Mapping[str, Callable[[frozenset[str]], LabelValues]] = {
    "In": LabelValues,
    "NotIn": lambda values: LabelValues(values, complement=True),
    "Exists": lambda _: ANYTHING,
    "DoesNotExist": lambda _: _NOTHING,
}
_BOUNDED: Mapping[str, Callable[[int], LabelValues]] = {
    "Gt": lambda bound: LabelValues(complement=True, least=bound + 1),
    "Gte": lambda bound: LabelValues(complement=True, least=bound),
    "Lt": lambda bound: LabelValues(complement=True, most=bound - 1),
    "Lte": lambda bound: LabelValues(complement=True, most=bound),
}


def allowed_values(requirement: Requirement) -> LabelValues:
    """Return the values that a requirement allows. Raises BadInput for an operator
    or a bound that is none."""
    operator = requirement.operator
    if operator in _PLAIN:
        return _PLAIN[operator](frozenset(requirement.values))
    if operator not in _BOUNDED:
        raise BadInput(
            requirement.key, f"the operator {operator[:40]!r} is not known", "update Outscaler"
        )
    bound = whole_number(requirement.values[0]) if len(requirement.values) == 1 else None
    if bound is None:
        raise BadInput(requirement.key, f"{operator} needs one whole number", "correct the object")
    return _BOUNDED[operator](bound)
