"""The sections of spec that say which needed nodes go, and how many at once: consolidation,
nodeLifecycle, spot and disruptionBudgets.

What one section alone decides is checked here; disruption_validation.py has the rest.
What each key does is in docs/reference/consolidation.md, docs/reference/node-lifecycle.md
and docs/reference/spot.md.
"""

from __future__ import annotations

import re
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.reason import DisruptionReason
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, Scalar, quote
from chalicelib.policy.schema import Field, listed_sections, nested, section
from chalicelib.policy.sections import CRON, GROUPS, NAME, ZONE_OF_CRON, ends_before_it_opens_again
from chalicelib.policy.settings.consolidation import Consolidation, ConsolidationMode, Effort
from chalicelib.policy.settings.node_lifecycle import (
    DriftAction,
    NodeLifecycle,
    RepairAction,
    RepairRule,
)
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.policy.settings.spot import InterruptionAction, RebalanceAction
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
    text,
    whole,
)

_DAY = 86400.0
_NODES = "a number of nodes or a percentage, such as 3 or 10%"


def _parse_node_limit(value: str) -> NodeLimit:
    match = re.fullmatch(r"(0|[1-9][0-9]{0,8})( ?%)?", value)
    if match is None or (match[2] and int(match[1]) > 100):
        raise BadInput(
            "", f"{quote(value)} is not a number of nodes or a percentage", f"write {_NODES}"
        )
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

# -- spec.consolidation ----------------------------------------------------------------------------


