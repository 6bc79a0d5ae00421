"""Lower and upper bound of a group, from its annotations and from the policy (clusterapi.md §1.4).

A resource without bounds is not a node group; one with wrong bounds is skipped with a warning and costs nobody else
anything (defect D1: upstream lists no group at all then).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.clusterapi.annotations import CapiAnnotations

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_LONGEST, _SHOWN = 19, 40  # digits of what Go's parser takes; characters of a wrong text that are repeated


class CapiBounds(msgspec.Struct, frozen=True):
    """min <= size <= max, max at least 1."""

    min: int
    max: int


def read_bounds(
    annotations: Mapping[str, str], keys: CapiAnnotations, policy: GroupPolicy | None, place: str
) -> CapiBounds | None:
    """The bounds, None where the resource is not meant to be a group; raises BadInput for bounds that cannot be.

    A bound that the policy gives wins over the annotation, which is then not even read. place: the resource.
    """
    low = policy.min if policy and policy.min is not None else _annotation(annotations, keys.min_size, place)
    high = policy.max if policy and policy.max is not None else _annotation(annotations, keys.max_size, place)
    if not low and not high:
        return None
    low, high = low or 0, high or 0
    if low < 0:
        raise BadInput(place, f"the minimum {low} is negative", "write 0 or more")
    if high < low:
        raise BadInput(place, f"the maximum {high} is below the minimum {low}", f"set {keys.max_size} to {low} or more")
    return CapiBounds(low, high)


def _annotation(annotations: Mapping[str, str], key: str, place: str) -> int | None:
    text = annotations.get(key)
    if text is None:
        return None
    # int() would also take spaces, underscores and other scripts' digits; Go's parser, which users know, does not.
    # And a text of a million digits must not cost the other groups theirs.
    if not _INTEGER.match(text) or len(text) > _LONGEST:
        raise BadInput(place, f"annotation {key} is {text[:_SHOWN]!r}", "write a whole number in digits")
    return int(text)
