"""Nodes that their vendor takes back, and sick nodes that are restarted, from the saved
operation to its end, with the functions, the emulated cluster and kills. What a pass decides is
given here: it is another subject."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.group import Instance
from chalicelib.model.plan import Removal, Restart
from chalicelib.plan import planner
from chalicelib.plan.removal.disruption_command import DisruptionCommand
from chalicelib.plan.removal.removal_planner import DisruptionPlan, plan_disruption
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.views.journal_lines import sentence
from infra.emulators.controllers import objects
from infra.emulators.fake_provider import InMemoryProvider
from infra.emulators.kube.objects import clone
from tests.builders import node as template
from tests.scenario.policies import document
from tests.scenario.runner import ScenarioRunner
from tests.scenario.scenario_world import ScenarioWorld

NODE = "spot-1"
NOTICE = 120.0


class Decision:
    """What the next passes decide about one node, once it is there and nothing is under way for it.
    leaves_at: when its vendor takes it back, epoch seconds; sick: it is to be restarted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leaves_at, self.sick = 0.0, False
        monkeypatch.setattr(planner, "plan_disruption", self._decide)

    def _decide(self, state: ClusterState, *args: Any, **more: Any) -> DisruptionPlan:
        decided = plan_disruption(state, *args, **more)
        if NODE not in state.group_of or NODE in state.leaving:
            return decided
        evict = tuple(pod.key for pod in state.occupancy.on(NODE))
        if self.sick:
            return msgspec.structs.replace(
                decided, restarts=(Restart(NODE, "spot", "KernelDeadlock=True", evict),)
            )
        if not self.leaves_at:
            return decided
        reason = DisruptionReason.INTERRUPTED
        removal = Removal(NODE, "spot", "drain", evict, reason=reason, leaves_at=self.leaves_at)
        return msgspec.structs.replace(decided, commands=(DisruptionCommand(reason, (removal,)),))


def cloud_with_a_node(world: ScenarioWorld, *, least: int, **pods: Any) -> InMemoryProvider:
    """One pod on node spot-1, and room for it on an empty node of another group."""
    world.cloud = cloud = InMemoryProvider(polls=2)
    cloud.add_pool("spot", size=1, least=least, most=1, template_node=template("spot", "2"))
    cloud.add_pool("steady", most=3, template_node=template("steady", "2"))
    cloud.on_delete = lambda machine: world.kube.remove("nodes", machine.node)
    world.apply_policy(document(options={"scaleDownUnneededTime": "60m"}))
    world.join()
    world.seed(objects.deployment("web", replicas=1, cpu="900m"), *pods.values())
    world.step_until(lambda: world.pods_ready("web") == 1, limit=300)
    return cloud


