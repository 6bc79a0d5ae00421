"""The sections of spec that say which needed nodes go, and how many at once: consolidation and the disruption budgets.

What one section alone decides is checked here; validation.py has the rest. What each key does is in
docs/reference/consolidation.md.
"""

from __future__ import annotations

import re
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Consolidation, ConsolidationMode, Effort, NodeLimit
from chalicelib.model.reason import DisruptionReason
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, quote
from chalicelib.policy.schema import Field, listed_sections, nested, section
from chalicelib.policy.sections import CRON, GROUPS, NAME, ZONE_OF_CRON, ends_before_it_opens_again
from chalicelib.policy.value_types import (
    BOOLEAN,
    UNSET,
    ValueType,
    choice,
    duration,
    listed,
    number,
    percent,
    scalar,
    scalar_text,
    whole,
)

_DAY = 86400.0
_NODES = "a number of nodes or a percentage, such as 3 or 10%"


def _parse_node_limit(value: str) -> NodeLimit:
    match = re.fullmatch(r"(0|[1-9][0-9]{0,8})( ?%)?", value)
    if match is None or (match[2] and int(match[1]) > 100):
        raise BadInput("", f"{quote(value)} is not a number of nodes or a percentage", f"write {_NODES}")
    return NodeLimit(share=int(match[1]) / 100) if match[2] else NodeLimit(nodes=int(match[1]))


def _show_node_limit(limit: NodeLimit) -> int | str:
    return f"{round((limit.share or 0.0) * 100)}%" if limit.nodes is None else limit.nodes


