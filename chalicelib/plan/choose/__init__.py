"""Which option to take (scale-up.md §8): a chain of expanders, each of which keeps the best of what it is given.

A chain may name expanders that this version does not have, because documents and upstream's manifests do: they are
passed over (the policy's reader has told so), and if none is left, least-waste decides, which is upstream's default.
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
    for keep in [EXPANDERS[name] for name in chain if name in EXPANDERS] or [least_waste.keep]:
        if len(left) <= 1:
            break
        left = keep(left)
    return min(left, key=lambda option: option.group) if left else None
