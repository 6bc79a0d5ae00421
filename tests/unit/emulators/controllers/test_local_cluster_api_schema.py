"""Objects written by the simulated Cluster API satisfy the real definitions, and no field
of them would be dropped.
"""

from __future__ import annotations

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.manager import ClusterSimulation
from infra.emulators.kube import validation
from infra.emulators.kube.crds import load
from infra.emulators.kube.objects import clone
from infra.emulators.kube.store import ObjectStore
from tests.reference_data import SHARED, needs_shared
from tests.unit.emulators.controllers.cluster import START

KINDS = ("machinedeployments", "machinesets", "machines")


def wrong(store: ObjectStore, plural: str, version: str) -> list[str]:
    resource = store.resources.find(plural, fields.GROUP)
    assert resource is not None
    served = resource.version(version)
    assert served is not None
    assert served.schema is not None
    found = []
    for obj in store.list(plural, group=fields.GROUP):
        found += [f"{plural}: {cause}" for cause in validation.causes(served.schema, obj)]
        if validation.prune(served.schema, clone(obj)) != obj:
            found.append(f"{plural}: fields the definition does not know")
    return found


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_local_capi_every_object_always_satisfies_the_real_definitions(version: str) -> None:
    clock = ManualClock(START)
    store = ObjectStore(clock)
    load(store, SHARED / "data" / "capi-crds")
    simulation = ClusterSimulation(store, clock)
    objects.apply(
        store, objects.machine_deployment("general", 3, 1, 5, zone="eu-1a", version=version)
    )
    simulation.capi.fail_next("default/general", "provisioning-failure")
    for _ in range(9):
        simulation.step()
        assert [text for plural in KINDS for text in wrong(store, plural, version)] == []
        clock.advance(10)
    assert len(store.list("nodes")) == 2