_NODE_LIMIT = scalar(
    "number or percentage",
    _parse_node_limit,
    _NODES,
    _show_node_limit,
    lambda: {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+ ?%?$"},
)

# -- spec.consolidation --------------------------------------------------------------------------------------------

_PERCENT = percent(0, 100)


def _read_savings(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    share = _PERCENT.read(node, path, diagnostics)
    if share == 100:
        diagnostics.problem(path, "would forbid every replacement", "write less than 100%, or mode: remove")
        return UNSET
    return share if share is UNSET else share / 100


CONSOLIDATION = section(
    Field(
        "mode",
        choice(tuple(ConsolidationMode), ConsolidationMode, "off, shadow, remove or full"),
        "shadow: plan and explain, touch nothing. remove: drain nodes into room that exists, buy nothing. full: buy "
        "cheaper nodes, too.",
        default="off",
    ),
    Field("groups", GROUPS, "Ids or names of the groups, or of their pools; all groups with a price if not given."),
    Field(
        "aggressiveness",
        number(1.0, 10.0, "2"),
        "A move must bring more than 1/aggressiveness of its pool's price per share of its pool's disruption, from 1 "
        "to 10. 1: hardly any replacement.",
        default="2",
    ),
    Field(
        "minSavings",
        ValueType("percentage", _read_savings, lambda share: f"{round(share * 100)}%", _PERCENT.form),
        "Least part of the price of the nodes that go which a replacement saves.",
        default="10%",
    ),
    Field(
        "quietTime",
        duration(0.0, _DAY),
        "No pod came to the node or left it for so long, up to 24h; pods of DaemonSets do not count.",
        default="10m",
    ),
    Field("minNodeAge", duration(), "Younger nodes are not consolidated.", default="30m"),
    Field(
        "confirmAfter",
        duration(0.0, _DAY),
        "A move begins if a later pass, so much later, still wants it, up to 24h; 0: at once.",
        default="1m",
    ),
    Field(
        "priceSettleTime",
        duration(0.0, _DAY),
        "For so long after a price changed, up to 24h, what is bought counts at the highest and what goes at the "
        "lowest price of that time.",
        default="30m",
    ),
    Field(
        "maxSurge",
        _NODE_LIMIT,
        "Most nodes of a pool that are bought for moves and not yet paid back by a removal; a percentage of 1% and "
        "more is at least one node.",
        default="10%",
    ),
    Field("maxReplacements", whole(1, 1000), "Most replacements under way in the cluster.", default="3"),
    Field(
        "movesPerPodPerDay",
        whole(0, 10_000),
        "Most moves in 24h of the pods of one owner, per replica; 0: no limit.",
        default="4",
    ),
    Field("splitNodes", BOOLEAN, "One node may become several cheaper ones.", default="true"),
    Field("spotToSpot", BOOLEAN, "Spot nodes may be replaced by cheaper spot nodes.", default="false"),
    Field(
        "minCheaperGroups",
        whole(1, 1000),
        "With spotToSpot: so many groups must be cheaper, because a single cheap one is soon sold out.",
        default="3",
    ),
    Field(
        "replaceTimeout",
        duration(60.0, _DAY),
        "How long bought nodes may take, from 1m to 24h; the group's maxNodeProvisionTime if not given.",
    ),
    Field(
        "effort",
        choice(tuple(Effort), Effort, "low, normal or high"),
        "How long the search looks for a better plan: 3, 10 or 30 rounds of at most 500, 2,000 or 20,000 branch nodes.",
        default="normal",
    ),
)


def _read_consolidation(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    values = nested(CONSOLIDATION).read(node, path, diagnostics)
    if values is not UNSET:
        _consistent(values, path, diagnostics)
    return values


def _consistent(values: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Report settings that contradict each other or have no effect."""
    switch = (*path, "spotToSpot")
    if "min_cheaper_groups" in values and not values.get("spot_to_spot") and not diagnostics.has_problem_under(switch):
        diagnostics.problem(
            (*path, "minCheaperGroups"), "belongs to spotToSpot: true", "take minCheaperGroups out, or add that"
        )
    surge = values.get("max_surge")
    if values.get("mode") is ConsolidationMode.FULL and surge is not None and not (surge.nodes or surge.share):
        diagnostics.problem(
            (*path, "maxSurge"),
            "leaves no room for a new node beside the old one",
            "write at least 1, or mode: remove",
        )
    usual = Consolidation()
    age, quiet = values.get("min_node_age", usual.min_node_age), values.get("quiet_time", usual.quiet_time)
    if age < quiet:
        key, other = ("minNodeAge", "quietTime") if "min_node_age" in values else ("quietTime", "minNodeAge")
        relation = "longer, so minNodeAge" if key == "minNodeAge" else "shorter, so it"
        diagnostics.warn((*path, key), f"{other} is {relation} has no effect")


CONSOLIDATION_TYPE = ValueType(
    nested(CONSOLIDATION).name, _read_consolidation, nested(CONSOLIDATION).show, nested(CONSOLIDATION).form
)

# -- spec.disruptionBudgets ----------------------------------------------------------------------------------------

_LIMITED = tuple(reason for reason in DisruptionReason if reason is not DisruptionReason.INTERRUPTED)
_REASON = choice(_LIMITED, DisruptionReason)
_REASONS_OF_KARPENTER = {"Underutilized": "consolidation", "Empty": "unneeded", "Drifted": "drifted"}


def _read_reason(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    word = scalar_text(node)
    if word in {"interruption", "interrupted"}:
        diagnostics.problem(path, f"{quote(word)} cannot be limited: those nodes go anyway", "take it out")
        return UNSET
    if word in _REASONS_OF_KARPENTER:
        diagnostics.problem(path, f"{quote(word)} is Karpenter's word", f"write {_REASONS_OF_KARPENTER[word]}")
        return UNSET
    return _REASON.read(node, path, diagnostics)


_REASONS = listed(ValueType("reason", _read_reason, form=_REASON.form))


def _read_reasons(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    reasons = _REASONS.read(node, path, diagnostics)
    if reasons == ():
        diagnostics.problem(path, "is an empty list", "take reasons out to mean all but unneeded")
        return UNSET
    twice = next((reason for reason in reasons if reasons.count(reason) > 1), None) if reasons is not UNSET else None
    if twice is not None:
        diagnostics.problem(path, f"names {twice} twice", "name each reason once")
        return UNSET
    return reasons


DISRUPTION_BUDGET = section(
    Field("name", NAME, "Its name in answers.", required=True, example="name: NAME"),
    Field(
        "nodes",
        _NODE_LIMIT,
        "Most nodes of each pool that are on their way out or not ready; a percentage of the pool's nodes is rounded "
        "down, but 1% and more is at least one node. 0: none goes.",
        required=True,
        example="nodes: 10%",
    ),
    Field("groups", GROUPS, "Ids or names of the groups, or of their pools, each by itself; all pools if not given."),
    Field(
        "reasons",
        ValueType(_REASONS.name, _read_reasons, _REASONS.show, _REASONS.form),
        f"What it limits: {', '.join(_LIMITED)}; all but unneeded if not given. Interruptions are never limited.",
    ),
    Field("cron", CRON, "When it begins to hold: minute, hour, day of the month, month, day of the week."),
    ZONE_OF_CRON,
    Field("duration", duration(60.0, 31 * _DAY), "How long it then holds, from 1m to 744h, in real time."),
)


def _both_or_neither(budget: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Require cron and duration together; a budget without both always holds."""
    reported = any(diagnostics.has_problem_under((*path, key)) for key in ("cron", "duration"))
    given = {"cron", "duration"} & budget.keys()
    if len(given) == 1 and not reported:
        remedy = "add duration: 8h" if "cron" in given else 'add cron: "0 8 * * 1-5"'
        diagnostics.problem((*path, *given), "needs both cron and duration", remedy)
    elif "time_zone" in budget and not given and not reported:
        key = ZONE_OF_CRON.key
        diagnostics.problem((*path, key), "belongs to cron", f"take {key} out")


DISRUPTION_BUDGETS = listed_sections(
    DISRUPTION_BUDGET, "budget", 50, "{name: always, nodes: 10%}", ends_before_it_opens_again, _both_or_neither
)
