"""Nodes of one group leave in one request where the vendor takes one change of a group at a time:
emulated Exoscale and Alibaba Cloud with changes of two minutes. Each drain is judged by itself, and
no crash loses or repeats a removal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.operation import OperationState
from infra.emulators.alicloud.attached_account import AlicloudAccount
from infra.emulators.alicloud.models import AlicloudDurations
from infra.emulators.alicloud.node_registration import AlicloudRegistrationOptions
from infra.emulators.controllers import objects
from infra.emulators.exoscale.attached_account import ExoscaleAccount, ExoscaleRegistrationOptions
from infra.emulators.exoscale.models import ExoscaleDurations
from infra.emulators.vendor_common.fault_injection import VendorFault
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.scenario.policies import document
from tests.scenario.scenario_world import ScenarioWorld

OPERATION = 120.0
MINUTE = 60.0
VENDORS = pytest.mark.parametrize("vendor", ["exoscale", "alicloud"])
OPTIONS = {"scaleDownUnneededTime": "1m", "scaleDownDelayAfterAdd": "1m"}


class _Evictions(msgspec.Struct):
    """The machines of each eviction that the vendor has accepted. not_drained: nodes
    that were not ready for it."""

    batches: list[list[str]] = []
    not_drained: list[str] = []

    def machines(self) -> list[str]:
        return [machine for batch in self.batches for machine in batch]


class SharedRemovals:
    """A world with one group of nodes, whose evictions are checked when the vendor accepts them.

    group: its id in the policy; names: the node of each machine; left: the vendor's number
    of machines, and the size.
    """

    names: dict[str, str]
    group: str
    left: Callable[[], tuple[int, int | None]]

    def __init__(
        self, world: ScenarioWorld, account: ExoscaleAccount | AlicloudAccount, size: int
    ) -> None:
        self.world, self.account, self.evictions = world, account, _Evictions()
        self.vendor = "exoscale" if isinstance(account, ExoscaleAccount) else "alicloud"
        if isinstance(account, ExoscaleAccount):
            self._make_pool(account, size)
        else:
            self._make_scaling_group(account, size)
        world.seed(objects.node("system", cpu="1"))
        world.step(MINUTE)

    def _make_pool(self, account: ExoscaleAccount, size: int) -> None:
        cluster = account.zone.add_cluster("prod")
        pool = account.zone.add_nodepool(cluster.id, "web", type="standard.large", size=size).pool
        self.group, self.names = "prod/web", {vm.id: vm.name for vm in pool.members.values()}
        self.left = lambda: (len(pool.members), pool.size)

        def watch(request: Any, answer: Any, *_: object) -> None:
            if request.path.endswith(":evict") and answer.status == 200:
                self._record(msgspec.json.decode(request.body)["instances"])

        account.server.front.watches.append(watch)

    def _make_scaling_group(self, account: AlicloudAccount, size: int) -> None:
        group = account.cloud.add_group("web", size=size, most=500)
        self.group, self.names = group.id, {name: name for name in group.machines}
        self.left = lambda: (len(group.machines), group.desired)
        handle = account.server.front.handle

        def watched(incoming: Incoming) -> Answer:
            before = len(group.activities)
            answer = handle(incoming)
            for activity in group.activities[before:]:
                self._record(activity.machines)
            return answer

        account.server.front.handle = watched  # type: ignore[method-assign]

    def start(self, *, least: int = 0, **options: object) -> None:
        """Activates the policy. Options in addition to OPTIONS."""
        self.world.apply_policy(
            document(
                providers={self.vendor: self.account.settings()},
                nodeGroups=[{"provider": self.vendor, "id": self.group, "min": least, "max": 500}],
                options={**OPTIONS, **options},
            )
        )

    def nodes(self) -> list[str]:
        """The group's Nodes."""
        return [name for name in self.world.nodes() if name in self.names.values()]

    def until_gone(self, left: int, minutes: float) -> float:
        """Steps until so many nodes of the group are left; returns the minutes since the
        first removal was planned."""
        self.world.step_until(lambda: bool(self.world.operations()), limit=10 * MINUTE)
        return (
            self.world.step_until(lambda: len(self.nodes()) <= left, limit=minutes * MINUTE)
            / MINUTE
        )

    def check_end(self, left: int) -> None:
        """Checks that each machine was evicted once, and nothing is left over."""
        self.world.minutes(6)
        evicted = self.evictions.machines()
        assert self.evictions.not_drained == []
        assert len(evicted) == len(set(evicted)) == len(self.names) - left
        assert (len(self.nodes()), *self.left()) == (left, left, left)
        assert self.world.operations() == ()
        assert not any(self.world.is_marked(name) for name in self.nodes())

    def _record(self, machines: list[str]) -> None:
        """Records an accepted eviction. A drained node is tainted for
        deletion, and its pods are gone."""
        for machine in machines:
            name = self.names[machine]
            taints = {taint["key"] for taint in self.world.node(name)["spec"].get("taints") or ()}
            if TO_BE_DELETED not in taints or self.world.pods_on(name):
                self.evictions.not_drained.append(name)
        self.evictions.batches.append(list(machines))