def _share_of(kind: ValueType) -> ValueType:
    """The same percentages, kept as a share from 0 to 1."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        percentage = kind.read(node, path, diagnostics)
        return percentage if percentage is UNSET else percentage / 100

    return ValueType("percentage", read, lambda share: f"{round(share * 100)}%", kind.form)


_PERCENT = percent(0, 100)


def _read_savings(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    share = _PERCENT.read(node, path, diagnostics)
    if share == 100:
        diagnostics.problem(
            path, "would forbid every replacement", "write less than 100%, or mode: remove"
        )
        return UNSET
    return share


CONSOLIDATION = section(
    Field(
        "mode",
        choice(tuple(ConsolidationMode), ConsolidationMode, "off, shadow, remove or full"),
        "shadow: plan and explain, touch nothing. remove: drain nodes into room that exists, buy "
        "nothing. full: buy "
        "cheaper nodes, too.",
        default="off",
    ),
    Field(
        "groups",
        GROUPS,
        "Ids or names of the groups, or of their pools; all groups with a price if not given.",
    ),
    Field(
        "aggressiveness",
        number(1.0, 10.0, "2"),
        "A move must bring more than 1/aggressiveness of its pool's price per share of its pool's "
        "disruption, from 1 "
        "to 10. 1: hardly any replacement.",
        default="2",
    ),
    Field(
        "minSavings",
        _share_of(ValueType("percentage", _read_savings, form=_PERCENT.form)),
        "Least part of the price of the nodes that go which a replacement saves.",
        default="10%",
    ),
    Field(
        "quietTime",
        duration(0.0, _DAY),
        (
            "No pod came to the node or left it for so long, up to 24h; pods of DaemonSets do not "
            "count."
        ),
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
        "For so long after a price changed, up to 24h, what is bought counts at the highest and "
        "what goes at the "
        "lowest price of that time.",
        default="30m",
    ),
    Field(
        "maxSurge",
        _NODE_LIMIT,
        "Most nodes of a pool that are bought for moves and not yet paid back by a removal; a "
        "percentage of 1% and "
        "more is at least one node.",
        default="10%",
    ),
    Field(
        "maxReplacements",
        whole(1, 1000),
        "Most replacements under way in the cluster.",
        default="3",
    ),
    Field(
        "movesPerPodPerDay",
        whole(0, 10_000),
        "Most moves in 24h of the pods of one owner, per replica; 0: no limit.",
        default="4",
    ),
    Field("splitNodes", BOOLEAN, "One node may become several cheaper ones.", default="true"),
    Field(
        "spotToSpot", BOOLEAN, "Spot nodes may be replaced by cheaper spot nodes.", default="false"
    ),
    Field(
        "minCheaperGroups",
        whole(1, 1000),
        (
            "With spotToSpot: so many groups must be cheaper, because a single cheap one is soon "
            "sold out."
        ),
        default="3",
    ),
    Field(
        "replaceTimeout",
        duration(60.0, _DAY),
        (
            "How long bought nodes may take, from 1m to 24h; the group's maxNodeProvisionTime if "
            "not given."
        ),
    ),
    Field(
        "effort",
        choice(tuple(Effort), Effort, "low, normal or high"),
        (
            "How long the search looks for a better plan: 3, 10 or 30 rounds of at most 500, 2,000 "
            "or 20,000 branch nodes."
        ),
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


CONSOLIDATION_TYPE = ValueType(
    nested(CONSOLIDATION).name,
    _read_consolidation,
    nested(CONSOLIDATION).show,
    nested(CONSOLIDATION).form,
)

# -- spec.nodeLifecycle ----------------------------------------------------------------------------

_LEAST_AGE = 3600.0
_LIFETIME = duration(example="720h")


def _read_age(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    age = _LIFETIME.read(node, path, diagnostics)
    if age is not UNSET and age < _LEAST_AGE:
        diagnostics.problem(path, "is shorter than 1h", "write at least 1h")
        return UNSET
    return age


_STATUSES = {
    "True": "True",
    "False": "False",
    "Unknown": "Unknown",
    "true": "True",
    "false": "False",
}
_STATUS = choice(("True", "False", "Unknown"))


def _read_status(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    # A condition's status is a text in Kubernetes; JSON and editors turn a
    # bare True into a boolean.
    return _STATUSES.get(scalar_text(node)) or _STATUS.read(node, path, diagnostics)


_STATUS_LIST = listed(
    ValueType("status", _read_status, form=lambda: {"enum": [True, False, *_STATUSES]}),
    name="list of statuses",
)


def _status_form() -> dict[str, Any]:
    return {"anyOf": [*_STATUS_LIST.form()["anyOf"], {"type": "boolean"}]}


def _read_statuses(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    statuses = _STATUS_LIST.read(node, path, diagnostics)
    if statuses == ():
        diagnostics.problem(path, "is an empty list", "take status out to mean True")
        return UNSET
    twice = (
        next((status for status in statuses if statuses.count(status) > 1), "")
        if statuses is not UNSET
        else ""
    )
    if twice:
        diagnostics.problem(path, f"names {twice} twice", "name each status once")
        return UNSET
    return statuses


REPAIR_RULE = section(
    Field(
        "condition",
        text(
            "the type of a node's condition",
            (
                r"(?!.{317})([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-"
                r"Za-z0-9])?"
            ),
            "something like Ready or KernelDeadlock",
        ),
        "Type of a condition of the Node, such as Ready or KernelDeadlock.",
        required=True,
        example="condition: KernelDeadlock",
    ),
    Field(
        "status",
        ValueType(_STATUS_LIST.name, _read_statuses, _STATUS_LIST.show, _status_form),
        "The node is sick while the condition has one of these: True, False, Unknown.",
        default="True",
    ),
    Field(
        "after",
        duration(60.0, 31 * _DAY),
        "For so long, from 1m to 744h, before anything happens.",
        required=True,
        example="after: 10m",
    ),
    Field(
        "flapTime",
        duration(0.0, _DAY),
        "A shorter time without the condition, up to 24h, does not begin that anew.",
        default="1m",
    ),
    Field(
        "action",
        choice(tuple(RepairAction), RepairAction, "restart or replace"),
        (
            "restart: drained and restarted once, replaced if it is sick again. replace: another "
            "node takes its place."
        ),
        default="replace",
    ),
    Field(
        "groups", GROUPS, "Ids or names of the groups, or of their pools; all groups if not given."
    ),
)


_SOUND = {
    "Ready": "True",
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "NetworkUnavailable": "False",
}
"""The kubelet's conditions, as they are on a sound node."""


