"""spec.consolidation: whether needed nodes go, too (docs/reference/consolidation.md)."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec

from chalicelib.policy.diagnostics import Diagnostics, Node, Path
from chalicelib.policy.schema import Field, nested, retired
from chalicelib.policy.settings.names_and_times import DAY, GROUPS
from chalicelib.policy.settings.node_limit import NODE_LIMIT, NodeLimit
from chalicelib.policy.value_types import (
    BOOLEAN,
    UNSET,
    choice,
    duration,
    member,
    number,
    percent,
    share_of,
    whole,
)


class ConsolidationMode(StrEnum):
    """`off` looks at nothing, `shadow` plans and explains moves, `remove` drains nodes into room
    that exists, `full` buys cheaper nodes, too."""

    OFF = "off"
    SHADOW = "shadow"
    REMOVE = "remove"
    FULL = "full"


class Steering(StrEnum):
    """Whether marks steer the scheduler. `true`: not in pools with soft taints of others, `always`:
    there, too."""

    OFF = "false"
    ON = "true"
    ALWAYS = "always"


_PERCENT = percent(0, 100)
_EFFORT = choice(("low", "normal", "high"), kind="low, normal or high")
_STEERING = msgspec.structs.replace(
    member(Steering), form=lambda: {"enum": [True, False, *Steering]}
)


def _read_savings(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    share = _PERCENT.read(node, path, diagnostics)
    if share == 100:
        diagnostics.problem(
            path, "would forbid every replacement", "write less than 100%, or mode: remove"
        )
        return UNSET
    return share


class Consolidation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.consolidation. Durations are seconds. min_savings: a share of the price of the nodes
    that go. replace_timeout: None as the group's maxNodeProvisionTime."""

    mode: Annotated[
        ConsolidationMode,
        member(ConsolidationMode),
        "shadow: plan and explain, touch nothing. remove: drain nodes into room that exists, buy "
        "nothing. full: buy cheaper nodes, too.",
    ] = ConsolidationMode.OFF
    groups: Annotated[
        tuple[str, ...],
        GROUPS,
        "Ids or names of the groups, or of their pools; all groups with a price if not given.",
    ] = ()
    aggressiveness: Annotated[
        float,
        number(1.0, 10.0, "2"),
        "A move must bring more than 1/aggressiveness of its pool's price per share of its pool's "
        "disruption, from 1 to 10. 1: hardly any replacement.",
    ] = 2.0
    min_savings: Annotated[
        float,
        share_of(msgspec.structs.replace(_PERCENT, read=_read_savings)),
        "Least part of the price of the nodes that go which a replacement saves.",
    ] = 0.1
    quiet_time: Annotated[
        float,
        duration(0.0, DAY),
        "No pod came to the node or left it for so long, up to 24h; pods of DaemonSets do not "
        "count.",
    ] = 600.0
    min_node_age: Annotated[float, duration(), "Younger nodes are not consolidated."] = 1800.0
    confirm_after: Annotated[
        float,
        duration(0.0, DAY),
        "A move begins if a later pass, so much later, still wants it, up to 24h; 0: at once.",
    ] = 60.0
    steering: Annotated[
        Steering,
        _STEERING,
        "Which nodes stay is decided once; soft taints keep evicted pods off the others. false: no "
        "marks. always: also in pools with soft taints of others.",
    ] = Steering.ON
    patience: Annotated[
        bool,
        BOOLEAN,
        "A saving that has stood for hours needs a lower score, down to a quarter.",
    ] = True
    max_surge: Annotated[
        NodeLimit,
        NODE_LIMIT,
        "Most nodes of a pool that are bought for moves and not yet paid back by a removal; a "
        "percentage of 1% and more is at least one node.",
    ] = NodeLimit(share=0.1)
    max_replacements: Annotated[
        int, whole(1, 1000), "Most replacements under way in the cluster."
    ] = 3
    moves_per_pod_per_day: Annotated[
        int,
        whole(0, 10_000),
        "Most moves in 24h of the pods of one owner, per replica; 0: no limit.",
    ] = 4
    split_nodes: Annotated[bool, BOOLEAN, "One node may become several cheaper ones."] = True
    spot_to_spot: Annotated[bool, BOOLEAN, "Spot nodes may be replaced by cheaper spot nodes."] = (
        False
    )
    min_cheaper_groups: Annotated[
        int,
        whole(1, 1000),
        "With spotToSpot: so many groups must be cheaper, because a single cheap one is soon sold "
        "out.",
    ] = 3
    replace_timeout: Annotated[
        float | None,
        duration(60.0, DAY),
        "How long bought nodes may take, from 1m to 24h; the group's maxNodeProvisionTime if not "
        "given.",
    ] = None
    retired: ClassVar[tuple[Field, ...]] = (
        retired("priceSettleTime", duration(0.0, DAY), "a price is settled after 30m"),
        retired("effort", _EFFORT, "every search has 10 rounds of at most 2,000 branch nodes"),
    )


def _consistent(values: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Report settings that contradict each other or have no effect."""
    switch = (*path, "spotToSpot")
    if (
        "min_cheaper_groups" in values
        and not values.get("spot_to_spot")
        and not diagnostics.has_problem_under(switch)
    ):
        diagnostics.problem(
            (*path, "minCheaperGroups"),
            "belongs to spotToSpot: true",
            "take minCheaperGroups out, or add that",
        )
    surge = values.get("max_surge")
    if (
        values.get("mode") is ConsolidationMode.FULL
        and surge is not None
        and not (surge.nodes or surge.share)
    ):
        diagnostics.problem(
            (*path, "maxSurge"),
            "leaves no room for a new node beside the old one",
            "write at least 1, or mode: remove",
        )
    usual = Consolidation()
    age, quiet = (
        values.get("min_node_age", usual.min_node_age),
        values.get("quiet_time", usual.quiet_time),
    )
    if age < quiet:
        key, other = (
            ("minNodeAge", "quietTime") if "min_node_age" in values else ("quietTime", "minNodeAge")
        )
        relation = "longer, so minNodeAge" if key == "minNodeAge" else "shorter, so it"
        diagnostics.warn((*path, key), f"{other} is {relation} has no effect")


CONSOLIDATION = nested(Consolidation, _consistent)
