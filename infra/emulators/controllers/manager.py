"""Runs all controllers of a simulated cluster together in a fixed order.

A scenario needs to run everything to a steady state and then advance the time by a minute, and two
runs of the same scenario must be identical. The order, the store's seed and the clock determine
everything; nothing here is random or reads the wall clock.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from infra.emulators.controllers.capi.controller import CapiControllerSettings, ClusterApi
from infra.emulators.controllers.kubelet import Kubelets, KubeletTimes
from infra.emulators.controllers.object_writes import Changes, Moved
from infra.emulators.controllers.scheduler.scheduler import Pick, SchedulerLoop, least_used
from infra.emulators.controllers.workloads import (
    DaemonSets,
    Deployments,
    Garbage,
    Jobs,
    ReplicaSets,
)
from infra.emulators.kube.disruption import reconcile_budgets
from infra.emulators.kube.objects import dig
from infra.emulators.kube.status import ApiError
from infra.emulators.kube.store import ObjectStore

_ROUNDS = 100  # far longer than any chain of controllers
_BUDGET_SECONDS = 10.0  # between checks of budgets when no pod changes
_log = logging.getLogger(__name__)


class Controller(Protocol):
    """A controller that moves the store towards the desired state of its objects."""

    def step(self) -> None:
        """Do everything that can be done now."""


class Pace(msgspec.Struct, frozen=True):
    """Behaviour of the simulated cluster: times of kubelets, machines and their classes, node
    choice and speed of the scheduler."""

    kubelets: KubeletTimes = KubeletTimes()
    machines: CapiControllerSettings = CapiControllerSettings()
    pick: Pick = least_used
    retry_seconds: float = 300.0
    pods_per_second: float = math.inf


class _Budgets:
    """Runs the disruption controller when it may have work: after a change, and
    periodically for its timers."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock, self._last = store, clock, float("-inf")
        self._changes = Changes(
            store,
            (
                ("pods", ""),
                ("poddisruptionbudgets", "policy"),
                ("replicasets", "apps"),
                ("deployments", "apps"),
                ("statefulsets", "apps"),
            ),
        )

    def step(self) -> None:
        now = self._clock()
        if self._changes.any() or (now - self._last >= _BUDGET_SECONDS and self._waits()):
            self._last = now
            reconcile_budgets(self._store)

    def _waits(self) -> bool:
        """Return whether time alone can change a budget: an eviction was granted, but its
        pod is not terminating yet."""
        return any(
            dig(budget, "status", "disruptedPods")
            for budget in self._store.list("poddisruptionbudgets", group="policy")
        )


class ClusterSimulation:
    """The controllers of one store. more: further controllers, such as those of a vendor's account
    attached to the cluster; they run before the kubelets."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Callable[[], float],
        pace: Pace | None = None,
        more: Sequence[Controller] = (),
    ) -> None:
        pace = pace or Pace()
        self._store = store
        self.capi = ClusterApi(store, clock, pace.machines)
        self.kubelets = Kubelets(store, clock, pace.kubelets)
        self.scheduler = SchedulerLoop(
            store,
            clock,
            pick=pace.pick,
            retry_seconds=pace.retry_seconds,
            pods_per_second=pace.pods_per_second,
        )
        self._controllers: tuple[Controller, ...] = (
            Garbage(store, clock),
            self.capi,
            *more,
            self.kubelets,
            Moved(
                Deployments(store, clock).step,
                store,
                (("deployments", "apps"), ("replicasets", "apps")),
            ),
            Moved(ReplicaSets(store).step, store, (("replicasets", "apps"), ("pods", ""))),
            Moved(
                DaemonSets(store).step, store, (("daemonsets", "apps"), ("pods", ""), ("nodes", ""))
            ),
            Moved(Jobs(store, clock).step, store, (("jobs", "batch"), ("pods", ""))),
            _Budgets(store, clock),
            self.scheduler,
        )

    def step(self) -> int:
        """Run every controller until none of them changes anything. Returns the number of rounds.

        Raises RuntimeError if they do not reach a steady state, because two of
        them undo each other's work.
        """
        for rounds in range(_ROUNDS):
            before = self._store.version
            for controller in self._controllers:
                controller.step()
            if self._store.version == before:
                return rounds
        raise RuntimeError(f"the controllers did not come to rest in {_ROUNDS} rounds")

    def run(
        self,
        stop: threading.Event,
        interval: float,
        working: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Step every `interval` wall seconds until stopped, each step within `working`; for a
        thread of the live emulation.

        Other threads write to the store in the meantime, so a refused write or an unfinished round
        is repeated in the next step.
        """
        while not stop.wait(interval):
            try:
                with working():
                    self.step()
            except (ApiError, RuntimeError) as problem:
                _log.warning("simulated controllers: %s", problem)