def vendor_takes_the_machine(world: ScenarioWorld, cloud: InMemoryProvider) -> None:
    cloud.pools["spot"].machines.pop(NODE)
    for pod in world.kube.pods_on(NODE):
        world.kube.remove("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
    world.kube.remove("nodes", NODE)
    world.settle()


@pytest.mark.parametrize(
    "place", ["", "act:claimed", "taint:called", "evict:called", "delete:called", "act:recorded"]
)
def test_pod_that_a_budget_holds_is_lost_with_its_machine(
    stage: ScenarioRunner, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    decision = Decision(monkeypatch)

    def tell(world: ScenarioWorld) -> None:
        decision.leaves_at = 0.0
        cloud = cloud_with_a_node(world, least=1, budget=objects.pdb("web", max_unavailable=0))
        decision.leaves_at = ends = world.clock() + NOTICE
        if place:
            world.kill_at(place, function="act_clusterapi")
        world.step_until(lambda: world.clock() > ends + 30.0, limit=300)
        assert world.is_marked(NODE), "the budget holds the pod, and the provider its minimum"
        assert world.pods_on(NODE)
        decision.leaves_at = 0.0
        vendor_takes_the_machine(world, cloud)
        world.minutes(6)
        assert world.deaths() == ([place] if place else [])
        (ended,) = world.ended("remove")
        assert (ended["state"], ended["gone"], ended["reason"]) == (
            "succeeded",
            NODE,
            "interrupted",
        )
        assert cloud.deleted == []
        memory = world.store.memory.look("shop")
        assert memory.last_scale_down == memory.last_scale_down_failure == 0.0
        assert memory.groups["spot"].failed_removals == {}
        assert memory.groups["spot"].last_delete == memory.groups["spot"].last_failure == 0.0

    stage.play(tell, grain=5.0)


def test_node_that_its_vendor_takes_back_is_evacuated_before(
    stage: ScenarioRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = Decision(monkeypatch)

    def tell(world: ScenarioWorld) -> None:
        decision.leaves_at = 0.0
        cloud = cloud_with_a_node(world, least=0)
        decision.leaves_at = ends = world.clock() + NOTICE
        world.step_until(lambda: NODE not in world.nodes(), limit=NOTICE)
        assert world.clock() < ends
        decision.leaves_at = 0.0
        assert cloud.deleted == [NODE]
        world.minutes(3)
        [said] = [
            sentence(entry) for entry in world.journal() if entry.facts.get("kind") == "remove"
        ]
        assert said.startswith(
            f"{NODE} was removed from spot because of an interruption, 1 pod moved, in "
        )
        cloud.boot()
        world.join()
        world.step_until(lambda: world.pods_ready("web") == 1, limit=300)

    stage.play(tell, grain=5.0)


def test_node_whose_notice_is_taken_back_is_given_back(
    stage: ScenarioRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = Decision(monkeypatch)

    def tell(world: ScenarioWorld) -> None:
        decision.leaves_at = 0.0
        cloud = cloud_with_a_node(world, least=1)
        decision.leaves_at = ends = world.clock() + NOTICE
        world.step_until(lambda: bool(world.operations()), limit=120)
        decision.leaves_at = 0.0
        world.step_until(lambda: not world.operations(), limit=900)
        assert world.clock() >= ends + 360.0
        assert not world.is_marked(NODE)
        assert cloud.deleted == []
        (ended,) = world.ended("remove")
        assert (ended["state"], ended["class"]) == ("abandoned", "NoticeTakenBack")
        memory = world.store.memory.look("shop").groups["spot"]
        assert [failed.taken_back for failed in memory.failed_removals.values()] == [True]
        assert memory.last_failure == 0.0

    stage.play(tell, grain=5.0)


@pytest.mark.parametrize(
    "place", ["", "taint:called", "evict:called", "restart:called", "return:called"]
)
def test_sick_node_is_drained_restarted_and_given_back(
    stage: ScenarioRunner, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    decision = Decision(monkeypatch)

    def tell(world: ScenarioWorld) -> None:
        decision.sick = False
        cloud = cloud_with_a_node(world, least=0)

        def boot(name: str) -> None:
            node = clone(world.node(NODE))
            node["status"]["nodeInfo"]["bootID"] = name
            world.kube.update("nodes", node)

        def reboot(machine: Instance) -> None:
            boot(f"after the restart of {machine.node}")
            decision.sick = False

        boot("first")
        cloud.on_restart = reboot
        decision.sick = True
        if place:
            world.kill_at(place, function="act_clusterapi")
        world.step_until(lambda: bool(world.ended("restart")), limit=900)
        assert world.deaths() == ([place] if place else [])
        (ended,) = world.ended("restart")
        assert (ended["state"], ended["restarted"], ended["reason"]) == ("succeeded", 1, "repair")
        assert not world.is_marked(NODE)
        assert cloud.deleted == []
        assert cloud.pools["spot"].target == 1
        assert 1 <= len(cloud.restarted) <= (2 if place == "restart:called" else 1)
        memory = world.store.memory.look("shop")
        assert memory.last_scale_down == 0.0
        assert {event["reason"] for event in world.kube.list("events")} >= {"NodeRestart"}

    stage.play(tell, grain=5.0)
