"""Concurrent changes of all groups, with failing requests, dying functions and a
user who changes objects.

All changes go through the executor's steps. Invariants: no Machine is deleted that was not named,
no size leaves its bounds through us or decreases by more than requested, every operation ends, and
none of our annotations remains.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from chalicelib.model.group import InstanceState, NodeGroup
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import InProgress, Outcome
from chalicelib.operations.runner import run_step
from chalicelib.operations.step_context import StepContext
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.providers.kit.errors import ProviderError
from infra.emulators.aws_faults import FunctionKilled
from infra.emulators.controllers import objects
from infra.emulators.controllers.capi.fields import CLUSTER_NAME, DELETE_MACHINE, PAUSED, marks
from infra.emulators.fake_cluster import InMemoryCluster
from infra.emulators.kube.faults import KubeFault
from tests.amounts import examples
from tests.operations import new_operation
from tests.providers.clusterapi.fixture import ClusterApiBench
from tests.providers.clusterapi.objects import GROUP, Json

LEAST, MOST, TURNS = 1, 6, 60
PLURALS = {
    "MachineDeployment": "machinedeployments",
    "MachineSet": "machinesets",
    "MachinePool": "machinepools",
}
FAULTS = (
    KubeFault(status=409, body=b"{}"),
    KubeFault(status=500, body=b"{}"),
    KubeFault(truncate=20),
    KubeFault(close=True),
    KubeFault(close=True, late=True),
    KubeFault(status=403, body=b"{}"),
    KubeFault(status=200, body=b"<html>"),
)
# Operations that may run concurrently on one group (plan/group_repair.py); removals and
# scale-ups may.
APART = {
    OperationKind.SCALE_UP: {OperationKind.SCALE_UP, OperationKind.DELETE_INSTANCES},
    OperationKind.DELETE_INSTANCES: {OperationKind.SCALE_UP, OperationKind.DELETE_INSTANCES},
    OperationKind.DELETE_NODES: set[OperationKind](),
}


def groups(version: str) -> list[Json]:
    """One of each kind: rolling, waiting for deletions, a stand-alone set, a pool with Machines."""
    more: dict[str, Any] = {"cluster": "ours", "version": version}
    waits = objects.machine_deployment("waits", 3, LEAST, MOST, **more)
    waits["spec"] |= (
        {"strategy": {"type": "OnDelete"}}
        if version == "v1beta1"
        else {"rollout": {"strategy": {"type": "OnDelete"}}}
    )
    alone = objects.machine_deployment("alone", 3, LEAST, MOST, **more)
    labels = {CLUSTER_NAME: "ours", "of": "alone"}
    alone["kind"], alone["spec"]["selector"] = "MachineSet", {"matchLabels": labels}
    alone["spec"]["template"]["metadata"] = {"labels": labels}
    pool = objects.machine_pool("pool", 3, LEAST, MOST, machines=True, **more)
    return [
        objects.cluster("ours", version=version),
        objects.machine_deployment("md", 3, LEAST, MOST, **more),
        waits,
        alone,
        pool,
        objects.machine_deployment("foreign", 2, 0, MOST, cluster="others", version=version),
    ]


class Walk:
    """One world with one seed. meant: Machines whose removal was requested."""

    def __init__(self, number: int, version: str, *, apart: bool) -> None:
        self.random, self.bench = random.Random(number), ClusterApiBench(apart=apart)
        self.meant, self.calm, self.number = set[str](), True, 0
        self.open: dict[str, Operation] = {}
        self.lowered, self.asked = Counter[str](), Counter[str]()
        with self.bench:
            objects.apply(self.bench.store, *groups(version))
            self.bench.settle(200.0)
        self.bench.line.ask = self.ask
        self.cluster = InMemoryCluster(self.bench.now)

    def ask(self, method: str, target: str) -> KubeFault | None:
        assert method == "GET" or "foreign" not in target
        return None if self.calm or self.random.random() > 0.15 else self.random.choice(FAULTS)

    def sizes(self) -> dict[str, int]:
        return {
            f"{kind}/default/{each['metadata']['name']}": each["spec"]["replicas"]
            for kind, plural in PLURALS.items()
            for each in self.bench.store.list(plural, "default", GROUP)
            if not each["metadata"].get("ownerReferences")
        }

    def ours(self) -> set[str]:
        return self.sizes().keys() - {"MachineDeployment/default/foreign"}

    def living(self) -> dict[str, Json]:
        found = self.bench.store.list("machines", "default", GROUP)
        return {
            each["metadata"]["name"]: each
            for each in found
            if "deletionTimestamp" not in each["metadata"]
        }

    def settle(self, seconds: float) -> None:
        """Lets time pass; a Machine that goes meanwhile was named, or had never joined
        and was no longer wanted."""
        before = self.living()
        self.bench.settle(seconds)
        lost = {
            name
            for name in before.keys() - self.living().keys()
            if (before[name]["status"]).get("nodeRef")
        }
        assert lost <= self.meant

    def plan(self) -> None:
        try:
            seen = self.bench.provider().observe(self.nodes()).groups
        except ProviderError:
            return
        assert not [each.id for each in seen if "foreign" in each.id]
        fit = [each for each in seen if not each.error]
        if fit and (made := self.order(self.random.choice(fit), self.random.choice(tuple(APART)))):
            self.open[made.spec.id] = made
            self.asked[made.spec.group] += len(made.spec.targets)
            self.meant |= {each.handle.partition("/")[2] for each in made.spec.targets}

    def order(self, group: NodeGroup, kind: OperationKind) -> Operation | None:
        there = [each for each in self.open.values() if each.spec.group == group.id]
        if APART[kind] & {each.spec.kind for each in there}:
            return None
        taken = {target.handle for each in there for target in each.spec.targets}
        state = (
            InstanceState.RUNNING if kind is OperationKind.DELETE_NODES else InstanceState.CREATING
        )
        fit = [
            each
            for each in group.instances
            if each.state is state
            and each.handle not in taken
            and not each.held
            and bool(each.node) == (kind is OperationKind.DELETE_NODES)
        ]
        count = self.random.randint(1, 2)
        targets = (
            ()
            if kind is OperationKind.SCALE_UP
            else tuple(RemovalTarget(each.node, each.id, each.handle) for each in fit[:count])
        )
        end = (
            min(MOST, group.target + count)
            if kind is OperationKind.SCALE_UP
            else group.target - len(targets)
        )
        if end == group.target or group.scale_down_held:
            return None
        self.number += 1
        return new_operation(
            id=f"op-{self.number}",
            cluster="suite",
            provider="clusterapi",
            group=group.id,
            kind=kind,
            plan="p",
            created_at=self.bench.now(),
            from_size=group.target,
            to_size=end,
            targets=targets,
            deadline=self.bench.now() + 1200.0,
        )

    def act(self, operation: Operation) -> None:
        before, dies = self.sizes(), not self.calm and self.random.random() < 0.15
        world = StepContext(
            self.bench.provider, self.known(), Options(), checkpoint=_dying if dies else _living
        )
        outcome: Outcome | None
        try:
            outcome = run_step(operation, world, self.bench.now())
        except FunctionKilled:
            outcome = None
        self.check(operation, before, self.sizes())
        if isinstance(outcome, InProgress):
            self.open[operation.spec.id] = operation.with_status(
                step=outcome.step, data=outcome.data
            )
        elif outcome is not None:
            del self.open[operation.spec.id]

    def check(self, operation: Operation, before: dict[str, int], after: dict[str, int]) -> None:
        """Checks how one step changed the sizes."""
        changed = {
            name: (before[name], after[name]) for name in after if before[name] != after[name]
        }
        assert changed.keys() <= {operation.spec.group}
        for start, end in changed.values():
            if operation.spec.kind is OperationKind.SCALE_UP:
                assert (start, end) == (operation.spec.from_size, operation.spec.to_size)
                assert end <= MOST
                continue
            self.lowered[operation.spec.group] += start - end
            assert start > end
            assert end >= LEAST or operation.spec.kind is OperationKind.DELETE_INSTANCES
            assert self.lowered[operation.spec.group] <= self.asked[operation.spec.group]

    def nodes(self) -> tuple[Any, ...]:
        return tuple(each for each in self.bench.nodes() if not each.name.startswith("foreign"))

    def known(self) -> InMemoryCluster:
        there = {each.name: each.provider_id for each in self.nodes()}
        for name in set(self.cluster.nodes) - set(there):
            self.cluster.remove_node(name)
        for name in sorted(set(there) - set(self.cluster.nodes)):
            self.cluster.add_node(name, there[name])
        return self.cluster

    def interfere(self) -> None:
        """Simulates a change by a user or by a machine health check."""
        name = self.random.choice(sorted(self.ours()))
        match self.random.choice(("pause", "pause", "fail", "delete", "upgrade")):
            case "pause":
                self.annotate(name, on=self.random.random() < 0.5)
            case "fail":
                self.bench.controllers.fail_next(
                    name, self.random.choice(("never-joins", "quota", "slow"))
                )
            case "delete" if alive := sorted(
                each for each in self.living() if "foreign" not in each
            ):
                victim = self.random.choice(alive)
                self.meant.add(victim)
                # it may be the one that is not replaced
                self.asked.update(dict.fromkeys(self.sizes(), 1))
                self.bench.store.delete("machines", victim, "default", GROUP)
            case "upgrade":
                self.upgrade()

    def upgrade(self) -> None:
        """Gives the deployment that waits for deletions another template: no
        Machine is removed for that."""
        found = self.bench.store.get("machinedeployments", "waits", "default", GROUP)
        assert found is not None
        template = found["spec"]["template"]
        version = f"v1.37.{self.random.randint(0, 9)}"
        spec = {
            **found["spec"],
            "template": {**template, "spec": {**template["spec"], "version": version}},
        }
        self.bench.store.update("machinedeployments", {**found, "spec": spec}, GROUP)

    def annotate(self, group: str, *, on: bool) -> None:
        kind, _, name = group.split("/")
        found = self.bench.store.get(PLURALS[kind], name, "default", GROUP)
        assert found is not None
        kept = {key: text for key, text in marks(found).items() if key != PAUSED} | (
            {PAUSED: "true"} if on else {}
        )
        self.bench.store.update(
            PLURALS[kind], {**found, "metadata": {**found["metadata"], "annotations": kept}}, GROUP
        )

    def turn(self) -> None:
        self.calm = self.random.random() < 0.5
        if self.random.random() < 0.4:
            self.plan()
        for operation in list(self.open.values()):
            if self.random.random() < 0.7:
                self.act(operation)
        if self.random.random() < 0.2:
            self.interfere()
        if self.random.random() < 0.5:  # otherwise the controllers have not run yet
            self.settle(self.random.choice((0.0, 25.0, 50.0)))
        self.bench.clock.advance(5.0)

    def finish(self) -> None:
        """Ends all disturbances."""
        self.calm = True
        for name in self.sizes():
            self.annotate(name, on=False)
        for _ in range(200):
            for operation in list(self.open.values()):
                self.act(operation)
            self.settle(25.0)
            if not self.open:
                return
        raise AssertionError(f"not over: {self.open}")


def _dying(place: str) -> None:
    raise FunctionKilled(place)


def _living(place: str) -> None:
    del place


@pytest.mark.more
@pytest.mark.parametrize("number", range(1, 1 + examples(3, 6)))
def test_capi_random_changes_and_faults_remove_only_named_machines(number: int) -> None:
    walk = Walk(number, "v1beta1" if number % 2 else "v1beta2", apart=number % 3 == 0)
    for _ in range(TURNS):
        walk.turn()
    walk.finish()
    walk.settle(400.0)
    seen = walk.bench.provider().observe(walk.nodes())
    assert {each.id for each in seen.groups} == walk.ours()
    assert not [name for name, each in walk.living().items() if DELETE_MACHINE in marks(each)]
