"""Machines that another autoscaler has bought are on their way: passes that begin to
act do not buy them again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.memory import Control, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.plan import Plan
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.state.foreign_growths import after_pass, left, with_others
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.store.codec import decode, encode
from tests.builders import NOW, ClusterBuilder, cluster, growth
from tests.cases import each_row

MINUTE = 60.0
_TOO_LATE = 16 * MINUTE  # after a purchase: maxNodeProvisionTime is over


def web(
    nodes: int, target: int, *, pods: int = 0, machines: tuple[Instance, ...] = (), error: str = ""
) -> ClusterBuilder:
    """Group web with full nodes, a size, machines without a node, and pods that need a node
    each."""
    built = cluster()
    for at in range(nodes):
        built.node(f"n{at}", cpu="4", memory="16Gi", group="web")
        built.running(f"n{at}", 1, "3500m", "1Gi")
    built.group("web", target=target, error=error)
    group = built.groups[0]
    built.groups[0] = msgspec.structs.replace(group, instances=(*group.instances, *machines))
    return built.pending(pods, "3500m", "1Gi", owner="queue")


def machines(count: int, created: float = 0.0, **more: Any) -> tuple[Instance, ...]:
    made = (
        Instance(id=f"test://web/new-{at}", state=InstanceState.CREATING, created=created)
        for at in range(count)
    )
    return tuple(msgspec.structs.replace(instance, **more) for instance in made)


class OthersPasses:
    """OthersPasses that follow each other as the reconciler makes them;
    memory is stored in between."""

    def __init__(self, memory: Memory | None = None, **options: Any) -> None:
        self.options = msgspec.structs.replace(Options(), **options)
        self.memory = memory or Memory()
        self.last = 0.0

    def look(self, built: ClusterBuilder, minutes: float, *, act: bool) -> Plan:
        now = NOW + minutes * MINUTE
        snapshot = msgspec.structs.replace(built.snapshot(), taken_at=now)
        policy = Policy(name="test", mode=Mode.ACTIVE, options=self.options)
        before = with_others(self.memory, self.last, policy.scan_interval, now, act=act)
        plan, after = plan_cluster(snapshot, policy, before, now, 1)
        after = after_pass(after, snapshot.groups, act=act)
        self.memory, self.last = decode(encode(after), Memory), now
        return plan

    @property
    def group(self) -> GroupMemory:
        return self.memory.groups["web"]

    @property
    def coming(self) -> int:
        request = self.group.request
        return request.increase if request is not None else 0


def test_first_active_pass_after_shadow_buys_nothing_that_is_on_its_way() -> None:
    passes = OthersPasses()
    passes.look(web(2, 2), 0, act=False)
    assert growth(passes.look(web(2, 4, pods=2), 1, act=True)) == {}
    assert passes.coming == 2


def test_very_first_pass_of_a_cluster_buys_nothing_that_is_on_its_way() -> None:
    assert growth(OthersPasses().look(web(2, 4, pods=2), 0, act=True)) == {}


def test_only_what_is_not_on_its_way_is_bought() -> None:
    assert growth(OthersPasses().look(web(2, 4, pods=3), 0, act=True)) == {"web": (1, 1)}


@each_row("silence", [5.0, 60.0], ids=["off for minutes", "no pass for an hour"])
def test_first_active_pass_after_mode_off_adopts_all_that_the_size_lacks(silence: float) -> None:
    passes = OthersPasses()
    passes.look(web(5, 5), 0, act=True)
    if silence < 15:
        passes.memory = left(passes.memory)
    assert growth(passes.look(web(2, 4, pods=2), silence, act=True)) == {}
    assert passes.coming == 2


def test_a_pass_after_active_ones_takes_a_larger_size_for_no_purchase() -> None:
    passes = OthersPasses()
    passes.look(web(2, 2), 0, act=True)
    assert growth(passes.look(web(2, 4, pods=2), 1, act=True)) == {"web": (2, 2)}


def test_memory_of_an_earlier_release_counts_as_that_of_active_passes() -> None:
    memory = Memory(
        groups={"web": GroupMemory(target=2, first_seen=NOW - 900)}, first_seen=NOW - 900
    )
    assert growth(OthersPasses(memory).look(web(2, 4, pods=2), 0, act=True)) == {"web": (2, 2)}


def test_a_purchase_of_another_is_dated_by_its_machines() -> None:
    passes = OthersPasses()
    passes.look(web(2, 5, machines=machines(2, NOW - 300)), 0, act=True)
    request = passes.group.request
    assert request is not None
    assert [(row.count, row.since, row.expected_at) for row in request.purchases] == [
        (2, NOW - 300, NOW + 600),
        (1, NOW, NOW + 900),
    ]


def test_machines_that_should_have_joined_before_are_no_purchase() -> None:
    passes = OthersPasses()
    plan = passes.look(web(2, 4, pods=2, machines=machines(2, NOW - 3 * 3600)), 0, act=True)
    assert growth(plan) == {"web": (2, 2)}
    assert passes.coming == 0


def test_machines_that_failed_before_are_no_purchase_and_no_failure_of_ours() -> None:
    broken = InstanceError("OutOfResources", "Sold", "")
    passes = OthersPasses()
    plan = passes.look(web(2, 4, pods=2, machines=machines(2, NOW - 60, error=broken)), 0, act=True)
    assert growth(plan) == {"web": (2, 2)}
    assert passes.group.backoff is None


def test_a_size_that_is_always_too_large_hides_a_need_until_the_deadline_only() -> None:
    passes = OthersPasses()
    bought = [growth(passes.look(web(2, 4, pods=2), minute, act=True)) for minute in range(60)]
    first = next(at for at, increase in enumerate(bought) if increase)
    assert first * MINUTE <= 900 + 300 + 2 * MINUTE  # the deadline, and a back-off
    assert passes.group.request is None


def test_a_group_that_cannot_be_read_at_first_is_adopted_by_the_pass_that_reads_it() -> None:
    passes = OthersPasses()
    passes.look(web(2, 2), 0, act=False)
    passes.look(web(2, 4, pods=2, error="HTTP 503"), 1, act=True)
    passes.look(web(2, 4, pods=2, error="HTTP 503"), 2, act=True)
    controls = [passes.group.control]
    assert growth(passes.look(web(2, 4, pods=2), 3, act=True)) == {}
    controls.append(passes.group.control)
    assert controls == [Control.WATCHED, Control.OWN]


def test_own_purchase_is_not_adopted_again_after_a_time_in_shadow() -> None:
    request = ScaleUpRequest(2, NOW - 60, NOW + 840)
    memory = Memory(
        groups={"web": GroupMemory(target=4, request=request, first_seen=NOW)}, first_seen=NOW
    )
    passes = OthersPasses(memory)
    for minute, act in enumerate((False, False, True)):
        passes.look(web(2, 4, pods=2), minute, act=act)
    assert passes.coming == 2
    passes.memory = left(passes.memory)
    assert growth(passes.look(web(3, 4, pods=1), 4, act=True)) == {}
    assert passes.coming == 2  # of one purchase, half of which has come


def test_growth_of_another_in_shadow_is_no_need_of_ours_while_its_machines_come() -> None:
    passes = OthersPasses()
    passes.look(web(2, 2), 0, act=False)
    waited = [growth(passes.look(web(2, 4, pods=2), minute, act=False)) for minute in range(1, 13)]
    assert waited == [{}] * 12
    assert growth(passes.look(web(4, 4), 13, act=False)) == {}
    assert passes.coming == 0
    assert passes.group.backoff is None


def test_growth_of_another_in_shadow_that_joins_in_part_ends_at_its_deadline() -> None:
    passes = OthersPasses()
    passes.look(web(2, 2), 0, act=False)
    hour = [
        growth(passes.look(web(2 + (minute >= 8), 4, pods=1), minute, act=False))
        for minute in range(1, 61)
    ]
    first = next(at for at, increase in enumerate(hour) if increase)
    assert 15 <= first <= 23
    assert passes.group.request is None


def test_two_growths_of_another_keep_their_own_dates() -> None:
    passes = OthersPasses()
    for minute, size in ((0, 2), (1, 4), (5, 5)):
        passes.look(web(2, size), minute, act=False)
    request = passes.group.request
    assert request is not None
    assert [(row.count, row.since - NOW) for row in request.purchases] == [(2, 60.0), (1, 300.0)]


def test_machine_of_another_that_cannot_be_created_backs_its_group_off() -> None:
    broken = InstanceError("OutOfResources", "Sold", "")
    passes = OthersPasses()
    passes.look(web(2, 2), 0, act=False)
    passes.look(web(2, 4, pods=2), 1, act=False)
    passes.look(web(2, 4, pods=2, machines=machines(2, NOW + 90, error=broken)), 2, act=False)
    assert passes.group.backoff is not None
    assert passes.coming == 0


def test_growth_between_the_last_active_pass_and_the_first_shadow_pass_counts() -> None:
    passes = OthersPasses()
    passes.look(web(2, 2), 0, act=True)
    assert growth(passes.look(web(2, 4, pods=2), 1, act=False)) == {}
