"""A drain of ten minutes spans many short invocations and ends exactly once
(docs/architecture.md "Operations").
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.controllers.kubelet import KubeletTimes
from infra.emulators.controllers.manager import Pace
from infra.emulators.virtual_sqs import twice
from tests.scenario.policies import document
from tests.scenario.runner import ScenarioRunner
from tests.scenario.scenario_world import ScenarioWorld

GRACE = 600
PODS = 50
OPTIONS = {"scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"}
SLOW = Pace(kubelets=KubeletTimes(stop=float(GRACE)))
"""Every pod takes the whole time it is given."""
GRAIN = 20.0
ACT = "act_clusterapi"


class ScenarioDrainRecorder:
    """A world with a node to be drained, and the effects of its functions on it.
    durations: of the act function's invocations, in virtual seconds, which pass for a
    function only while it waits."""

    def __init__(self, world: ScenarioWorld) -> None:
        self.world = world
        self.durations: list[float] = []
        self._watch()
        world.apply_policy(document(options=OPTIONS))
        world.seed(objects.machine_deployment("workers", 1, 1, 5))
        world.minutes(1.5)
        world.seed(
            objects.deployment(
                "web", replicas=PODS, cpu="5m", memory="16Mi", terminationGracePeriodSeconds=GRACE
            )
        )
        # The first node is full for a while, so a second one is bought, which
        # finally has room for all pods.
        world.seed(objects.deployment("filler", replicas=1, cpu="3500m"))
        world.seed(objects.deployment("big", replicas=1, cpu="2500m"))
        world.step_until(
            lambda: len(world.nodes()) == 2 and not world.pending(), limit=600, every=GRAIN
        )
        world.scale("filler", 0)
        world.step_until(lambda: not world.operations(), limit=600, every=GRAIN)
        world.step_until(lambda: world.pods_ready("filler") == 0, limit=60, every=GRAIN)
        self.pods = {
            name: [pod for pod in world.pods_on(name) if pod.startswith("web-")]
            for name in world.nodes()
        }
        self.node = max(self.pods, key=lambda name: len(self.pods[name]))
        self.durations.clear()
        self.instances = len(world.machines("workers"))

    def _watch(self) -> None:
        invoke = self.world.invoke

        def watched(function: str, event: Any) -> Any:
            before = self.world.clock()
            made = invoke(function, event)
            # a watch is one read; it carries out no step
            if function == ACT and '"watch"' not in made.bodies[0]:
                self.durations.append(self.world.clock() - before)
            return made

        self.world.invoke = watched  # type: ignore[method-assign]

    def until_over(self, limit: float = 3000.0, count: int = 1) -> None:
        """Runs until that many removals have ended."""
        self.world.step_until(
            lambda: len(self.world.ended("remove")) >= count, limit=limit, every=GRAIN
        )

    def evictions(self) -> Counter[str]:
        """Eviction requests, by pod."""
        return Counter(
            request.path.split("/")[-2]
            for request in self.world.server.requests
            if request.method == "POST" and request.path.endswith("/eviction")
        )

    def removed_exactly_once(self) -> None:
        """Checks that only the drained node is gone, its pods run elsewhere, and no taint or
        annotation of ours is left."""
        world = self.world
        (end,) = world.ended("remove")
        assert (end["state"], end["nodes"]) == ("succeeded", self.node), end
        assert self.node not in world.nodes()
        assert (
            len(world.nodes())
            == len(world.machines("workers"))
            == world.size("workers")
            == self.instances - 1
        )
        assert not any(world.is_marked(name) for name in world.nodes())
        assert world.pods_ready("web") == PODS
        assert world.operations() == ()


@pytest.fixture
def drained() -> Iterator[ScenarioDrainRecorder]:
    """The fast world just before the removal is planned, and one that drops all
    state between its functions."""
    with ScenarioWorld(None, grain=GRAIN, pace=SLOW, forgetful=True) as world:
        yield ScenarioDrainRecorder(world)


def test_drain_of_fifty_pods_in_ten_minutes_takes_few_short_invocations(
    stage: ScenarioRunner,
) -> None:
    def tell(world: ScenarioWorld) -> None:
        reported = ScenarioDrainRecorder(world)
        assert len(reported.pods[reported.node]) == PODS
        reported.until_over()
        reported.removed_exactly_once()

        began, ended = (
            world.ended("remove")[0]["at"] - world.ended("remove")[0]["seconds"],
            world.clock(),
        )
        assert ended - began >= GRACE
        # no invocation waits, so none comes near its 60 seconds
        assert max(reported.durations) <= 1.0
        assert len(reported.durations) <= 30  # polling every 5 s for 10 minutes would be 120
        assert set(reported.evictions()) >= set(reported.pods[reported.node])
        assert max(reported.evictions().values()) == 1

    stage.play(tell, grain=GRAIN, pace=SLOW)


# Every point at which the world has changed and the table has not;
# tests/unit/operations/test_crashed_steps.py covers all instants of each.
@pytest.mark.parametrize(
    "place",
    ["taint:called", "evict:called", "delete:called", "act:stepped", "act:recorded", "act:sent"],
)
def test_killed_long_drain_removes_the_node_once_and_evicts_each_pod_once(
    drained: ScenarioDrainRecorder, place: str
) -> None:
    drained.world.kill_at(place, function=ACT, times=2)

    drained.until_over()

    assert drained.world.deaths() == [place, place]
    drained.removed_exactly_once()
    assert max(drained.evictions().values()) == 1


@pytest.mark.parametrize(
    "step", ["taint", "recheck", "evict", "gone", "delay", "delete", "confirm"]
)
def test_drain_killed_at_every_step_before_its_record_has_the_same_result(
    drained: ScenarioDrainRecorder, step: str
) -> None:
    drained.world.when_step(step, lambda: drained.world.kill_at("act:stepped", function=ACT))

    drained.until_over()

    assert drained.world.deaths() == ["act:stepped"]
    drained.removed_exactly_once()
    assert max(drained.evictions().values()) == 1


def test_duplicate_messages_of_a_drain_do_nothing_twice(drained: ScenarioDrainRecorder) -> None:
    drained.world.queues.tamper = twice

    drained.until_over()

    drained.removed_exactly_once()
    assert max(drained.evictions().values()) == 1
    assert len(drained.durations) <= 60


class _Skewed(ManualClock):
    """The clock of another machine."""

    def __init__(self, clock: ManualClock, ahead: float) -> None:
        self._clock, self._ahead = clock, ahead

    def __call__(self) -> float:
        return self._clock() + self._ahead

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)

    @contextmanager
    def repeat(self, seconds: float, work: Callable[[], bool]) -> Iterator[None]:
        with self._clock.repeat(seconds, work):
            yield


def _skew(world: ScenarioWorld, offsets: Iterator[float]) -> None:
    """Each function runs on a machine whose clock is off by the next of these seconds."""
    account: Any = world._account
    build: Callable[[], Any] = world.new_runtime

    def skewed() -> Any:
        right, account._clock = account._clock, _Skewed(world.clock, next(offsets))
        try:
            return build()
        finally:
            account._clock = right

    world.new_runtime = skewed  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param((30.0, -30.0, -30.0), id="swaying"),
        pytest.param((-30.0, 0.0, 30.0, 30.0, -30.0), id="at-odds"),
    ],
)
def test_functions_with_clocks_a_minute_apart_drain_exactly_once(
    drained: ScenarioDrainRecorder, offsets: tuple[float, ...]
) -> None:
    _skew(drained.world, itertools.cycle(offsets))

    drained.until_over()

    drained.removed_exactly_once()
    assert max(drained.evictions().values()) == 1
    assert len(drained.durations) <= 60


def test_drain_abandoned_in_the_ninth_minute_leaves_no_taint(
    drained: ScenarioDrainRecorder,
) -> None:
    """The owner protects the node in the middle of the drain."""
    world = drained.world
    world.step_until(lambda: bool(drained.evictions()), limit=600, every=GRAIN)
    world.minutes(9)
    node = world.node(drained.node)
    note = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    world.kube.update(
        "nodes",
        {
            **node,
            "metadata": {
                **node["metadata"],
                "annotations": {**node["metadata"].get("annotations", {}), **note},
            },
        },
    )

    drained.until_over()

    (end,) = world.ended("remove")
    assert (end["state"], end["class"]) == ("failed", "Conflict")
    assert not world.is_marked(drained.node)
    assert "outscaler.dev/operation" not in world.node(drained.node)["metadata"]["annotations"]
    assert len(world.machines("workers")) == drained.instances
