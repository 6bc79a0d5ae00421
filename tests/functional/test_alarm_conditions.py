"""Each alarm goes off with the values that it is made for, stays silent with others,
and ends with good ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest

from infra.aws.alarm_resources import alarm_resources
from infra.aws.alarms import ACT, ALARMS, LAMBDA, SQS
from infra.emulators.cloudwatch_alarms import NAMES, CloudWatchAlarms, Datapoints

START = 1_000_000_200.0  # begins a period of five minutes
API = {"ApiName": "outscaler", "Stage": "api"}


class Put(NamedTuple):
    """One value in each minute."""

    namespace: str
    metric: str
    value: float
    dimensions: Mapping[str, str] = {}


def function(metric: str, name: str, value: float) -> Put:
    return Put(LAMBDA, metric, value, {"FunctionName": name})


def logged(metric: str, value: float) -> Put:
    return Put(NAMES.namespace, metric, value)


def queue(metric: str, value: float) -> Put:
    return Put(SQS, metric, value, {"QueueName": "reconcile"})


def table(metric: str, value: float, **more: str) -> Put:
    return Put("AWS/DynamoDB", metric, value, {"TableName": "state", **more})


class AlarmCase(NamedTuple):
    """bad: raises the alarm within `within` minutes. good: does not, and ends it."""

    bad: tuple[Put, ...]
    good: tuple[Put, ...]
    within: int


CALLS = (function("Invocations", "reconcile", 4), function("Errors", "reconcile", 0))
CONDITIONS: dict[str, AlarmCase] = {
    "TickMissing": AlarmCase((), (function("Invocations", "tick", 1),), 6),
    "TickErrors": AlarmCase((function("Errors", "tick", 1),), (function("Errors", "tick", 0),), 6),
    "PassesMissing": AlarmCase(
        (logged("Passes", 0), logged("ExpectedPasses", 2)),
        (logged("Passes", 1), logged("ExpectedPasses", 2)),
        6,
    ),
    "PassErrors": AlarmCase(
        (*CALLS, logged("FailedPasses", 1)), (*CALLS, logged("FailedPasses", 0.5)), 20
    ),
    "PassSlow": AlarmCase(
        (function("Duration", "reconcile", 97_000),),
        (function("Duration", "reconcile", 95_000),),
        20,
    ),
    "ActErrors": AlarmCase(
        (logged("Steps", 3), function("Errors", ACT[0], 1)),
        (logged("Steps", 3), logged("FailedSteps", 0.5)),
        20,
    ),
    "OperationsFailed": AlarmCase((logged("FailedOperations", 1),), (), 20),
    "BrakeTripped": AlarmCase((logged("Brakes", 1),), (), 10),
    "Throttled": AlarmCase(
        (function("Throttles", ACT[-1], 1),), (function("Throttles", ACT[-1], 0),), 6
    ),
    "QueueOld": AlarmCase(
        (
            queue("ApproximateAgeOfOldestMessage", 301),
            queue("ApproximateNumberOfMessagesVisible", 1),
        ),
        (
            queue("ApproximateAgeOfOldestMessage", 700),
            queue("ApproximateNumberOfMessagesVisible", 0),
        ),
        6,
    ),
    "TableRefuses": AlarmCase(
        (table("SystemErrors", 1, Operation="Query"),), (table("WriteThrottleEvents", 0),), 6
    ),
    "WebhookFails": AlarmCase(
        (Put("AWS/ApiGateway", "5XXError", 0.06, API),),
        (Put("AWS/ApiGateway", "5XXError", 0.05, API),),
        6,
    ),
    "Concurrency": AlarmCase(
        (Put(LAMBDA, "ClaimedAccountConcurrency", 901),),
        (Put(LAMBDA, "ClaimedAccountConcurrency", 900),),
        6,
    ),
}


class Minutes:
    """The alarms of the deployment, minute by minute."""

    def __init__(self) -> None:
        self.points, self.now = Datapoints(), START
        self.alarms = CloudWatchAlarms(alarm_resources("topic", NAMES), self.points)

    def until(self, state: str, alarm: str, values: Iterable[Put], most: int) -> bool:
        """Whether the alarm gets this state within that many minutes of these values."""
        for _ in range(most):
            for put in values:
                self.points.put(put.namespace, put.metric, put.value, self.now, **put.dimensions)
            self.now += 60.0
            self.alarms.look(self.now)
            if self.alarms.states[f"{alarm}Alarm"] == state:
                return True
        return False


@pytest.mark.parametrize("alarm", [alarm.name for alarm in ALARMS])
def test_alarm_goes_off_with_bad_values_only_and_ends_with_good_ones(alarm: str) -> None:
    bad, good, within = CONDITIONS[alarm]
    made = Minutes()
    # What is missing before the first value counts as it does later.
    assert made.until("OK", alarm, good, 6 * 5)
    assert not made.until("ALARM", alarm, good, 60)
    assert made.until("ALARM", alarm, bad, within)
    assert made.until("OK", alarm, good, 30)


def test_alarm_pass_errors_needs_five_calls() -> None:
    few = (function("Invocations", "reconcile", 0.9), function("Errors", "reconcile", 0.9))
    assert not Minutes().until("ALARM", "PassErrors", few, 60)
    assert Minutes().until(
        "ALARM", "PassErrors", (function("Invocations", "reconcile", 1), *few[1:]), 60
    )
