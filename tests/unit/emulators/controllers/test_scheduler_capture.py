"""Comparison with a capture of a real control plane: its scheduler's messages about 34 pods, and
its controllers' objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.manager import ClusterSimulation
from infra.emulators.controllers.scheduler.cluster_view import Surroundings
from infra.emulators.controllers.scheduler.scheduler import schedule_once
from infra.emulators.kube.store import ObjectStore
from tests.reference_data import SHARED, needs_shared
from tests.unit.emulators.controllers.cluster import START

pytestmark = [needs_shared, pytest.mark.shared]
BUSY = SHARED / "data" / "captures" / "shop-busy"


def items(name: str, kind: str = "") -> tuple[dict[str, Any], ...]:
    found = json.loads((BUSY / f"{name}.json").read_text(encoding="utf-8"))["items"]
    return tuple(each for each in found if kind in {"", each["kind"]})


def refused(pods: tuple[dict[str, Any], ...]) -> dict[str, str]:
    return {
        pod["metadata"]["name"]: condition["message"]
        for pod in pods
        for condition in pod["status"].get("conditions", ())
        if condition.get("reason") == "Unschedulable"
    }


def test_scheduler_refusal_messages_equal_the_real_ones() -> None:
    pods = items("pods")
    around = Surroundings(
        claims=items("pvcs"),
        storage_classes=items("cluster-scoped", "StorageClass"),
        namespaces=items("cluster-scoped", "Namespace"),
    )
    decisions = schedule_once(items("nodes"), pods, around)
    said = {decision.pod.name: decision.message for decision in decisions}
    real = {name: message.split(". ")[0] + "." for name, message in refused(pods).items()}
    assert len(real) == 34
    assert said == real


def test_controllers_change_nothing_in_a_captured_cluster() -> None:
    """Nothing is created, deleted or moved: the simulated controllers would have made
    what the real ones left."""
    clock = ManualClock(START)
    store = ObjectStore(clock)
    for name in ("cluster-scoped", "nodes", "pvcs", "workloads", "pdbs", "pods"):
        for obj in items(name):
            plural, group = objects.WHERE[obj["kind"]]
            store.load(plural, [obj], group)
    before = {(p["metadata"]["name"], p["spec"].get("nodeName")) for p in store.list("pods")}
    sets = store.list("replicasets", group="apps")
    ClusterSimulation(store, clock).step()
    assert {
        (p["metadata"]["name"], p["spec"].get("nodeName")) for p in store.list("pods")
    } == before
    assert [s["spec"] for s in store.list("replicasets", group="apps")] == [s["spec"] for s in sets]
    assert sum(e["reason"] == "FailedScheduling" for e in store.list("events")) == 34
