"""Limits that a plan must respect: each group's maximum, the limit per scale-up, and the cluster's
nodes, cores and memory.

They are computed again from the plain objects (docs/reference/scale-up.md "Limits"); all nodes
count, including upcoming ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chalicelib.model.plan import ScaleUp
from tests.property.objects import STARTING
from tests.property.scheduler_view import SchedulerView, ViewedGroup, group_of

_PER_SCALE_UP = "maxNodesPerScaleup"


class Bounds:
    """The limits of a cluster and the totals after a plan's scale-ups."""

    def __init__(self, stage: SchedulerView, ups: Mapping[str, ScaleUp]) -> None:
        self._stage = stage
        self._ups = ups
        self._grown = {name: up.to_size - up.from_size for name, up in ups.items()}
        self._limits: dict[str, int] = {}
        for setting in stage.cluster.settings:
            name, _, value = setting.partition("=")
            number = value.rpartition(":")[2]
            if number.isdigit():
                self._limits[name] = int(number)

    def _totals(self, more: ViewedGroup | None = None) -> dict[str, int]:
        """Totals of the cluster after the plan. more: with one more node of this group."""
        there = list(self._stage.raws.values())
        nodes = len(there)
        cores = sum(int(node["status"]["capacity"]["cpu"]) for node in there)
        memory = sum(int(node["status"]["capacity"]["memory"][:-2]) << 30 for node in there)
        for name, group in self._stage.groups.items():
            starting = sum(
                group_of(node) == name and self._stage.states[node["metadata"]["name"]] == STARTING
                for node in there
            )
            count = self._grown.get(name, 0) + max(0, group.upcoming - starting) + (group is more)
            nodes, cores, memory = (
                nodes + count,
                cores + count * group.cores,
                memory + count * group.memory,
            )
        return {"maxNodesTotal": nodes, "coresTotal": cores, "memoryTotal": -(-memory >> 30)}

    def _passed(self, totals: Mapping[str, int]) -> list[str]:
        return [
            f"{name} {self._limits[name]}: {totals[name]}"
            for name in sorted(totals)
            if totals[name] > self._limits.get(name, totals[name])
        ]

    def passed(self) -> Iterator[str]:
        """Exceeded limits, as text. A limit exceeded before the plan is accepted
        if nothing is scaled up."""
        most = self._limits.get(_PER_SCALE_UP, 1000)
        for name, up in self._ups.items():
            group = self._stage.groups[name]
            if up.from_size != group.target or not up.from_size < up.to_size <= group.most:
                yield (
                    f"{name} from {up.from_size} to {up.to_size}, size {group.target}, max "
                    f"{group.most}"
                )
            if self._grown[name] > most:
                yield f"{name} from {up.from_size} to {up.to_size}, {_PER_SCALE_UP} {most}"
        yield from self._passed(self._totals()) if self._ups else ()

    def may_grow(self, group: ViewedGroup) -> bool:
        """Whether one more node of a group respects all limits."""
        grown = self._grown.get(group.name, 0)
        return (
            group.target + grown < group.most
            and grown < self._limits.get(_PER_SCALE_UP, 1000)
            and not self._passed(self._totals(group))
        )
