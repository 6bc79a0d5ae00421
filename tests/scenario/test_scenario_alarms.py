"""The deployment's alarms go off when its machinery fails, and recover with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from infra.demo.alarms import play
from infra.emulators.cloudwatch_alarms import WatchedDeployment
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from tests.scenario.policies import document


@pytest.fixture
def watched() -> Iterator[WatchedDeployment]:
    """A cluster in mode active, ten minutes after its first pass."""
    with LocalWorld(quick=True, grain=60.0) as world, WatchedDeployment(world) as made:
        world.seed(objects.machine_deployment("workers", 3, 1, 9))
        world.apply_policy(document())
        made.minutes(10)
        yield made


def _minutes_until(watched: WatchedDeployment, alarm: str, state: str, most: int) -> int:
    for minute in range(1, most + 1):
        watched.minutes(1)
        if watched.alarms.states[alarm] == state:
            return minute
    raise AssertionError(f"{alarm} is not {state} after {most} minutes")


def test_demonstration_of_the_alarms_ends_well() -> None:
    said: list[str] = []
    assert play(said.append)
    assert sum("ALARM" in line for line in said) >= 3
    sent = [line.split()[-1] for line in said if "notification" in line]
    assert {"cluster.late", "cluster.unreachable"} <= set(sent)
    assert all(count % 2 == 0 for count in Counter(sent).values()), "each that opens also closes"


def test_no_alarm_goes_off_in_a_healthy_deployment(watched: WatchedDeployment) -> None:
    watched.minutes(20)
    assert set(watched.alarms.states.values()) == {"OK"}


def test_ops_9_alarm_tick_missing_follows_a_dead_tick_within_six_minutes(
    watched: WatchedDeployment,
) -> None:
    watched.world.scheduled = False
    assert _minutes_until(watched, "TickMissingAlarm", "ALARM", 6) >= 3
    watched.world.scheduled = True
    _minutes_until(watched, "TickMissingAlarm", "OK", 6)
    watched.minutes(5)
    assert watched.raised() == set()


def test_alarm_passes_missing_follows_an_unreadable_kubeconfig(watched: WatchedDeployment) -> None:
    """The messages fail and the function does not, so only the log shows it."""
    world = watched.world
    world.put_secret(world.kubeconfig_secret, "no kubeconfig")
    world.restart()
    _minutes_until(watched, "PassesMissingAlarm", "ALARM", 7)
    watched.minutes(13)
    assert {"PassesMissingAlarm", "PassErrorsAlarm"} <= watched.raised()
    assert not any(not made.finished for made in world.invocations)
    assert "TickMissingAlarm" not in watched.raised()
    world.put_secret(world.kubeconfig_secret, world.server.kubeconfig())
    world.restart()
    _minutes_until(watched, "PassesMissingAlarm", "OK", 3)
    assert "QueueOldAlarm" not in {
        change.alarm for change in watched.alarms.changes if change.state == "ALARM"
    }


@pytest.mark.parametrize("change", [{"mode": "off"}, {"scan": "30m"}], ids=["off", "long interval"])
def test_alarm_passes_missing_ignores_clusters_that_need_no_pass_yet(
    watched: WatchedDeployment, change: dict[str, str]
) -> None:
    watched.world.apply_policy(document(**change))
    watched.minutes(15)
    assert watched.raised() == set()


def test_alarms_follow_messages_that_fail_for_good(watched: WatchedDeployment) -> None:
    watched.world.queues.send("act_exoscale", b"{}", 0)
    _minutes_until(watched, "ActExoscaleDeadLettersAlarm", "ALARM", 45)
    assert "ActErrorsAlarm" in {
        change.alarm for change in watched.alarms.changes if change.state == "ALARM"
    }
    watched.world.queues.dead["act_exoscale"].clear()
    _minutes_until(watched, "ActExoscaleDeadLettersAlarm", "OK", 10)


def test_alarm_brake_tripped_follows_a_mass_removal(watched: WatchedDeployment) -> None:
    world = watched.world
    quick = {"scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"}
    world.apply_policy(document(options=quick, maxDisruption={"share": 0.25}))
    world.seed(objects.machine_deployment("more", 8, 1, 9))
    _minutes_until(watched, "BrakeTrippedAlarm", "ALARM", 15)
    world.store.breaker_overrides.release(world.name, world.clock() + 3600.0)
    _minutes_until(watched, "BrakeTrippedAlarm", "OK", 12)
