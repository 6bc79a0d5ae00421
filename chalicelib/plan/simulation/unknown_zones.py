"""New nodes of groups in several zones: which pods may run on one, whichever zone it comes in.

Such a simulated node has no zone. Pods that may be in any of the group's zones fit it as they fit
any other node; pods whose place depends on the zone do not, because nobody knows it yet. Those are
planned for one zone at a time (scale_up/zone_variants.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.pod import PodClass
from chalicelib.model.reason import Reason
from chalicelib.plan import predicates
from chalicelib.plan.simulation.pod_constraints import PodConstraints
from chalicelib.plan.state.zones import SEVERAL_ZONES, zone_keys
from chalicelib.plan.tables import Bools, NodeTable, ResourceColumns
from chalicelib.plan.volumes import Volumes


class UnknownZones:
    """The verdicts of a pass. in_zones: group -> zone -> its node there; needs:
    the constraints of a class."""

    def __init__(
        self,
        in_zones: Mapping[str, Mapping[str, Node]],
        classes: Sequence[PodClass],
        columns: ResourceColumns,
        volumes: Volumes,
        needs: Callable[[int], PodConstraints | None],
    ) -> None:
        self._classes, self._volumes, self._needs = classes, volumes, needs
        self._keys = {group: zone_keys(nodes) for group, nodes in in_zones.items()}
        self._zones = {group: list(nodes) for group, nodes in in_zones.items()}
        self._tables = {
            group: NodeTable(list(nodes.values()), columns) for group, nodes in in_zones.items()
        }
        self._fitting: dict[tuple[int, str], Bools] = {}

    def suits(self, cls: int, table: NodeTable) -> Bools:
        """Return the rows that a class may use by the constant predicates and by its volumes."""
        pod = self._classes[cls]
        return self.with_unknown(cls, table, self._constant(cls, pod, table))

    def with_unknown(self, cls: int, table: NodeTable, mask: Bools) -> Bools:
        """Return the mask with the verdict on rows whose zone is unknown."""
        if not self._tables:
            return mask
        codes, groups = table.label(SEVERAL_ZONES)
        if not groups:
            return mask
        verdicts: Bools = np.array(
            [self.fits_anywhere(cls, group) for group in groups], dtype=np.bool_
        )
        unknown = codes >= 0
        mask = mask.copy()
        mask[unknown] = verdicts[codes[unknown]]
        return mask

    def fits_anywhere(self, cls: int, group: str) -> bool:
        """Return whether a class may run on a new node of a group whichever zone it comes in."""
        return not self.depends_on_zone(cls, group) and bool(self._fits(cls, group).all())

    def depends_on_zone(self, cls: int, group: str) -> bool:
        """Return whether other pods decide in which of the group's zones a
        pod of the class may be."""
        constraints = self._needs(cls)
        return constraints is not None and not constraints.keys.isdisjoint(self._keys[group])

    def is_spread(self, cls: int, group: str) -> bool:
        """Return whether any zone may be right for a pod of the class, and only other pods
        decide which: it is spread over zones, or kept apart from pods in them."""
        constraints = self._needs(cls)
        attraction = constraints.attraction if constraints is not None else None
        attracted = attraction is not None and not self._keys[group].isdisjoint(attraction.keys)
        return (
            self.depends_on_zone(cls, group)
            and not attracted
            and bool(self._fits(cls, group).all())
        )

    def fitting_zones(self, cls: int, group: str) -> list[str]:
        """Return the zones of a group in which the class fits a new node,
        whatever other pods are there."""
        return [
            zone
            for zone, fits in zip(self._zones[group], self._fits(cls, group), strict=True)
            if fits
        ]

    def reasons(self, cls: int, group: str) -> tuple[Reason, ...]:
        """Return why the class fits no new node of a group, by the first of its zones."""
        table = self._tables[group]
        failing = predicates.reasons(cls, self._classes[cls], table, 0)
        if not failing and self._volumes.concerns(cls):
            failing = self._volumes.reasons(cls, table, 0)
        return failing

    def _fits(self, cls: int, group: str) -> Bools:
        key = cls, group
        if key not in self._fitting:
            self._fitting[key] = self._constant(cls, self._classes[cls], self._tables[group])
        return self._fitting[key]

    def _constant(self, cls: int, pod: PodClass, table: NodeTable) -> Bools:
        mask = predicates.static_mask(cls, pod, table)
        return mask & self._volumes.mask(cls, table) if self._volumes.concerns(cls) else mask
