"""Replacements from the first pass that wants one to their end, with the functions, the emulated
cluster and the search (docs/reference/consolidation.md "Replacements")."""

from __future__ import annotations

import pytest

from chalicelib.journal import carry_over
from chalicelib.model.memory import Replacement
from chalicelib.views.journal_lines import sentence
from infra.emulators.cherryservers.attached_account import CherryAccount
from infra.emulators.cherryservers.models import CherryDurations
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi import fields
from infra.emulators.kube.objects import clone
from tests.scenario.policies import document
from tests.scenario.runner import scenario
from tests.scenario.scenario_world import ScenarioWorld

LARGE, SMALL = ("MachineDeployment/default/large", "MachineDeployment/default/small")
CONSOLIDATION = {
    "mode": "full",
    "aggressiveness": 3,
    "minNodeAge": "2m",
    "quietTime": "1m",
}


def policy(small: int, mode: str = "full") -> str:
    """A node of group large costs twice as much as one of group small, of
    which there may be so many."""
    groups = [
        {"provider": "clusterapi", "id": name, "min": 0, "max": most}
        for name, most in ((LARGE, 3), (SMALL, small))
    ]
    return document(
        nodeGroups=groups,
        consolidation={**CONSOLIDATION, "mode": mode},
        prices={"cpu": 0.05},
        disruptionBudgets=[{"name": "all", "nodes": 1}],
        options={
            "scaleDownUnneededTime": "20m",
            "scaleDownDelayAfterAdd": "1m",
            "maxNodeProvisionTime": "10m",
        },
    )


def half_empty(world: ScenarioWorld) -> str:
    """A large node whose pods would fit on a small one, which may be bought from
    now on. Returns its name."""
    world.apply_policy(policy(small=0))
    world.seed(
        objects.machine_deployment("large", 1, 0, 3, cpu="4"),
        objects.machine_deployment("small", 0, 0, 3, cpu="2"),
    )
    world.seed(objects.deployment("web", replicas=2, cpu="700m"))
    world.step_until(lambda: bool(world.pods_ready("web") == 2), limit=300)
    world.minutes(3)
    (name,) = world.nodes()
    world.apply_policy(policy(small=3))
    return name


def rows(world: ScenarioWorld) -> list[Replacement]:
    return list(world.store.memory.look("shop").replacements.values())


def states(world: ScenarioWorld) -> list[str]:
    return [row.state.value for row in rows(world)]


def events(world: ScenarioWorld) -> set[tuple[str, str]]:
    """Object and message of the events about replacements."""
    return {
        (event["involvedObject"]["name"], event["message"])
        for event in world.kube.list("events")
        if event["reason"].startswith("NodeReplacement")
    }


def counts(world: ScenarioWorld) -> dict[str, float]:
    """The counters of passes and operations that are about replacements."""
    passed = world.store.scan_states.last("shop")
    assert passed is not None
    passes = carry_over.read(passed.carry_over).counts
    operations = world.store.journal.ledger("shop").counts
    return {
        name: count
        for name, count in (passes | operations).items()
        if name.startswith(("disrupted", "repl"))
    }


@scenario(grain=5.0)
def test_half_empty_node_is_replaced_by_a_cheaper_one(world: ScenarioWorld) -> None:
    old = half_empty(world)
    world.step_until(lambda: len(world.nodes()) == 2, limit=600)
    assert not world.is_marked(old), "the new node is not ready yet"
    world.step_until(lambda: old not in world.nodes(), limit=900)
    world.minutes(2)
    assert [world.size("large"), world.size("small")] == [0, 1]
    assert world.pods_ready("web") == 2
    assert [len(world.ended(kind)) for kind in ("grow", "remove")] == [1, 1]
    assert rows(world) == []
    (new,) = world.nodes()
    sentences = [sentence(entry) for entry in world.journal() if entry.kind == "operation"]
    [grew] = [text for text in sentences if "to replace" in text]
    assert grew.startswith(f"{SMALL} grew from 0 to 1 to replace {old}, in ")
    [removed] = [text for text in sentences if "replaced by" in text]
    assert removed.startswith(
        f"{old} was removed from {LARGE}, 2 pods moved, replaced by {new}, saves 0.10 an hour, in "
    )
    assert events(world) == {
        (old, f"Replace {old} by 1 of {SMALL}: saves 0.10 an hour (50%), score 0.50"),
        ("cluster-autoscaler-status", f"Replaced {old} by {new}"),
    }
    assert counts(world) == {
        "disrupted_nodes_total;reason=consolidation": 1.0,
        "replacements_total;result=begun": 1.0,
        "replacements_total;result=succeeded": 1.0,
    }


