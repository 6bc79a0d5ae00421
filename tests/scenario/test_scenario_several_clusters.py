"""Several clusters of one deployment: failures do not spread, and a node group has one owner
(docs/reference/node-groups.md "Group ownership")."""

from __future__ import annotations

from chalicelib.model.policy_permissions import Deployment
from infra.emulators.controllers import objects
from infra.emulators.kube.faults import KubeFault
from tests.scenario.policies import document, refusal
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

OPTIONS = {"scaleDownUnneededTime": "1m"}
SHARED = "outscaler/shared/kubeconfig"
WORKERS = "MachineDeployment/default/workers"


@scenario(grain=20.0)
def test_unreadable_cluster_loses_no_node_and_disturbs_no_other_cluster(
    world: ScenarioWorld,
) -> None:
    other = world.add_neighbour("garage")
    for name in ("shop", "garage"):
        world.apply_policy(document(name, options=OPTIONS))
    world.seed(objects.machine_deployment("workers", 3, 1, 5))
    other.seed(objects.machine_deployment("workers", 3, 1, 5))
    world.minutes(2.5)
    before = world.writes()
    world.server.faults.add(
        KubeFault(path="/api/v1/(pods|nodes)", times=-1, **refusal(503, "etcd is away"))
    )

    world.minutes(5)

    assert len(world.nodes()) == 3
    assert world.writes() == before
    assert not world.plans_with("removals")
    assert len(other.kube.list("nodes")) == 1
    assert [
        entry.facts["removed"] for entry in world.journal("garage") if entry.kind == "operation"
    ] == [1, 1]
    reported = [
        line
        for line in world.log
        if line["message"] == "message failed" and line["error"] == "Unavailable"
    ]
    assert reported
    since = {name: known.unneeded_since for name, known in world.last_known_nodes().items()}

    world.server.faults.clear()
    world.minutes(2)

    assert len(world.nodes()) == 1, "its timers have gone on where they were"
    assert set(since) - set(world.nodes())


@scenario(grain=20.0, deployment=Deployment(loopback=True, shared_secrets=frozenset({SHARED})))
def test_group_of_two_clusters_is_scaled_by_the_first_and_the_second_reports_it(
    world: ScenarioWorld,
) -> None:
    """A second policy under another name points at the same cluster, as in two
    deployments of one team by mistake."""
    world.put_secret(SHARED, world.server.kubeconfig())
    world.apply_policy(document("shop", secret=SHARED))
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=5, cpu="1"))
    world.minutes(3)
    assert world.size("workers") == 2
    world.apply_policy(document("shopping", secret=SHARED))
    _shopping_stands_back(world)


def _shopping_stands_back(world: ScenarioWorld) -> None:
    """Of two policies that want one group, `shop` owns it, and `shopping` reports that."""
    world.scale("web", 12)
    world.minutes(4)

    assert world.size("workers") == 4
    assert [end["group"] for end in world.ended("grow")] == [WORKERS, WORKERS]
    assert [entry for entry in world.journal("shopping") if entry.kind == "operation"] == []
    reported = [
        gap
        for plan in world.plans_with("gaps", "shopping")
        for gap in plan["gaps"]
        if gap["kind"] == "NodeGroup"
    ]
    assert {(gap["name"], gap["detail"]) for gap in reported} == {
        (WORKERS, "belongs to cluster shop")
    }


@scenario(grain=20.0)
def test_policies_with_separate_secrets_for_one_cluster_share_group_ownership(
    world: ScenarioWorld,
) -> None:
    """The second team has its own kubeconfig, as in any management cluster of several teams."""
    world.put_secret(
        "outscaler/shopping/kubeconfig", f"# of another team\n{world.server.kubeconfig()}"
    )
    world.apply_policy(document("shop"))
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=5, cpu="1"))
    world.minutes(3)
    assert world.size("workers") == 2
    world.apply_policy(document("shopping"))

    _shopping_stands_back(world)


@scenario(grain=20.0)
def test_ownership_recorded_under_a_secrets_name_is_still_respected(world: ScenarioWorld) -> None:
    """It was recorded by a version that identified groups by the secret's name; the
    owner has not changed since."""
    former = ("clusterapi", f"outscaler/shop/kubeconfig#{WORKERS}")
    assert world.store.group_ownership.claim_groups("garage", [former]) == {}
    world.apply_policy(document("shop"))
    world.seed(objects.machine_deployment("workers", 1, 1, 8))
    world.minutes(1.5)
    world.seed(objects.deployment("web", replicas=5, cpu="1"))
    world.minutes(2)

    assert world.size("workers") == 1
    reported = [
        gap
        for plan in world.plans_with("gaps")
        for gap in plan["gaps"]
        if gap["kind"] == "NodeGroup"
    ]
    assert {(gap["name"], gap["detail"]) for gap in reported} == {
        (WORKERS, "belongs to cluster garage")
    }
    assert world.store.group_ownership.owners() == {former: "garage"}

    world.store.group_ownership.release("garage", [former])
    # as migrated from an older version
    assert world.store.group_ownership.claim_groups("shop", [former]) == {}
    world.minutes(3)

    assert world.size("workers") == 2
    assert sorted(world.store.group_ownership.owners().values()) == ["shop", "shop"]
