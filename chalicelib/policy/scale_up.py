"""spec.scaleUp: what may scale up groups, and the defaults of rules."""

from __future__ import annotations

from chalicelib.policy.cron_values import ZONE
from chalicelib.policy.list_sections import percent
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import BOOLEAN, duration

_THRESHOLD = percent(1, 100)

SCALE_UP = Section(
    fields=(
        Field("unschedulablePods", BOOLEAN, "unschedulable_pods", "Groups grow for pending pods.", default="true"),
        Field(
            "rules",
            BOOLEAN,
            "rules",
            "Groups grow by rules, those of HorizontalNodeAutoscaler objects included.",
            default="true",
        ),
        Field(
            "cpuThreshold",
            _THRESHOLD,
            "cpu_threshold",
            "The share of cpu for rules that say above: auto.",
            default="100%",
        ),
        Field("memoryThreshold", _THRESHOLD, "memory_threshold", "The same for memory.", default="100%"),
        Field(
            "metricMinInterval",
            duration(0.0, 86400.0),
            "metric_min_interval",
            "Least time between two actions of metric rules on one pool, up to 24h.",
            default="0s",
        ),
        Field(
            "cronTimeZone",
            ZONE,
            "cron_time_zone",
            "Time zone of the cron of HorizontalNodeAutoscaler objects.",
            default="UTC",
        ),
        Field(
            "horizontalNodeAutoscalers",
            BOOLEAN,
            "horizontal_node_autoscalers",
            "Read HorizontalNodeAutoscaler objects of the cluster and obey them; if not given: where huaweicloud is a "
            "provider.",
        ),
    )
)
