"""Makes CloudFormation's resources from the tables of alarms and metric filters (alarms.py), for
either kind of deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from infra.aws.alarms import (
    ALARMS,
    DEAD_LETTERS,
    FILTERS,
    FIVE_MINUTES,
    LOGGED,
    RUNBOOK,
    SQS,
    MachineryAlarm,
    Source,
)
from infra.aws.resources import Resources, logical_id


class Names(msgspec.Struct, frozen=True):
    """Names in one kind of deployment: texts, or references of CloudFormation.

    function, log_group: by the internal name of a function. queue, dead_letters: by that of a
    queue. table: the state table. api: the REST API's name and stage. namespace: of the metrics
    from the log. concurrency: how many functions the account may run at a time. used: leaves out
    what belongs to a provider that is not used.
    """

    function: Callable[[str], Any]
    log_group: Callable[[str], Any]
    queue: Callable[[str], Any]
    dead_letters: Callable[[str], Any]
    table: Any
    api: tuple[Any, Any]
    namespace: Any
    concurrency: Any
    used: Callable[[str, Any], Any] = lambda _, value: value


def alarm_resources(topic: Any, names: Names) -> Resources:
    """Return all alarms. topic: the ARN of the SNS topic that gets their changes."""
    made = {f"{alarm.name}Alarm": _resource(alarm, topic, names) for alarm in ALARMS}
    return made | _dead_letter_alarms(topic, names)


def filter_resources(names: Names) -> Resources:
    """Return the metric filters as resources of the stack that has the log groups."""
    return {
        f"{name}Filter": {"Type": "AWS::Logs::MetricFilter", "Properties": properties}
        for name, properties in filters(names)
    }


def filters(names: Names) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each metric filter's name and properties, in the form that CloudFormation
    and CloudWatch Logs share."""
    for each in FILTERS:
        for function in each.functions:
            yield (
                f"{each.name}{logical_id(function)}",
                {
                    "LogGroupName": names.log_group(function),
                    "FilterPattern": each.pattern,
                    "MetricTransformations": [
                        {
                            "MetricName": each.metric,
                            "MetricNamespace": names.namespace,
                            "MetricValue": each.value,
                        }
                    ],
                },
            )


def described(summary: str, anchor: str) -> str:
    """Return an alarm's description, which ends with its place in the runbook."""
    return f"{summary}: {RUNBOOK}#{anchor}"


def _resource(alarm: MachineryAlarm, topic: Any, names: Names) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "AlarmDescription": described(alarm.summary, alarm.anchor),
        "EvaluationPeriods": alarm.periods,
        "DatapointsToAlarm": alarm.breaching,
        "Threshold": alarm.threshold,
        "ComparisonOperator": alarm.comparison,
        "TreatMissingData": alarm.missing,
        "AlarmActions": [topic],
        "OKActions": [topic],
    }
    if not alarm.expression:
        [source] = alarm.sources
        return _alarm(
            properties
            | _metric(source, names)
            | {"Period": alarm.period, _stat_key(source): source.stat}
        )
    queries = [
        names.used(source.provider, _query(source, alarm.period, names)) for source in alarm.sources
    ]
    result = {
        "Id": "result",
        "Expression": _expression(alarm.expression, names),
        "Label": alarm.name,
        "ReturnData": True,
    }
    return _alarm(properties | {"Metrics": [*queries, result]})


def _alarm(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"Type": "AWS::CloudWatch::Alarm", "Properties": dict(properties)}


def _query(source: Source, period: int, names: Names) -> dict[str, Any]:
    stat = {"Metric": _metric(source, names), "Period": period, "Stat": source.stat}
    return {"Id": source.id, "MetricStat": stat, "ReturnData": False}


def _metric(source: Source, names: Names) -> dict[str, Any]:
    namespace = names.namespace if source.namespace == LOGGED else source.namespace
    dimensions = [
        *_dimensions(source.of, names),
        *({"Name": name, "Value": value} for name, value in source.more),
    ]
    return {"Namespace": namespace, "MetricName": source.metric} | (
        {"Dimensions": dimensions} if dimensions else {}
    )


def _dimensions(of: str, names: Names) -> list[dict[str, Any]]:
    kind, _, name = of.partition(":")
    return [
        {"Name": dimension, "Value": value} for dimension, value in _DIMENSIONS[kind](names, name)
    ]


_DIMENSIONS: Mapping[str, Callable[[Names, str], list[tuple[str, Any]]]] = {
    "": lambda _names, _name: [],
    "function": lambda names, name: [("FunctionName", names.function(name))],
    "queue": lambda names, name: [("QueueName", names.queue(name))],
    "dead": lambda names, name: [("QueueName", names.dead_letters(name))],
    "table": lambda names, _: [("TableName", names.table)],
    "api": lambda names, _: [("ApiName", names.api[0]), ("Stage", names.api[1])],
}


def _stat_key(source: Source) -> str:
    return "ExtendedStatistic" if source.stat.startswith("p") else "Statistic"


def _expression(text: str, names: Names) -> Any:
    if "{concurrency}" not in text:
        return text
    if isinstance(names.concurrency, dict):
        return {"Fn::Sub": text.replace("{concurrency}", f"${{{names.concurrency['Ref']}}}")}
    return text.replace("{concurrency}", str(names.concurrency))


def _dead_letter_alarms(topic: Any, names: Names) -> Resources:
    """Return an alarm for each dead-letter queue, raised when it is not empty."""
    return {
        f"{logical_id(name)}DeadLettersAlarm": _alarm(
            {
                "AlarmDescription": described(f"Messages of {name} failed for good", "deadletters"),
                **_metric(
                    Source(
                        "", SQS, "ApproximateNumberOfMessagesVisible", "Maximum", f"dead:{name}"
                    ),
                    names,
                ),
                "Statistic": "Maximum",
                "Period": FIVE_MINUTES,
                "EvaluationPeriods": 1,
                "Threshold": 0,
                "ComparisonOperator": "GreaterThanThreshold",
                "TreatMissingData": "notBreaching",
                "AlarmActions": [topic],
                "OKActions": [topic],
            }
        )
        for name in DEAD_LETTERS
    }
