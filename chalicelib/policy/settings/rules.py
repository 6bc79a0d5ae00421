"""spec.rules: cron and metric rules that add nodes.

The struct is model's, because a snapshot has the same rules of HorizontalNodeAutoscaler objects;
the kinds and the words of its keys are declared here.
"""

import re
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, Scalar, quote
from chalicelib.policy.schema import Field, listed_sections, section
from chalicelib.policy.settings.names_and_times import CRON, GROUPS, NAME, ZONE
from chalicelib.policy.settings.scale_up import THRESHOLD
from chalicelib.policy.value_types import ValueType, choice, scalar

AUTO = 0  # value of add and above where the document says auto
_MOST_ADDED = 100_000
_ADD = f"a whole number of nodes from 1 to {_MOST_ADDED}, or auto"


def _parse_add(value: str) -> int:
    """Parse a number of nodes, or AUTO; raises BadInput."""
    if value == "auto":
        return AUTO
    if re.fullmatch(r"[1-9][0-9]{0,8}", value) is None:
        raise BadInput("", f"{quote(value)} is not a number of nodes or auto", f"write {_ADD}")
    if int(value) > _MOST_ADDED:
        raise BadInput("", f"{value} is out of range", f"write {_ADD}")
    return int(value)


def _read_above(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    if isinstance(node, Scalar) and node.text == "auto":
        return AUTO
    return THRESHOLD.read(node, path, diagnostics)


RULE = section(
    Field(
        "name",
        NAME,
        "The rule's name in answers and in memory: with another name it is another rule.",
        required=True,
        example="name: NAME",
    ),
    Field(
        "groups",
        GROUPS,
        (
            "Ids or names of the groups, or of the pools they belong to; the rule acts on each "
            "pool by itself."
        ),
        required=True,
        example="groups: [ID]",
    ),
    Field(
        "cron",
        CRON,
        "Adds nodes at these times: minute, hour, day of the month, month, day of the week.",
    ),
    Field("timeZone", ZONE, "Time zone of cron."),
    Field(
        "metric",
        choice(tuple(Metric), Metric),
        (
            "Adds nodes while this share of the pool is promised: requests of its pods by "
            "allocatable of its nodes."
        ),
    ),
    Field(
        "above",
        ValueType("percentage or auto", _read_above, lambda value: value or "auto"),
        (
            "The share, from 1% to 100%; a rule acts strictly above it. auto: the threshold of "
            "spec.scaleUp."
        ),
    ),
    Field(
        "add",
        scalar("number or auto", _parse_add, _ADD, lambda value: value or "auto"),
        "How many nodes. auto (metric only): the fewest that bring the share below the threshold.",
    ),
    struct=Rule,
)


def _one_trigger(rule: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Require exactly one of cron and metric, without any setting of the other one."""
    if "cron" in rule and "metric" in rule:
        diagnostics.problem(
            (*path, "metric"),
            "the rule has a cron already",
            "keep one of cron and metric, or make it two rules",
        )
        return
    reported = any(diagnostics.has_problem_under((*path, key)) for key in ("cron", "metric"))
    if rule and not reported and not {"cron", "metric"} & rule.keys():
        diagnostics.problem(path, "does not say when", 'add cron: "47 20 * * *", or metric: cpu')
        return
    if "metric" in rule and "time_zone" in rule:
        diagnostics.problem((*path, "timeZone"), "belongs to cron", "take timeZone out")
    if "cron" in rule and "above" in rule:
        diagnostics.problem((*path, "above"), "belongs to metric", "take above out")
    if "cron" in rule and not rule.get("add") and not diagnostics.has_problem_under((*path, "add")):
        problem = "auto is for metric rules only" if "add" in rule else "is missing"
        diagnostics.problem((*path, "add"), problem, "write how many nodes, such as add: 3")


RULES = listed_sections(
    RULE, "rule", 500, '{name: evening, groups: [ID], cron: "47 20 * * *", add: 3}', _one_trigger
)
