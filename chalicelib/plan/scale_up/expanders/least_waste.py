"""least-waste: keeps the options with the smallest (C-c)/C + (M-m)/M over the new nodes' whole capacity; only exact
equality is a tie."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.scale_up.expanders.context import ExpanderContext, Kept
from chalicelib.plan.scale_up.option import Option


def waste(option: Option) -> float:
    """Return the unused share of cpu plus the unused share of memory, between 0 (nothing unused) and 2."""
    total = 0.0
    for name in (CPU, MEMORY):
        capacity = (option.template.capacity or option.template.allocatable).get(name, 0) * option.nodes
        if capacity > 0:
            total += (capacity - option.requested.get(name, 0)) / capacity
    return total


def keep(options: Sequence[Option], _: ExpanderContext) -> Kept:
    """Return the options with the least waste."""
    wasted = [waste(option) for option in options]
    least = min(wasted)
    return [option for option, share in zip(options, wasted, strict=True) if share == least], ()
