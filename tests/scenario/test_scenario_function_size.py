"""Clusters whose passes need much memory are handed over to the large function and
return when they need less.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest

from chalicelib.store.pass_footprint import KEPT, Reading
from infra.emulators.controllers import objects
from infra.emulators.local_world import MINUTE, LocalWorld
from infra.emulators.virtual_sqs import Message, twice
from tests.scenario.policies import WEBHOOK, document

SMALL, LARGE = "reconcile", "reconcile_large"
SIZE = 512
EVENT = {"kind": "Event", "apiVersion": "v1", "reason": "FailedScheduling", "involvedObject": {}}


@pytest.fixture
def world() -> Iterator[LocalWorld]:
    with LocalWorld(quick=True) as made:
        made.apply_policy(document(webhook=WEBHOOK))
        made.seed(
            objects.machine_deployment("workers", 1, 1, 4),
            objects.deployment("web", replicas=3, cpu="1"),
        )
        made.step(2 * MINUTE)
        yield made


def takes(world: LocalWorld, share: float) -> None:
    """Sets the memory of passes from now on, as a share of the small function's memory."""
    world.takes = (
        Reading(least=0, most=0) if not share else Reading(int(SIZE * share), int(SIZE * share))
    )


def where(world: LocalWorld, minutes: int) -> list[str]:
    """The function that ran the pass in each of the next minutes."""
    made = []
    for _ in range(minutes):
        before = len(world.invocations), world.store.scan_states.due(world.name).last_pass
        world.step(MINUTE)
        assert world.store.scan_states.due(world.name).last_pass > before[1], "a pass was made"
        made.append(
            LARGE if any(one.function == LARGE for one in world.invocations[before[0] :]) else SMALL
        )
    return made


@pytest.mark.parametrize(("share", "then"), [(0.55, SMALL), (0.65, LARGE), (5.0, LARGE)])
def test_peak_over_60_percent_of_the_small_function_moves_the_next_pass(
    world: LocalWorld, share: float, then: str
) -> None:
    takes(world, share)
    assert where(world, 3) == [SMALL, then, then]
    assert not any(world.queues.dead.values())


@pytest.mark.parametrize(("share", "then"), [(0.55, LARGE), (0.45, LARGE), (0.35, SMALL)])
def test_large_cluster_returns_when_its_peak_is_under_40_percent(
    world: LocalWorld, share: float, then: str
) -> None:
    takes(world, 0.7)
    assert where(world, 2) == [SMALL, LARGE]
    takes(world, share)
    assert where(world, 3) == [LARGE, then, then]


def test_peak_between_the_bounds_never_changes_the_function(world: LocalWorld) -> None:
    takes(world, 0.5)
    assert where(world, 4) == [SMALL] * 4
    takes(world, 0.7)
    where(world, 1)
    takes(world, 0.5)
    assert where(world, 4) == [LARGE] * 4


@pytest.mark.parametrize("place", ["reconcile:observed", "reconcile:saved"])
def test_pass_that_died_on_the_small_function_runs_on_the_large_one(
    world: LocalWorld, place: str
) -> None:
    takes(world, 0.1)
    world.kill_at(place, function=SMALL)
    world.step(5 * MINUTE)
    done = [one for one in world.invocations if one.function in (SMALL, LARGE)]
    killed = next(at for at, one in enumerate(done) if one.killed_at)
    assert LARGE in {one.function for one in done[killed:]}
    assert not [one for one in done[killed:] if one.function == LARGE and not one.finished]
    assert where(world, 2) == [LARGE, LARGE], "whatever its peak: it may have run out of time"


def test_small_function_is_retried_hours_after_a_death(world: LocalWorld) -> None:
    takes(world, 0.1)
    world.kill_at("reconcile:observed", function=SMALL)
    world.step(5 * MINUTE)
    world.clock.advance(KEPT)
    world.step(2 * MINUTE)
    assert where(world, 2) == [SMALL, SMALL]
    assert world.store.scan_states.due(world.name).memory.large_until == 0.0


def test_cluster_that_always_dies_on_the_small_function_dies_there_once(world: LocalWorld) -> None:
    takes(world, 5.0)
    world.kill_at("reconcile:observed", function=SMALL, times=100)
    world.step(20 * MINUTE)
    assert sum(bool(one.killed_at) for one in world.invocations) == 1


def test_wake_up_of_a_large_cluster_is_handed_over(world: LocalWorld) -> None:
    takes(world, 0.7)
    where(world, 1)
    before = len(world.invocations)
    assert world.post([EVENT])["statusCode"] == 202
    world.step(20)
    made = [
        (one.function, json.loads(one.bodies[0])["reason"] if one.bodies else "")
        for one in world.invocations[before:]
    ]
    assert (SMALL, "webhook") in made
    assert (LARGE, "") in made
    assert not [one for one in world.invocations[before:] if not one.finished]
    assert world.store.scan_states.due(world.name).memory.large_until == 0.0, (
        "a hand-over is no death"
    )


