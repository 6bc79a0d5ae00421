"""spec.scaleUp: what may make groups grow."""

from typing import Annotated

import msgspec

from chalicelib.policy.settings.names_and_times import DAY, ZONE
from chalicelib.policy.value_types import BOOLEAN, duration, percent

THRESHOLD = percent(1, 100)


class ScaleUp(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.scaleUp. cpu_threshold, memory_threshold: percent. metric_min_interval: seconds.
    horizontal_node_autoscalers: None: only if huaweicloud is a provider. expected_cost,
    learned_timeouts: docs/reference/learning.md."""

    unschedulable_pods: Annotated[bool, BOOLEAN, "Groups grow for pending pods."] = True
    rules: Annotated[
        bool, BOOLEAN, "Groups grow by rules, those of HorizontalNodeAutoscaler objects included."
    ] = True
    cpu_threshold: Annotated[int, THRESHOLD, "The share of cpu for rules that say above: auto."] = (
        100
    )
    memory_threshold: Annotated[int, THRESHOLD, "The same for memory."] = 100
    metric_min_interval: Annotated[
        float,
        duration(0.0, DAY),
        "Least time between two actions of metric rules on one pool, up to 24h.",
    ] = 0.0
    cron_time_zone: Annotated[
        str, ZONE, "Time zone of the cron of HorizontalNodeAutoscaler objects."
    ] = "UTC"
    horizontal_node_autoscalers: Annotated[
        bool | None,
        BOOLEAN,
        "Read HorizontalNodeAutoscaler objects of the cluster and obey them; if not given: where "
        "huaweicloud is a provider.",
    ] = None
    expected_cost: Annotated[
        bool,
        BOOLEAN,
        "The expanders price and least-cost also count what a group has taught: how long its nodes "
        "take and how many of them fail.",
    ] = False
    learned_timeouts: Annotated[
        bool,
        BOOLEAN,
        "A group whose nodes usually come fast is given up sooner than after maxNodeProvisionTime.",
    ] = False
