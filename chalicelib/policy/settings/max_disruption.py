"""spec.maxDisruption: the circuit breaker, the limits of plan/removal/removal_limits.py."""

import re
from typing import Annotated

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import quote
from chalicelib.policy.value_types import scalar, show_number, whole

_SHARE = "a share from 0 to 1, such as 0.25 or 25%"


def _parse_share(value: str) -> float:
    """Parse 0.25 or 25%, which are the same value; raises BadInput."""
    match = re.fullmatch(r"((?:0|[1-9][0-9]{0,2})(?:\.[0-9]{1,12})?)( ?%)?", value)
    share = 2.0 if match is None else float(match[1]) / (100 if match[2] else 1)
    if share > 1:
        raise BadInput("", f"{quote(value)} is not a share", f"write {_SHARE}")
    return round(share, 12)


class MaxDisruption(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.maxDisruption. 0 and 0.0: no limit."""

    nodes_per_hour: Annotated[int, whole(), "Most nodes removed in any hour; 0: no limit."] = 0
    pods_per_hour: Annotated[int, whole(), "Most pods moved for it in any hour; 0: no limit."] = 0
    share: Annotated[
        float,
        scalar("share", _parse_share, _SHARE, show_number),
        "Largest part of the autoscaled nodes that may be removed at once, at least one node. A "
        "plan beyond it removes nothing, nor do later ones, until `outscaler release`; 0: no "
        "limit.",
    ] = 0.0
