"""Random disturbance of one scaling group: the real executor runs over HTTP while users, ESS and
the network change things.

`run_step` runs each operation to its end. Each step uses a newly built provider; sometimes a step
runs twice or its outcome is lost with the process. Random events happen between the steps. The
invariants are checked after every step.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from chalicelib.model.group import Instance, InstanceState, NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.operations.runner import run_step
from chalicelib.operations.step_context import StepContext
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.alicloud.models import (
    GONE_SOON,
    NO_STOCK,
    NOT_STARTING,
    QUOTA,
    AlicloudDurations,
)
from infra.emulators.fake_cluster import InMemoryCluster
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.operations import new_operation
from tests.providers.alicloud.distorted_answers import Liar
from tests.providers.alicloud.fixture import AlicloudBench

MOST, LEAST = 12, 1
FAULTS = (
    VendorFault.LOST_ANSWER,
    VendorFault.LOST_ANSWER,
    VendorFault.CUT_OFF,
    VendorFault.SERVER_ERROR,
    VendorFault.HANGS_UP,
    VendorFault.WEB_PAGE,
    VendorFault.THROTTLED,
    VendorFault.THROTTLED_FOR,
    VendorFault.CONFLICT,
    VendorFault.OLD_TIME,
    VendorFault.UNAUTHORIZED,
)
CLASSES = {
    "Throttled",
    "OutOfStock",
    "QuotaExceeded",
    "Unauthorized",
    "NotFound",
    "Conflict",
    "InvalidRequest",
    "Transient",
    "Unknown",
    "DeadlineExceeded",
}


class Disorder:
    """One group and a second group that must not change. people: users change the group during the
    test. lies: probability of an answer that is not as documented."""

    def __init__(self, seed: int, *, people: bool = False, lies: float = 0.0) -> None:
        self.dice, self.people = random.Random(seed), people
        self.bench = AlicloudBench(
            desired=self.dice.random() < 0.7,
            prefix=self.dice.choice(("", "alicloud://")),
            times=AlicloudDurations(check=self.dice.choice((7200.0, 300.0, 45.0))),
        )
        self.cloud = self.bench.cloud
        self.cloud.takes_empty_removals = self.dice.random() < 0.5
        self.group = self.bench.add_group("g", size=self.dice.randint(1, 5), least=LEAST, most=MOST)
        self.other = self.bench.add_group("other", size=2)
        self.held = self.cloud.groups[self.group]
        self.held.hook_in, self.held.hook_out = (
            self.dice.choice((0.0, 0.0, 0.0, 90.0)) for _ in range(2)
        )
        self.cluster = InMemoryCluster(self.bench.now)
        # machines whose removal was planned, or that disappeared without us
        self.doomed: set[str] = set()
        self.lowered = 0  # surplus machines caused by users
        self.number, self.revoked = 0, False
        self.liar = Liar(self.dice, lies)
        self.bench.server.front._shaped = lambda made, version: self.liar.shaped(made)  # type: ignore[method-assign]
        self.said: list[str] = []  # all output that a user could read
        self.classes: set[str] = set()

    # -- lifecycle

    def live(self, steps: int) -> None:
        neighbour = self.bench.machines(self.other)
        with self.bench:
            for _ in range(steps):
                self.dice.choice(
                    (
                        self.grow,
                        self.grow,
                        self.remove,
                        self.remove,
                        self.discard,
                        self.shrink,
                        self.vanish,
                    )
                )()
                self.check()
            assert self.people or self.bench.machines(self.other) == neighbour
            self.recovers()
            shown = "\n".join(self.said)
            assert not [secret for secret in self.bench.secrets() if secret in shown]

    def grow(self) -> None:
        seen = self.look()
        if seen is None or seen.error or seen.target >= seen.max:
            return
        if self.dice.random() < 0.4:
            self.cloud.spoil(
                self.group,
                self.dice.choice((NO_STOCK, QUOTA, NOT_STARTING)),
                self.dice.randint(1, 3),
            )
        to_size = min(seen.max, seen.target + self.dice.randint(1, 4))
        operation = self.order(OperationKind.SCALE_UP, seen.target, to_size)
        self.drive(operation)
        ours = [each for each in self.held.activities if f'"{operation.spec.id}"' in each.metadata]
        assert len(ours) <= 1, "asked twice"
        # The call sets the desired capacity of such a group, so ESS also replaces machines that had
        # vanished. ESS raises a group that is below its own minimum to that minimum.
        most = max(to_size - seen.target, 2 if self.people else 0)
        assert self.held.desired is not None or sum(each.wanted for each in ours) <= most
        assert all(each.grows for each in ours), "a growth that took machines away"

    def remove(self) -> None:
        seen = self.look()
        if seen is None:
            return
        there = [
            each
            for each in seen.instances
            if each.node and not each.error and each.state is InstanceState.RUNNING
        ]
        chosen = self.dice.sample(there, k=min(len(there), self.dice.randint(1, 3)))
        if chosen and seen.target - len(chosen) >= seen.min:
            self.take(OperationKind.DELETE_NODES, seen, chosen)

    def discard(self) -> None:
        seen = self.look()
        if seen is None:
            return
        broken = [
            each
            for each in seen.instances
            if each.error or (not each.node and self.dice.random() < 0.3)
        ]
        chosen = self.dice.sample(broken, k=self.dice.randint(0, len(broken)))
        if chosen:
            self.take(OperationKind.DELETE_INSTANCES, seen, chosen)

    def take(self, kind: OperationKind, seen: NodeGroup, chosen: list[Instance]) -> None:
        self.doomed |= {each.handle for each in chosen}
        targets = tuple(RemovalTarget(each.node, each.id, each.handle) for each in chosen)
        outcome = self.drive(self.order(kind, seen.target, seen.target - len(chosen), *targets))
        if isinstance(outcome, Succeeded):
            kept = {key.removeprefix("kept ") for key in outcome.facts if key.startswith("kept ")}
            self.settle(400.0)
            assert not {each.handle for each in chosen} & set(self.held.machines) - kept, (
                "said to be removed"
            )

    def shrink(self) -> None:
        seen = self.look()
        if seen is None or seen.target <= seen.min:
            return
        self.drive(
            self.order(
                OperationKind.DECREASE_TARGET,
                seen.target,
                self.dice.randint(seen.min, seen.target - 1),
            )
        )

    def vanish(self) -> None:
        if self.held.machines and self.dice.random() < 0.5:
            self.lose(self.dice.choice(sorted(self.held.machines)))

    def lose(self, machine: str) -> None:
        self.doomed.add(machine)
        self.cloud.vanish(machine)

    # -- operations

    def look(self) -> NodeGroup | None:
        """Returns the group as a reconcile pass reads it, or None if the read fails."""
        try:
            observed = self.bench.provider().observe(self.bench.nodes())
        except ProviderError as error:
            self.said.append(repr(error))
            return None
        self.said.append(repr(observed))
        found = {each.id: each for each in observed.groups}
        assert not found[self.other].error or self.people or self.liar.chance
        for each in found.values():
            assert each.target >= 0
            assert each.min <= each.max
            assert len({instance.id for instance in each.instances}) == len(each.instances)
        return found[self.group]

    def order(
        self, kind: OperationKind, start: int, end: int, *targets: RemovalTarget
    ) -> Operation:
        self.number += 1
        now = self.bench.now()
        return new_operation(
            id=f"{kind}-{self.number:04d}-0123456789",
            cluster="ours",
            provider="alicloud",
            group=self.group,
            kind=kind,
            plan="plan",
            created_at=now,
            from_size=start,
            to_size=end,
            due_at=now,
            targets=targets,
        )

    def drive(self, operation: Operation) -> Outcome:
        for _ in range(self.dice.randint(0, 4)):
            self.bench.server.faults.next(
                self.dice.choice(FAULTS), on=self.dice.choice(("any", "write", "read"))
            )
        for _ in range(400):
            self.nodes_as_now()
            if self.people and self.dice.random() < 0.2:
                self.somebody()
            if self.revoked and self.dice.random() < 0.3:
                self.bench.provider(credential="rotated")
                self.revoked = False
            before = self.held.desired
            outcome = run_step(
                operation,
                StepContext(self.bench.provider, self.cluster, Options()),
                self.bench.now(),
            )
            self.said.append(repr(outcome))
            self.bounded(operation, before)
            chance = self.dice.random()
            if chance < 0.1:
                # the process died; the message is delivered again
                self.settle(self.dice.choice((0.0, 30.0, 120.0)))
                continue
            if not isinstance(outcome, InProgress):
                self.bench.server.faults.clear()
                if isinstance(outcome, Failed):
                    assert outcome.error_class.removeprefix("Cluster") in CLASSES
                    assert outcome.message
                    self.classes.add(outcome.error_class)
                return outcome
            operation = operation.with_status(step=outcome.step, data=outcome.data)
            self.settle(outcome.after)
        raise AssertionError(f"{operation.spec.kind} is not over: {operation}")

    def nodes_as_now(self) -> None:
        there = {node.name: node for node in self.bench.nodes()}
        for name in set(self.cluster.nodes) - set(there):
            self.cluster.remove_node(name)
        for name, node in there.items():
            if name not in self.cluster.nodes:
                self.cluster.add_node(name, node.provider_id)

    def settle(self, seconds: float) -> None:
        self.bench.settle(max(1.0, seconds))

    # -- changes by users

    def somebody(self) -> None:
        with self.cloud.lock:
            self.dice.choice(self.deeds())()

    def deeds(self) -> list[Callable[[], object]]:
        held, machines = self.held, sorted(self.held.machines)
        one = self.dice.choice(machines) if machines else ""
        deeds: list[Callable[[], object]] = [
            lambda: held.suspended.symmetric_difference_update(
                {self.dice.choice(("ScaleIn", "ScaleOut"))}
            ),
            lambda: self.limit(self.dice.randint(held.min, MOST)),
            lambda: setattr(held, "min", self.dice.randint(0, min(2, held.max))),
            lambda: setattr(held, "state", self.dice.choice(("Active", "Active", "Inactive"))),
            lambda: self.bench.provider(credential="rotated"),
            self.revoke,
        ]
        if one:
            deeds += [lambda: self.lose(one), lambda: self.protect(one)]
        if held.desired is not None:
            deeds += [lambda: self.wish(self.dice.randint(held.min, held.max))]
        return deeds

    def revoke(self) -> None:
        """Disables the access key; a user creates another one later."""
        self.bench.server.ring.keys[self.bench.key_id].active = False
        self.revoked = True

    def protect(self, machine: str) -> None:
        if self.held.machines[machine].state in {"InService", "Protected"}:
            state = "Protected" if self.held.machines[machine].state == "InService" else "InService"
            self.cloud.set_state(machine, state)

    def wish(self, desired: int) -> None:
        """A user sets the desired capacity; instances that ESS then removes
        count as removed by the user."""
        self.lowered += max(0, len(self.held.machines) - desired)
        self.held.desired = desired
        self.held.check_at = self.bench.now() + self.cloud.times.check

    def limit(self, most: int) -> None:
        """A user sets the maximum; instances that ESS then removes count as removed by the user."""
        self.lowered += max(0, len(self.held.machines) - most)
        self.held.max = most

    # -- invariants

    def bounded(self, operation: Operation, before: int | None) -> None:
        """Checks that no step leaves the bounds of the policy."""
        now = self.held.desired
        if before is None or now is None or now == before or self.people:
            return
        assert now <= MOST
        assert now >= LEAST or operation.spec.kind is OperationKind.DELETE_INSTANCES

    def check(self) -> None:
        self.cloud.step()
        gone = {each.machine.id for each in self.cloud.released if each.machine.group == self.group}
        failed = {each.machine.id for each in self.cloud.released if each.machine.fate is not None}
        nobodys = gone - self.doomed - failed
        chosen_by_ess = {
            name
            for each in self.held.activities
            if not each.grows and each.trigger == "Ess"
            for name in each.machines
        }
        ordered = {
            name
            for each in self.held.activities
            if not each.grows and each.trigger != "Ess"
            for name in each.machines
        }
        assert ordered <= self.doomed, f"we had {ordered - self.doomed} removed"
        assert nobodys <= chosen_by_ess, f"nobody planned that {nobodys} should go"
        assert len(chosen_by_ess - self.doomed) <= self.lowered, f"ESS chose {chosen_by_ess}"
        assert self.people or self.held.total <= MOST

    def recovers(self) -> None:
        """Checks that the group can scale up again after the faults and changes end."""
        self.bench.calm()
        self.people, self.liar.chance = False, 0.0
        self.bench.provider(credential="rotated")
        held = self.held
        held.state, held.max, held.min, held.system_suspended = "Active", MOST, LEAST, False
        held.suspended.clear()
        self.settle(20_000.0)
        for _ in range(4):
            seen = self.look()
            assert seen is not None
            assert not seen.error
            broken = [each for each in seen.instances if each.error]
            if broken:
                self.take(OperationKind.DELETE_INSTANCES, seen, broken)
            self.settle(1000.0)
        seen = self.look()
        assert seen is not None
        if seen.target < seen.max and len(held.machines) == seen.target:
            held.fates.clear()
            self.dice = random.Random(0)
            before = len(held.machines)
            operation = self.order(OperationKind.SCALE_UP, seen.target, seen.target + 1)
            assert isinstance(self.quietly(operation), Succeeded)
            self.settle(1000.0)
            assert (
                len([each for each in held.machines.values() if each.state not in GONE_SOON])
                == before + 1
            )

    def quietly(self, operation: Operation) -> Outcome:
        for _ in range(100):
            outcome = run_step(
                operation,
                StepContext(self.bench.provider, self.cluster, Options()),
                self.bench.now(),
            )
            if not isinstance(outcome, InProgress):
                return outcome
            operation = operation.with_status(step=outcome.step, data=outcome.data)
            self.settle(outcome.after)
        raise AssertionError("not over")
