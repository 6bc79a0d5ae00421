"""A scale-up option: a group, a number of new nodes, and the pods they would take."""

from __future__ import annotations

import msgspec

from chalicelib.model.node import Node


class Option(msgspec.Struct, frozen=True):
    """pods: class -> number of its pods. requested: total requests of those pods, cpu in millicores. preference: how
    well soft preferences of the pods are met, higher is better; decides among otherwise equal options. order:
    classes in the order in which they were packed."""

    group: str
    nodes: int
    pods: dict[int, int]
    template: Node
    requested: dict[str, int]
    preference: float = 0.0
    order: tuple[int, ...] = ()

    @property
    def pod_count(self) -> int:
        """Return the total number of pods."""
        return sum(self.pods.values())
