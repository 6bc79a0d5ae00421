"""A shadow cluster beside a Cluster Autoscaler that ends, is killed and begins again, and
people who change sizes.
"""

from __future__ import annotations

import logging

import pytest

from chalicelib.shadow.records import Match, ShadowVerdict
from infra.emulators.controllers import objects
from infra.emulators.other_autoscaler import STATUS, MachineDeploymentGroups
from tests.cases import each_row
from tests.functional.test_shadow_comparison import OPTIONS, WORKERS, SharedCluster
from tests.scenario.policies import document

SPARE = "MachineDeployment/default/spare"
BOTH_FORMS = each_row("legacy", [False, True], ids=["yaml", "text"])


def grow(world: SharedCluster, group: str, count: int, manager: str = "") -> None:
    """What `kubectl scale` does. manager: the name that the API server notes."""
    MachineDeploymentGroups(world.kube, manager).grow(group, count)


def again(world: SharedCluster, *, killed: bool) -> None:
    """End and begin again: killed and started half a minute later, or rolled out."""
    if killed:
        world.other.dead = True
        world.minutes(0.5)
        world.other.start()
    else:
        world.other.restart()


def removals(world: SharedCluster) -> list[Match]:
    return [match for match in world.matches if match.kind == "removal"]


def growths(world: SharedCluster) -> list[tuple[ShadowVerdict, dict[str, int]]]:
    return [(match.verdict, match.theirs) for match in world.matches if match.kind == "growth"]


@BOTH_FORMS
def test_time_after_cluster_autoscaler_was_asked_to_end_is_left_out(legacy: bool) -> None:
    with SharedCluster(legacy=legacy) as world:
        world.begin()
        world.other.stop()
        assert world.kube.get("configmaps", STATUS, "kube-system") is None
        world.seed(objects.deployment("web", replicas=2, cpu="3"))
        world.minutes(3)
        grow(world, WORKERS, 4)
        world.minutes(3.5)
        world.other.start()
        world.minutes(8)
        assert growths(world) == []
        assert 390 <= world.figures.dead_seconds <= 460


@BOTH_FORMS
def test_time_after_a_kill_is_left_out_from_the_last_status_on(legacy: bool) -> None:
    with SharedCluster(legacy=legacy) as world:
        world.begin()
        world.other.dead = True
        world.minutes(1)
        world.seed(objects.deployment("web", replicas=2, cpu="3"))
        grow(world, WORKERS, 4)
        world.minutes(5.5)
        world.other.start()
        world.minutes(8)
        assert growths(world) == []
        assert 390 <= world.figures.dead_seconds <= 460


def test_removals_in_an_outage_that_is_noticed_later_are_nobodys() -> None:
    with SharedCluster() as world:
        world.begin()
        world.seed(objects.machine_deployment("spare", 1, 0, 4))
        world.minutes(2.5)
        assert world.ledger.seen.soft
        world.other.dead = True
        world.minutes(1)
        grow(world, SPARE, -1)
        world.minutes(8)
        assert world.verdicts == []


def test_outage_too_short_to_be_noticed_is_left_out_as_well() -> None:
    with SharedCluster() as world:
        world.begin()
        world.other.dead = True
        world.minutes(1)
        grow(world, WORKERS, 1)
        world.minutes(2)
        world.other.start()
        world.minutes(8)
        assert growths(world) == []
        assert 180 <= world.figures.dead_seconds <= 220


def test_growth_before_the_end_of_cluster_autoscaler_is_compared() -> None:
    with SharedCluster() as world:
        world.begin()
        world.seed(objects.deployment("web", replicas=2, cpu="3"))
        world.minutes(2)
        assert world.matches == []
        world.other.stop()
        world.minutes(3)
        assert world.verdicts == [ShadowVerdict.SAME]


@each_row("killed, legacy", [(False, False), (False, True), (True, False), (True, True)])
def test_removals_after_a_restart_that_leaves_its_soft_taints_name_the_restart(
    killed: bool, legacy: bool
) -> None:
    with SharedCluster(legacy=legacy) as world:
        world.begin()
        world.seed(objects.machine_deployment("spare", 3, 0, 4))
        world.minutes(2.7)
        before = dict(world.ledger.seen.soft)
        for _ in range(2):
            again(world, killed=killed)
            restarted = world.clock()
            world.minutes(2.4)
            assert before.items() <= world.ledger.seen.soft.items()
            assert 0 <= world.ledger.restarted - restarted <= 20
        world.minutes(8)
        assert before
        early = [match for match in removals(world) if match.verdict is ShadowVerdict.EARLIER]
        assert len(early) == len(removals(world)) == 3
        assert {match.cause.partition(" at ")[0] for match in early} == {
            "Cluster Autoscaler restarted"
        }


@BOTH_FORMS
def test_growth_of_an_empty_group_by_a_person_is_somebody_elses(legacy: bool) -> None:
    with SharedCluster(legacy=legacy) as world:
        world.begin()
        world.seed(objects.machine_deployment("spare", 0, 0, 9))
        world.minutes(1.5)
        grow(world, SPARE, 2)
        world.minutes(6)
        assert growths(world) == [(ShadowVerdict.SOMEBODY, {SPARE: 2})]


@BOTH_FORMS
def test_growth_by_many_nodes_by_a_person_is_somebody_elses(legacy: bool) -> None:
    with SharedCluster(legacy=legacy) as world:
        world.begin()
        grow(world, WORKERS, 6)
        world.minutes(6)
        assert growths(world) == [(ShadowVerdict.SOMEBODY, {WORKERS: 6})]


@each_row("empty, count", [(0, 2), (1, 1), (1, 5)])
def test_growth_by_a_person_in_an_episode_of_cluster_autoscaler_is_told_apart(
    empty: int, count: int
) -> None:
    with SharedCluster() as world:
        world.begin()
        world.seed(objects.machine_deployment("spare", empty, 0, 9, "2"))
        world.minutes(1.5)
        world.seed(objects.deployment("web", replicas=2, cpu="3"))
        world.minutes(0.5)
        grow(world, SPARE, count)
        world.minutes(6)
        assert sorted(growths(world)) == [
            (ShadowVerdict.SOMEBODY, {SPARE: count}),
            (ShadowVerdict.SAME, {WORKERS: 2}),
        ]


def test_growth_of_a_group_that_grows_already_is_told_apart_by_who_wrote_its_size() -> None:
    with SharedCluster(manager="cluster-autoscaler") as world:
        world.begin()
        world.seed(objects.deployment("web", replicas=2, cpu="3"))
        world.minutes(0.9)
        assert [count for _, _, count in world.other.grown] == [2]
        grow(world, WORKERS, 1, "kubectl")
        world.minutes(7)
        assert sorted(growths(world)) == [
            (ShadowVerdict.SOMEBODY, {WORKERS: 1}),
            (ShadowVerdict.SAME, {WORKERS: 2}),
        ]


def test_status_that_is_gone_after_the_hand_over_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SharedCluster() as world:
        world.begin()
        world.other.stop()
        world.minutes(1)
        world.apply_policy(document(options=OPTIONS))
        world.seed(objects.deployment("web", replicas=2, cpu="3"))
        world.minutes(12)
        problems = [
            str(record.__dict__.get("detail"))
            for record in caplog.records
            if record.levelno >= logging.ERROR
        ]
        assert len(problems) == 1
        assert "ConfigMap kube-system/cluster-autoscaler-status is not there" in problems[0]
