"""spec.maxDisruption: the removal limits that the circuit breaker (plan/scale_down/circuit_breaker.py) enforces."""

from __future__ import annotations

import re

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import ValueType, scalar, whole

_SPAN = "a share from 0 to 1, such as 0.25 or 25%"
_FORM = re.compile(r"((?:0|[1-9][0-9]{0,2})(?:\.[0-9]{1,12})?)( ?%)?")


def _share(text: str) -> float:
    """Parse 0.25 or 25%, which are the same value; raises BadInput."""
    found = _FORM.fullmatch(text)
    share = 2.0 if found is None else float(found[1]) / (100 if found[2] else 1)
    if share > 1:
        raise BadInput("", f"{quote(text)} is not a share", f"write {_SPAN}")
    return round(share, 12)


def _show(share: float) -> float | int | str:
    """Return a number that reads back; a number that Python would write with an exponent becomes text in full."""
    if share == int(share):
        return int(share)
    return share if "e" not in repr(share) else f"{share:.12f}".rstrip("0")


MAX_DISRUPTION = Section(
    fields=(
        Field("nodesPerHour", whole(), "nodes_per_hour", "Most nodes removed in any hour; 0: no limit.", default="0"),
        Field("podsPerHour", whole(), "pods_per_hour", "Most pods moved for it in any hour; 0: no limit.", default="0"),
        Field(
            "share",
            ValueType("share", scalar(_share, _SPAN), _show),
            "share",
            "Largest part of the autoscaled nodes that may be removed at once, at least one node. A plan beyond it "
            "removes nothing, nor do later ones, until `outscaler release`; 0: no limit.",
            default="0",
        ),
    )
)
