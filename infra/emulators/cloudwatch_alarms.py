"""CloudWatch's alarms on emulated metrics: M of N values, the treatment of missing ones,
and the changes of state.

The alarms are those of a template, as it would be deployed, with their references resolved.
Metrics are values with an instant, a namespace, a name and dimensions; every value counts in the
period that it falls into.
"""

from __future__ import annotations

import json
import logging
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from chalicelib.runtime.log import logger
from infra.aws.alarm_resources import Names, alarm_resources, filters
from infra.aws.alarms import DEAD_LETTERS, FUNCTIONS, LAMBDA, SQS
from infra.aws.resources import QUEUES, dead_letters
from infra.emulators.local_world import LocalWorld

OK, ALARM, UNKNOWN = "OK", "ALARM", "INSUFFICIENT_DATA"

Series = tuple[str, str, tuple[tuple[str, str], ...]]
"""Namespace, name and dimensions of a metric."""

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "Sum": sum,
    "Maximum": max,
    "Minimum": min,
    "SampleCount": len,
    "Average": lambda values: sum(values) / len(values),
}


class Datapoints:
    """The metrics of an account."""

    def __init__(self) -> None:
        self._values: dict[Series, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def put(self, namespace: str, name: str, value: float, at: float, **dimensions: str) -> None:
        """Store a value. at: epoch seconds."""
        series = (namespace, name, tuple(sorted(dimensions.items())))
        self._values[series][int(at // 60)].append(value)

    def value(self, series: Series, stat: str, begin: float, period: int) -> float | None:
        """Return a statistic over the period that begins at an instant, None without a value in it.
        period: seconds, a multiple of 60."""
        minutes = self._values.get(series, {})
        first = int(begin // 60)
        found = [
            value
            for minute in range(first, first + period // 60)
            for value in minutes.get(minute, ())
        ]
        if not found:
            return None
        if stat.startswith("p"):
            return sorted(found)[max(0, math.ceil(len(found) * float(stat[1:]) / 100) - 1)]
        return _STATISTICS[stat](found)


class AlarmChange(msgspec.Struct, frozen=True):
    """A change of an alarm's state. at: epoch seconds."""

    alarm: str
    state: str
    at: float


class CloudWatchAlarms:
    """The alarms of one deployment.

    resources: of a template without references; other types are ignored. states: by the logical id
    of the alarm. changes: oldest first.
    """

    def __init__(self, resources: Mapping[str, Any], datapoints: Datapoints) -> None:
        self._alarms = {
            name: one["Properties"]
            for name, one in resources.items()
            if one["Type"] == "AWS::CloudWatch::Alarm"
        }
        self._datapoints = datapoints
        self.states = dict.fromkeys(self._alarms, UNKNOWN)
        self.changes: list[AlarmChange] = []

    def look(self, now: float) -> list[AlarmChange]:
        """Evaluate every alarm over its last complete periods, and return the
        changes. now: epoch seconds."""
        changed = []
        for name, alarm in self._alarms.items():
            state = self._state(alarm, now, self.states[name])
            if state != self.states[name]:
                self.states[name] = state
                changed.append(AlarmChange(name, state, now))
        self.changes += changed
        return changed

    def _state(self, alarm: Mapping[str, Any], now: float, before: str) -> str:
        periods = int(alarm["EvaluationPeriods"])
        values = self._values(alarm, now, periods)
        missing = alarm.get("TreatMissingData", "missing")
        if all(value is None for value in values) and missing in ("missing", "ignore"):
            return UNKNOWN if missing == "missing" else before
        compare = _COMPARISONS[alarm["ComparisonOperator"]]
        breaching = sum(
            missing == "breaching" if value is None else compare(value, float(alarm["Threshold"]))
            for value in values
        )
        return ALARM if breaching >= int(alarm.get("DatapointsToAlarm", periods)) else OK

    def _values(self, alarm: Mapping[str, Any], now: float, periods: int) -> list[float | None]:
        queries = alarm.get("Metrics") or [_single(alarm)]
        metrics = [query for query in queries if "MetricStat" in query]
        [result] = [query for query in queries if query.get("ReturnData", True)]
        period = int(metrics[0]["MetricStat"]["Period"])
        last = now // period * period
        return [
            self._value(metrics, result, last - (number + 1) * period, period)
            for number in reversed(range(periods))
        ]

    def _value(
        self,
        metrics: Sequence[Mapping[str, Any]],
        result: Mapping[str, Any],
        begin: float,
        period: int,
    ) -> float | None:
        found = {
            query["Id"]: self._datapoints.value(
                _series(query["MetricStat"]["Metric"]), query["MetricStat"]["Stat"], begin, period
            )
            for query in metrics
        }
        return (
            evaluate(result["Expression"], found) if "Expression" in result else found[result["Id"]]
        )


def _single(alarm: Mapping[str, Any]) -> Mapping[str, Any]:
    stat = {
        "Metric": alarm,
        "Period": alarm["Period"],
        "Stat": alarm.get("Statistic") or alarm["ExtendedStatistic"],
    }
    return {"Id": "only", "MetricStat": stat, "ReturnData": True}


def _series(metric: Mapping[str, Any]) -> Series:
    dimensions = tuple(sorted((one["Name"], one["Value"]) for one in metric.get("Dimensions", ())))
    return metric["Namespace"], metric["MetricName"], dimensions


Value = float | None | list[float | None]

_TOKEN = re.compile(
    r'\s*(?:(\d+(?:\.\d+)?)|("[^"]*")|([A-Za-z][A-Za-z0-9_]*)|(>=|<=|==|!=|[-+*/()<>,\[\]]))'
)
_LEVELS: tuple[Mapping[str, Callable[[float, float], float | None]], ...] = (
    {"OR": lambda one, other: float(bool(one) or bool(other))},
    {"AND": lambda one, other: float(bool(one) and bool(other))},
    {
        word: lambda one, other, compare=compare: float(compare(one, other))  # type: ignore[misc]
        for word, compare in {
            ">": operator.gt,
            "<": operator.lt,
            ">=": operator.ge,
            "<=": operator.le,
            "==": operator.eq,
            "!=": operator.ne,
        }.items()
    },
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda one, other: one / other if other else None},
)


class MathError(Exception):
    """The expression cannot be read; the message says where."""


def evaluate(expression: str, values: Mapping[str, float | None]) -> float | None:
    """Return the value of an expression. values: by id, None where a metric has no
    value. Raises MathError."""
    reader = _Reader(expression, values)
    value = reader.level(0)
    if reader.left:
        raise MathError(f"{expression}: unexpected {reader.left[0]}")
    if isinstance(value, list):
        raise MathError(f"{expression}: an alarm needs one time series")
    return value


class _Reader:
    def __init__(self, text: str, values: Mapping[str, float | None]) -> None:
        self._text, self._values, self.left = text, values, _tokens(text)

    def level(self, number: int) -> Value:
        """Read operations of one precedence; those of the next one are their operands."""
        if number == len(_LEVELS):
            return self._operand()
        value = self.level(number + 1)
        while self.left and self.left[0] in _LEVELS[number]:
            made = _LEVELS[number][self.left.pop(0)]
            value = _each(made, value, self.level(number + 1))
        return value

    def _operand(self) -> Value:
        token = self._next()
        if token == "(":
            value = self.level(0)
            self._expect(")")
            return value
        if token == "[":
            return [
                one
                for value in self._arguments("]")
                for one in (value if isinstance(value, list) else [value])
            ]
        if token[0].isdigit():
            return float(token)
        if self.left and self.left[0] == "(":
            self._expect("(")
            return self._function(token)
        if token not in self._values:
            raise MathError(f"{self._text}: no metric has the id {token}")
        return self._values[token]

    def _function(self, name: str) -> Value:
        if name == "METRICS":
            part = self._next().strip('"') if self.left and self.left[0] != ")" else ""
            self._expect(")")
            return [value for identifier, value in self._values.items() if part in identifier]
        if name not in _FUNCTIONS:
            raise MathError(f"{self._text}: unknown function {name}")
        return _FUNCTIONS[name](self._arguments(")"))

    def _arguments(self, end: str) -> list[Value]:
        made = [self.level(0)]
        while self.left and self.left[0] == ",":
            self._expect(",")
            made.append(self.level(0))
        self._expect(end)
        return made

    def _next(self) -> str:
        if not self.left:
            raise MathError(f"{self._text}: ends too early")
        return self.left.pop(0)

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise MathError(f"{self._text}: {found} in place of {token}")


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise MathError(f"{text}: cannot be read from {text[at:]}")
        found.append(token[0].strip())
        at = token.end()
    return found


def _each(made: Callable[[float, float], float | None], one: Value, other: Value) -> Value:
    if isinstance(one, list) or isinstance(other, list):
        raise MathError("an operation on lists of time series is not emulated")
    return None if one is None or other is None else made(one, other)


def _flat(arguments: list[Value]) -> list[float | None]:
    [given] = arguments
    return given if isinstance(given, list) else [given]


def _total(reduce: Callable[[list[float]], float]) -> Callable[[list[Value]], Value]:
    def of(arguments: list[Value]) -> Value:
        found = [value for value in _flat(arguments) if value is not None]
        return reduce(found) if found else None

    return of


def _filled(arguments: list[Value]) -> Value:
    given, fill = arguments
    if isinstance(fill, list):
        raise MathError("FILL: the second argument is a number")
    return (
        [fill if one is None else one for one in given]
        if isinstance(given, list)
        else fill
        if given is None
        else given
    )


def _chosen(arguments: list[Value]) -> Value:
    condition, yes, no = arguments
    return None if condition is None else yes if condition else no


_FUNCTIONS: Mapping[str, Callable[[list[Value]], Value]] = {
    "IF": _chosen,
    "FILL": _filled,
    "SUM": _total(sum),
    "MAX": _total(max),
}


Line = Mapping[str, Any]
Matches = Callable[[Line], bool]

_EQUALS = re.compile(r'\$\.(\w+) = "([^"]*)"\Z')
_IS_TRUE = re.compile(r"\$\.(\w+) IS TRUE\Z")


class PatternError(Exception):
    """The pattern cannot be read; the message contains it."""


def matcher(pattern: str) -> Matches:
    """Return whether a line matches, as a function. Raises PatternError."""
    if not (pattern.startswith("{ ") and pattern.endswith(" }")):
        raise PatternError(pattern)
    text = pattern[2:-2]
    for word, joined in ((" && ", all), (" || ", any)):
        if word in text:
            terms = [_term(part.removeprefix("(").removesuffix(")")) for part in text.split(word)]
            return lambda line, terms=terms, joined=joined: joined(term(line) for term in terms)  # type: ignore[misc]
    return _term(text)


def metric_value(value: str, line: Line) -> float | None:
    """Return the value of a line that matches: a number, or the line's field `$.name`;
    None without a number there."""
    found = line.get(value[2:]) if value.startswith("$.") else float(value)
    return float(found) if isinstance(found, int | float) else None


def _term(text: str) -> Matches:
    if equals := _EQUALS.match(text):
        field, wanted = equals.groups()
        if wanted.endswith("*"):
            return lambda line: str(line.get(field, "")).startswith(wanted[:-1])
        return lambda line: line.get(field) == wanted
    if is_true := _IS_TRUE.match(text):
        return lambda line: line.get(is_true[1]) is True
    raise PatternError(text)


NAMES = Names(
    function=str,
    log_group=str,
    queue=str,
    dead_letters=dead_letters,
    table="state",
    api=("outscaler", "api"),
    namespace="Outscaler/emulation",
    concurrency=1000,
)
MINUTE = 60.0
_VISIBLE = "ApproximateNumberOfMessagesVisible"


class WatchedDeployment:
    """A world whose alarms are evaluated once a minute. A context manager: it reads the
    log while it is entered."""

    def __init__(self, world: LocalWorld) -> None:
        self.world, self.datapoints = world, Datapoints()
        self.alarms = CloudWatchAlarms(alarm_resources("topic", NAMES), self.datapoints)
        self._seen = len(world.invocations)
        self._filters = [
            (properties, matcher(properties["FilterPattern"])) for _, properties in filters(NAMES)
        ]
        self._handler = _Lines(self)
        self._handler.setFormatter(logger.registered_formatter)

    def __enter__(self) -> Self:
        logging.getLogger(logger.name).addHandler(self._handler)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger(logger.name).removeHandler(self._handler)

    def minutes(self, count: int) -> None:
        for _ in range(count):
            self.world.step(MINUTE)
            self._measure()
            self.alarms.look(self.world.clock())

    def raised(self) -> set[str]:
        """Return the logical ids of the alarms that are in the state ALARM."""
        return {name for name, state in self.alarms.states.items() if state == "ALARM"}

    def line(self, function: str, text: str) -> None:
        """Apply the metric filters of a function's log to one of its lines."""
        found = json.loads(text)
        for properties, matches in self._filters:
            if properties["LogGroupName"] != function or not matches(found):
                continue
            for each in properties["MetricTransformations"]:
                value = metric_value(each["MetricValue"], found)
                if value is not None:
                    self.datapoints.put(
                        each["MetricNamespace"], each["MetricName"], value, self.world.clock()
                    )

    def _measure(self) -> None:
        for made in self.world.invocations[self._seen :]:
            if made.function in FUNCTIONS:
                for metric, value in (
                    ("Invocations", 1.0),
                    ("Errors", float(not made.finished)),
                    ("Throttles", 0.0),
                ):
                    self.datapoints.put(LAMBDA, metric, value, made.at, FunctionName=made.function)
        self._seen = len(self.world.invocations)
        now = self.world.clock() - 1.0  # in the minute that ends now
        queues = self.world.queues
        for name in QUEUES:
            waiting = queues.waiting(name)
            age = max((now - message.sent_at for message in waiting), default=0.0)
            visible = sum(message.visible_at <= now for message in waiting)
            self.datapoints.put(
                SQS, "ApproximateAgeOfOldestMessage", max(0.0, age), now, QueueName=name
            )
            self.datapoints.put(SQS, _VISIBLE, float(visible), now, QueueName=name)
        for name in DEAD_LETTERS:
            count = float(len(queues.dead.get(name, ())))
            self.datapoints.put(SQS, _VISIBLE, count, now, QueueName=dead_letters(name))


class _Lines(logging.Handler):
    """Passes on each line of the log with the function that is running."""

    def __init__(self, watched: WatchedDeployment) -> None:
        super().__init__()
        self._watched = watched

    def emit(self, record: logging.LogRecord) -> None:
        function = self._watched.world.invoker.current
        if function:
            self._watched.line(function, self.format(record))