def test_wake_up_after_a_death_is_handed_over_and_the_death_is_remembered(
    world: LocalWorld,
) -> None:
    takes(world, 0.1)
    world.kill_at("reconcile:observed", function=SMALL)
    world.step(MINUTE)
    world.clock.advance(151.0)  # the dead pass's lease has expired, and no tick has come
    body = json.dumps({"cluster": world.name, "reason": "person"}).encode()
    world.queues.send(SMALL, body, 0)
    assert world.deliver() is not None
    delivered = world.deliver()
    assert delivered is not None
    assert delivered.function == LARGE
    assert world.store.scan_states.due(world.name).memory.large_until > world.clock()


@pytest.mark.parametrize("how", ["throttled", "missing"])
def test_failed_hand_over_leaves_the_pass_with_the_small_function(
    world: LocalWorld, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    takes(world, 0.7)
    where(world, 1)
    if how == "throttled":
        world.queues.refusing.add(LARGE)
    else:
        world.without_large_function()
    caplog.clear()
    assert where(world, 2) == [SMALL, SMALL]
    code = {"throttled": "TooManyRequestsException", "missing": "ResourceNotFoundException"}[how]
    lines = [
        record for record in caplog.records if "large function not invoked" in record.getMessage()
    ]
    assert len(lines) == 2
    assert all(line.levelname == "WARNING" and code in str(vars(line)) for line in lines)
    world.post([EVENT])
    world.step(20)
    assert not [one for one in world.invocations if not one.finished]
    world.queues.refusing.clear()
    assert not any(world.queues.dead.values())


def test_duplicate_invocation_of_the_large_function_is_one_pass(world: LocalWorld) -> None:
    takes(world, 0.7)
    where(world, 1)

    def doubled(message: Message) -> tuple[Message, ...]:
        return tuple(twice(message)) if message.queue == LARGE else (message,)

    world.queues.tamper = doubled
    before = world.store.scan_states.due(world.name).last_pass
    world.step(MINUTE)
    assert sum(one.function == LARGE for one in world.invocations[-4:]) == 2
    assert world.store.scan_states.due(world.name).last_pass == before + MINUTE
    assert not [one for one in world.invocations if not one.finished]


def test_lost_invocation_of_the_large_function_delays_a_pass_by_minutes(world: LocalWorld) -> None:
    takes(world, 0.7)
    where(world, 1)
    lost = [message for message in world.queues.sent if message.queue == LARGE]
    world.queues.tamper = lambda message: () if message.queue == LARGE and not lost else (message,)
    before = world.store.scan_states.due(world.name).last_pass
    world.step(MINUTE)
    world.queues.tamper = lambda message: (message,)
    world.step(5 * MINUTE)
    assert world.store.scan_states.due(world.name).last_pass >= before + 5 * MINUTE


def test_large_pass_that_died_is_repeated(world: LocalWorld) -> None:
    takes(world, 0.7)
    where(world, 1)
    world.kill_at("reconcile:saved", function=LARGE, times=2)
    world.step(10 * MINUTE)
    assert where(world, 2) == [LARGE, LARGE]
    assert not any(world.queues.dead.values())


def test_unreadable_event_of_the_large_function_goes_to_its_dead_letters(world: LocalWorld) -> None:
    event = b'{"cluster": "No Name!"}'
    world.queues.send(LARGE, event, 0)
    world.step(5 * MINUTE)
    assert [message.body for message in world.queues.dead[SMALL]] == [event.decode()]
    assert sum(one.function == LARGE for one in world.invocations) == 3


def test_passes_on_either_function_form_one_chain_of_plans(world: LocalWorld) -> None:
    """The lease's token increases by one for each pass, whichever function runs it."""
    tokens = []
    for share in (0.7, 0.7, 0.1, 0.1):
        takes(world, share)
        world.step(MINUTE)
        lease = world.store.leases.acquire(world.name, f"looking-{share}", 1.0)
        world.store.leases.release(lease)
        tokens.append(lease.token)
    assert all(later > earlier for earlier, later in pairwise(tokens))


def test_pass_whose_lists_need_too_much_memory_goes_on_in_the_large_function(
    world: LocalWorld,
) -> None:
    takes(world, 0.8)
    world.reads = 450
    before = len(world.invocations)
    assert where(world, 2) == [LARGE, LARGE]
    functions = [
        one.function for one in world.invocations[before:] if one.function in (SMALL, LARGE)
    ]
    assert functions[:2] == [SMALL, LARGE]
    assert all(one.finished and not one.killed_at for one in world.invocations[before:])
    state = world.store.scan_states.due(world.name)
    assert (state.failure, state.memory.unended) == (None, 0)
    assert state.last_success == state.last_pass


@pytest.mark.parametrize(
    "refused", [False, True], ids=["too-large-for-both", "large-function-refused"]
)
def test_cluster_without_memory_for_its_lists_is_a_failure_that_says_why(
    world: LocalWorld, refused: bool
) -> None:
    world.reads = 450 if refused else 5_000
    if refused:
        world.queues.refusing.add(LARGE)
    nodes = {each["metadata"]["name"] for each in world.kube.list("nodes")}
    world.step(3 * MINUTE)
    failure = world.store.scan_states.due(world.name).failure
    assert failure is not None
    assert failure.cls == "MemoryExceeded"
    assert "the cluster's lists need more than" in failure.message
    assert {each["metadata"]["name"] for each in world.kube.list("nodes")} == nodes
    world.reads = 0
    world.queues.refusing.clear()
    world.step(2 * MINUTE)
    assert world.store.scan_states.due(world.name).failure is None