@contextmanager
def shared(size: int, vendor: str = "exoscale") -> Iterator[SharedRemovals]:
    """A world with a group of so many nodes."""
    account = (
        ExoscaleAccount(
            ways=ExoscaleRegistrationOptions(boot=20.0),
            times=ExoscaleDurations(operation=OPERATION),
        )
        if vendor == "exoscale"
        else AlicloudAccount(
            ways=AlicloudRegistrationOptions(boot=20.0), times=AlicloudDurations(remove=OPERATION)
        )
    )
    with ScenarioWorld(None, quick=True, clouds=(account,), grain=10.0) as world:
        yield SharedRemovals(world, account, size)


# A Node goes when its machine stops at Exoscale, and when the scaling
# activity ends at Alibaba Cloud.
@pytest.mark.parametrize(("vendor", "minutes"), [("exoscale", 6.0), ("alicloud", 7.0)])
def test_idle_nodes_of_a_group_leave_as_many_at_once_as_the_policy_allows(
    vendor: str, minutes: float
) -> None:
    with shared(20, vendor) as site:
        site.start()
        assert site.until_gone(0, minutes) < minutes
        assert [len(batch) for batch in site.evictions.batches] == [10, 10], (
            "maxScaleDownParallelism"
        )
        site.check_end(0)


@pytest.mark.slow
@VENDORS
def test_hundred_idle_nodes_of_a_group_are_gone_within_twenty_minutes(vendor: str) -> None:
    with shared(100, vendor) as site:
        site.start(maxScaleDownParallelism=20)
        assert site.until_gone(0, 20.0) < 20.0
        assert len(site.evictions.batches) <= 7
        site.check_end(0)


@VENDORS
def test_minimum_of_the_group_is_kept_by_a_shared_request(vendor: str) -> None:
    with shared(5, vendor) as site:
        site.start(least=3)
        site.until_gone(3, 6.0)
        site.check_end(3)


def test_drain_that_a_budget_refuses_holds_no_other_node_back() -> None:
    with shared(8) as site:
        world = site.world
        world.seed(
            objects.deployment("web", replicas=7, cpu="1900m", terminationGracePeriodSeconds=20),
            objects.pdb("web", max_unavailable=7),
            objects.deployment("db", replicas=1, cpu="1900m", terminationGracePeriodSeconds=20),
            objects.pdb("db", max_unavailable=1),
        )
        world.step(20)
        (protected,) = [
            name
            for name in site.nodes()
            if any(pod.startswith("db-") for pod in world.pods_on(name))
        ]
        world.seed(objects.node("large", cpu="64"))
        world.when_step("evict", lambda: world.budget("db", {"maxUnavailable": 0}))
        site.start(maxDrainParallelism=8, scaleDownUtilizationThreshold=0.9)

        site.until_gone(1, 8.0)

        assert site.nodes() == [protected]
        assert len(site.evictions.batches) <= 3, site.evictions.batches
        site.check_end(1)
        assert (world.pods_ready("web"), world.pods_ready("db")) == (7, 1)


