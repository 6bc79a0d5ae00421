"""One run: a world, its steps, and the point at which an invariant is broken."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from infra.emulators.controllers.capi import fields
from tests.faults import cluster
from tests.faults.faulty_world import FaultWorld
from tests.faults.objects import taint_of
from tests.faults.own_groups import OwnGroups

HARD = "ToBeDeletedByClusterAutoscaler"
PLANNED_LATER = frozenset({"expired", "drifted", "consolidation"})
"""Reasons for which a pass decides removals after repairs."""
SAYS_IT_ALL = 10
"""Every so many seeds also keep the status ConfigMap, which costs as much as everything else."""
BEGINS_AT_ONCE = 2
"""Every so many seeds begin replacements without a confirmation by a later pass, which
leaves time for more of them."""
REPORTS_ITSELF = 5
"""Every so many seeds have notifications by a topic that fails, and record
decisions in a place that fails."""


class Broken(AssertionError):
    """An invariant was broken; the text describes the whole run."""


class FaultRun:
    """A run, used as a context manager. seed: of the random faults, not of the steps. consolidates:
    whether nodes are replaced, or taken back by their vendor, fall sick and grow old; steers: in a
    larger cluster, whose scheduler is steered by marks. age: of the first nodes then, seconds.
    provider: vendor that opens groups of managed pools. options: added to those of the policy.

    mode, bounds, prices, steering: the policy. made: a counter for names. steps: number of steps.
    silent: nodes whose kubelet does not report. notices: node -> when its vendor takes its machine.
    own: the groups of managed pools, None without a provider.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        consolidates: bool = False,
        steers: bool = False,
        age: float | None = None,
        provider: str = "",
        **options: object,
    ) -> None:
        self.own = OwnGroups(provider) if provider else None
        accounts = [self.own.account] if self.own is not None else []
        self.world = FaultWorld(
            random.Random(seed), pace=cluster.PACE, grain=20.0, accounts=accounts
        )
        self.bounds = {name: (each.least, each.most) for name, each in cluster.GROUPS.items()}
        if consolidates:
            self.bounds = dict(cluster.STEERED_BOUNDS if steers else cluster.CONSOLIDATED_BOUNDS)
        self.prices = dict(cluster.PRICES)
        self.mode, self.made, self.steps = "active", 0, 0
        self.silent: set[str] = set()
        self.notices: dict[str, float] = {}
        self._reports, self._at_once = seed % REPORTS_ITSELF == 0, seed % BEGINS_AT_ONCE == 0
        self.consolidates, self.steers, self.steering = consolidates, steers, True
        first_age = cluster.STEERED_AGE if steers else cluster.AGE
        self._age = (first_age if age is None else age) if consolidates else 0.0
        if consolidates:
            self.world.audit_replacements()
        if steers:
            self.world.audit_steering()
        self._options: dict[str, Any] = {"writeStatusConfigmap": seed % SAYS_IT_ALL == 0, **options}

    def __enter__(self) -> Self:
        self.world.start()
        if self.own is not None:
            self.own.begin(self.world)
        self.world.audit.repaired_beside = self._repaired_beside
        for name, (least, most) in self.bounds.items():
            self.world.audit.note_bounds(name, least, most)
        self.apply_policy()
        self.world.seed(*cluster.objects(consolidates=self.consolidates, steers=self.steers))
        self.world.scheduled = False
        self.world.step(self._age)
        self.world.scheduled = True
        if not self.steers:  # else the first pass writes marks, and faults come before it
            self.world.step(90.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.world.close()

    def apply_policy(self) -> None:
        """Applies the policy."""
        if self.world.audit.replacements is not None:
            self.world.audit.replacements.note_prices(self.prices)
        prices = self.prices if self.consolidates else None
        document = cluster.policy(
            self.mode,
            self.bounds,
            self._options,
            reports=self._reports,
            prices=prices,
            at_once=self._at_once,
            steering=self.steering,
            managed=self.own.policy() if self.own is not None else None,
        )
        self.world.apply_policy(document)

    def is_marked(self, node: str) -> bool:
        """Whether it has our hard taint."""
        found = self.world.kube.peek("nodes", node)
        return found is not None and taint_of(found, HARD) is not None

    def take(self, rule: Callable[[FaultRun, random.Random], str], dice: random.Random) -> None:
        """Runs one step. Raises Broken."""
        self.steps += 1
        number = len(self.world.trace)
        said = rule(self, dice)
        self.take_machines()
        if said:
            self.world.trace.insert(number, f"{'':9}  {self.steps:3d}. {said}")
        self.check()

    def machine_stays(self, name: str) -> bool:
        """Whether the machine of that name is there and not being deleted."""
        machine = self.world.kube.peek("machines", name, "default", fields.GROUP)
        return machine is not None and "deletionTimestamp" not in machine["metadata"]

    def take_machines(self) -> None:
        """Lets the vendor take the machines whose time is over."""
        for name in [name for name, at in sorted(self.notices.items()) if at <= self.world.clock()]:
            del self.notices[name]
            if self.machine_stays(name):
                self.world.audit.count("machines taken back")
                self.world.audit.note_machine_deleted(self.world.audited_nodes()[name].group)
                self.world.cluster.capi.take_away(f"default/{name}")
                self.world.settle()
                self.world.tell(f"the vendor takes {name} back")

    def check(self) -> None:
        """Raises Broken if an invariant has been broken so far."""
        self.world.stalls.check()
        self.world.audit.look()
        if self.world.audit.faults:
            raise Broken(self.report(self.world.audit.faults))

    def report(self, faults: list[str]) -> str:
        """Describes the broken invariants and the steps that led to them."""
        return "\n".join([*faults, "", "how it came to that:", *self.world.trace])

    def _repaired_beside(self, known: dict[str, Any]) -> str:
        """The node that was leaving the group already when the repair of a node without a successor
        was planned, empty if there was none. Such a repair has no places for its pods. A pass plans
        it before it decides what is renewed, consolidated or drained by replacements."""
        plans = (
            entry
            for entry in self.world.store.journal.recent(self.world.name, 100)
            if entry.kind == "plan"
        )
        plan: dict[str, Any] = next(
            (body for entry in plans if (body := json.loads(entry.body))["id"] == known["plan"]), {}
        )
        mine = {
            removal["node"]: removal["group"]
            for removal in plan.get("removals", ())
            if removal.get("reason") == "repair" and removal.get("evict")
            if not removal.get("replacement") and not removal.get("destinations")
        }
        targets = {
            target.node
            for each in self.world.operations()
            if each.spec.id == known["id"]
            for target in each.spec.targets
        }
        groups = {mine[node] for node in targets & mine.keys()}
        if groups:
            self.world.audit.count("nodes repaired before their successors come")
        return next(
            (
                target.node
                for each in self.world.operations()
                if each.spec.group in groups and each.spec.created_at <= known["planned_at"]
                if each.spec.plan != known["plan"]
                or not (each.spec.replacement or each.spec.reason in PLANNED_LATER)
                for target in each.spec.targets
                if target.node not in targets
                # An operation is open for a while after its node has gone.
                if self.world.kube.peek("nodes", target.node) is not None
            ),
            "",
        )
