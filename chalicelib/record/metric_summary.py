"""Selects the few series that a cluster sends to CloudWatch where its policy asks for a summary.

CloudWatch charges for a metric in each hour in which it is sent. A series is therefore written only where it is not
zero, and none has a label but the cluster: an idle cluster writes nothing, and a busy one has six series at most. An
alarm on one of them treats missing data as good. `GET /metrics` does not depend on this.
"""

from __future__ import annotations

from chalicelib.model.policy import Metrics
from chalicelib.record.metrics import PAGE_ONLY, Values, key, parts

SERIES = (
    "errors_total",
    "failed_operations_total",
    "failed_scale_ups_total",
    "scaled_down_nodes_total",
    "scaled_up_nodes_total",
    "unschedulable_pods_count",
)
"""The names, each of which is one series per cluster: the sum over its labels."""

# excludes pods that the scheduler has not processed yet
_ONLY = {"unschedulable_pods_count": {"type": "unschedulable"}}


def chosen(values: Values, metrics: Metrics) -> Values:
    """Return the values that are written to CloudWatch. values: by metrics.key, for counters the increments."""
    return _CHOICES[metrics](values)


def _all(values: Values) -> Values:
    return {series: value for series, value in values.items() if series not in PAGE_ONLY}


def _none(values: Values) -> Values:
    del values
    return {}


def _summary(values: Values) -> Values:
    sums: dict[str, float] = {}
    for series, value in values.items():
        name, labels = parts(series)
        only = _ONLY.get(name, {})
        if name in SERIES and value and all(labels.get(label) == word for label, word in only.items()):
            sums[key(name)] = sums.get(key(name), 0.0) + value
    return sums


_CHOICES = {Metrics.FULL: _all, Metrics.SUMMARY: _summary, Metrics.OFF: _none}
