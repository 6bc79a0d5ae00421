"""Recheck of the drain rules between taint and eviction, on fresh cluster data
(docs/reference/drain.md "Recheck after the taint")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.operation import OperationState
from tests.functional.operations.harness import OperationHarness

POD = ("default/p",)


def ended(stage: OperationHarness, evict: tuple[str, ...] = POD) -> str:
    """Returns the outcome of the removal of g-1, which must not have changed any pod."""
    operation = stage.remove("g-1", evict={"g-1": evict})
    stage.play()
    found = stage.now(operation)
    assert found.status.state is OperationState.FAILED
    assert stage.untouched("g-1")
    assert not any("deletionTimestamp" in pod["metadata"] for pod in stage.kube.list("pods"))
    assert stage.provider.deleted == []
    return found.status.outcome


@pytest.mark.parametrize("evict", [POD, ()], ids=["drain", "empty"])
def test_new_on_completion_pod_keeps_its_node(
    stage: OperationHarness, evict: tuple[str, ...]
) -> None:
    """Also where the node is drained; upstream only spares empty nodes."""
    stage.group(1)
    for key in evict:
        stage.pod(key.removeprefix("default/"), "g-1")
    stage.pod("job", "g-1")
    job = stage.kube.get("pods", "job", "default")
    assert job is not None
    job["metadata"]["annotations"] = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"
    }
    stage.kube.update("pods", job)
    # even where a pod of that name was planned, since it was another pod
    planned = (*evict, "default/job")
    assert ended(stage, planned) == "node g-1: pod default/job holds it: BlockedByOnCompletionPod"


def test_budgets_that_can_never_allow_an_eviction_are_named_before_any_eviction(
    stage: OperationHarness,
) -> None:
    stage.group(1)
    stage.pod("p", "g-1")
    stage.budget("one", "p", 1)
    stage.budget("two", "p", 1)
    why = ended(stage)
    assert why == (
        "node g-1: pod default/p holds it: budgets default/one, default/two all select it, and it "
        "can never be evicted"
    )


def test_volume_being_provisioned_for_the_node_keeps_it(stage: OperationHarness) -> None:
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
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Pending"},
        },
    )
    assert "claim default/data is being given a volume on it" in ended(stage)


def test_node_annotated_by_a_user_after_the_taint_stays(stage: OperationHarness) -> None:
    stage.group(1)

    def spare() -> None:
        node = stage.kube.get("nodes", "g-1")
        assert node is not None
        node["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/scale-down-disabled"] = (
            "true"
        )
        stage.kube.update("nodes", node)

    stage.at_checkpoint["taint:called"] = spare
    assert "annotation scale-down-disabled was set meanwhile" in ended(stage, ())


# -- clocks and duplicates


def _ahead(stage: OperationHarness, seconds: float) -> None:
    """The following functions run with this clock error."""

    def skewed() -> float:
        return stage.clock() + seconds

    stage.replace(clock=skewed)
    stage.store.operations._clock = skewed


def test_message_that_seems_early_to_a_slow_clock_is_not_lost(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    _ahead(stage, 30.0)
    stage.deliver()  # adds the taint and sends the next message
    _ahead(stage, -30.0)
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert len(stage.invocations) <= 6


def test_first_message_between_two_clocks_wrong_by_ten_seconds_is_not_lost(
    stage: OperationHarness,
) -> None:
    stage.group(1)
    operation = stage.remove("g-1", due_at=stage.clock() + 10.0)
    # by the clock of the pass
    stage.store.operations.mark_sent(stage.name, operation.spec.id, stage.clock() + 10.0)
    _ahead(stage, -10.0)
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED


def test_early_duplicate_is_dropped_once_the_original_was_delivered(
    stage: OperationHarness,
) -> None:
    stage.group(1)
    stage.provider.polls = 9
    stage.remove("g-1")
    stage.deliver()
    due, order, queue, body = stage.sent[0]
    for _ in range(5):
        stage.sent.append((due, order, queue, body))
    stage.play()
    waits = len(stage.invocations)
    assert waits <= 1 + 5 + 12  # each of the five copies caused one read only


# -- an unreadable policy


def test_operation_begun_under_a_policy_now_unreadable_is_rolled_back(
    stage: OperationHarness,
) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    assert not stage.untouched("g-1")
    current = stage.store.policies.current(stage.name)
    assert current is not None
    stage.store.policies.put(
        stage.name, "apiVersion: outscaler.dev/v9\n", "digest", current.version
    )
    stage.play()
    found = stage.now(operation)
    assert found.status.state is OperationState.ABANDONED
    assert found.status.outcome.startswith("node g-1: the cluster's policy cannot be read: ")
    assert stage.untouched("g-1")


def test_stored_operation_stays_small(stage: OperationHarness) -> None:
    """It is written at every step, and a node has at most 110 pods by default."""
    stage.group(1)
    keys = tuple(f"default/p-{n:03}" for n in range(110))
    for key in keys:
        stage.pod(key.removeprefix("default/"), "g-1")
    operation = stage.remove("g-1", evict={"g-1": keys})
    stage.deliver()
    stage.deliver()
    assert stage.now(operation).status.step == "gone"
    assert len(msgspec.json.encode(stage.now(operation).status.data)) < 4000


def test_expendable_pod_does_not_block_its_node_under_any_drain_rule(
    stage: OperationHarness,
) -> None:
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
    [
        ("StatefulSet", "apps.kruise.io/v1beta1"),
        ("Job", "batch.volcano.sh/v1alpha1"),
        ("ReplicaSet", "example.com/v1"),
    ],
)
def test_recheck_ignores_controllers_of_other_api_groups(
    stage: OperationHarness, kind: str, version: str
) -> None:
    stage.group(2)
    stage.pod(
        "p",
        "g-1",
        {"apiVersion": version, "kind": kind, "name": "web"},
        terminationGracePeriodSeconds=10,
    )
    operation = stage.remove("g-1", evict={"g-1": POD})
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert stage.provider.deleted == ["g-1"]


@pytest.mark.parametrize(
    ("spec", "saved"),
    [({}, True), ({"priority": -11}, False), ({"schedulingGates": [{"name": "later"}]}, False)],
)
def test_expendable_or_gated_nominated_pod_does_not_keep_a_node(
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
    assert stage.now(operation).status.state is (
        OperationState.FAILED if saved else OperationState.SUCCEEDED
    )
