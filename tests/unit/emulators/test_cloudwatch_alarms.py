"""The emulated alarms follow CloudWatch's rules: M of N values, missing values,
metric math, metric filters.
"""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.cloudwatch_alarms import (
    AlarmChange,
    CloudWatchAlarms,
    Datapoints,
    MathError,
    PatternError,
    evaluate,
    matcher,
    metric_value,
)
from tests.cases import each_row

START = 1_000_000_200.0  # begins a period of five minutes


def _alarms(**more: Any) -> tuple[CloudWatchAlarms, Datapoints]:
    properties = {
        "Namespace": "N",
        "MetricName": "m",
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 3,
        "DatapointsToAlarm": 2,
        "Threshold": 1,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }
    points = Datapoints()
    return CloudWatchAlarms(
        {"A": {"Type": "AWS::CloudWatch::Alarm", "Properties": properties | more}}, points
    ), points


def _after(values: list[float | None], **more: Any) -> str:
    alarms, points = _alarms(**more)
    for minute, value in enumerate(values):
        if value is not None:
            points.put("N", "m", value, START + 60 * minute)
    alarms.look(START + 60 * len(values))
    return alarms.states["A"]


@each_row(
    "values, missing, state",
    [
        ([2, 0, 2], "notBreaching", "ALARM"),
        ([2, 0, 1], "notBreaching", "OK"),
        ([2, None, None], "notBreaching", "OK"),
        ([2, None, 0], "breaching", "ALARM"),
        ([None, None, None], "breaching", "ALARM"),
        ([None, None, None], "notBreaching", "OK"),
        ([None, None, None], "missing", "INSUFFICIENT_DATA"),
        ([None, None, None], "ignore", "INSUFFICIENT_DATA"),
        ([2, 2, 0, 0, 0], "notBreaching", "OK"),
    ],
)
def test_alarm_state_follows_from_m_of_n_values(
    values: list[float | None], missing: str, state: str
) -> None:
    assert _after(values, TreatMissingData=missing) == state


def test_alarm_reports_each_change_once() -> None:
    alarms, points = _alarms(EvaluationPeriods=1, DatapointsToAlarm=1)
    for minute, value in enumerate((0, 5, 5, 0)):
        points.put("N", "m", value, START + 60 * minute)
        alarms.look(START + 60 * (minute + 1))
    assert alarms.changes == [
        AlarmChange("A", "OK", START + 60),
        AlarmChange("A", "ALARM", START + 120),
        AlarmChange("A", "OK", START + 240),
    ]


@each_row(
    "stat, value",
    [("Sum", 10), ("Maximum", 4), ("Minimum", 1), ("Average", 2.5), ("SampleCount", 4), ("p50", 2)],
)
def test_statistic_covers_all_values_of_a_period(stat: str, value: float) -> None:
    points = Datapoints()
    for minute, one in enumerate((1, 2, 3, 4, 100)):
        points.put("N", "m", one, START + 75 * minute, F="f")
    assert points.value(("N", "m", (("F", "f"),)), stat, START, 300) == value
    assert points.value(("N", "m", ()), stat, START, 300) is None


@each_row(
    "expression, value",
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("IF(a > 1 AND b < 1, 5, 6)", 6),
        ("IF(a >= 2 OR nothing > 1, 5, 6)", None),
        ("a / zero", None),
        ("a + nothing", None),
        ("FILL(nothing, 4) + a", 6),
        ("SUM(METRICS())", 5),
        ('SUM(FILL(METRICS("n"), 1))', 1),
        ("MAX([a, b, nothing])", 3),
        ("SUM([nothing])", None),
    ],
)
def test_metric_math_value(expression: str, value: float | None) -> None:
    assert evaluate(expression, {"a": 2.0, "b": 3.0, "zero": 0.0, "nothing": None}) == value


@each_row(
    "expression", ["", "1 +", "(1", "x", "1 2", "EVAL(a)", "METRICS()", "a ; b", "a + METRICS()"]
)
def test_metric_math_error_is_reported(expression: str) -> None:
    with pytest.raises(MathError):
        evaluate(expression, {"a": 1.0})


@each_row(
    "pattern, line, matches",
    [
        ('{ $.message = "pass" }', {"message": "pass"}, True),
        ('{ $.message = "pass" }', {"message": "passed"}, False),
        ('{ $.message = "message failed*" }', {"message": "message failed unexpectedly"}, True),
        ('{ ($.message = "pass") && ($.brake IS TRUE) }', {"message": "pass", "brake": True}, True),
        (
            '{ ($.message = "pass") && ($.brake IS TRUE) }',
            {"message": "pass", "brake": False},
            False,
        ),
        ('{ ($.message = "a") || ($.message = "b") }', {"message": "b"}, True),
    ],
)
def test_metric_filter_selects_lines(pattern: str, line: dict[str, Any], matches: bool) -> None:
    assert matcher(pattern)(line) is matches


def test_metric_filter_value_is_a_number_or_a_field() -> None:
    assert metric_value("1", {}) == 1
    assert metric_value("$.expected", {"expected": 3}) == 3
    assert metric_value("$.expected", {"expected": "three"}) is None
    with pytest.raises(PatternError):
        matcher("[ip, user]")
