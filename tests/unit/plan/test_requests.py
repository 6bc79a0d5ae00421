"""What became of the machines asked for, judged before anything is decided (state.md §1, §5)."""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.model.policy import Options
from chalicelib.model.timeouts import PROVISION, provision_deadline
from chalicelib.operations.memory_updates import memory_updates
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
    """Group `slow` was grown for a pod and the machines did not join; group `other` could be used instead."""
    build = cluster().group("slow", target=len(machines), template=node("t", "2")).pending(1, "1")
    absent = tuple(Instance(machine, InstanceState.CREATING) for machine in machines)
    build.groups[0] = msgspec.structs.replace(build.groups[0], instances=absent)
    build.group("other", template=node("t", "4"))
    request = ScaleUpRequest(len(machines), ASKED, OVERDUE)
    return build, Memory(
        groups={"slow": GroupMemory(target=len(machines), request=request)},
        unregistered=dict.fromkeys(machines, first_seen),
    )


def test_a_machine_that_is_late_has_not_arrived_and_the_pass_that_finds_out_uses_another_group() -> None:
    build, known = _waiting_for(MACHINE)
    plan, after = build.decide(known)
    assert growth(plan) == {"other": (1, 1)}
    assert after.groups["slow"].request is None
    backoff = after.groups["slow"].backoff
    assert backoff is not None
    assert (backoff.code, backoff.message) == ("timeout", "1 nodes did not join in time")


def test_a_machine_that_was_late_before_the_request_does_not_hold_it_up() -> None:
    build, known = _waiting_for(MACHINE, first_seen=ASKED - 5000)
    after = build.decide(known)[1].groups["slow"]
    assert (after.request, after.backoff) == (None, None)


def test_a_request_whose_nodes_came_during_back_off_is_fulfilled_and_not_a_second_failure() -> None:
    build = cluster().node("a", group="g").group("g")
    failed = Backoff(duration=1800, until=NOW + 600, last_failed=NOW - 1200, attempt=4)
    known = Memory(groups={"g": GroupMemory(target=1, request=ScaleUpRequest(1, ASKED, OVERDUE), backoff=failed)})
    after = build.decide(known)[1].groups["g"]
    assert (after.request, after.backoff) == (None, failed)


@pytest.mark.parametrize(("expected_at", "bought"), [(NOW + 60, {}), (NOW - 60, {"other": (1, 1)})])
def test_nodes_of_a_group_that_cannot_be_read_are_awaited_until_they_are_late(
    expected_at: float, bought: dict[str, tuple[int, int]]
) -> None:
    build, known = _waiting_for(MACHINE, first_seen=NOW)
    build.groups[0] = msgspec.structs.replace(build.groups[0], error="HTTP 500", target=0, instances=())
    request = ScaleUpRequest(1, ASKED, expected_at)
    known = msgspec.structs.replace(known, groups={"slow": GroupMemory(target=1, request=request)})
    assert growth(build.decide(known)[0]) == bought


def test_nothing_is_judged_of_a_group_that_cannot_be_read() -> None:
    build, known = _waiting_for(MACHINE)
    build.groups[0] = msgspec.structs.replace(build.groups[0], error="its machines cannot be listed")
    assert build.decide(known)[1].groups["slow"] == known.groups["slow"]


def _counted(failed: int, known: GroupMemory, *, now: float = NOW) -> GroupMemory:
    """What is known after a pass that sees so many failed machines of a hundred and thirty."""
    build = with_machines(anchored(), "g", failed, error=STOCK, target=130)
    return facts_of(build, Memory(groups={"g": known}), now=now).memory


