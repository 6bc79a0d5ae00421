"""A week of a cluster in mode shadow beside a Cluster Autoscaler that restarts, ends, is killed and
finds no machine, with slow machines, Jobs, equal groups and a person who changes sizes; then the
hand-over and the way back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.cli.migrate.shadow_view import gate
from chalicelib.model.operation import OperationKind
from chalicelib.shadow.records import AGREEING
from chalicelib.shadow.verdicts import UNKNOWN
from infra.emulators.controllers import objects
from tests.functional.test_hand_over import machines
from tests.functional.test_shadow_comparison import OPTIONS, WORKERS, SharedCluster
from tests.functional.test_shadow_life import job
from tests.functional.test_shadow_outages import SPARE, grow
from tests.scenario.policies import document

SLOW = machines(120.0, 300.0)
"""Machines that take five minutes."""
HOURS_BETWEEN = 4


class Week(SharedCluster):
    """Every four hours pods come and go, and a Job runs; once a day something happens besides."""

    def __init__(self) -> None:
        super().__init__(pace=SLOW)
        self._jobs = 0

    def day(self, happens: Callable[[], None], first_hour: int = 0) -> None:
        """Play a day. happens: what is special, at noon."""
        for hour in range(first_hour, 24, HOURS_BETWEEN):
            self.scale("web", 3)
            self.minutes(30)
            self._jobs += 1
            self.seed(job(f"ci-{self._jobs}", 2, 60))
            self.minutes(30)
            self.scale("web", 0)
            self.minutes(40)
            if hour == 12:
                happens()
            self.rest(HOURS_BETWEEN * 60 - 100)

    def rest(self, minutes: float) -> None:
        """Let quiet minutes pass, in which a loop a minute shows as much as six."""
        self._grain, grain = 60.0, self._grain
        self.minutes(minutes)
        self._grain = grain

    # -- what is special

    def nothing(self) -> None:
        """Nothing."""

    def rollout(self) -> None:
        """Cluster Autoscaler is rolled out."""
        self.other.restart()

    def killed(self) -> None:
        """It is killed, while pods wait."""
        self.other.dead = True
        self.scale("late", 2)
        self.minutes(6.5)
        self.other.start()
        self.minutes(20)
        self.scale("late", 0)

    def scaled_down(self) -> None:
        """It is scaled to 0, and a person adds the nodes for which pods wait."""
        self.other.stop()
        self.scale("late", 2)
        self.minutes(5)
        grow(self, WORKERS, 2)
        self.minutes(15)
        self.other.start()
        self.minutes(10)
        self.scale("late", 0)

    def person(self) -> None:
        """A person adds two nodes to an empty group."""
        grow(self, SPARE, 2)
        self.minutes(10)

    def no_stock(self) -> None:
        """The vendor has no machines of one group."""
        self.other.refused.add(WORKERS)
        self.scale("late", 2)
        self.minutes(30)
        self.other.refused.clear()
        self.scale("late", 0)


def play(world: Week, *days: Callable[[], None], first_hour: int = 0) -> None:
    """Play the days, each with what is special in it. first_hour: of each day."""
    world.seed(
        objects.machine_deployment("spare", 0, 0, 9), objects.machine_deployment("twin", 0, 0, 9)
    )
    world.seed(
        objects.deployment("web", replicas=0, cpu="3"),
        objects.deployment("late", replicas=0, cpu="3"),
    )
    world.minutes(5)
    for happens in days:
        world.day(happens, first_hour)


def disagreements(world: Week) -> list[tuple[str, str]]:
    return [
        (str(match.verdict), match.cause)
        for match in world.matches
        if match.verdict not in AGREEING
    ]


def hand_over(world: Week) -> None:
    """From Cluster Autoscaler to Outscaler while machines are on their way, as the page
    says but for the waiting."""
    world.scale("web", 3)
    world.minutes(1.5)
    assert world.other.grown[-1][0] > world.clock() - 90.0
    world.other.stop()
    world.minutes(0.5)
    world.apply_policy(document(options=OPTIONS))
    world.minutes(20)
    assert world.ended(OperationKind.SCALE_UP) == []
    assert world.pods_ready("web") == 3


def way_back(world: Week) -> None:
    """The same in the other direction, with the waiting."""
    world.scale("late", 2)
    world.minutes(15)
    assert world.pods_ready("late") == 2
    world.apply_policy(document(mode="shadow", options=OPTIONS))
    world.minutes(2)
    world.other.start()
    grown = list(world.other.grown)
    world.minutes(30)
    assert world.other.grown == grown


def test_afternoon_with_an_outage_has_no_unknown_cause_and_ends_in_a_hand_over() -> None:
    with Week() as world:
        world.begin()
        play(world, world.killed, first_hour=12)
        assert len(world.matches) > 15
        assert disagreements(world) == []
        hand_over(world)
        way_back(world)


@pytest.mark.slow
def test_week_beside_cluster_autoscaler_has_no_unknown_cause_and_the_gate_opens() -> None:
    with Week() as world:
        world.begin()
        play(
            world,
            world.nothing,
            world.rollout,
            world.killed,
            world.scaled_down,
            world.person,
            world.no_stock,
            world.rollout,
            world.nothing,
        )
        assert world.figures.compared_removals > 200
        assert UNKNOWN not in {cause for _, cause in disagreements(world)}
        assert [condition.name for condition in gate(world.figures) if not condition.met] == []
        hand_over(world)
        way_back(world)
