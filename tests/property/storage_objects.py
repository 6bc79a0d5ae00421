"""Storage of random clusters: classes, claims, volumes, attach limits, and pods that use them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from tests.property import objects
from tests.property.objects import DRIVER, LOCAL_DRIVER, Json

_ONCE, _ONE_POD, _MANY = ("ReadWriteOnce",), ("ReadWriteOncePod",), ("ReadWriteMany",)
#: : How a pending workload's pods get their volumes, and how often.
_WAYS = (
    "waits",
    "waits",
    "allowed",
    "bound",
    "bound",
    "labelled",
    "exclusive",
    "immediate",
    "missing",
    "local",
    "ephemeral",
)


class Runs(Protocol):
    """The part of the cluster generator that adds pods."""

    free: dict[str, list[int]]

    def run(self, pod: Json) -> None:
        """Adds a pod to the named node."""


class Disks:
    """Generates the storage objects of one cluster. Half of the clusters have none."""

    def __init__(self, draw: random.Random, zones: Sequence[str]) -> None:
        self.draw, self.zones = draw, zones
        self.used = objects.chance(draw, 0.5)
        self.limit = draw.choice((0, 0, 2, 3)) if self.used else 0
        self.allowed = draw.sample(zones, draw.randint(1, len(zones)))
        self.claims: list[Json] = []
        self.volumes: list[Json] = []

    def lists(self, nodes: Sequence[str]) -> dict[str, list[Json]]:
        """The storage objects by file, including empty ones."""
        classes = [
            objects.storage_class("waits", DRIVER, waits=True),
            objects.storage_class("allowed", DRIVER, waits=True, zones=self.allowed),
            objects.storage_class("immediate", DRIVER, waits=False),
            objects.storage_class("local", "kubernetes.io/no-provisioner", waits=True),
        ]
        limits = [objects.csi_node(name, self.limit) for name in nodes] if self.limit else []
        publishes = self.used and objects.chance(self.draw, 0.2)
        room = (
            [
                objects.capacity(made_by, zone, self.draw.choice(("50Gi", "50Gi", "5Gi")))
                for made_by in ("waits", "allowed")
                for zone in self.zones
            ]
            if publishes
            else []
        )
        return {
            "claims": self.claims,
            "volumes": self.volumes,
            "classes": classes if self.used else [],
            "csinodes": limits,
            "csidrivers": [objects.csi_driver(publishes=publishes)] if self.used else [],
            "capacities": room,
        }

    def run(self, maker: Runs) -> None:
        """Adds a pod with a bound volume to some nodes."""
        for at, name in enumerate(maker.free if self.used else ()):
            free = maker.free[name]
            if objects.chance(self.draw, 0.3) and free[0] >= 50 and free[2] > 0:
                kind = self.draw.choice((_ONCE, _ONE_POD))
                self._bound(
                    f"held{at}", "ns0", "waits", kind, self.draw.choice(self.zones), "affinity"
                )
                spec = {"containers": [objects.container(50)], "volumes": [_uses(f"held{at}")]}
                maker.run(
                    objects.pod(
                        f"holder-{at}",
                        "ns0",
                        spec,
                        {"app": "holder"},
                        ("StatefulSet", "holder"),
                        name,
                    )
                )

    def wish(self) -> Json | None:
        """How a workload's pods get their volumes; None for most. each: a
        separate claim for every pod."""
        if not self.used or not objects.chance(self.draw, 0.3):
            return None
        way = self.draw.choice(_WAYS)
        zone = self.draw.choice((*self.zones, "__".join(self.zones)))
        shared = way in {"missing", "exclusive"} or objects.chance(self.draw, 0.3)
        return {
            "way": way,
            "zone": zone,
            "each": not shared,
            "many": objects.chance(self.draw, 0.15),
        }

    def claim(self, asks: Json, space: str, workload: str, number: int) -> list[Json]:
        """The volumes of one pod, whose claims are created here."""
        names = [
            f"{workload}-d{disk}-{number if asks['each'] else 'all'}"
            for disk in range(2 if asks["many"] else 1)
        ]
        if asks["way"] == "ephemeral":
            made_by = "local" if _one_in(3, f"{space}/{workload}") else "waits"
            template = {
                "spec": {
                    "storageClassName": made_by,
                    "accessModes": list(_ONCE),
                    "resources": {"requests": {"storage": "10Gi"}},
                }
            }
            for disk in range(len(names)):
                self.claims.append(
                    self._ephemeral(space, f"{workload}-{number}", f"v{disk}", made_by)
                )
                if made_by == "local" and not _one_in(2, f"{space}/{workload}-{number}-{disk}"):
                    self._free_volume(f"{workload}-{number}-{disk}", space, asks["zone"])
            return [
                {"name": f"v{disk}", "ephemeral": {"volumeClaimTemplate": template}}
                for disk in range(len(names))
            ]
        known = {(c["metadata"]["namespace"], c["metadata"]["name"]) for c in self.claims}
        for name in names:
            if (space, name) not in known:
                self._WAY[asks["way"]](self, name, space, asks["zone"])
        return [_uses(name) for name in names]

    @staticmethod
    def _ephemeral(space: str, pod: str, name: str, made_by: str) -> Json:
        made = objects.claim(f"{pod}-{name}", space, made_by, _ONCE)
        made["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod,
                "controller": True,
                "uid": f"pod-{space}-{pod}",
            }
        ]
        return made

    def _bound(
        self, name: str, space: str, storage_class: str, modes: Sequence[str], zone: str, how: str
    ) -> None:
        made = f"pv-{space}-{name}"
        self.claims.append(objects.claim(name, space, storage_class, modes, made))
        self.volumes.append(
            objects.volume(made, storage_class, modes, zone, claimed=(space, name), how=how)
        )

    def _local(self, name: str, space: str, zone: str) -> None:
        made = objects.claim(name, space, "local", _ONCE)
        if _one_in(3, f"small {space}/{name}"):
            made["spec"]["resources"]["requests"]["storage"] = "4Gi"
        self.claims.append(made)
        if not objects.chance(self.draw, 0.2):
            self._free_volume(name, space, zone)

    def _free_volume(self, name: str, space: str, zone: str) -> None:
        """A volume that any claim of its class may take if the claim is not too large."""
        made = objects.volume(f"local-{space}-{name}", "local", _ONCE, zone, driver=LOCAL_DRIVER)
        if _one_in(3, f"little {space}/{name}"):
            made["spec"]["capacity"]["storage"] = "5Gi"
        self.volumes.append(made)

    _WAY: ClassVar[dict[str, Callable[[Any, str, str, str], None]]] = {
        "waits": lambda self, name, space, zone: self.claims.append(
            objects.claim(name, space, "waits", _ONCE)
        ),
        "allowed": lambda self, name, space, zone: self.claims.append(
            objects.claim(name, space, "allowed", _MANY)
        ),
        "bound": lambda self, name, space, zone: self._bound(
            name, space, "waits", _ONCE, zone, "affinity"
        ),
        "labelled": lambda self, name, space, zone: self._bound(
            name, space, "waits", _ONCE, zone, "labels"
        ),
        "exclusive": lambda self, name, space, zone: self._bound(
            name, space, "waits", _ONE_POD, zone, "affinity"
        ),
        "immediate": lambda self, name, space, zone: self.claims.append(
            objects.claim(name, space, "immediate", _ONCE)
        ),
        "missing": lambda self, name, space, zone: None,
        "local": _local,
    }


def _one_in(count: int, name: str) -> bool:
    """Randomness derived from a name, so that nothing else in a cluster depends on it."""
    return zlib.crc32(name.encode()) % count == 0


def _uses(claim: str) -> Json:
    return {"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}}