def test_C6_errors_lower_a_request_and_a_further_increase_starts_its_clock_anew() -> None:
    known = _counted(20, asked(100, 60))
    assert known.request == ScaleUpRequest(80, NOW - 60, NOW + 840)
    more = operation(OperationKind.SCALE_UP, from_size=100, to_size=130)
    patch, _ = memory_updates(more, Succeeded(), Options(), NOW + 10)
    assert patch is not None
    known = patch(known)
    assert known.request == ScaleUpRequest(110, NOW + 10, NOW + 910)
    assert _counted(20, known, now=NOW + 20).request == known.request, "these were counted"
    assert _counted(130, known, now=NOW + 20).request is None


def test_C6_a_request_of_which_more_fails_than_was_asked_for_is_over() -> None:
    assert _counted(120, asked(110, 60)).request is None


def test_errors_of_machines_that_nobody_asked_for_are_no_failure_of_a_scale_up() -> None:
    known = _counted(3, GroupMemory())
    assert (known.backoff, len(known.failed_instances)) == (None, 3)


def test_a_request_waits_for_nodes_that_have_joined_and_are_starting_however_long_they_take() -> None:
    build = filled(cluster(), "g", 2, ready=False, created=NOW - 60).group("g")
    known = asked(2, 1000)
    assert facts_of(build, Memory(groups={"g": known})).memory == known, "no machine is missing"
    build = filled(cluster(), "g", 2).group("g")
    assert facts_of(build, Memory(groups={"g": known})).memory.request is None


def test_nodes_that_are_starting_are_not_missing_when_their_request_has_run_out() -> None:
    build = filled(cluster(), "g", 5, ready=False, created=NOW - 60).group("g", target=6)
    facts = facts_of(build, Memory(groups={"g": asked(6, 1000)}))
    assert (facts.memory.request, facts.missing, facts.frozen) == (None, 1, None)


def test_a_request_from_the_future_was_written_by_a_clock_that_was_wrong() -> None:
    build = cluster().group("g", target=2)
    ahead = GroupMemory(request=ScaleUpRequest(2, NOW + 5000, NOW + 5900))
    assert facts_of(build, Memory(groups={"g": ahead})).memory.request == ScaleUpRequest(2, NOW, NOW + 900)


def test_what_ran_out_is_known_to_the_pass_that_found_it_out_and_to_no_other() -> None:
    build = cluster().group("g", target=2)
    world = world_of(build, Memory(groups={"g": asked(2, 1000)}))
    assert world.timed_out == {"g": ScaleUpRequest(2, NOW - 1000, NOW - 100)}
    assert world_of(build, world.memory).timed_out == {}


def test_a_growth_carries_its_groups_own_provision_time() -> None:
    build = with_machines(cluster(), "g", template=node("t", "2"), max_node_provision_time=2700.0)
    (grow,) = build.group("h", max=0).pending(1, "1").plan().operations
    assert (grow.spec.kind, grow.status.data[PROVISION]) == (OperationKind.SCALE_UP, "2700.0")
    patch, _ = memory_updates(grow, Succeeded(), Options(), NOW)
    assert patch is not None
    assert patch(GroupMemory()).request == ScaleUpRequest(1, NOW, NOW + 2700)
    (grow,) = cluster().group("g", template=node("t", "2")).pending(1, "1").plan().operations
    assert (PROVISION in grow.status.data, provision_deadline(grow, Options())) == (False, 900.0)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-5"])
def test_a_provision_time_that_cannot_be_read_is_the_clusters(text: str) -> None:
    assert (
        provision_deadline(
            operation(OperationKind.SCALE_UP, data={PROVISION: text}), Options(max_node_provision_time=60)
        )
        == 60
    )


def test_a_back_off_from_the_future_lasts_as_long_as_it_was_to() -> None:
    build = cluster().group("g")
    ahead = Backoff(duration=300, until=NOW + 9300, last_failed=NOW + 9000, attempt=2)
    assert facts_of(build, Memory(groups={"g": GroupMemory(backoff=ahead)})).memory.backoff == Backoff(
        duration=300, until=NOW + 300, last_failed=NOW, attempt=2
    )
