"""What became of the machines asked for, judged before anything is decided (state.md §1, §5)."""

from __future__ import annotations

import msgspec

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import Backoff, GroupMemory, Memory, ScaleUpRequest
from tests.builders import NOW, ClusterBuilder, cluster, growth, node

ASKED, OVERDUE = NOW - 1000, NOW - 100
MACHINE = "test://slow/never"


def _waiting_for(*machines: str, first_seen: float = ASKED) -> tuple[ClusterBuilder, Memory]:
    """Group `slow` was grown for a pod and the machines did not join; group `other` could be used instead."""
    build = cluster().group("slow", target=len(machines), template=node("t", "2")).pending(1, "1")
    absent = tuple(Instance(machine, InstanceState.CREATING) for machine in machines)
    build.groups[0] = msgspec.structs.replace(build.groups[0], instances=absent)
    build.group("other", template=node("t", "4"))
    request = ScaleUpRequest(len(machines), ASKED, OVERDUE)
    return build, Memory(groups={"slow": GroupMemory(target=len(machines), request=request)},
                         unregistered=dict.fromkeys(machines, first_seen))


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


def test_nothing_is_judged_of_a_group_that_cannot_be_read() -> None:
    build, known = _waiting_for(MACHINE)
    build.groups[0] = msgspec.structs.replace(build.groups[0], error="its machines cannot be listed")
    assert build.decide(known)[1].groups["slow"] == known.groups["slow"]
