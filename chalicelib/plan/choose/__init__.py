"""Which option to take (scale-up.md §8): a chain of expanders, each of which keeps the best of what it is given.

The chain stops as soon as one option is left. What remains equal goes to the lowest group id, so that the same input
gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.plan.choose import least_waste
from chalicelib.plan.option import Option

Expander = Callable[[Sequence[Option]], list[Option]]

EXPANDERS: dict[str, Expander] = {
    "least-waste": least_waste.keep,
}


def choose(options: Sequence[Option], chain: Sequence[str]) -> Option | None:
    """The option to take, None if there is none."""
    left = list(options)
    for name in chain:
        if len(left) <= 1:
            break
        left = EXPANDERS[name](left)
    return min(left, key=lambda option: option.group) if left else None
