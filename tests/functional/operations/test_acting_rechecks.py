"""What the rules find between taint and eviction, on what the cluster says then (demands.md 7, 19)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.operation import OperationState
from tests.functional.operations.harness import OperationHarness

POD = ("default/p",)


def ended(stage: OperationHarness, evict: tuple[str, ...] = POD) -> str:
    """How the removal of g-1 ends; it must not have done anything to any pod."""
    operation = stage.remove("g-1", evict={"g-1": evict})
    stage.play()
    found = stage.now(operation)
    assert found.status.state is OperationState.FAILED
    assert stage.untouched("g-1")
    assert not any("deletionTimestamp" in pod["metadata"] for pod in stage.kube.list("pods"))
    assert stage.provider.deleted == []
    return found.status.outcome


@pytest.mark.parametrize("evict", [POD, ()], ids=["drain", "empty"])
def test_an_on_completion_pod_that_has_come_since_keeps_the_node(
    stage: OperationHarness, evict: tuple[str, ...]
) -> None:
    """Also where it is drained: upstream spares empty nodes only (scale-down.md §9, 4)."""
    stage.group(1)
    for key in evict:
        stage.pod(key.removeprefix("default/"), "g-1")
    stage.pod("job", "g-1")
    job = stage.kube.get("pods", "job", "default")
    assert job is not None
    job["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"}
    stage.kube.update("pods", job)
    planned = (*evict, "default/job")  # even where its name was planned: it was another pod then
    assert ended(stage, planned) == "node g-1: pod default/job holds it: BlockedByOnCompletionPod"


def test_KP_1776_budgets_that_can_never_allow_it_are_named_before_anybody_is_evicted(stage: OperationHarness) -> None:
    stage.group(1)
    stage.pod("p", "g-1")
    stage.budget("one", "p", 1)
    stage.budget("two", "p", 1)
    why = ended(stage)
    assert why == (
        "node g-1: pod default/p holds it: budgets default/one, default/two all select it, and it can never be evicted"
    )


def test_KK_125491_a_volume_that_is_being_made_for_the_node_keeps_it(stage: OperationHarness) -> None:
    stage.group(1)
    stage.pod("p", "g-1")
    stage.kube.create(
        "persistentvolumeclaims",
        {
            "metadata": {
                "name": "data",
                "namespace": "default",
                "annotations": {"volume.kubernetes.io/selected-node": "g-1"},
            },
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Pending"},
        },
    )
    assert "claim default/data is being given a volume on it" in ended(stage)


def test_a_node_marked_by_hand_after_the_taint_keeps_it(stage: OperationHarness) -> None:
    stage.group(1)

    def spare() -> None:
        node = stage.kube.get("nodes", "g-1")
        assert node is not None
        node["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/scale-down-disabled"] = "true"
        stage.kube.update("nodes", node)

    stage.at_checkpoint["taint:called"] = spare
    assert "annotation scale-down-disabled was set meanwhile" in ended(stage, ())


# -- clocks and duplicates


def _ahead(stage: OperationHarness, seconds: float) -> None:
    """The next functions run on a machine whose clock is off."""

    def skewed() -> float:
        return stage.clock() + seconds

    stage.replace(clock=skewed)
    stage.store.operations._clock = skewed


def test_a_message_that_seems_early_only_to_a_slow_clock_is_not_lost(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    _ahead(stage, 30.0)
    stage.deliver()  # taints, and sends the next message
    _ahead(stage, -30.0)
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert len(stage.invocations) <= 6


def test_a_duplicate_that_comes_early_is_dropped_once_the_original_was_there(stage: OperationHarness) -> None:
    stage.group(1)
    stage.provider.polls = 9
    stage.remove("g-1")
    stage.deliver()
    due, order, queue, body = stage.sent[0]
    for _ in range(5):
        stage.sent.append((due, order, queue, body))
    stage.play()
    waits = len(stage.invocations)
    assert waits <= 1 + 5 + 12  # each of the five copies cost one look and no more


# -- a policy that cannot be read any more


def test_what_was_begun_under_a_policy_that_cannot_be_read_any_more_is_rolled_back(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    assert not stage.untouched("g-1")
    current = stage.store.policies.current(stage.name)
    assert current is not None
    stage.store.policies.put(stage.name, "apiVersion: outscaler.dev/v9\n", "digest", current.version)
    stage.play()
    found = stage.now(operation)
    assert found.status.state is OperationState.ABANDONED
    assert found.status.outcome.startswith("node g-1: the cluster's policy cannot be read: ")
    assert stage.untouched("g-1")


def test_the_operations_data_stays_small(stage: OperationHarness) -> None:
    """It is written at every step; a node has at most 110 pods by default."""
    stage.group(1)
    keys = tuple(f"default/p-{n:03}" for n in range(110))
    for key in keys:
        stage.pod(key.removeprefix("default/"), "g-1")
    operation = stage.remove("g-1", evict={"g-1": keys})
    stage.deliver()
    stage.deliver()
    assert stage.now(operation).status.step == "gone"
    assert len(msgspec.json.encode(stage.now(operation).status.data)) < 4000


def test_an_expendable_pod_dies_with_its_node_whatever_the_rules_say_of_it(stage: OperationHarness) -> None:
    stage.group(1)
    stage.pod("cheap", "g-1", priority=-100)
    pod = stage.kube.get("pods", "cheap", "default")
    assert pod is not None
    pod["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    stage.kube.update("pods", pod)
    operation = stage.remove("g-1", evict={})
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED


@pytest.mark.parametrize(
    ("kind", "version"),
    [("StatefulSet", "apps.kruise.io/v1beta1"), ("Job", "batch.volcano.sh/v1alpha1"), ("ReplicaSet", "example.com/v1")],
)
def test_a_controller_of_another_api_group_is_not_looked_for(stage: OperationHarness, kind: str, version: str) -> None:
    stage.group(2)
    stage.pod("p", "g-1", {"apiVersion": version, "kind": kind, "name": "web"}, terminationGracePeriodSeconds=10)
    operation = stage.remove("g-1", evict={"g-1": POD})
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert stage.provider.deleted == ["g-1"]


@pytest.mark.parametrize(
    ("spec", "saved"), [({}, True), ({"priority": -11}, False), ({"schedulingGates": [{"name": "later"}]}, False)]
)
def test_an_expendable_or_gated_pod_that_is_nominated_keeps_no_node(
    stage: OperationHarness, spec: dict[str, Any], saved: bool
) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    stage.pod("soon", **spec)
    pod = stage.kube.get("pods", "soon", "default")
    assert pod is not None
    pod["status"]["nominatedNodeName"] = "g-1"
    stage.kube.update("pods", pod)
    stage.play()
    assert stage.provider.deleted == ([] if saved else ["g-1"])
    assert stage.now(operation).status.state is (OperationState.FAILED if saved else OperationState.SUCCEEDED)
