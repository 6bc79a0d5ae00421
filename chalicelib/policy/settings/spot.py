"""spec.spot: nodes that their vendor may take back (docs/reference/spot.md)."""

import re
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from chalicelib.policy.diagnostics import Diagnostics, Node, Path
from chalicelib.policy.schema import nested
from chalicelib.policy.settings.names_and_times import GROUPS, MONTH
from chalicelib.policy.value_types import (
    UNSET,
    duration,
    member,
    percent,
    scalar_text,
    share_of,
    warn_of_no_value,
    whole,
)


class InterruptionAction(StrEnum):
    """Whether nodes that their vendor takes back are evacuated, or only reported."""

    ACT = "act"
    REPORT = "report"


class RebalanceAction(StrEnum):
    """What a vendor's recommendation to leave a node is worth."""

    IGNORE = "ignore"
    PREFER = "prefer"


_SPOT_SHARE = percent(1, 100)


def _read_spot_share(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    if re.fullmatch(r"0 ?%?", scalar_text(node)):
        diagnostics.problem(
            path, "would forbid every spot node", "write at least 1%, or set max: 0 for the group"
        )
        return UNSET
    return _SPOT_SHARE.read(node, path, diagnostics)


class Spot(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.spot. avoid_after_interruption, return_after: seconds."""

    groups: Annotated[
        tuple[str, ...],
        GROUPS,
        "Ids or names of the groups, or of their pools, whose nodes are spot nodes; those that "
        "their provider or a label calls spot if not given.",
    ] = ()
    interruptions: Annotated[
        InterruptionAction,
        member(InterruptionAction),
        "act: a node that its vendor takes back is replaced and drained before it goes. report: "
        "only reported.",
    ] = InterruptionAction.ACT
    avoid_after_interruption: Annotated[
        float,
        duration(0.0, MONTH),
        "For so long after an interruption, up to 744h, nodes of the group are bought only if "
        "nothing else fits.",
    ] = 1800.0
    return_after: Annotated[
        float,
        duration(0.0, MONTH),
        "Nodes that were bought on demand because spot groups failed move back when such a group "
        "had no failure and no interruption for so long, up to 744h. It is consolidation that "
        "moves them.",
    ] = 3600.0
    max_share: Annotated[
        float,
        share_of(msgspec.structs.replace(_SPOT_SHARE, read=_read_spot_share)),
        "Largest part of a pool's nodes that one spot group may hold.",
    ] = 1.0
    on_demand_base: Annotated[
        int, whole(0, 100_000), "So many nodes of each pool stay on demand."
    ] = 0
    rebalance: Annotated[
        RebalanceAction,
        member(RebalanceAction),
        "What a vendor's recommendation to leave a node counts. prefer: new pods avoid the node, "
        "and consolidation takes it first.",
    ] = RebalanceAction.IGNORE


SPOT = warn_of_no_value(nested(Spot), "nodes that their vendor takes back are evacuated")
