"""spec.disruptionBudgets: how many nodes of a pool may be on their way out at once."""

from typing import Annotated, Any, ClassVar

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, quote
from chalicelib.policy.schema import Required, listed_sections
from chalicelib.policy.settings.names_and_times import (
    CRON,
    GROUPS,
    NAME,
    OPEN_TIME,
    TimeZone,
    ends_before_it_opens_again,
)
from chalicelib.policy.settings.node_limit import NODE_LIMIT, NodeLimit
from chalicelib.policy.value_types import (
    UNSET,
    ValueType,
    choice,
    distinct,
    listed,
    scalar_text,
)

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


_REASONS = distinct(
    listed(ValueType("reason", _read_reason, form=_REASON.form)),
    "reason",
    ("is an empty list", "take reasons out to mean all but unneeded"),
)


class DisruptionBudget(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of spec.disruptionBudgets. cron, duration, time_zone: when it holds, as for a
    Window; always if cron is empty."""

    document_order: ClassVar = (
        "name",
        "nodes",
        "groups",
        "reasons",
        "cron",
        "timeZone",
        "duration",
    )

    name: Annotated[str, NAME, "Its name in answers.", Required("name: NAME")]
    nodes: Annotated[
        NodeLimit,
        NODE_LIMIT,
        "Most nodes of each pool that are on their way out or not ready; a percentage of the "
        "pool's nodes is rounded down, but 1% and more is at least one node. 0: none goes.",
        Required("nodes: 10%"),
    ]
    groups: Annotated[
        tuple[str, ...],
        GROUPS,
        "Ids or names of the groups, or of their pools, each by itself; all pools if not given.",
    ] = ()
    reasons: Annotated[
        tuple[DisruptionReason, ...],
        _REASONS,
        f"What it limits: {', '.join(_LIMITED)}; all but unneeded if not given. Interruptions are "
        "never limited.",
    ] = ()
    cron: Annotated[
        str,
        CRON,
        "When it begins to hold: minute, hour, day of the month, month, day of the week.",
    ] = ""
    duration: Annotated[
        float, OPEN_TIME, "How long it then holds, from 1m to 744h, in real time."
    ] = 0.0
    time_zone: TimeZone = "UTC"


def _both_or_neither(budget: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Require cron and duration together; a budget without both always holds."""
    reported = any(diagnostics.has_problem_under((*path, key)) for key in ("cron", "duration"))
    given = {"cron", "duration"} & budget.keys()
    if len(given) == 1 and not reported:
        remedy = "add duration: 8h" if "cron" in given else 'add cron: "0 8 * * 1-5"'
        diagnostics.problem((*path, *given), "needs both cron and duration", remedy)
    elif "time_zone" in budget and not given and not reported:
        diagnostics.problem((*path, "timeZone"), "belongs to cron", "take timeZone out")


DISRUPTION_BUDGETS = listed_sections(
    DisruptionBudget,
    "budget",
    50,
    "{name: always, nodes: 10%}",
    ends_before_it_opens_again,
    _both_or_neither,
)
