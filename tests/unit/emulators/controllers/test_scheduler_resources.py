"""Pod requests and remaining node capacity."""

from __future__ import annotations

from typing import Any

import pytest

from infra.emulators.controllers.scheduler.pod_and_node_info import pod_requests
from tests.unit.emulators.controllers.objects import container, node, pod, reasons

MAIN = [container("100m", name="a"), container("200m", name="b")]
INIT = container("400m", name="init")
SIDECAR = container("50m", name="side", restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param({"initContainers": [INIT]}, 400, id="P1"),
        pytest.param({"initContainers": [SIDECAR, INIT]}, 450, id="P2-sidecar-before"),
        pytest.param({"initContainers": [INIT, SIDECAR]}, 400, id="P2-sidecar-after"),
        pytest.param(
            {"initContainers": [SIDECAR, INIT], "overhead": {"cpu": "10m"}}, 460, id="P3-overhead"
        ),
        pytest.param(
            {
                "initContainers": [SIDECAR, INIT],
                "overhead": {"cpu": "10m"},
                "resources": {"requests": {"cpu": "1"}},
            },
            1010,
            id="P3-pod-level",
        ),
    ],
)
def test_scheduler_request_of_a_pod(spec: dict[str, Any], cpu: int) -> None:
    assert pod_requests(pod(containers=MAIN, **spec))["cpu"] == cpu


def test_scheduler_resized_container_counts_its_allocated_resources() -> None:
    resized = pod(on="n1", cpu="100m")
    resized["status"] = {
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "300m"}}]
    }
    assert pod_requests(resized)["cpu"] == 300
    resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "900m"
    assert pod_requests(resized)["cpu"] == 900
    resized["status"]["conditions"] = [
        {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    ]
    assert pod_requests(resized)["cpu"] == 300


@pytest.mark.parametrize(
    ("used", "asked", "why"),
    [
        pytest.param("600m", "400m", [], id="P4-equal"),
        pytest.param("600m", "401m", ["Insufficient cpu"], id="P4-one-more"),
        pytest.param("1200m", None, [], id="P5-asks-nothing"),
        pytest.param("1200m", "1m", ["Insufficient cpu"], id="P5-asks-little"),
    ],
)
def test_scheduler_remaining_capacity_of_a_node(
    used: str, asked: str | None, why: list[str]
) -> None:
    assert reasons(pod(cpu=asked), [node()], [pod("old", on="n1", cpu=used)]) == {"n1": why}


def test_scheduler_pod_count_limit() -> None:
    existing = [pod(f"old-{i}", on="n1") for i in range(10)]
    assert reasons(pod(), [node(pods="10")], existing) == {"n1": ["Too many pods"]}


def test_scheduler_extended_resource_missing_on_the_node() -> None:
    asking = pod(
        containers=[{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1", "cpu": "2"}}}]
    )
    assert reasons(asking, [node()])["n1"] == ["Insufficient nvidia.com/gpu", "Insufficient cpu"]


def test_scheduler_uses_allocatable_and_not_capacity() -> None:
    tight = node(cpu="1900m")
    tight["status"]["capacity"]["cpu"] = "2"
    assert reasons(pod(cpu="1950m"), [tight]) == {"n1": ["Insufficient cpu"]}


def test_scheduler_ignores_finished_pods_and_pods_of_other_nodes() -> None:
    done = pod("done", on="n1", cpu="1")
    done["status"] = {"phase": "Succeeded"}
    assert reasons(pod(cpu="1"), [node()], [done, pod("lost", on="gone", cpu="1")]) == {"n1": []}


def test_scheduler_device_claims_are_not_simulated_and_never_fit() -> None:
    asking = pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    assert reasons(asking, [node()]) == {"n1": ["cannot allocate all claims"]}