def _sick_by(rule: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Refuse a rule by which every sound node is sick; warn of a flap that is
    longer than the illness."""
    usual = RepairRule("", 0.0)
    sound = _SOUND.get(rule.get("condition", ""))
    if sound in rule.get("status", usual.status) and not diagnostics.has_problem_under(
        (*path, "status")
    ):
        diagnostics.problem(
            (*path, "status") if "status" in rule else (*path, "condition"),
            f"makes every node sick: {rule['condition']} is {sound} on a sound one",
            f"write status: [{'False' if sound == 'True' else 'True'}, Unknown]",
        )
    if "after" in rule and rule.get("flap_time", usual.flap_time) > rule["after"]:
        diagnostics.warn(
            (*path, "flapTime"),
            "is longer than after, so a node may be repaired whose condition is long over",
        )


REPAIRS = listed_sections(
    REPAIR_RULE,
    "rule",
    50,
    "{condition: Ready, status: [False, Unknown], after: 30m}",
    _sick_by,
)

NODE_LIFECYCLE = section(
    Field(
        "maxNodeAge",
        ValueType(_LIFETIME.name, _read_age, _LIFETIME.show, _LIFETIME.form),
        "Older nodes are replaced, from 1h; never if not given.",
    ),
    Field(
        "groups",
        GROUPS,
        (
            "Ids or names of the groups, or of their pools, to which age and drift apply; all "
            "groups if not given."
        ),
    ),
    Field(
        "jitter",
        _share_of(percent(0, 50)),
        "Part of maxNodeAge, from 0% to 50%, by which nodes go earlier, each by its own amount.",
        default="10%",
    ),
    Field(
        "expiryGrace",
        duration(),
        "A node that is so much older than maxNodeAge is reported as overdue; nothing is forced.",
        default="72h",
    ),
    Field(
        "drift",
        choice(tuple(DriftAction), DriftAction, "off, report or replace"),
        "What happens to nodes that are not as their group is defined now.",
        default="report",
    ),
    Field(
        "repair",
        REPAIRS,
        "Which conditions make a node sick, and what is done then; nothing if not given.",
    ),
    Field(
        "maxUnhealthy",
        _share_of(_PERCENT),
        "A group of which a larger part is sick, but more than one node, is not repaired.",
        default="20%",
    ),
    Field(
        "annotations",
        BOOLEAN,
        "The annotation karpenter.sh/do-not-disrupt of pods and nodes holds expired and drifted "
        "nodes. It never holds "
        "a repair.",
        default="true",
    ),
)


def _has_effect(values: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Warn of settings that belong to something that is not asked for."""
    ages, repairs = "max_node_age" in values, bool(values.get("repair"))
    drift = values.get("drift", NodeLifecycle().drift)
    age_rule, never = (
        "has no effect without maxNodeAge",
        "has no effect: nodes have no maxNodeAge, and drift is",
    )
    for attribute, key, in_force, text_of_warning in (
        ("jitter", "jitter", ages, age_rule),
        ("expiry_grace", "expiryGrace", ages, age_rule),
        ("max_unhealthy", "maxUnhealthy", repairs, "has no effect without repair"),
        ("groups", "groups", ages or drift is not DriftAction.OFF, f"{never} off"),
        ("annotations", "annotations", ages or drift is DriftAction.REPLACE, f"{never} {drift}"),
    ):
        if attribute in values and not in_force and not diagnostics.has_problem_under(path):
            diagnostics.warn((*path, key), text_of_warning)


def _repairs_differ(values: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Refuse two rules about the same: which of them counts would depend on their order."""
    first: set[tuple[str, frozenset[str], frozenset[str]]] = set()
    for index, rule in enumerate(values.get("repair", ())):
        below: Path = (*path, "repair", index)
        if "condition" not in rule or diagnostics.has_problem_under(below):
            continue
        status = rule.get("status", RepairRule("", 0.0).status)
        subject = (rule["condition"], frozenset(status), frozenset(rule.get("groups", ())))
        if subject in first:
            problem = f"says twice what happens to condition {quote(rule['condition'])}"
            diagnostics.problem((*below, "condition"), problem, "keep one")
        first.add(subject)


def _warn_of_no_value(effect: str, node: Node, path: Path, diagnostics: Diagnostics) -> None:
    """Warn of a section that is on only because its key stands there. effect: what it does then."""
    if isinstance(node, Scalar) and node.is_null:
        diagnostics.warn(
            path, f"has no value and counts as {{}}: {effect}; take the line out, or write {{}}"
        )


def _read_lifecycle(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    _warn_of_no_value(
        "nodes that are not as their group is defined now are reported", node, path, diagnostics
    )
    values = nested(NODE_LIFECYCLE).read(node, path, diagnostics)
    if values is not UNSET:
        _repairs_differ(values, path, diagnostics)
        _has_effect(values, path, diagnostics)
    return values


NODE_LIFECYCLE_TYPE = ValueType(
    nested(NODE_LIFECYCLE).name,
    _read_lifecycle,
    nested(NODE_LIFECYCLE).show,
    nested(NODE_LIFECYCLE).form,
)

# -- spec.spot -------------------------------------------------------------------------------------


_SPOT_SHARE = percent(1, 100)


def _read_spot_share(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    if re.fullmatch(r"0 ?%?", scalar_text(node)):
        diagnostics.problem(
            path, "would forbid every spot node", "write at least 1%, or set max: 0 for the group"
        )
        return UNSET
    return _SPOT_SHARE.read(node, path, diagnostics)


SPOT = section(
    Field(
        "groups",
        GROUPS,
        "Ids or names of the groups, or of their pools, whose nodes are spot nodes; those that "
        "their provider or a "
        "label calls spot if not given.",
    ),
    Field(
        "interruptions",
        choice(tuple(InterruptionAction), InterruptionAction, "act or report"),
        (
            "act: a node that its vendor takes back is replaced and drained before it goes. "
            "report: only told."
        ),
        default="act",
    ),
    Field(
        "avoidAfterInterruption",
        duration(0.0, 31 * _DAY),
        (
            "For so long after an interruption, up to 744h, nodes of the group are bought only if "
            "nothing else fits."
        ),
        default="30m",
    ),
    Field(
        "returnAfter",
        duration(0.0, 31 * _DAY),
        "Nodes that were bought on demand because spot groups failed move back when such a group "
        "had no failure and no "
        "interruption for so long, up to 744h. It is consolidation that moves them.",
        default="1h",
    ),
    Field(
        "maxShare",
        _share_of(ValueType("percentage", _read_spot_share, form=_SPOT_SHARE.form)),
        "Largest part of a pool's nodes that one spot group may hold.",
        default="100%",
    ),
    Field(
        "onDemandBase", whole(0, 100_000), "So many nodes of each pool stay on demand.", default="0"
    ),
    Field(
        "rebalance",
        choice(tuple(RebalanceAction), RebalanceAction, "ignore or prefer"),
        "What a vendor's recommendation to leave a node counts. prefer: new pods avoid the node, "
        "and consolidation "
        "takes it first.",
        default="ignore",
    ),
)


def _read_spot(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    _warn_of_no_value("nodes that their vendor takes back are evacuated", node, path, diagnostics)
    return nested(SPOT).read(node, path, diagnostics)


SPOT_TYPE = ValueType(nested(SPOT).name, _read_spot, nested(SPOT).show, nested(SPOT).form)

# -- spec.disruptionBudgets ------------------------------------------------------------------------

_LIMITED = tuple(
    reason for reason in DisruptionReason if reason is not DisruptionReason.INTERRUPTED
)
_REASON = choice(_LIMITED, DisruptionReason)
_REASONS_OF_KARPENTER = {
    "Underutilized": "consolidation",
    "Empty": "unneeded",
    "Drifted": "drifted",
}


def _read_reason(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    word = scalar_text(node)
    if word in {"interruption", "interrupted"}:
        diagnostics.problem(
            path, f"{quote(word)} cannot be limited: those nodes go anyway", "take it out"
        )
        return UNSET
    if word in _REASONS_OF_KARPENTER:
        diagnostics.problem(
            path, f"{quote(word)} is Karpenter's word", f"write {_REASONS_OF_KARPENTER[word]}"
        )
        return UNSET
    return _REASON.read(node, path, diagnostics)


_REASONS = listed(ValueType("reason", _read_reason, form=_REASON.form))


def _read_reasons(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    reasons = _REASONS.read(node, path, diagnostics)
    if reasons == ():
        diagnostics.problem(path, "is an empty list", "take reasons out to mean all but unneeded")
        return UNSET
    twice = (
        next((reason for reason in reasons if reasons.count(reason) > 1), None)
        if reasons is not UNSET
        else None
    )
    if twice is not None:
        diagnostics.problem(path, f"names {twice} twice", "name each reason once")
        return UNSET
    return reasons


DISRUPTION_BUDGET = section(
    Field("name", NAME, "Its name in answers.", required=True, example="name: NAME"),
    Field(
        "nodes",
        _NODE_LIMIT,
        "Most nodes of each pool that are on their way out or not ready; a percentage of the "
        "pool's nodes is rounded "
        "down, but 1% and more is at least one node. 0: none goes.",
        required=True,
        example="nodes: 10%",
    ),
    Field(
        "groups",
        GROUPS,
        "Ids or names of the groups, or of their pools, each by itself; all pools if not given.",
    ),
    Field(
        "reasons",
        ValueType(_REASONS.name, _read_reasons, _REASONS.show, _REASONS.form),
        (
            f"What it limits: {', '.join(_LIMITED)}; all but unneeded if not given. Interruptions "
            "are never limited."
        ),
    ),
    Field(
        "cron",
        CRON,
        "When it begins to hold: minute, hour, day of the month, month, day of the week.",
    ),
    ZONE_OF_CRON,
    Field(
        "duration",
        duration(60.0, 31 * _DAY),
        "How long it then holds, from 1m to 744h, in real time.",
    ),
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
    DISRUPTION_BUDGET,
    "budget",
    50,
    "{name: always, nodes: 10%}",
    ends_before_it_opens_again,
    _both_or_neither,
)
