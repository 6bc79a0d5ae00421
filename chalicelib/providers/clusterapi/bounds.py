"""Reads a group's minimum and maximum size from its annotations and from the policy.

A resource without bounds is not a node group. One with wrong bounds is skipped with a warning and does not affect the
others; upstream then lists no group at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import GroupPolicy
from chalicelib.providers.clusterapi.annotations import CapiAnnotations

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_LONGEST, _SHOWN = 19, 40  # maximum digits that Go's parser accepts; maximum characters of a wrong text in an error


class CapiBounds(msgspec.Struct, frozen=True):
    """min <= size <= max, max at least 1."""

    min: int
    max: int


def read_bounds(
    annotations: Mapping[str, str], keys: CapiAnnotations, policy: GroupPolicy | None, place: str
) -> CapiBounds | None:
    """Return the bounds, None if the resource is not meant to be a group; raises BadInput for invalid bounds.

    A bound in the policy replaces the annotation, which is then not read. place: the resource.
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
    # int() also accepts spaces, underscores and digits of other scripts, which Go's parser refuses. The length is
    # limited so that a text of a million digits does not affect the other groups.
    if not _INTEGER.match(text) or len(text) > _LONGEST:
        raise BadInput(place, f"annotation {key} is {text[:_SHOWN]!r}", "write a whole number in digits")
    return int(text)
