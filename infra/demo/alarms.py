"""`python -m infra.demo.alarms`: breaks an emulated deployment in three ways, and prints its alarms
and the notifications of its cluster, on virtual time.

The alarms are those of a deployment (infra/aws/alarms.py), evaluated once a minute. A new
deployment starts with alarms about missing values, which are not shown. Exit code 0 if each failure
raised its alarm and no alarm was left at the end, 1 if not.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import Runtime
from infra.emulators.cloudwatch_alarms import WatchedDeployment
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from infra.tools.interruptible import run

_QUIET, _MOST = 10, 45  # minutes before the first failure, and until each alarm goes off or ends


class Failure(msgspec.Struct, frozen=True):
    """What is broken, the alarm that it raises, and its repair."""

    words: str
    alarm: str
    broken: Callable[[LocalWorld], object]
    repaired: Callable[[LocalWorld], object]


def _unscheduled(world: LocalWorld) -> None:
    world.scheduled = False


def _scheduled(world: LocalWorld) -> None:
    world.scheduled = True


def _kubeconfig(world: LocalWorld, text: str) -> None:
    world.put_secret(world.kubeconfig_secret, text)
    world.restart()


FAILURES = (
    Failure(
        "the schedule of the tick is switched off", "TickMissingAlarm", _unscheduled, _scheduled
    ),
    Failure(
        "the kubeconfig is replaced by rubbish",
        "PassesMissingAlarm",
        lambda world: _kubeconfig(world, "rubbish"),
        lambda world: _kubeconfig(world, world.server.kubeconfig()),
    ),
    Failure(
        "a message that is none arrives at an act function",
        "ActClusterapiDeadLettersAlarm",
        lambda world: world.queues.send("act_clusterapi", b"{}", 0),
        lambda world: world.queues.dead["act_clusterapi"].clear(),
    ),
)


class NotifyingWorld(LocalWorld):
    """A world that prints its cluster's notifications. say: takes a line."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        super().__init__(quick=True, grain=60.0)

    def new_runtime(self) -> Runtime:
        return dataclasses.replace(super().new_runtime(), topics=self)

    def publish(self, topic: str, text: str, attributes: Mapping[str, str]) -> None:
        del topic, text
        self._say(f"{_clock(self)}    {attributes['state']:<6} notification {attributes['type']}")


def play(say: Callable[[str], object]) -> bool:
    """Play all failures. Returns whether each raised its alarm and all alarms
    ended. say: takes a line."""
    with NotifyingWorld(say) as world, WatchedDeployment(world) as watched:
        world.seed(objects.machine_deployment("workers", 3, 1, 9))
        world.apply_policy(json.dumps(_policy(world)))
        _minutes(watched, lambda _: None, lambda: False, _QUIET)
        for failure in FAILURES:
            say(f"{_clock(world)}  {failure.words}")
            failure.broken(world)
            if not _minutes(
                watched,
                say,
                lambda alarm=failure.alarm: alarm in watched.raised(),  # type: ignore[misc]
                _MOST,
            ):
                return False
            say(f"{_clock(world)}  repaired")
            failure.repaired(world)
            if not _minutes(watched, say, lambda: not watched.raised(), _MOST):
                return False
    return True


def _minutes(
    watched: WatchedDeployment, say: Callable[[str], object], over: Callable[[], bool], most: int
) -> bool:
    """Run until a condition holds, and print every change of an alarm. Returns
    whether it held in time."""
    for _ in range(most):
        seen = len(watched.alarms.changes)
        watched.minutes(1)
        for change in watched.alarms.changes[seen:]:
            say(
                f"{_clock(watched.world)}    {change.state:<5} {change.alarm.removesuffix('Alarm')}"
            )
        if over():
            return True
    return False


def _policy(world: LocalWorld) -> dict[str, object]:
    return {
        "apiVersion": "outscaler.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": world.name},
        "spec": {
            "mode": "active",
            "providers": {"clusterapi": {}},
            "kubernetes": {"kubeconfigSecret": world.kubeconfig_secret},
            "notifications": {"topic": "arn:aws:sns:us-east-1:123456789012:outscaler-events"},
        },
    }


def _clock(world: LocalWorld) -> str:
    return datetime.fromtimestamp(world.clock(), UTC).strftime("%H:%M")


def main() -> int:
    for handler in logger.handlers:  # the log is read by the metric filters, and not shown
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(io.StringIO())
    return 0 if play(lambda line: sys.stdout.write(f"{line}\n")) else 1


if __name__ == "__main__":
    run(main)
