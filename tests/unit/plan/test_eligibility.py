"""Eligibility: which nodes are removal candidates before any simulation
(docs/reference/scale-down.md "Eligibility")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import SCALE_DOWN_DISABLED, TO_BE_DELETED, Taint
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.reasons import text
from tests.builders import NOW, ClusterBuilder, cluster, stays

_GPU = "nvidia.com/gpu"


def _one(used: str = "", *, group: dict[str, Any] | None = None, **fields: Any) -> ClusterBuilder:
    """A 1-cpu node in a group of one, with a pod of that request; a node without a
    group has room for the pod."""
    build = (
        cluster()
        .node("home", "8", "64Gi")
        .node("n", "1", "4Gi", group="g", **fields)
        .group("g", **(group or {}))
    )
    return build.running("n", 1, used) if used else build


def _goes(build: ClusterBuilder, **options: Any) -> bool:
    return "n" in build.plan(unneeded=7200, **options).unneeded


@pytest.mark.parametrize(
    ("used", "goes"), [("600m", False), ("501m", False), ("500m", True), ("100m", True)]
)
def test_utilization_equal_to_the_threshold_is_eligible(used: str, goes: bool) -> None:
    assert _goes(_one(used)) is goes
    assert goes or stays(_one(used).plan())["n"] == "NotUnderutilized"


def test_group_option_overrides_the_utilization_threshold() -> None:
    from chalicelib.model.group import GroupOptions

    own = {"options": GroupOptions(scale_down_utilization_threshold=0.7)}
    assert _goes(_one("600m", group=own))
    assert not _goes(_one("710m", group=own))
    assert _goes(_one("710m"), scale_down_utilization_threshold=0.75)


def test_gpu_node_has_its_own_utilization_threshold() -> None:
    def build() -> ClusterBuilder:
        made = (
            cluster()
            .node("home", "8", "64Gi", extra={_GPU: 8})
            .node("n", "1", "4Gi", group="g", extra={_GPU: 2})
        )
        return made.group("g").running("n", 1, "900m", extra={_GPU: 1})

    assert _goes(build()), "cpu does not count there"
    assert not _goes(build(), scale_down_gpu_utilization_threshold=0.4)


def test_option_ignores_daemonset_utilization_in_eligibility() -> None:
    def build() -> ClusterBuilder:
        return _one("100m").running("n", 1, "500m", kind="DaemonSet", owner="ds")

    assert not _goes(build())
    assert _goes(build(), ignore_daemonsets_utilization=True)


def test_node_with_only_daemonset_pods_and_threshold_zero() -> None:
    build = _one().running("n", 1, "500m", kind="DaemonSet", owner="ds")
    assert _goes(build, ignore_daemonsets_utilization=True, scale_down_utilization_threshold=0.0)
    assert not _goes(build, scale_down_utilization_threshold=0.0)


def test_node_being_deleted_is_not_eligible() -> None:
    """Also when its taint is older than five minutes. Operations are stored, so a restart forgets
    none, and a taint without an operation is removed before the node becomes a candidate again
    (docs/reference/drain.md "Stale taints")."""
    young = _one(taints=[Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW - 30)))])
    assert stays(young.plan(unneeded=7200))["n"] == "CurrentlyBeingDeleted"


def test_unready_node_may_be_removed() -> None:
    assert _goes(_one(ready=False))
    off = _one(ready=False).plan(unneeded=7200, scale_down_unready_enabled=False)
    assert stays(off)["n"] == "ScaleDownUnreadyDisabled"


def test_unready_node_in_use_stays() -> None:
    assert stays(_one("600m", ready=False).plan(unneeded=7200))["n"] == "NotUnderutilized"


@pytest.mark.parametrize(
    ("size", "least", "goes"), [(1, 1, False), (1, 2, False), (2, 1, True), (1, 0, True)]
)
def test_group_at_its_minimum_has_no_candidates(size: int, least: int, goes: bool) -> None:
    build = cluster().node("n", group="g")
    if size == 2:
        build.node("m", group="g")
    plan = build.group("g", min=least).plan(
        Memory(nodes={"n": NodeMemory(unneeded_since=1.0)}), unneeded=7200
    )
    assert bool(plan.removals) is goes
    assert goes or stays(plan)["n"] == "NodeGroupMinSizeReached"


def test_group_at_its_minimum_loses_its_unneeded_timers() -> None:
    known = Memory(nodes={"n": NodeMemory(unneeded_since=NOW - 900, confirmed_at=NOW - 10)})
    _, after = cluster().node("n", group="g").group("g", min=1).decide(known)
    assert not after.nodes.get("n", NodeMemory()).unneeded_since


@pytest.mark.parametrize(
    ("value", "goes"), [("true", False), ("false", True), ("", True), ("True", True)]
)
def test_node_with_the_scale_down_disabled_annotation_is_not_eligible(
    value: str, goes: bool
) -> None:
    build = _one(annotations={SCALE_DOWN_DISABLED: value})
    assert _goes(build) is goes
    assert goes or stays(build.plan(unneeded=7200))["n"] == "ScaleDownDisabledAnnotation"


def test_node_without_a_group_is_not_eligible() -> None:
    assert stays(_one().plan(unneeded=7200))["home"] == "NotAutoscaled"


def test_default_utilization_threshold_is_half() -> None:
    options = Options()
    assert (
        options.scale_down_utilization_threshold,
        options.scale_down_gpu_utilization_threshold,
    ) == (0.5, 0.5)


def test_protected_instance_blocks_only_its_own_node() -> None:
    build = (
        cluster()
        .node("home", "8", "64Gi")
        .node("kept", group="g")
        .node("free", group="g")
        .group("g")
    )
    found = build.groups[0]
    kept, free = found.instances
    why = "i-1 is protected in the scaling group"
    build.groups[0] = msgspec.structs.replace(
        found, instances=(msgspec.structs.replace(kept, held=why), free)
    )
    plan = build.plan(unneeded=7200)
    assert plan.unneeded == ("free",)
    [verdict] = [each for each in plan.unremovable if each.node == "kept"]
    assert why in text.sentence(verdict.reason)
