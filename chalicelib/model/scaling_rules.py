"""Demand besides pending pods: rules that add nodes, schedules, and headroom.

The policy document and the cluster's HorizontalNodeAutoscaler objects produce the same values; only
`source` tells them apart. Durations are seconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Metric(StrEnum):
    """The metric of a rule: the allocation rate of a pool, requests divided by allocatable."""

    CPU = "cpu"
    MEMORY = "memory"


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One cron or metric rule. Exactly one of cron and metric is set.

    groups: ids, pool ids or names; the rule acts on each pool separately. add: nodes, 0: as many as
    bring the rate below the threshold (metric only). above: percent, 1 to 100; 0: the policy's own
    threshold for the metric. source: empty for the policy, otherwise `namespace/name` of a
    HorizontalNodeAutoscaler.
    """

    name: str
    groups: tuple[str, ...] = ()
    cron: str = ""
    time_zone: str = "UTC"
    metric: Metric | None = None
    above: int = 0
    add: int = 0
    source: str = ""

    @property
    def key(self) -> str:
        """Return its key in memory; names are unique within a source."""
        return f"{self.source}/{self.name}" if self.source else self.name


class RuleObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """A HorizontalNodeAutoscaler as it was read. problems: why the whole object is rejected, empty
    if it is valid; warnings: what is ignored. disabled: spec.disable. created: its creation time,
    which decides precedence."""

    namespace: str
    name: str
    uid: str = ""
    created: float = 0.0
    disabled: bool = False
    rules: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return namespace/name, the source of its rules."""
        return f"{self.namespace}/{self.name}"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A window that opens when `cron` matches in time_zone and lasts `duration` seconds,
    and the settings within it.

    groups: the groups whose min and max it sets, every group if empty. mode: of the whole cluster
    (groups is empty then). headroom: percentage that replaces that of the headroom entries of the
    same scope; None: they stay unchanged.
    """

    name: str
    cron: str
    duration: float
    time_zone: str = "UTC"
    groups: tuple[str, ...] = ()
    min: int | None = None
    max: int | None = None
    headroom: int | None = None
    mode: str = ""


class Headroom(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Spare capacity, as virtual pods or as a percentage of the pods' requests.

    groups: where it must be, in total over all of them; anywhere in the cluster if empty.
    Either pods > 0 with cpu (millicores) and memory (bytes) each, or percent > 0 (of the
    requests of the pods in scope).
    """

    name: str
    groups: tuple[str, ...] = ()
    pods: int = 0
    cpu: int = 0
    memory: int = 0
    percent: int = 0


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
