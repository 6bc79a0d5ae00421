"""Rows of nodes that are there and not finished: in the table they are as they will be;
here they are as they are.

A pod that a node takes as it is may run there now. A pod that needs the difference is still waiting
for it, on the same room: its place is not certain, and no pod that must move is sent there.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from chalicelib.model.memory import Part
from chalicelib.model.node import Node
from chalicelib.model.pod import PodClass
from chalicelib.plan import predicates
from chalicelib.plan.predicates import untolerated
from chalicelib.plan.state.unfinished_nodes import Unfinished
from chalicelib.plan.tables import Bools, Ints, NodeTable, ResourceColumns
from chalicelib.plan.volumes import Volumes

MOST_NAMED = 5
"""Parts that a placement names."""


class UnfinishedRow(msgspec.Struct, frozen=True):
    """A node as it is, and what it lacks."""

    node: Node
    lacks: Unfinished


class UnfinishedRows:
    """The unfinished nodes among the rows of a table. rows: their numbers."""

    def __init__(
        self,
        unfinished: Mapping[int, UnfinishedRow],
        columns: ResourceColumns,
        classes: tuple[PodClass, ...],
        volumes: Volumes,
    ) -> None:
        """unfinished: by row."""
        self.rows: Ints = np.array(sorted(unfinished), dtype=np.int64)
        self._lacks = [unfinished[row].lacks for row in self.rows.tolist()]
        self._table = NodeTable([unfinished[row].node for row in self.rows.tolist()], columns)
        self._at = {row: at for at, row in enumerate(self.rows.tolist())}
        self._classes, self._volumes = classes, volumes
        self._taking: dict[int, Bools] = {}

    def __bool__(self) -> bool:
        return bool(len(self.rows))

    def taking(self, cls: int) -> Bools:
        """Return which of these rows take a class as they are, regardless of their room."""
        mask = self._taking.get(cls)
        if mask is None:
            pod = self._classes[cls]
            mask = predicates.static_mask(cls, pod, self._table)
            if self._volumes.concerns(cls):
                mask = mask & self._volumes.mask(cls, self._table)
            keys = _topology_keys(pod)
            for at, lacks in enumerate(self._lacks):
                if not keys.isdisjoint(lacks.labels) or any(
                    pod.requests.get(name) for name in lacks.resources
                ):
                    mask[at] = False
            self._taking[cls] = mask
        return mask

    def waits(self, cls: int, row: int) -> bool:
        """Return whether a pod of a class on a row still waits for what the node lacks."""
        at = self._at.get(row)
        return at is not None and not self.taking(cls)[at]

    def missing(self, cls: int, row: int) -> tuple[str, ...]:
        """Return what a pod of a class still waits for on a row, in words, () for nothing."""
        if not self.waits(cls, row):
            return ()
        pod, lacks = self._classes[cls], self._lacks[self._at[row]]
        asked = _label_keys(pod)
        labels = [key for key in lacks.labels if key in asked]
        resources = [name for name in lacks.resources if pod.requests.get(name)]
        taints = [
            taint for taint in lacks.taints if untolerated(pod.tolerations, (taint,)) is not None
        ]
        if not labels and not resources and not taints:
            labels = list(lacks.labels)  # of its volumes
        words = [
            *map(Part.LABEL.of, labels),
            *map(Part.RESOURCE.of, resources),
            *(f"removal of taint {taint.key}" for taint in taints),
        ]
        return tuple(words[:MOST_NAMED])


def _topology_keys(pod: PodClass) -> frozenset[str]:
    """Return the labels without which a node is in no domain of a rule between pods."""
    return frozenset(
        (
            *(term.topology_key for term in pod.pod_affinity),
            *(spread.topology_key for spread in pod.spread),
        )
    )


def _label_keys(pod: PodClass) -> frozenset[str]:
    terms = pod.required_affinity or ()
    required = (requirement.key for term in terms for requirement in term.expressions)
    return _topology_keys(pod).union(pod.node_selector, required)
