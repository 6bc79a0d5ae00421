"""The metric filters of the functions' logs, which alarms need (infra/aws/alarms.py).

A filter needs its log group, and Chalice's functions have none before their first line. The filters
are therefore not part of the foundation's stack; they are set after the log groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from infra.aws.alarm_resources import filters
from infra.aws.deploy import foundation
from infra.aws.deploy.account_settings import Setting
from infra.aws.deploy.stage import Stage

Json = dict[str, Any]

_PREFIX = "outscaler-"


def settings(stage: Stage, logs: Any) -> Iterator[Setting]:
    """Return the filters to compare; without a topic for alarms there are none. logs: a
    client of CloudWatch Logs."""
    wanted: dict[str, dict[str, Json]] = {}
    for name, properties in filters(foundation.names(stage)):
        of_group = wanted.setdefault(properties["LogGroupName"], {})
        if stage.options.alarm_topic_arn:
            of_group[f"{_PREFIX}{name}"] = _filter(properties)
    for group, by_name in wanted.items():
        found = _found(group, logs)
        for name in sorted(by_name.keys() | found.keys()):
            named = {"logGroupName": group, "filterName": name}
            write = (
                partial(logs.put_metric_filter, **named, **by_name[name])
                if name in by_name
                else partial(logs.delete_metric_filter, **named)
            )
            yield Setting(
                f"log group {group}: filter {name}", by_name.get(name), found.get(name), write
            )


def _filter(properties: Json) -> Json:
    transformations = [
        {key[0].lower() + key[1:]: value for key, value in one.items()}
        for one in properties["MetricTransformations"]
    ]
    return {"filterPattern": properties["FilterPattern"], "metricTransformations": transformations}


def _found(group: str, logs: Any) -> dict[str, Json]:
    try:
        found = logs.describe_metric_filters(logGroupName=group, filterNamePrefix=_PREFIX)[
            "metricFilters"
        ]
    except logs.exceptions.ResourceNotFoundException:
        return {}
    kept = ("metricName", "metricNamespace", "metricValue")
    return {
        one["filterName"]: {
            "filterPattern": one["filterPattern"],
            "metricTransformations": [
                {key: each[key] for key in kept} for each in one["metricTransformations"]
            ],
        }
        for one in found
    }
