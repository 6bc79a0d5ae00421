"""Controllers of another API group that share a kind with a built-in one, as in OpenKruise and Volcano. Their objects
are never read, so the drain rules do not check that they exist. All other rules use the kind."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.pod import Owner
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import Controller
from chalicelib.plan.scale_down.drain_rules.verdict import Action
from tests.builders import cluster
from tests.unit.plan.drain_rules.assess import BLOCK, EVICT, MOVE, assess

KINDS = ("DaemonSet", "Job", "ReplicaSet", "ReplicationController", "StatefulSet")
OTHERS = tuple(Controller(kind, "default", "other", replicas=1) for kind in KINDS)


@pytest.mark.parametrize(
    ("kind", "version", "action", "code"),
    [
        ("StatefulSet", "apps.kruise.io/v1beta1", MOVE, None),
        ("DaemonSet", "apps.kruise.io/v1alpha1", EVICT, None),
        ("Job", "batch.volcano.sh/v1alpha1", MOVE, None),
        ("ReplicaSet", "example.com/v1", MOVE, None),
        ("ReplicationController", "example.com/v1", MOVE, None),
        ("StatefulSet", "v1", MOVE, None),
        ("StatefulSet", "appsx/v1", MOVE, None),
        ("StatefulSet", "apps/v1beta2", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("StatefulSet", "apps/v1", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("StatefulSet", "", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("DaemonSet", "apps/v1", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("Job", "batch/v1", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
        ("ReplicationController", "v1", BLOCK, ReasonCode.CONTROLLER_NOT_FOUND),
    ],
)
def test_existence_is_checked_only_for_built_in_controllers(
    kind: str, version: str, action: Action, code: ReasonCode | None
) -> None:
    assert assess({"owner": Owner(kind, "gone", "u", version)}, controllers=OTHERS) == (action, code)


def test_foreign_controller_does_not_use_replicas_of_its_built_in_namesake() -> None:
    built_in = Owner("ReplicaSet", "other", "u", "apps/v1")
    foreign = Owner("ReplicaSet", "other", "u", "example.com/v1")
    assert assess({"owner": built_in}, controllers=OTHERS, min_replica_count=2) == (BLOCK, ReasonCode.MIN_REPLICAS)
    assert assess({"owner": foreign}, controllers=OTHERS, min_replica_count=2) == (MOVE, None)


def test_foreign_daemonset_does_not_replace_its_built_in_namesake_on_new_nodes() -> None:
    """The copied node runs OpenKruise's DaemonSet `agent`; the built-in `agent` does not run on it and counts as
    missing."""
    kruise = Owner("DaemonSet", "agent", "u", "apps.kruise.io/v1alpha1")
    build = cluster().node("n", "2", group="g").daemonset("agent", "200m")
    build.running("n", 1, "1900m").group("g", max=9).pending(2, "900m")
    at = build.cls("100m", owner="agent", kind="DaemonSet", namespace="kube-system")
    build.running("n", 1, "100m", owner="agent", kind="DaemonSet", namespace="kube-system")
    build.classes[at] = msgspec.structs.replace(build.classes[at], owner=kruise)
    [up] = build.plan(force_ds=True).scale_ups
    assert up.to_size - up.from_size == 2, "200m + 100m + 900m leave no room for a second pod of 900m"
