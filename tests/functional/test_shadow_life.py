"""A shadow cluster beside a Cluster Autoscaler in everyday life: Jobs, equal groups,
empty stock, failed drains.
"""

from __future__ import annotations

from typing import Any

from chalicelib.shadow.records import Match, ShadowVerdict
from chalicelib.shadow.verdicts import UNKNOWN
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.controllers.kubelet import RUN_SECONDS
from infra.emulators.kube.objects import KubeObject, clone
from tests.cases import each_row
from tests.functional.test_shadow_comparison import WORKERS, SharedCluster
from tests.functional.test_shadow_outages import removals

SAME = {ShadowVerdict.SAME, ShadowVerdict.SAME_SIZE}
TAINT = fields.UNINITIALIZED


def job(name: str, pods: int, seconds: int, cpu: str = "3") -> KubeObject:
    """A Job whose pods run for so long."""
    template: Any = clone(objects.deployment(name, replicas=pods, cpu=cpu)["spec"]["template"])
    template["metadata"]["annotations"] = {RUN_SECONDS: str(seconds)}
    template["spec"]["restartPolicy"] = "Never"
    spec = {"completions": pods, "parallelism": pods, "template": template}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def growths(world: SharedCluster) -> list[Match]:
    return [match for match in world.matches if match.kind == "growth"]


@each_row("seconds", [20, 60, 150], ids=lambda seconds: f"{seconds}s")
def test_growths_for_jobs_agree_whenever_their_pods_end(seconds: int) -> None:
    with SharedCluster() as world:
        world.begin()
        for number in range(3):
            world.seed(job(f"ci-{number}", 2, seconds))
            world.minutes(13)
        assert len(growths(world)) == len(world.other.grown) >= 3
        assert {match.verdict for match in growths(world)} == {ShadowVerdict.SAME}
        assert world.figures.missed == 0


def test_draws_among_equal_groups_agree() -> None:
    with SharedCluster(seed=3) as world:
        world.begin()
        world.seed(
            objects.machine_deployment("twin", 1, 0, 12),
            objects.machine_deployment("triplet", 1, 0, 12),
        )
        world.seed(objects.deployment("fill", replicas=2, cpu="2500m"))
        world.minutes(2)
        for number in range(4):
            world.seed(objects.deployment(f"web-{number}", replicas=2, cpu="3"))
            world.minutes(6)
        assert len({group for _, group, _ in world.other.grown}) > 1  # it draws
        assert {match.verdict for match in growths(world)} <= SAME
        assert world.figures.growth_agreement == 1.0


def test_growth_elsewhere_because_of_an_empty_stock_has_that_cause() -> None:
    with SharedCluster() as world:
        world.begin()
        world.seed(objects.machine_deployment("large", 0, 0, 3, "16", "64Gi"))
        world.minutes(1)
        world.other.refused.add(WORKERS)
        world.seed(objects.deployment("web", replicas=1, cpu="3"))
        world.minutes(8)
        assert {group for _, group, _ in world.other.grown} == {
            WORKERS,
            "MachineDeployment/default/large",
        }
        assert UNKNOWN not in {match.cause for match in world.matches}
        assert any("Backoff" in match.cause for match in growths(world))


def test_removals_after_a_growth_wait_for_the_same_cool_down() -> None:
    with SharedCluster(unneeded_for=600.0, delay_after_add=600.0) as world:
        world.begin(options={})
        world.seed(objects.machine_deployment("large", 0, 0, 3, "16", "64Gi"))
        world.seed(objects.deployment("web", replicas=2, cpu="3"))
        world.minutes(11)
        world.scale("web", 0)
        world.minutes(7)  # three minutes before its nodes are due, another group grows
        world.seed(objects.deployment("heavy", replicas=1, cpu="12"))
        world.minutes(25)
        assert len(world.other.removed) == 2
        assert world.other.removed[0][0] - world.other.grown[-1][0] >= 600.0
        assert {match.verdict for match in world.matches} == {ShadowVerdict.SAME}
        assert world.store.memory.load(world.name).last_scale_up >= world.other.grown[-1][0]


def test_removal_that_a_budget_stops_counts_when_it_succeeds() -> None:
    with SharedCluster() as world:
        world.begin()
        world.seed(objects.deployment("web", replicas=1, cpu="3"))
        world.minutes(8)
        world.scale("web", 0)
        world.minutes(1)
        world.seed(
            objects.deployment("guarded", replicas=1, cpu="1"),
            objects.pdb("guarded", max_unavailable=0),
        )
        world.minutes(15)
        assert world.other.given_up
        assert removals(world) == []
        world.kube.delete("poddisruptionbudgets", "guarded", "default", "policy")
        world.minutes(12)
        assert [match.verdict for match in removals(world)] == [ShadowVerdict.SAME]


def test_nodes_bought_twice_because_of_a_startup_taint_have_that_cause() -> None:
    with SharedCluster() as world:
        world.begin()
        known = {node["metadata"]["name"] for node in world.kube.list("nodes")}
        world.seed(objects.deployment("web", replicas=1, cpu="3"))
        joined: dict[str, float] = {}
        for _ in range(60):
            world.minutes(1 / 6)
            for node in world.kube.list("nodes"):
                name = node["metadata"]["name"]
                if (
                    name not in known
                    and joined.setdefault(name, world.clock()) > world.clock() - 70
                ):
                    _with_taint(world, node)
                elif name in joined:
                    _without_taint(world, node)
        assert [count for _, _, count in world.other.grown] == [1, 1]
        [match] = growths(world)
        assert match.verdict is ShadowVerdict.FEWER
        assert match.cause.startswith(
            "known difference: Cluster Autoscaler bought a node that never took a pod"
        )
        assert f"--startup-taint={TAINT['key']}" in match.cause


def _with_taint(world: SharedCluster, node: KubeObject) -> None:
    taints = node["spec"].get("taints") or []
    if not world.kube.pods_on(node["metadata"]["name"]) and all(
        taint["key"] != TAINT["key"] for taint in taints
    ):
        changed = clone(node)
        changed["spec"]["taints"] = [*taints, dict(TAINT)]
        world.kube.update("nodes", changed)


def _without_taint(world: SharedCluster, node: KubeObject) -> None:
    taints = node["spec"].get("taints") or []
    if any(taint["key"] == TAINT["key"] for taint in taints):
        changed = clone(node)
        changed["spec"]["taints"] = [taint for taint in taints if taint["key"] != TAINT["key"]]
        world.kube.update("nodes", changed)
