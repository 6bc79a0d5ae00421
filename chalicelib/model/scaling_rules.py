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
