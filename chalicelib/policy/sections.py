"""The sections of spec that are about times, amounts and notices: windows, rules, schedules,
headroom, prices, the circuit breaker. document.py puts them together; validation.py checks
them against each other.

schedules/maintenance_windows.py is imported where it is used: it loads cron and time zones, which
functions that only look up a policy without them must not pay for.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from chalicelib.model.errors import BadInput
from chalicelib.model.notification import NOTICE_TYPES, NoticeSeverity
from chalicelib.model.quantity import parse_amount
from chalicelib.model.scaling_rules import Metric
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, Scalar, quote
from chalicelib.policy.schema import Field, entries_of, listed_sections, nested, section
from chalicelib.policy.settings.cluster_policy import Mode
from chalicelib.policy.settings.names_and_times import (
    CRON,
    GROUPS,
    NAME,
    ZONE,
    ends_before_it_opens_again,
)
from chalicelib.policy.value_types import (
    BOOLEAN,
    SECRET,
    UNSET,
    ValueType,
    choice,
    duration,
    listed,
    number,
    percent,
    scalar,
    show_number,
    text,
    whole,
)

ZONE_OF_CRON = Field("timeZone", ZONE, "Time zone of cron.", written="UTC")


def _opening(cron: str, lasts: str) -> tuple[Field, ...]:
    """Return the keys that say when a window opens and for how long. cron, lasts: examples."""
    cron_meaning = "When it opens: minute, hour, day of the month, month, day of the week."
    duration_meaning = (
        "How long it stays open, from 1m to 744h, in real time, also across clock changes."
    )
    return (
        Field("cron", CRON, cron_meaning, required=True, example=f'cron: "{cron}"'),
        ZONE_OF_CRON,
        Field(
            "duration",
            duration(60.0, 31 * 86400.0),
            duration_meaning,
            required=True,
            example=f"duration: {lasts}",
        ),
    )


# -- spec.maintenanceWindows -----------------------------------------------------------------------

_REMOVALS = choice(("allowed", "forbidden"), lambda word: word == "allowed")
WINDOW = section(
    Field("name", text("a name", r"[^\x00-\x1f\x7f]{1,100}"), "Its name in output."),
    *_opening("0 22 * * 1-5", "6h"),
    Field(
        "removals",
        ValueType(
            "allowed or forbidden",
            _REMOVALS.read,
            lambda allowed: "allowed" if allowed else "forbidden",
            _REMOVALS.form,
        ),
        (
            "allowed: nodes are removed in such windows only. forbidden: not in this one, whatever "
            "another allows."
        ),
        written="allowed",
    ),
)
WINDOWS = listed_sections(
    WINDOW,
    "window",
    50,
    '{name: nights, cron: "0 22 * * *", duration: 6h}',
    ends_before_it_opens_again,
)

# -- spec.scaleUp and spec.rules -------------------------------------------------------------------

AUTO = 0  # value of add and above where the document says auto
_THRESHOLD = percent(1, 100)
_MOST_ADDED = 100_000
_ADD = f"a whole number of nodes from 1 to {_MOST_ADDED}, or auto"

SCALE_UP = section(
    Field("unschedulablePods", BOOLEAN, "Groups grow for pending pods.", written="true"),
    Field(
        "rules",
        BOOLEAN,
        "Groups grow by rules, those of HorizontalNodeAutoscaler objects included.",
        written="true",
    ),
    Field(
        "cpuThreshold",
        _THRESHOLD,
        "The share of cpu for rules that say above: auto.",
        written="100%",
    ),
    Field("memoryThreshold", _THRESHOLD, "The same for memory.", written="100%"),
    Field(
        "metricMinInterval",
        duration(0.0, 86400.0),
        "Least time between two actions of metric rules on one pool, up to 24h.",
        written="0s",
    ),
    Field(
        "cronTimeZone",
        ZONE,
        "Time zone of the cron of HorizontalNodeAutoscaler objects.",
        written="UTC",
    ),
    Field(
        "horizontalNodeAutoscalers",
        BOOLEAN,
        "Read HorizontalNodeAutoscaler objects of the cluster and obey them; if not given: where "
        "huaweicloud is a "
        "provider.",
    ),
    Field(
        "expectedCost",
        BOOLEAN,
        "The expanders price and least-cost also count what a group has taught: how long its nodes "
        "take and how many "
        "of them fail.",
        written="false",
    ),
    Field(
        "learnedTimeouts",
        BOOLEAN,
        "A group whose nodes usually come fast is given up sooner than after maxNodeProvisionTime.",
        written="false",
    ),
)


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
    return _THRESHOLD.read(node, path, diagnostics)


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
    ZONE_OF_CRON,
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
        written="auto",
    ),
    Field(
        "add",
        scalar("number or auto", _parse_add, _ADD, lambda value: value or "auto"),
        "How many nodes. auto (metric only): the fewest that bring the share below the threshold.",
        written="auto",
    ),
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

# -- spec.schedules --------------------------------------------------------------------------------

_MOST_PERCENT = 1000
SCHEDULE = section(
    Field("name", NAME, "The schedule's name in answers.", required=True, example="name: NAME"),
    Field(
        "groups", GROUPS, "Ids or names of the groups, or of their pools; all groups if not given."
    ),
    *_opening("0 20 * * 1-5", "11h"),
    Field("min", whole(), "Fewest nodes of each group meanwhile; a group below it grows."),
    Field("max", whole(), "Most nodes of each group meanwhile; a group above it does not grow."),
    Field(
        "headroom",
        percent(0, _MOST_PERCENT),
        (
            "Headroom meanwhile, instead of that of the spec.headroom for these groups (without "
            "groups: of those without)."
        ),
    ),
    Field(
        "mode",
        choice(tuple(Mode), str, "off, shadow or active"),
        "Mode of the whole cluster meanwhile; not together with groups.",
    ),
)
SCHEDULED = ("min", "max", "headroom", "mode")
"""What a schedule may set: keys and attributes."""


def _sets_something(schedule: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    reported = any(diagnostics.has_problem_under((*path, key)) for key in SCHEDULED)
    if schedule and not reported and not any(key in schedule for key in SCHEDULED):
        diagnostics.problem(path, "sets nothing", f"add one of {', '.join(SCHEDULED)}")
    if "mode" in schedule and schedule.get("groups"):
        diagnostics.problem(
            (*path, "mode"),
            "is the whole cluster's, and groups names some",
            "take groups out, or make it a schedule of its own",
        )
    if schedule.get("min", 0) > schedule.get("max", schedule.get("min", 0)):
        diagnostics.problem(
            (*path, "max"),
            f"{schedule['max']} is below min {schedule['min']}",
            f"write {schedule['min']} or more, or lower min",
        )


SCHEDULES = listed_sections(
    SCHEDULE,
    "schedule",
    50,
    '{name: night, groups: [ID], cron: "0 20 * * 1-5", duration: 11h, max: 2}',
    ends_before_it_opens_again,
    _sets_something,
)

# -- spec.headroom (docs/reference/headroom.md "Headroom") -----------------------------------------


def _size(resource: str, example: str, most: str) -> ValueType:
    """A quantity above zero, no larger than any machine, so that its product with the number of
    pods still fits an integer."""
    limit = parse_amount(resource, most)
    span = f"an amount of up to {most}, such as {example}"

    def parse(value: str) -> int:
        try:
            amount = parse_amount(resource, value)
        except BadInput as error:
            raise BadInput("", error.problem, f"write {span}") from None
        if not 0 < amount <= limit:
            raise BadInput("", f"{quote(value)} is out of range", f"write {span}")
        return amount

    return scalar("quantity", parse, span, lambda amount: _show_amount(resource, amount))


def _show_amount(resource: str, amount: int) -> str:
    """Return millicores or bytes in the largest unit that represents them exactly."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    units = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10), ("", 1))
    unit, size = next((unit, size) for unit, size in units if amount % size == 0)
    return f"{amount // size}{unit}"


