"""A cluster in mode shadow beside an emulated Cluster Autoscaler: both see the same
cluster, and only one acts.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from chalicelib.cli.migrate.shadow_view import Figures, figures
from chalicelib.shadow.records import Ledger, Match, ShadowVerdict
from infra.emulators.controllers import objects
from infra.emulators.controllers.manager import Pace
from infra.emulators.kube.faults import KubeFault
from infra.emulators.other_autoscaler import EVERY, MachineDeploymentGroups, OtherAutoscaler
from tests.cases import each_row
from tests.scenario.policies import document, refusal
from tests.scenario.scenario_world import ScenarioWorld

OPTIONS = {"scaleDownUnneededTime": "3m", "scaleDownDelayAfterAdd": "3m"}
WORKERS = "MachineDeployment/default/workers"


class SharedCluster(ScenarioWorld):
    """other: the autoscaler that acts. manager: the name by which it writes sizes,
    "" for none that is noted."""

    def __init__(self, manager: str = "", pace: Pace | None = None, **settings: Any) -> None:
        super().__init__(None, grain=EVERY, pace=pace)
        self.other = OtherAutoscaler(
            self.kube,
            self.clock,
            MachineDeploymentGroups(self.kube, manager),
            **{"unneeded_for": 180.0, "delay_after_add": 180.0, **settings},
        )

    def settle(self) -> None:
        super().settle()
        self.other.step()
        super().settle()

    def begin(self, **policy: Any) -> None:
        """Two nodes that run almost full, and ten minutes of rest."""
        self.apply_policy(document(mode="shadow", **{"options": OPTIONS, **policy}))
        self.seed(
            objects.machine_deployment("workers", 2, 1, 12),
            objects.deployment("base", replicas=2, cpu="2500m"),
        )
        self.minutes(10.3)

    @property
    def ledger(self) -> Ledger:
        found = self.store.shadow().load(self.name)
        assert found is not None
        return found

    @property
    def matches(self) -> list[Match]:
        return list(self.ledger.matches)

    @property
    def verdicts(self) -> list[ShadowVerdict]:
        return [match.verdict for match in self.matches]

    @property
    def figures(self) -> Figures:
        return figures(self.ledger, {}, 0.0, self.clock())


@each_row("legacy", [False, True], ids=["yaml", "text"])
def test_SHA_1_SHA_9_growths_and_removals_are_the_same_with_either_form_of_the_status(
    legacy: bool,
) -> None:
    with SharedCluster(legacy=legacy) as world:
        world.begin()
        world.seed(objects.deployment("web", replicas=4, cpu="3"))
        world.minutes(12)
        world.scale("web", 0)
        world.minutes(20)
        assert [(group, count) for _, group, count in world.other.grown] == [(WORKERS, 4)]
        assert len(world.other.removed) == 4
        assert world.verdicts == [ShadowVerdict.SAME] * 5
        assert world.figures.growth_agreement == 1.0
        assert world.figures.only_ours == 0
        assert world.figures.passes > 30
        status = "cluster-autoscaler-status"
        assert world.writes() == []
        assert world.kube.get("configmaps", status, "kube-system") is not None


def test_SHA_4_groups_that_grow_one_per_loop_are_one_episode() -> None:
    with SharedCluster() as world:
        world.begin()
        world.seed(objects.machine_deployment("big", 0, 0, 3, "16", "64Gi"))
        world.minutes(2)
        world.seed(
            objects.deployment("web", replicas=2, cpu="3"),
            objects.deployment("large", replicas=1, cpu="12"),
        )
        world.minutes(8)
        assert len({group for _, group, _ in world.other.grown}) >= 1
        assert sum(match.kind == "growth" for match in world.matches) == 1


def test_SHA_7_verdicts_are_the_same_where_the_status_may_not_be_read() -> None:
    with SharedCluster() as world:
        world.server.faults.add(
            KubeFault(
                path="/configmaps/cluster-autoscaler-status", times=10_000, **refusal(403, "no")
            )
        )
        world.begin()
        world.seed(objects.deployment("web", replicas=4, cpu="3"))
        world.minutes(8)
        assert world.verdicts == [ShadowVerdict.SAME]


def test_SHA_8_time_after_the_other_autoscaler_stopped_is_left_out() -> None:
    with SharedCluster() as world:
        world.begin()
        world.other.dead = True
        world.minutes(8)
        world.seed(objects.deployment("web", replicas=4, cpu="3"))
        world.minutes(30)
        assert world.verdicts == []
        assert world.figures.dead_seconds >= 1500


def test_SHA_6_growth_by_a_person_is_somebody_elses() -> None:
    with SharedCluster() as world:
        world.begin()
        MachineDeploymentGroups(world.kube).grow(WORKERS, 1)
        world.minutes(4)
        assert world.verdicts == [ShadowVerdict.SOMEBODY]


def test_SHA_11_a_pass_writes_one_item_more_at_most_and_none_without_changes() -> None:
    with SharedCluster() as world:
        world.begin()
        assert len(_row_writes(world, minutes=9)) <= 1


def _row_writes(world: SharedCluster, minutes: int) -> list[float]:
    """The instants at which the row of the comparison changed."""
    seen = []
    for _ in range(minutes):
        before = world.ledger.seen.at
        world.minutes(1)
        if world.ledger.seen.at != before:
            seen.append(world.clock())
    return seen


def test_SHA_3_random_expanders_agree_on_sizes() -> None:
    with SharedCluster(expander="random", seed=1) as world:
        world.begin(options={**OPTIONS, "expander": "random"})
        world.seed(objects.machine_deployment("twins", 0, 0, 12))
        world.minutes(2)
        for number in range(4):
            world.seed(objects.deployment(f"web-{number}", replicas=2, cpu="3"))
            world.minutes(6)
        assert len(world.matches) == len(world.other.grown) >= 3
        assert {match.verdict for match in world.matches} <= {
            ShadowVerdict.SAME,
            ShadowVerdict.SAME_SIZE,
        }
        assert world.figures.growth_agreement == 1.0


def test_SHA_5_removal_after_a_restart_names_the_restart() -> None:
    with SharedCluster() as world:
        world.begin()
        world.seed(objects.deployment("web", replicas=1, cpu="3"))
        world.minutes(8)
        world.scale("web", 0)
        for _ in range(2):
            world.minutes(2.5)
            world.other.restart()
        world.minutes(8)
        [removal] = [match for match in world.matches if match.kind == "removal"]
        assert removal.verdict is ShadowVerdict.EARLIER
        assert removal.cause.startswith("Cluster Autoscaler restarted at ")


def test_SHA_10_reclaimed_machine_is_removed_by_no_autoscaler() -> None:
    with SharedCluster() as world:
        world.begin()
        [first, _] = world.machines("workers")
        world.kube.delete("machines", first, "default", "cluster.x-k8s.io")
        world.minutes(8)
        assert [match for match in world.matches if match.kind == "removal"] == []


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 7))]
)
def test_SHA_12_no_removal_is_only_ours_on_random_clusters(seed: int) -> None:
    chance = random.Random(seed)
    with SharedCluster(seed=seed) as world:
        world.begin()
        world.seed(objects.machine_deployment("large", 1, 0, 8, "16", "64Gi"))
        for number in range(4):
            cpu = chance.choice(("500m", "1", "2", "3"))
            world.seed(objects.deployment(f"web-{number}", replicas=chance.randint(0, 6), cpu=cpu))
        for _ in range(10):
            world.minutes(chance.randint(3, 12))
            world.scale(f"web-{chance.randrange(4)}", chance.randint(0, 9))
        world.minutes(40)
        assert world.other.grown or world.other.removed
        assert [match for match in world.matches if match.verdict is ShadowVerdict.ONLY_OURS] == []


def test_clusters_in_mode_active_have_no_comparison() -> None:
    with ScenarioWorld(None) as world:
        world.apply_policy(document(options=OPTIONS))
        world.seed(objects.machine_deployment("workers", 2, 1, 12))
        world.minutes(5)
        assert world.store.shadow().load(world.name) is None
        assert not any("shadow#" in name for name in world.rows())


def test_comparison_that_fails_does_not_fail_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with SharedCluster() as world:
        world.begin()
        row = world.store.table.client
        assert row is not None
        passes = len(world.passed_at())
        monkeypatch.setattr("chalicelib.passes.shadow_pass.advance", None)
        world.minutes(3)
        assert len(world.passed_at()) >= passes + 3
        assert world.figures.passes