@VENDORS
def test_node_that_gets_a_pod_while_it_waits_for_its_turn_is_left_out(vendor: str) -> None:
    with shared(4, vendor) as site:
        world = site.world
        world.seed(objects.deployment("web", replicas=1, cpu="100m", nodeName="system"))
        victim = site.nodes()[-1]
        world.when_step("delete", lambda: world.bind_pod("late", victim))
        site.start()

        site.until_gone(1, 6.0)
        world.minutes(3)

        assert site.nodes() == [victim]
        assert "late" in world.pods_on(victim)
        assert victim not in {site.names[machine] for machine in site.evictions.machines()}
        assert not world.is_marked(victim)
        assert site.evictions.not_drained == []


@pytest.mark.parametrize(
    ("vendor", "place", "occurrence"),
    [
        ("exoscale", "act:joined", 1),
        ("exoscale", "act:joined", 3),
        ("exoscale", "delete:called", 1),
        ("exoscale", "act:stepped", 1),
        ("exoscale", "act:sent", 1),
        ("exoscale", "act:sent", 3),
        ("exoscale", "act:recorded", 1),
        ("exoscale", "act:recorded", 3),
        ("exoscale", "act:recorded", 4),
        ("exoscale", "delete:polled", 1),
        ("alicloud", "act:joined", 3),
        ("alicloud", "delete:called", 1),
        ("alicloud", "act:sent", 1),
        ("alicloud", "act:recorded", 3),
        ("alicloud", "delete:polled", 1),
    ],
)
def test_function_killed_around_a_shared_request_loses_and_repeats_nothing(
    vendor: str, place: str, occurrence: int
) -> None:
    with shared(4, vendor) as site:
        world = site.world
        site.start()

        def kill() -> None:
            world.at(
                place,
                *[lambda: None] * (occurrence - 1),
                lambda: world.kill_at(place, function=f"act_{vendor}"),
            )

        world.at("act:joined" if place != "act:joined" else "reconcile:saved", kill)
        site.until_gone(0, 15.0)

        assert world.deaths() == [place]
        site.check_end(0)
        assert [end["state"] for end in world.ended("remove")] == ["succeeded"] * 4


@VENDORS
def test_removals_that_a_killed_function_had_joined_go_on_within_half_a_minute(vendor: str) -> None:
    with shared(4, vendor) as site:
        world = site.world
        site.start()
        world.at(
            "act:joined",
            *[lambda: None] * 2,
            lambda: world.kill_at("act:joined", function=f"act_{vendor}"),
        )
        world.step_until(lambda: bool(world.deaths()), limit=15 * MINUTE, every=1.0)
        claims = {
            operation.spec.id: operation.status.claimed_by
            for operation in world.operations()
            if operation.status.state is OperationState.RUNNING
        }
        assert len(claims) == 4
        world.step(30.0)
        after = {operation.spec.id: operation.status.claimed_by for operation in world.operations()}
        assert [name for name, claim in claims.items() if after.get(name) == claim] == []
        site.until_gone(0, 15.0)
        site.check_end(0)


@pytest.mark.parametrize(
    ("vendor", "times"), [("exoscale", 1), ("exoscale", 2), ("alicloud", 1), ("alicloud", 4)]
)
def test_lost_answer_to_a_shared_request_loses_and_repeats_nothing(vendor: str, times: int) -> None:
    with shared(4, vendor) as site:
        site.account.server.faults.next(VendorFault.LOST_ANSWER, on="write", times=times)
        site.start()
        site.until_gone(0, 15.0)
        site.check_end(0)
        assert [end["state"] for end in site.world.ended("remove")] == ["succeeded"] * 4