HEADROOM = section(
    Field("name", NAME, "The headroom's name in answers.", required=True, example="name: NAME"),
    Field(
        "groups",
        GROUPS,
        (
            "Ids or names of the groups, or of their pools, that hold it together; anywhere in the "
            "cluster if not given."
        ),
    ),
    Field("pods", whole(1, 5000), "Number of virtual pods of this cpu and memory."),
    Field("cpu", _size("cpu", "500m", "1000"), "Cpu of each of these."),
    Field("memory", _size("memory", "1Gi", "64Ti"), "Memory of each of these."),
    Field(
        "percent",
        percent(1, _MOST_PERCENT),
        "Instead of pods: capacity as a percentage of the requests of the pods in scope.",
    ),
)


def _one_measure(headroom: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Require either pods with a size, or percent."""
    reported = any(
        diagnostics.has_problem_under((*path, key)) for key in ("pods", "cpu", "memory", "percent")
    )
    sized = [key for key in ("pods", "cpu", "memory") if key in headroom]
    if "percent" in headroom and sized:
        diagnostics.problem(
            (*path, sized[0]),
            "the headroom is a percentage already",
            f"keep percent, or {', '.join(sized)}",
        )
    elif reported or not headroom or "percent" in headroom:
        return
    elif not sized:
        diagnostics.problem(
            path, "does not say how much", "add pods with cpu and memory, or percent"
        )
    elif "pods" not in headroom:
        diagnostics.problem((*path, "pods"), "is missing", "add pods: 1, or how many of this size")
    elif len(sized) == 1:
        diagnostics.problem(
            path, "does not say how large a pod is", "add cpu: 500m, memory: 1Gi, or one of them"
        )


HEADROOMS = listed_sections(
    HEADROOM,
    "entry",
    50,
    "{name: spare, groups: [ID], pods: 3, cpu: 500m, memory: 1Gi}",
    _one_measure,
    name="entries",
)

# -- spec.maxDisruption: the limits of plan/removal/removal_limits.py ------------------------------

_SHARE = "a share from 0 to 1, such as 0.25 or 25%"


def _parse_share(value: str) -> float:
    """Parse 0.25 or 25%, which are the same value; raises BadInput."""
    match = re.fullmatch(r"((?:0|[1-9][0-9]{0,2})(?:\.[0-9]{1,12})?)( ?%)?", value)
    share = 2.0 if match is None else float(match[1]) / (100 if match[2] else 1)
    if share > 1:
        raise BadInput("", f"{quote(value)} is not a share", f"write {_SHARE}")
    return round(share, 12)


MAX_DISRUPTION = section(
    Field("nodesPerHour", whole(), "Most nodes removed in any hour; 0: no limit.", written="0"),
    Field("podsPerHour", whole(), "Most pods moved for it in any hour; 0: no limit.", written="0"),
    Field(
        "share",
        scalar("share", _parse_share, _SHARE, show_number),
        "Largest part of the autoscaled nodes that may be removed at once, at least one node. A "
        "plan beyond it "
        "removes nothing, nor do later ones, until `outscaler release`; 0: no limit.",
        written="0",
    ),
)

# -- spec.prices -----------------------------------------------------------------------------------
# Prices are part of the document because a provider's price list is not what a customer pays, and
# reading it needs further permissions.

_NUMBER = number(0.0, 1e9, "0.096")
_PRICE = ValueType("price", _NUMBER.read, show_number, _NUMBER.form)
_INSTANCE_TYPE = text("an instance type", r"[^\s\x00-\x1f\x7f]{1,256}", "it like m5.large")


def _read_types(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Return instance type -> price; UNSET if any is invalid."""
    if isinstance(node, Scalar) and not node.is_null:
        diagnostics.problem(
            path, f"is {node.text[:60]!r}", "write one instance type per line, as m5.large: 0.096"
        )
        return UNSET
    entries = entries_of(node, path, diagnostics)
    if entries is None:
        return UNSET
    prices: dict[str, float] = {}
    for name, value in entries.items():
        name_node = Scalar(name, plain=False, line=value.line, column=value.column)
        type_name = _INSTANCE_TYPE.read(name_node, (*path, name), diagnostics)
        price = _PRICE.read(value, (*path, name), diagnostics)
        if type_name is not UNSET and price is not UNSET:
            prices[name] = price
    return prices if len(prices) == len(entries) else UNSET


_PRICES_OF_TYPES = ValueType(
    "mapping of instance types to prices",
    _read_types,
    lambda prices: {name: show_number(price) for name, price in prices.items()},
    lambda: {"type": "object", "additionalProperties": _PRICE.form()},
)


def _parse_date(value: str) -> str:
    try:
        valid = date.fromisoformat(value).isoformat() == value  # 20260701 is a date, too
    except ValueError:
        valid = False
    if not valid:
        raise BadInput("", f"{quote(value)} is not a date", "write it like 2026-07-01")
    return value


PRICES = section(
    Field("instanceTypes", _PRICES_OF_TYPES, "What a node of a type costs."),
    Field(
        "spot",
        _PRICES_OF_TYPES,
        "What a spot node of a type costs, in place of the other prices. Without spec.spot only in "
        "groups that their "
        "provider calls spot.",
    ),
    Field("cpu", _PRICE, "What a core costs, for nodes of other types and for pods."),
    Field("memory", _PRICE, "What a GiB of memory costs."),
    Field("gpu", _PRICE, "What a GPU costs."),
    Field("node", _PRICE, "What is added for every node, whatever its type.", written="0"),
    Field(
        "currency",
        text("a currency's code of three capital letters", r"[A-Z]{3}", "it like EUR"),
        (
            "Currency of the list, by its ISO 4217 code. Prices of another currency are not "
            "compared with it."
        ),
    ),
    Field(
        "asOf",
        scalar("date", _parse_date, "a date, such as 2026-07-01"),
        "Date of the list, for reports.",
    ),
)

# -- spec.notifications (docs/notifications.md) ----------------------------------------------------

_TOPIC = text(
    "the ARN of an SNS topic whose name begins with outscaler-",
    r"arn:aws(-[a-z]+)*:sns:[a-z0-9-]{5,30}:[0-9]{12}:outscaler-[A-Za-z0-9_-]{1,240}",
    "it like arn:aws:sns:eu-central-2:123456789012:outscaler-events",
)


def _parse_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        valid = (
            parts.scheme == "https"
            and parts.hostname
            and parts.username is None
            and parts.port != 0
        )
    except ValueError:  # such as a bracket that is not closed, or a port beyond 65535
        valid = False
    if not valid or not value.isprintable() or len(value) > 1024:
        problem = f"{quote(value)} is not an HTTPS address"
        raise BadInput("", problem, "write it like https://hooks.example.org/outscaler")
    return value


NOTICE_WEBHOOK = section(
    Field(
        "url",
        scalar("HTTPS address", _parse_url, "an HTTPS address"),
        "Receives CloudEvents.",
        required=True,
        example="url: https://hooks.example.org/outscaler",
    ),
    Field(
        "secret",
        SECRET,
        "Secret that the events are signed with (Standard Webhooks).",
        required=True,
    ),
)
QUIET_HOURS = section(*_opening("0 20 * * *", "10h"))
NOTIFICATIONS = section(
    Field("topic", _TOPIC, "SNS topic that receives CloudEvents."),
    Field("chatTopic", _TOPIC, "SNS topic of Amazon's chat client."),
    Field("webhook", nested(NOTICE_WEBHOOK), "Address that receives CloudEvents."),
    Field(
        "minSeverity",
        choice(
            tuple(word.value for word in NoticeSeverity),
            NoticeSeverity,
            "info, warning or critical",
        ),
        "The least severity that is sent.",
        written="warning",
    ),
    Field(
        "types",
        listed(choice(NOTICE_TYPES)),
        (
            "Only these types, whatever their severity; scaled.up and scaled.down are sent only "
            "where they are named."
        ),
    ),
    Field(
        "quietHours",
        listed_sections(
            QUIET_HOURS,
            "window",
            20,
            '{cron: "0 20 * * *", duration: 10h}',
            ends_before_it_opens_again,
        ),
        "When messages of severity info wait.",
    ),
)