@scenario(grain=5.0)
def test_cons_53_old_node_that_is_deleted_by_hand_needs_no_removal(world: ScenarioWorld) -> None:
    half_empty(world)
    world.step_until(lambda: states(world) == ["waiting"], limit=600)
    group = world.kube.get("machinedeployments", "large", "default", fields.GROUP)
    assert group is not None
    smaller = {**clone(group), "spec": {**group["spec"], "replicas": 0}}
    world.kube.update("machinedeployments", smaller, fields.GROUP)
    world.step_until(lambda: states(world) == [], limit=600)
    world.minutes(5)
    assert world.ended("remove") == []
    assert [world.size("large"), world.size("small")] == [0, 1]
    assert world.pods_ready("web") == 2


@scenario(grain=5.0)
def test_cons_54_mode_shadow_ends_a_replacement_after_its_purchase(world: ScenarioWorld) -> None:
    old = half_empty(world)
    world.step_until(lambda: states(world) == ["buying"], limit=600)
    world.apply_policy(policy(small=3, mode="shadow"))
    world.minutes(10)
    assert states(world) == ["failed"]
    assert [end["state"] for end in world.ended("grow")] == ["succeeded"]
    assert old in world.nodes()
    assert world.ended("remove") == []
    world.minutes(25)
    assert [world.size("large"), world.size("small")] == [1, 0], "the new node was unneeded"


@scenario(grain=20.0)
def test_cons_56_drain_that_is_stuck_on_a_budget_fails_the_replacement(
    world: ScenarioWorld,
) -> None:
    old = half_empty(world)
    world.seed(
        {
            **objects.pdb("web", max_unavailable=2),
            "metadata": {"name": "web-budget", "namespace": "default"},
        }
    )
    world.when_step("evict", lambda: world.budget("web-budget", {"maxUnavailable": 0}))
    world.step_until(lambda: bool(world.ended("remove")), limit=1500)
    world.minutes(2)
    (failed,) = world.ended("remove")
    assert (failed["state"], failed["class"]) == ("failed", "EvictionBlocked")
    (row,) = rows(world)
    assert (row.state.value, row.nodes) == ("failed", (old,))
    waits = world.group_memory(LARGE).failed_removals[old]
    assert waits.until - failed["at"] == pytest.approx(300.0, abs=30.0)
    assert not world.is_marked(old)
    assert sorted(world.nodes()) == sorted([old, *row.new_nodes])


def test_cons_58_node_is_replaced_by_one_of_another_provider_that_takes_45_minutes() -> None:
    account = CherryAccount(times=CherryDurations(deploy=2700.0))
    with ScenarioWorld(None, quick=True, grain=20.0, clouds=(account,)) as world:
        world.put_secret("outscaler/shop/kubeconfig", world.server.kubeconfig())
        metal = {"provider": "cherryservers", "id": "metal", "min": 0, "max": 2}
        world.apply_policy(
            document(
                providers={"clusterapi": {}, "cherryservers": account.settings()},
                nodeGroups=[{"provider": "clusterapi", "id": LARGE, "min": 0, "max": 1}, metal],
                consolidation=CONSOLIDATION,
                prices={"cpu": 0.05},
                disruptionBudgets=[{"name": "all", "nodes": 1}],
                options={"scaleDownUnneededTime": "3h", "maxNodeProvisionTime": "75m"},
            )
        )
        world.seed(objects.machine_deployment("large", 1, 0, 1, cpu="16"))
        world.minutes(2)
        world.seed(objects.deployment("web", replicas=2, cpu="700m"))
        (old,) = world.nodes()
        world.step_until(lambda: states(world) == ["waiting"], limit=900)
        began = world.clock()
        while len(world.nodes()) == 1:
            assert not world.is_marked(old)
            world.minutes(1)
        assert world.clock() - began > 2000.0
        world.step_until(lambda: old not in world.nodes(), limit=1200)
        world.minutes(2)
        assert [(end["state"], end["group"]) for end in world.ended()] == [
            ("succeeded", "metal"),
            ("succeeded", LARGE),
        ]
        assert rows(world) == []
        assert world.pods_ready("web") == 2
