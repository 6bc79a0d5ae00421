from __future__ import annotations

from chalicelib.model.operation import OperationState
from tests.functional.operations.harness import START, OperationHarness

HARD = "ToBeDeletedByClusterAutoscaler"
THREE = ("default/p-0", "default/p-1", "default/p-2")


def occupied(stage: OperationHarness) -> None:
    """A group of two nodes with three pods on g-1."""
    stage.group(2)
    for key in THREE:
        stage.pod(key.removeprefix("default/"), "g-1", terminationGracePeriodSeconds=10)


def test_occupied_node_is_drained_and_its_instance_deleted(stage: OperationHarness) -> None:
    occupied(stage)
    operation = stage.remove("g-1", evict={"g-1": THREE})
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert stage.provider.deleted == ["g-1"]
    assert stage.kube.list("pods") == []
    memory = stage.memory()
    assert memory.last_scale_down == memory.groups["g"].last_delete == stage.clock()
    assert stage.untouched("g-2")


def test_removal_is_reported_on_the_node_and_in_the_journal(stage: OperationHarness) -> None:
    occupied(stage)
    stage.remove("g-1", evict={"g-1": THREE})
    stage.play()
    assert stage.events("ScaleDown") == [
        ("g-1", "marked the node as toBeDeleted/unschedulable"),
        ("g-1", "nodes removed by cluster autoscaler"),
        *((key.removeprefix("default/"), "deleting pod for node scale down") for key in THREE),
        ("cluster-autoscaler-status", "Scale-down: node g-1 removed with drain"),
    ]
    facts = stage.store.journal.recent(stage.name)[0].facts
    assert (facts["state"], facts["nodes"], facts["targets"]) == ("succeeded", "g-1", "g-1")
    assert stage.lines[-1]["cluster_autoscaler_scaled_down_nodes_total"] == 1
    assert stage.lines[-1]["reason"] == "underutilized"


def test_first_invocation_taints_and_the_wait_is_a_delayed_message(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    node = stage.kube.peek("nodes", "g-1")
    assert node is not None
    assert node["spec"]["taints"] == [
        {"key": HARD, "value": str(int(START)), "effect": "NoSchedule"}
    ]
    assert stage.now(operation).status.due_at == START + 5.0
    assert stage.sent[0][0] == START + 5.0


def test_pod_bound_after_the_taint_keeps_its_node(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    stage.pod("fast", "g-1")
    stage.play()
    ended = stage.now(operation)
    assert (ended.status.state, ended.status.error_class) == (OperationState.FAILED, "NodeNotEmpty")
    assert stage.untouched("g-1")
    assert stage.events("ScaleDownFailed") == [
        ("g-1", f"failed to delete empty node: {ended.status.outcome}")
    ]
    assert stage.memory().last_scale_down_failure == stage.clock()


def test_pod_nominated_to_the_tainted_node_keeps_it(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    stage.pod("soon")
    pod = stage.kube.get("pods", "soon", "default")
    assert pod is not None
    pod["status"]["nominatedNodeName"] = "g-1"
    stage.kube.update("pods", pod)
    stage.play()
    assert (
        stage.now(operation).status.outcome
        == "node g-1: pod default/soon is nominated to run on it"
    )
    assert stage.untouched("g-1")


def test_exhausted_budget_is_named_by_the_drain_rules_before_any_eviction(
    stage: OperationHarness,
) -> None:
    occupied(stage)
    stage.budget("web", "p-1", 0)
    operation = stage.remove("g-1", evict={"g-1": THREE})
    stage.play()
    assert (
        stage.now(operation).status.outcome
        == "node g-1: pod default/p-1 holds it: NotEnoughPdb (budget default/web)"
    )
    assert stage.untouched("g-1")
    assert len(stage.kube.list("pods")) == 3


# room at the recheck, none at the eviction
def test_budget_that_blocks_until_the_deadline_rolls_back_and_is_named(
    stage: OperationHarness,
) -> None:
    occupied(stage)
    stage.budget("web", "p-1", 1)
    operation = stage.remove("g-1", evict={"g-1": THREE})
    stage.at_checkpoint["evict:called"] = lambda: stage.set_room("web", 0)
    stage.play()
    ended = stage.now(operation)
    assert ended.status.state is OperationState.FAILED
    assert (
        "pod default/p-1 cannot be evicted: The disruption budget web needs 1 healthy pods"
        in ended.status.outcome
    )
    assert stage.untouched("g-1")
    assert stage.provider.deleted == []


def test_pod_of_a_missing_controller_keeps_its_node(stage: OperationHarness) -> None:
    occupied(stage)
    operation = stage.remove("g-1", evict={"g-1": THREE})
    stage.deliver()
    stage.kube.remove("replicasets", "rs", "default", "apps")
    stage.play()
    assert (
        stage.now(operation).status.outcome
        == "node g-1: pod default/p-0 holds it: ControllerNotFound"
    )


def test_drain_of_fifty_pods_takes_many_short_invocations(stage: OperationHarness) -> None:
    stage.group(1)
    keys = tuple(f"default/p-{n:02}" for n in range(50))
    for key in keys:
        stage.pod(key.removeprefix("default/"), "g-1")
    operation = stage.remove("g-1", evict={"g-1": keys})
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert len(stage.invocations) >= 3
    assert max(stage.invocations) == 0.0  # on a clock that only advances during waits


def test_removal_of_several_nodes_keeps_only_the_blocked_node(stage: OperationHarness) -> None:
    stage.group(3)
    operation = stage.remove("g-1", "g-2", "g-3")
    stage.deliver()
    stage.pod("late", "g-2")
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED
    assert sorted(stage.provider.deleted) == ["g-1", "g-3"]
    assert stage.untouched("g-2")
    assert [name for name, _ in stage.events("ScaleDownFailed")] == ["g-2"]
