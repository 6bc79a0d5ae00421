"""Indexes what running pods use: attached volumes and disks per node, and ReadWriteOncePod claims.

Built on first use, at no cost for a cluster whose pending pods have no volumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from chalicelib.model.pod import Pod, Volume
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.predicates.volumes.requirements import CONFLICTING, Attachment, Stock

_FINISHED = frozenset({"Succeeded", "Failed"})


class Running:
    """The pods that occupy nodes of the snapshot, indexed by the volumes they use."""

    def __init__(self, snapshot: Snapshot, concerned: frozenset[int], stock: Stock) -> None:
        self._snapshot, self._concerned, self._stock = snapshot, concerned, stock

    @cached_property
    def volumes(self) -> dict[str, set[Attachment]]:
        """Node -> attached volumes."""
        found: dict[str, set[Attachment]] = {}
        for pod, volume in self._held:
            claim = f"{pod.name}-{volume.name}" if volume.kind == "ephemeral" else volume.claim
            attachment = self._stock.attachments(pod.namespace, volume, claim)
            if attachment is not None:
                found.setdefault(pod.node, set()).add(attachment)
        return found

    @cached_property
    def counts(self) -> dict[tuple[str, str], int]:
        """(node, CSI driver) -> number of volumes."""
        return dict(Counter((node, driver) for node, held in self.volumes.items() for driver, _ in held))

    @cached_property
    def disks(self) -> dict[str, list[Volume]]:
        """Node -> the disks that its pods name directly."""
        found: dict[str, list[Volume]] = {}
        for pod, volume in self._held:
            if volume.kind in CONFLICTING:
                found.setdefault(pod.node, []).append(volume)
        return found

    @cached_property
    def users(self) -> dict[str, set[int]]:
        """Claim, as namespace/name -> the classes of the pods that use it."""
        found: dict[str, set[int]] = {}
        for pod, volume in self._held:
            if volume.kind == "persistentVolumeClaim":
                found.setdefault(f"{pod.namespace}/{volume.claim}", set()).add(pod.cls)
        return found

    @property
    def _held(self) -> Iterator[tuple[Pod, Volume]]:
        nodes = {node.name for node in self._snapshot.nodes} if self._concerned else set()
        for pod in self._snapshot.pods if nodes else ():
            if pod.cls in self._concerned and pod.node in nodes and pod.phase not in _FINISHED:
                for volume in self._snapshot.classes[pod.cls].volumes:
                    yield pod, volume
