"""Scale-up requests are resolved before planning: fulfilled, failed, expired or still waiting
(docs/reference/node-groups.md "Scale-up requests")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import Backoff, GroupMemory, Memory, PurchaseRow, ScaleUpRequest
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.model.purchases import request_of
from chalicelib.operations.memory_updates import memory_updates
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.timeouts import PROVISION, provision_deadline
from tests.builders import NOW, ClusterBuilder, cluster, growth, node
from tests.unit.plan.instances_builder import (
    STOCK,
    anchored,
    asked,
    facts_of,
    filled,
    operation,
    with_machines,
    world_of,
)

ASKED, OVERDUE = NOW - 1000, NOW - 100
MACHINE = "test://slow/never"


def _waiting_for(*machines: str, first_seen: float = ASKED) -> tuple[ClusterBuilder, Memory]:
    """Group `slow` was scaled up for a pod and its instances did not join; group
    `other` could be used instead."""
    build = cluster().group("slow", target=len(machines), template=node("t", "2")).pending(1, "1")
    absent = tuple(Instance(machine, InstanceState.CREATING) for machine in machines)
    build.groups[0] = msgspec.structs.replace(build.groups[0], instances=absent)
    build.group("other", template=node("t", "4"))
    request = ScaleUpRequest(len(machines), ASKED, OVERDUE)
    return build, Memory(
        groups={"slow": GroupMemory(target=len(machines), request=request)},
        unregistered=dict.fromkeys(machines, first_seen),
    )


def test_late_instance_counts_as_not_arrived_and_another_group_is_used_at_once() -> None:
    build, known = _waiting_for(MACHINE)
    plan, after = build.decide(known)
    assert growth(plan) == {"other": (1, 1)}
    assert after.groups["slow"].request is None
    backoff = after.groups["slow"].backoff
    assert backoff is not None
    assert (backoff.code, backoff.message) == ("timeout", "1 nodes did not join in time")


def test_instance_late_before_a_scale_up_request_does_not_delay_it() -> None:
    build, known = _waiting_for(MACHINE, first_seen=ASKED - 5000)
    after = build.decide(known)[1].groups["slow"]
    assert (after.request, after.backoff) == (None, None)


def test_request_whose_nodes_joined_during_backoff_is_fulfilled() -> None:
    build = cluster().node("a", group="g").group("g")
    failed = Backoff(duration=1800, until=NOW + 600, last_failed=NOW - 1200, attempt=4)
    known = Memory(
        groups={
            "g": GroupMemory(target=1, request=ScaleUpRequest(1, ASKED, OVERDUE), backoff=failed)
        }
    )
    after = build.decide(known)[1].groups["g"]
    assert (after.request, after.backoff) == (None, failed)


@pytest.mark.parametrize(("expected_at", "bought"), [(NOW + 60, {}), (NOW - 60, {"other": (1, 1)})])
def test_nodes_of_an_unreadable_group_are_expected_until_they_are_late(
    expected_at: float, bought: dict[str, tuple[int, int]]
) -> None:
    build, known = _waiting_for(MACHINE, first_seen=NOW)
    build.groups[0] = msgspec.structs.replace(
        build.groups[0], error="HTTP 500", target=0, instances=()
    )
    request = ScaleUpRequest(1, ASKED, expected_at)
    known = msgspec.structs.replace(known, groups={"slow": GroupMemory(target=1, request=request)})
    assert growth(build.decide(known)[0]) == bought


def test_scale_up_request_of_an_unreadable_group_is_not_resolved() -> None:
    build, known = _waiting_for(MACHINE)
    build.groups[0] = msgspec.structs.replace(
        build.groups[0], error="its machines cannot be listed"
    )
    assert build.decide(known)[1].groups["slow"] == known.groups["slow"]


def _counted(failed: int, known: GroupMemory, *, now: float = NOW) -> GroupMemory:
    """The memory after a pass that sees that many failed instances of a hundred and thirty."""
    build = with_machines(anchored(), "g", failed, error=STOCK, target=130)
    return facts_of(build, Memory(groups={"g": known}), now=now).memory


def test_instance_errors_lower_a_request_and_a_further_scale_up_moves_no_date() -> None:
    known = _counted(20, asked(100, 60))
    assert known.request == ScaleUpRequest(80, NOW - 60, NOW + 840)
    more = operation(OperationKind.SCALE_UP, from_size=100, to_size=130)
    patch, _ = memory_updates(more, Succeeded(), Options(), NOW + 10)
    assert patch is not None
    known = patch(known)
    first, second = (
        PurchaseRow(80, NOW - 60, NOW + 840),
        PurchaseRow(30, NOW + 10, NOW + 910, NOW - 30),
    )
    assert known.request == ScaleUpRequest(110, NOW + 10, NOW + 910, (first, second))
    assert _counted(20, known, now=NOW + 20).request == known.request, "these were counted"
    assert _counted(130, known, now=NOW + 20).request is None


def test_request_with_more_failures_than_instances_is_finished() -> None:
    assert _counted(120, asked(110, 60)).request is None


def test_errors_of_unrequested_instances_are_not_a_scale_up_failure() -> None:
    known = _counted(3, GroupMemory())
    assert (known.backoff, len(known.failed_instances)) == (None, 3)


def test_request_waits_for_registered_nodes_that_are_still_starting() -> None:
    build = filled(cluster(), "g", 2, ready=False, created=NOW - 60).group("g")
    known = asked(2, 1000)
    assert facts_of(build, Memory(groups={"g": known})).memory == known, "no machine is missing"
    build = filled(cluster(), "g", 2).group("g")
    assert facts_of(build, Memory(groups={"g": known})).memory.request is None


def test_starting_nodes_are_not_missing_when_their_request_expires() -> None:
    build = filled(cluster(), "g", 5, ready=False, created=NOW - 60).group("g", target=6)
    facts = facts_of(build, Memory(groups={"g": asked(6, 1000)}))
    assert (facts.memory.request, facts.missing, facts.frozen) == (None, 1, None)


def test_scale_up_request_from_the_future_is_a_clock_error() -> None:
    build = cluster().group("g", target=2)
    ahead = GroupMemory(request=ScaleUpRequest(2, NOW + 5000, NOW + 5900))
    assert facts_of(build, Memory(groups={"g": ahead})).memory.request == ScaleUpRequest(
        2, NOW, NOW + 900
    )


def test_expired_request_is_known_only_to_the_pass_that_resolves_it() -> None:
    build = cluster().group("g", target=2)
    world = world_of(build, Memory(groups={"g": asked(2, 1000)}))
    assert world.timed_out == {"g": ScaleUpRequest(2, NOW - 1000, NOW - 100)}
    assert world_of(build, world.memory).timed_out == {}


def test_scale_up_operation_uses_its_groups_own_provision_time() -> None:
    build = with_machines(cluster(), "g", template=node("t", "2"), max_node_provision_time=2700.0)
    (grow,) = build.group("h", max=0).pending(1, "1").plan().operations
    assert (grow.spec.kind, grow.status.data[PROVISION]) == (OperationKind.SCALE_UP, "2700.0")
    patch, _ = memory_updates(grow, Succeeded(), Options(), NOW)
    assert patch is not None
    request = patch(GroupMemory()).request
    assert request is not None
    assert (request.increase, request.since, request.expected_at) == (1, NOW, NOW + 2700)
    (grow,) = cluster().group("g", template=node("t", "2")).pending(1, "1").plan().operations
    assert (PROVISION in grow.status.data, provision_deadline(grow, Options())) == (False, 900.0)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-5"])
def test_unreadable_provision_time_falls_back_to_the_clusters(text: str) -> None:
    assert (
        provision_deadline(
            operation(OperationKind.SCALE_UP, data={PROVISION: text}),
            Options(max_node_provision_time=60),
        )
        == 60
    )


def test_backoff_from_the_future_keeps_its_original_length() -> None:
    build = cluster().group("g")
    ahead = Backoff(duration=300, until=NOW + 9300, last_failed=NOW + 9000, attempt=2)
    assert facts_of(
        build, Memory(groups={"g": GroupMemory(backoff=ahead)})
    ).memory.backoff == Backoff(duration=300, until=NOW + 300, last_failed=NOW, attempt=2)


def _two_purchases(
    *, joined: int = 0, absent: int = 0, target: int = 8, **more: Any
) -> ClusterBuilder:
    """Group g of `joined` nodes and machines that are no nodes, of a target of eight."""
    return with_machines(filled(anchored(), "g", joined), "g", absent, target=target, **more)


EARLY = PurchaseRow(3, NOW - 1000, NOW - 100, planned_at=NOW - 1010)
ON_TIME = PurchaseRow(5, NOW - 500, NOW + 400, planned_at=NOW - 510)
BOTH = GroupMemory(target=8, request=request_of([EARLY, ON_TIME]))


def test_late_purchase_fails_alone_and_the_later_one_is_waited_for() -> None:
    world = world_of(_two_purchases(joined=2), Memory(groups={"g": BOTH}))
    memory = world.groups["g"].memory
    assert memory.backoff is not None
    assert memory.backoff.message == "1 nodes did not join in time"
    assert memory.request == request_of([ON_TIME], given_up=1)
    assert world.timed_out == {"g": ScaleUpRequest(1, EARLY.since, EARLY.expected_at)}


def test_purchase_that_is_fulfilled_leaves_the_others() -> None:
    known = facts_of(_two_purchases(joined=4), Memory(groups={"g": BOTH})).memory
    assert (known.request, known.backoff) == (request_of([ON_TIME]), None)


def test_nodes_given_up_do_not_make_a_later_purchase_late() -> None:
    known = GroupMemory(
        target=8, request=request_of([msgspec.structs.replace(ON_TIME, expected_at=NOW - 1)], 3)
    )
    after = facts_of(_two_purchases(joined=5), Memory(groups={"g": known})).memory
    assert (after.request, after.backoff) == (None, None)
    after = facts_of(_two_purchases(joined=4), Memory(groups={"g": known})).memory
    assert after.backoff is not None
    assert after.backoff.message == "1 nodes did not join in time"


def test_machine_of_an_earlier_purchase_does_not_make_a_later_one_late() -> None:
    known = GroupMemory(
        target=6, request=request_of([msgspec.structs.replace(ON_TIME, expected_at=NOW - 1)])
    )
    build = _two_purchases(joined=5, absent=1, target=6)
    seen_early = {"test://g/m-0": NOW - 1000}
    after = facts_of(build, Memory(groups={"g": known}, unregistered=seen_early)).memory
    assert (after.request, after.backoff) == (None, None)


def test_errors_while_the_scale_up_is_open_are_not_taken_from_an_earlier_purchase() -> None:
    open_growth = operation(OperationKind.SCALE_UP, from_size=3, to_size=8)
    first = GroupMemory(
        target=3, request=request_of([msgspec.structs.replace(EARLY, expected_at=NOW + 300)])
    )
    build = with_machines(anchored(), "g", 2, error=STOCK, target=8)
    known = facts_of(build, Memory(groups={"g": first}, operations=(open_growth,))).memory
    assert (known.request, known.failed_early) == (first.request, 2)
    patch, _ = memory_updates(open_growth, Succeeded(), Options(), NOW)
    assert patch is not None
    request = patch(known).request
    assert request is not None
    assert [row.count for row in request.purchases] == [3, 3]
    assert patch(known).failed_early == 0


def test_unreadable_group_is_expected_to_bring_what_is_not_late() -> None:
    build = cluster().group("g", target=8, error="HTTP 500", template=node("t"))
    assert facts_of(build, Memory(groups={"g": BOTH})).upcoming == 5
