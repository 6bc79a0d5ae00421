"""CloudWatch's alarms on emulated metrics: M of N values, the treatment of missing ones, and the changes of state.

The alarms are those of a template, as it would be deployed, with their references resolved. Metrics are values with an
instant, a namespace, a name and dimensions; every value counts in the period that it falls into.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from infra.emulators.metric_math import evaluate

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
        """Return a statistic over the period that begins at an instant, None without a value in it. period: seconds, a
        multiple of 60."""
        minutes = self._values.get(series, {})
        first = int(begin // 60)
        found = [value for minute in range(first, first + period // 60) for value in minutes.get(minute, ())]
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

    resources: of a template without references; other types are ignored. states: by the logical id of the alarm.
    changes: oldest first.
    """

    def __init__(self, resources: Mapping[str, Any], datapoints: Datapoints) -> None:
        self._alarms = {
            name: one["Properties"] for name, one in resources.items() if one["Type"] == "AWS::CloudWatch::Alarm"
        }
        self._datapoints = datapoints
        self.states = dict.fromkeys(self._alarms, UNKNOWN)
        self.changes: list[AlarmChange] = []

    def look(self, now: float) -> list[AlarmChange]:
        """Evaluate every alarm over its last complete periods, and return the changes. now: epoch seconds."""
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
            missing == "breaching" if value is None else compare(value, float(alarm["Threshold"])) for value in values
        )
        return ALARM if breaching >= int(alarm.get("DatapointsToAlarm", periods)) else OK

    def _values(self, alarm: Mapping[str, Any], now: float, periods: int) -> list[float | None]:
        queries = alarm.get("Metrics") or [_single(alarm)]
        metrics = [query for query in queries if "MetricStat" in query]
        [result] = [query for query in queries if query.get("ReturnData", True)]
        period = int(metrics[0]["MetricStat"]["Period"])
        last = now // period * period
        return [
            self._value(metrics, result, last - (number + 1) * period, period) for number in reversed(range(periods))
        ]

    def _value(
        self, metrics: Sequence[Mapping[str, Any]], result: Mapping[str, Any], begin: float, period: int
    ) -> float | None:
        found = {
            query["Id"]: self._datapoints.value(
                _series(query["MetricStat"]["Metric"]), query["MetricStat"]["Stat"], begin, period
            )
            for query in metrics
        }
        return evaluate(result["Expression"], found) if "Expression" in result else found[result["Id"]]


def _single(alarm: Mapping[str, Any]) -> Mapping[str, Any]:
    stat = {"Metric": alarm, "Period": alarm["Period"], "Stat": alarm.get("Statistic") or alarm["ExtendedStatistic"]}
    return {"Id": "only", "MetricStat": stat, "ReturnData": True}


def _series(metric: Mapping[str, Any]) -> Series:
    dimensions = tuple(sorted((one["Name"], one["Value"]) for one in metric.get("Dimensions", ())))
    return metric["Namespace"], metric["MetricName"], dimensions
