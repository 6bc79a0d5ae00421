"""spec.rules: cron and metric rules that add nodes, for groups of any provider."""

from __future__ import annotations

import re
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.scaling_rules import Metric
from chalicelib.policy.cron_values import CRON, ZONE
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.list_sections import GROUPS, NAME, entries, percent
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import ValueType, choice, scalar
from chalicelib.policy.yaml_document import Node, Scalar

AUTO = 0  # value of add and above where the document says auto
_MOST_ADDED = 100_000
_THRESHOLD = percent(1, 100)
_WHOLE = re.compile(r"[1-9][0-9]{0,8}\Z")
_ADD_FORM = f"a whole number of nodes from 1 to {_MOST_ADDED}, or auto"


def _add(given: str) -> int:
    """Parse a number of nodes, or AUTO; raises BadInput."""
    if given == "auto":
        return AUTO
    if not _WHOLE.match(given):
        raise BadInput("", f"{quote(given)} is not a number of nodes or auto", f"write {_ADD_FORM}")
    if int(given) > _MOST_ADDED:
        raise BadInput("", f"{given} is out of range", f"write {_ADD_FORM}")
    return int(given)


def _read_above(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    if isinstance(node, Scalar) and node.text == "auto":
        return AUTO
    return _THRESHOLD.read(node, path, diagnostics)


RULE = Section(
    fields=(
        Field(
            "name",
            NAME,
            "name",
            "The rule's name in answers and in memory: with another name it is another rule.",
            required=True,
            example="name: NAME",
        ),
        Field(
            "groups",
            GROUPS,
            "groups",
            "Ids or names of the groups, or of the pools they belong to; the rule acts on each pool by itself.",
            required=True,
            example="groups: [ID]",
        ),
        Field(
            "cron", CRON, "cron", "Adds nodes at these times: minute, hour, day of the month, month, day of the week."
        ),
        Field("timeZone", ZONE, "time_zone", "Time zone of cron.", default="UTC"),
        Field(
            "metric",
            choice(tuple(Metric), Metric),
            "metric",
            "Adds nodes while this share of the pool is promised: requests of its pods by allocatable of its nodes.",
        ),
        Field(
            "above",
            ValueType("percentage or auto", _read_above, lambda value: value or "auto"),
            "above",
            "The share, from 1% to 100%; a rule acts strictly above it. auto: the threshold of spec.scaleUp.",
            default="auto",
        ),
        Field(
            "add",
            ValueType("number or auto", scalar(_add, _ADD_FORM), lambda value: value or "auto"),
            "add",
            "How many nodes. auto (metric only): the fewest that bring the share below the threshold.",
            default="auto",
        ),
    )
)


def _one_trigger(rule: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Require exactly one of cron and metric, without any setting of the other one."""
    if "cron" in rule and "metric" in rule:
        diagnostics.problem(
            (*path, "metric"), "the rule has a cron already", "keep one of cron and metric, or make it two rules"
        )
        return
    if not (
        {"cron", "metric"} & rule.keys()
        or diagnostics.has_problem_under((*path, "cron"))
        or diagnostics.has_problem_under((*path, "metric"))
        or not rule
    ):
        diagnostics.problem(path, "does not say when", 'add cron: "47 20 * * *", or metric: cpu')
        return
    if "metric" in rule and "time_zone" in rule:
        diagnostics.problem((*path, "timeZone"), "belongs to cron", "take timeZone out")
    if "cron" in rule and "above" in rule:
        diagnostics.problem((*path, "above"), "belongs to metric", "take above out")
    if "cron" in rule and not rule.get("add") and not diagnostics.has_problem_under((*path, "add")):
        diagnostics.problem(
            (*path, "add"),
            "auto is for metric rules only" if "add" in rule else "is missing",
            "write how many nodes, such as add: 3",
        )


RULES = entries(RULE, "rule", 500, '{name: evening, groups: [ID], cron: "47 20 * * *", add: 3}', _one_trigger)
