"""Reports visible to users of a cluster: events on its objects, the status ConfigMap, metrics
(docs/events.md "Published events")."""

from __future__ import annotations

from typing import Any

import yaml

from infra.emulators.controllers import objects
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

GROUP = "MachineDeployment/default/workers"


def status(world: ScenarioWorld) -> Any:
    """The status as tools read it."""
    found = world.kube.peek("configmaps", "cluster-autoscaler-status", "kube-system")
    return (
        yaml.load(found["data"]["status"], Loader=yaml.BaseLoader)
        if found is not None and "data" in found
        else None
    )


def events(world: ScenarioWorld, kind: str) -> list[tuple[str, str, bool]]:
    """Reason, message, and whether it has its object's uid (or a Node's name), of the events about
    such objects, in order of arrival."""
    found = [
        event
        for event in world.kube.list("events")
        if event["involvedObject"]["kind"] == kind and event.get("reportingInstance") == "outscaler"
    ]
    found.sort(key=lambda event: (event["firstTimestamp"], event["reason"], event["message"]))
    return list(
        dict.fromkeys(
            (event["reason"], event["message"], bool(event["involvedObject"].get("uid")))
            for event in found
        )
    )


def grows(world: ScenarioWorld) -> None:
    """Adds twelve pods to a cluster of one node; three more nodes are bought."""
    world.apply_policy(document())
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(2)
    world.seed(objects.deployment("web", replicas=12, cpu="1"))
    world.minutes(1)


@scenario()
def test_scale_up_is_visible_in_the_status_pod_events_and_counters(world: ScenarioWorld) -> None:
    grows(world)

    found = status(world)
    [group] = found["nodeGroups"]
    assert (group["name"], group["health"]["cloudProviderTarget"]) == (GROUP, "1")
    assert (
        "ScaledUpGroup",
        f"Scale-up: setting group {GROUP} size to 4 instead of 1 (max: 8)",
        True,
    ) in events(world, "ConfigMap")
    assert [words for reason, words, _ in events(world, "Pod") if reason == "TriggeredScaleUp"] == [
        f"pod triggered scale-up: [{{{GROUP} 1->4 (max: 8)}}]"
    ]

    world.minutes(1)
    found = status(world)
    assert (
        found["nodeGroups"][0]["scaleUp"]["status"]
        == found["clusterWide"]["scaleUp"]["status"]
        == "InProgress"
    )
    assert found["nodeGroups"][0]["health"]["cloudProviderTarget"] == "4"
    assert world.store.journal.ledger(world.name).counts == {"scaled_up_nodes_total": 3.0}
    assert all(uid for _, _, uid in events(world, "ConfigMap") + events(world, "Pod"))


@scenario()
def test_pass_that_dies_while_reporting_is_followed_by_one_that_reports(
    world: ScenarioWorld,
) -> None:
    world.kill_at("reconcile:sent", function="reconcile")
    grows(world)
    world.minutes(4)

    assert world.deaths() == ["reconcile:sent"]
    assert world.pending() == ()
    assert status(world)["clusterWide"]["health"]["nodeCounts"]["registered"]["ready"] == "4"
    assert world.store.journal.ledger(world.name).counts == {"scaled_up_nodes_total": 3.0}


@scenario()
def test_shadow_cluster_is_not_written_to_and_has_metrics(world: ScenarioWorld) -> None:
    world.apply_policy(document(mode="shadow", metrics="full"))
    world.seed(
        objects.machine_deployment("workers", 1, 1, 8),
        objects.deployment("web", replicas=12, cpu="1"),
    )
    world.minutes(3)

    assert world.writes() == []
    names = {name for line in world.metrics for name in line}
    assert {
        "cluster_autoscaler_nodes_count",
        "cluster_autoscaler_cluster_safe_to_autoscale",
    } <= names


@scenario()
def test_status_configmap_is_not_written_when_disabled(world: ScenarioWorld) -> None:
    world.apply_policy(document(options={"writeStatusConfigmap": False}))
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(3)
    world.seed(objects.deployment("web", replicas=12, cpu="1"))
    world.minutes(2)

    assert status(world) is None
    assert events(world, "ConfigMap") == []
    assert events(world, "Pod") != []
