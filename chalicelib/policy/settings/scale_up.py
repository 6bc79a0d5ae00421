"""spec.scaleUp: what may make groups grow."""

from __future__ import annotations

import msgspec


class ScaleUp(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Which causes may scale up groups. cpu_threshold, memory_threshold: percent, for rules that
    name none. cron_time_zone: of HorizontalNodeAutoscalers. metric_min_interval: seconds between
    metric actions on one pool. horizontal_node_autoscalers: whether objects of the cluster are
    read; None: only if huaweicloud is a provider. expected_cost: the expanders price and least-cost
    weigh prices by what groups have taught (docs/reference/learning.md). learned_timeouts: a group
    that is usually fast is given up sooner than maxNodeProvisionTime."""

    unschedulable_pods: bool = True
    rules: bool = True
    cpu_threshold: int = 100
    memory_threshold: int = 100
    metric_min_interval: float = 0.0
    cron_time_zone: str = "UTC"
    horizontal_node_autoscalers: bool | None = None
    expected_cost: bool = False
    learned_timeouts: bool = False
