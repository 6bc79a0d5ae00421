"""Cases U8 to U11, F5 and F6: which nodes are candidates at all, asked before any simulation (scale-down.md §2, §3)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory, NodeMemory
from chalicelib.model.node import SCALE_DOWN_DISABLED, TO_BE_DELETED, Taint
from chalicelib.model.policy import Options
from chalicelib.reasons import text
from tests.builders import NOW, ClusterBuilder, cluster, stays

_GPU = "nvidia.com/gpu"


def _one(used: str = "", *, group: dict[str, Any] | None = None, **fields: Any) -> ClusterBuilder:
    """A node of 1 cpu in a group of one, with a pod that asks so much; a node of no group has room for it."""
    build = cluster().node("home", "8", "64Gi").node("n", "1", "4Gi", group="g", **fields).group("g", **(group or {}))
    return build.running("n", 1, used) if used else build


def _goes(build: ClusterBuilder, **options: Any) -> bool:
    return "n" in build.plan(unneeded=7200, **options).unneeded


@pytest.mark.parametrize(("used", "goes"), [("600m", False), ("501m", False), ("500m", True), ("100m", True)])
def test_U8_equal_to_the_threshold_is_a_candidate(used: str, goes: bool) -> None:
    assert _goes(_one(used)) is goes
    assert goes or stays(_one(used).plan())["n"] == "NotUnderutilized"


def test_U8_a_group_may_have_its_own_threshold() -> None:
    from chalicelib.model.group import GroupOptions

    own = {"options": GroupOptions(scale_down_utilization_threshold=0.7)}
    assert _goes(_one("600m", group=own))
    assert not _goes(_one("710m", group=own))
    assert _goes(_one("710m"), scale_down_utilization_threshold=0.75)


def test_U8_a_gpu_node_has_a_threshold_of_its_own() -> None:
    def build() -> ClusterBuilder:
        made = cluster().node("home", "8", "64Gi", extra={_GPU: 8}).node("n", "1", "4Gi", group="g", extra={_GPU: 2})
        return made.group("g").running("n", 1, "900m", extra={_GPU: 1})

    assert _goes(build()), "cpu does not count there"
    assert not _goes(build(), scale_down_gpu_utilization_threshold=0.4)


def test_U9_daemonset_pods_may_be_left_out() -> None:
    def build() -> ClusterBuilder:
        return _one("100m").running("n", 1, "500m", kind="DaemonSet", owner="ds")

    assert not _goes(build())
    assert _goes(build(), ignore_daemonsets_utilization=True)


def test_U9_daemonset_pods_alone_and_a_threshold_of_0() -> None:
    build = _one().running("n", 1, "500m", kind="DaemonSet", owner="ds")
    assert _goes(build, ignore_daemonsets_utilization=True, scale_down_utilization_threshold=0.0)
    assert not _goes(build, scale_down_utilization_threshold=0.0)


def test_U10_a_node_that_is_being_deleted() -> None:
    """Also one whose taint is older than five minutes: here no process forgets an operation, and a taint that none
    stands behind is taken off before the node is a candidate again (architecture §5)."""
    young = _one(taints=[Taint(TO_BE_DELETED, "NoSchedule", str(int(NOW - 30)))])
    assert stays(young.plan(unneeded=7200))["n"] == "CurrentlyBeingDeleted"


def test_U11_an_unready_node_may_go_too() -> None:
    assert _goes(_one(ready=False))
    off = _one(ready=False).plan(unneeded=7200, scale_down_unready_enabled=False)
    assert stays(off)["n"] == "ScaleDownUnreadyDisabled"


def test_U11_an_unready_node_that_is_in_use_stays() -> None:
    assert stays(_one("600m", ready=False).plan(unneeded=7200))["n"] == "NotUnderutilized"


@pytest.mark.parametrize(("size", "least", "goes"), [(1, 1, False), (1, 2, False), (2, 1, True), (1, 0, True)])
def test_F5_a_group_at_its_minimum_has_no_candidates(size: int, least: int, goes: bool) -> None:
    build = cluster().node("n", group="g")
    if size == 2:
        build.node("m", group="g")
    plan = build.group("g", min=least).plan(Memory(nodes={"n": NodeMemory(unneeded_since=1.0)}), unneeded=7200)
    assert bool(plan.removals) is goes
    assert goes or stays(plan)["n"] == "NodeGroupMinSizeReached"


def test_F5_a_group_at_its_minimum_loses_its_timers() -> None:
    known = Memory(nodes={"n": NodeMemory(unneeded_since=NOW - 900, confirmed_at=NOW - 10)})
    _, after = cluster().node("n", group="g").group("g", min=1).decide(known)
    assert not after.nodes.get("n", NodeMemory()).unneeded_since


@pytest.mark.parametrize(("value", "goes"), [("true", False), ("false", True), ("", True), ("True", True)])
def test_F6_an_annotated_node_is_never_a_candidate(value: str, goes: bool) -> None:
    build = _one(annotations={SCALE_DOWN_DISABLED: value})
    assert _goes(build) is goes
    assert goes or stays(build.plan(unneeded=7200))["n"] == "ScaleDownDisabledAnnotation"


def test_a_node_of_no_group_is_no_candidate() -> None:
    assert stays(_one().plan(unneeded=7200))["home"] == "NotAutoscaled"


def test_the_threshold_is_half_unless_said_otherwise() -> None:
    options = Options()
    assert (options.scale_down_utilization_threshold, options.scale_down_gpu_utilization_threshold) == (0.5, 0.5)


def test_a_node_that_its_provider_will_not_remove_stays_and_its_neighbours_may_go() -> None:
    build = cluster().node("home", "8", "64Gi").node("kept", group="g").node("free", group="g").group("g")
    found = build.groups[0]
    kept, free = found.instances
    why = "i-1 is protected in the scaling group"
    build.groups[0] = msgspec.structs.replace(found, instances=(msgspec.structs.replace(kept, held=why), free))
    plan = build.plan(unneeded=7200)
    assert plan.unneeded == ("free",)
    [verdict] = [each for each in plan.unremovable if each.node == "kept"]
    assert why in text.sentence(verdict.reason)
