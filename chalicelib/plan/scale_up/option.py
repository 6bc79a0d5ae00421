"""One way to help: a group, so many new nodes, and the pods they would take."""

from __future__ import annotations

import msgspec

from chalicelib.model.node import Node


class Option(msgspec.Struct, frozen=True):
    """pods: class -> how many of its pods. requested: what those pods ask for in all, cpu in millicores.
    preference: how well soft preferences of the pods are met, more is better; decides among otherwise equal options.
    order: classes in the order in which they were packed."""

    group: str
    nodes: int
    pods: dict[int, int]
    template: Node
    requested: dict[str, int]
    preference: float = 0.0
    order: tuple[int, ...] = ()

    @property
    def pod_count(self) -> int:
        """Pods placed in all."""
        return sum(self.pods.values())
