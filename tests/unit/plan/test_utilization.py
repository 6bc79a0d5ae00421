"""Utilization of a node (docs/reference/scale-down.md "Utilization"). Node 2000m / 2,000,000;
standard pod 100m / 200,000."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.memory import Memory
from chalicelib.plan.removal.candidates import Usage, Utilization
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from tests.builders import NOW, ClusterBuilder, cluster, stays
from tests.property.snapshot_reader import read


def _node(**fields: Any) -> ClusterBuilder:
    return cluster().node("n", "2", "2000000", group="g", **fields)


def _standard(build: ClusterBuilder, count: int = 1, **more: Any) -> ClusterBuilder:
    return build.running("n", count, "100m", 200_000, **more)


def _used(
    build: ClusterBuilder, *, daemonsets: bool = False, mirrors: bool = False
) -> Utilization | None:
    """daemonsets, mirrors: whether these pods are ignored."""
    options = Options(
        ignore_daemonsets_utilization=daemonsets, ignore_mirror_pods_utilization=mirrors
    )
    world = build_cluster_state(
        build.group("g").snapshot(), Policy(name="test", options=options), Memory(), NOW
    )
    return Usage(world).of(world.snapshot.nodes[0], ignore_daemonsets=daemonsets)


def _share(build: ClusterBuilder, *, daemonsets: bool = False, mirrors: bool = False) -> float:
    used = _used(build, daemonsets=daemonsets, mirrors=mirrors)
    assert used is not None
    return used.share


def test_utilization_is_the_larger_of_cpu_and_memory() -> None:
    used = _used(_standard(_node(), 2).running("n", 1))
    assert used is not None
    assert (used.resource, used.gpu) == ("memory", False)
    assert used.share == pytest.approx(0.2)
    assert _share(_standard(_node(), 2).running("n", 1, "500m")) == pytest.approx(0.35)


def test_utilization_counts_requests_as_the_scheduler_does() -> None:
    """A plain init container counts if it requests more than all containers together; a small one
    does not. Pods are read by the production code."""

    def pod(name: str, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": "n", **spec},
            "status": {"phase": "Running"},
        }

    def asks(cpu: str, memory: str, **more: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}

    standard, sidecar = asks("100m", "200000"), asks("50m", "100000", restartPolicy="Always")
    pods = [
        pod("a", containers=[standard]),
        pod("b", containers=[standard], initContainers=[sidecar, asks("20m", "30000")]),
        pod("c", containers=[standard], initContainers=[asks("50000m", "100000000")]),
    ]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "uid": "n"},
        "spec": {"providerID": "bench://g/n"},
        "status": {
            "allocatable": {"cpu": "2", "memory": "2000000", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    groups = {"nodeGroups": [{"id": "g", "min": 0, "max": 3, "size": 1, "template": node}]}
    snapshot = read({"nodes": [node], "pods": pods}, groups, NOW)
    world = build_cluster_state(snapshot, Policy(name="test"), Memory(), NOW)
    used = Usage(world).of(world.snapshot.nodes[0], ignore_daemonsets=False)
    assert used is not None
    assert used.resource == "memory"
    assert used.share == pytest.approx(50.25)


def test_daemonset_pods_may_be_excluded_from_usage_and_allocatable() -> None:
    build = _standard(_standard(_node(), 2), 2, owner="ds", kind="DaemonSet")
    assert _share(build, daemonsets=True) == pytest.approx(0.25)
    assert _share(_standard(_standard(_node()), owner="ds", kind="DaemonSet")) == pytest.approx(0.2)


def test_long_terminating_pod_does_not_count_in_utilization() -> None:
    gone = {"deleted": NOW - 600}
    assert _share(_standard(_standard(_node(), 2), pod=gone)) == pytest.approx(0.2)
    assert _share(_standard(_standard(_node(), 2), pod={"deleted": NOW - 5})) == pytest.approx(0.3)


def test_long_terminating_daemonset_pod_still_reduces_the_allocatable_part() -> None:
    build = _standard(_standard(_node()), owner="ds", kind="DaemonSet", pod={"deleted": NOW - 600})
    assert _share(build, daemonsets=True) == pytest.approx(0.2 / 1.8)
    assert _share(build) == pytest.approx(0.1)


def test_mirror_pods_may_be_excluded_from_usage_and_allocatable() -> None:
    build = _standard(_standard(_node(), 2), owner=None, mirror=True)
    assert _share(build, mirrors=True) == pytest.approx(2 / 9)
    both = _standard(
        _standard(_standard(_node()), owner=None, mirror=True), owner="ds", kind="DaemonSet"
    )
    assert _share(both, daemonsets=True, mirrors=True) == pytest.approx(1 / 8)


def test_gpu_node_utilization_counts_only_the_gpu() -> None:
    build = _node(extra={"nvidia.com/gpu": 1}).running("n", 1, "10m", extra={"nvidia.com/gpu": 1})
    assert _used(build) == Utilization("nvidia.com/gpu", 1.0, gpu=True)
    idle = _standard(_node(extra={"nvidia.com/gpu": 4}), 9)
    assert _used(idle) == Utilization("nvidia.com/gpu", 0.0, gpu=True)


def test_node_with_a_gpu_label_but_no_gpu_has_zero_utilization() -> None:
    used = _used(_standard(_node(labels={"cluster-api/accelerator": "t4"}), 9))
    assert used is not None
    assert (used.share, used.gpu) == (0.0, True)


@pytest.mark.parametrize(
    "allocatable",
    [{"cpu": 2000}, {"memory": 2_000_000}, {"cpu": 0, "memory": 2_000_000}, {}],
    ids=["no memory", "no cpu", "cpu 0", "nothing"],
)
def test_node_without_allocatable_resources_is_an_error_and_no_candidate(
    allocatable: dict[str, int],
) -> None:
    assert _used(_node(allocatable=allocatable)) is None
    assert (
        stays(_node(allocatable=allocatable).group("g").plan(unneeded=7200))["n"]
        == "UnexpectedError"
    )


def test_daemonset_pods_that_take_the_whole_node_leave_no_allocatable() -> None:
    build = (
        cluster()
        .node("n", "1", "4Gi", group="g")
        .running("n", 1, "1", owner="ds", kind="DaemonSet")
    )
    assert _used(build, daemonsets=True) is None
    assert _used(
        cluster()
        .node("n", "1", "4Gi", group="g")
        .running("n", 1, "1", owner="ds", kind="DaemonSet")
    ) == Utilization("cpu", 1.0)


def test_expendable_pod_does_not_count_in_utilization() -> None:
    assert _share(_standard(_standard(_node()), priority=-11)) == pytest.approx(0.1)
    assert _share(_standard(_standard(_node()), priority=-10)) == pytest.approx(0.2)
