"""Reports paused objects: Cluster API's v1beta2 mirrors both kinds of pause into a condition."""

from __future__ import annotations

from collections.abc import Callable

from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.object_writes import is_true, listed, with_conditions, write_status
from infra.emulators.kube.store import ObjectStore

KINDS = ("machinedeployments", "machinesets", "machinepools")


class Pausing:
    """Sets the condition `Paused` of all objects that are, or were, paused."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock

    def step(self) -> None:
        """Correct the condition of v1beta2 objects. An object that was never paused has none."""
        paused = fields.paused_clusters(listed(self._store, "clusters", fields.GROUP))
        for plural in KINDS:
            for obj in listed(self._store, plural, fields.GROUP):
                rests = fields.is_paused(obj, paused)
                if fields.old_version(obj) or rests == is_true(obj, "Paused"):
                    continue
                told = fields.condition(obj, "Paused", value=rests)
                conditions = with_conditions(obj, self._clock(), told)
                write_status(self._store, plural, obj, {"conditions": conditions}, fields.GROUP)
