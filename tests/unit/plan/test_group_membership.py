"""Ownership of discovered groups that only their Nodes prove to be this cluster's, and of instances
older than the first pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import InstanceError, InstanceState
from chalicelib.model.managed_group import MachineChoice, Managed
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ClusterBuilder, growth, node, stays
from tests.unit.plan.instances_builder import (
    HOUR,
    anchored,
    asked,
    filled,
    group_verdict,
    repaired,
    seen,
    with_machines,
)

KNOWN = GroupMemory(first_seen=NOW - 50 * HOUR)


def pool(
    ours: int,
    others: int,
    *,
    created: float = NOW - 9 * HOUR,
    known: GroupMemory | None = KNOWN,
    discovered: bool = True,
    **more: Any,
) -> tuple[ClusterBuilder, Memory]:
    """Group g: `ours` instances are registered nodes, `others` are not and are late."""
    build = with_machines(filled(anchored(), "g", ours), "g", others, discovered=discovered, **more)
    made = build.groups[-1]
    build.groups[-1] = msgspec.structs.replace(
        made,
        instances=tuple(msgspec.structs.replace(each, created=created) for each in made.instances),
    )
    return build, seen(build, HOUR, {"g": known} if known is not None else {})


@pytest.mark.parametrize(
    ("ours", "others", "usable"),
    [(1, 3, False), (2, 2, False), (3, 2, True), (1, 0, True), (0, 0, True), (0, 1, False)],
)
def test_discovered_group_is_changed_once_most_instances_were_nodes(
    ours: int, others: int, *, usable: bool
) -> None:
    build, memory = pool(ours, others, known=None, template=node("t"))
    plan, after = build.pending(90, "1").decide(memory, unneeded=HOUR)
    assert bool(growth(plan)) is usable
    assert (after.groups.get("g", GroupMemory()).first_seen == NOW) is usable
    if not usable:
        skipped = group_verdict(plan).skipped
        assert skipped is not None
        assert f"only {ours} of its {ours + others} machines are nodes of this cluster" in sentence(
            skipped
        )
        assert not repaired(plan)
        assert not plan.removals
        assert set(stays(plan).values()) <= {"UnexpectedError", "NotAutoscaled"}


def test_known_group_keeps_scaling_up_while_its_instances_join() -> None:
    build, memory = pool(2, 5, template=node("t"))
    assert growth(build.pending(90, "1").plan(memory))["g"][0] > 0


def test_group_named_in_the_policy_is_trusted_at_once() -> None:
    build, memory = pool(0, 3, known=None, discovered=False)
    _, after = build.decide(memory)
    assert after.groups["g"].first_seen == NOW
    _, later = build.decide(after, now=NOW + 60.0)
    assert later.groups["g"].first_seen == NOW


@pytest.mark.parametrize(
    ("ours", "others", "discovered", "created", "goes"),
    [
        pytest.param(3, 2, True, NOW - 9 * HOUR, True, id="discovered, most are nodes"),
        pytest.param(2, 2, True, NOW - 9 * HOUR, False, id="discovered, half are nodes"),
        pytest.param(3, 2, True, NOW - 99 * HOUR, False, id="discovered, made before it was seen"),
        pytest.param(3, 2, True, 0.0, False, id="discovered, nobody knows when it was made"),
        pytest.param(3, 2, False, NOW - 99 * HOUR, True, id="named, most are nodes"),
        pytest.param(0, 2, False, NOW - 9 * HOUR, True, id="named, none has ever joined"),
        pytest.param(
            1, 2, False, NOW - 99 * HOUR, False, id="named, few are nodes and it was there before"
        ),
        pytest.param(1, 2, False, 0.0, True, id="named, nobody knows when it was made"),
    ],
)
def test_instance_not_known_to_be_ours_is_not_deleted(
    ours: int, others: int, created: float, *, discovered: bool, goes: bool
) -> None:
    build, memory = pool(ours, others, discovered=discovered, created=created)
    plan = build.plan(memory)
    assert bool(repaired(plan)) is goes
    held = [note for note in plan.notes if note.code.value == "DiscardHeld"]
    assert len(held) == (0 if goes else others)
    assert all("is not discarded" in sentence(note) for note in held)


def test_failed_instance_of_a_foreign_group_is_not_deleted() -> None:
    build, memory = pool(1, 3, error=InstanceError("Unknown", "instance-error"))
    assert not repaired(build.plan(memory))


def test_placeholder_instances_of_our_own_group_are_deleted() -> None:
    build, memory = pool(3, 1, created=0.0, error=InstanceError("OutOfStock", "unavailable"))
    assert repaired(build.plan(memory)) == {"g": ("discard", 4, 3)}


def test_machines_of_an_own_group_are_deleted_however_old_they_are() -> None:
    own = Managed(MachineChoice("general", "s4", "z1"), exists=True)
    build, memory = pool(0, 1, discovered=False, created=NOW - 99 * HOUR, managed=own)
    assert repaired(build.plan(memory)) == {"g": ("discard", 1, 0)}


def test_target_of_a_foreign_group_is_not_lowered() -> None:
    wrong = GroupMemory(first_seen=NOW - 50 * HOUR, size_wrong_since=NOW - HOUR, size_wrong=(1, 6))
    build, _ = pool(1, 3, target=6)
    assert not repaired(build.plan(Memory(groups={"g": wrong}, first_seen=NOW - 99 * HOUR)))
    late = asked(2, HOUR, first_seen=NOW - 50 * HOUR)
    assert not repaired(build.plan(Memory(groups={"g": late}, first_seen=NOW - 99 * HOUR)))


def test_contested_instance_does_not_prove_group_ownership() -> None:
    build, memory = pool(2, 1, known=None, template=node("t"))
    build.node("thief", provider_id=build.groups[-1].instances[0].id)
    plan = build.pending(90, "1").plan(memory)
    assert "only 1 of its 3 machines" in sentence(group_verdict(plan).skipped)  # type: ignore[arg-type]


def test_instances_in_deletion_do_not_count_for_group_ownership() -> None:
    build, memory = pool(2, 3, known=None, template=node("t"))
    made = build.groups[-1]
    going = tuple(
        each if each.node else msgspec.structs.replace(each, state=InstanceState.DELETING)
        for each in made.instances
    )
    build.groups[-1] = msgspec.structs.replace(made, instances=going)
    assert growth(build.pending(90, "1").plan(memory))["g"]


def test_group_memory_of_an_earlier_release_is_read() -> None:
    old = msgspec.json.decode(b'{"target": 3, "last_add": 5.0}', type=GroupMemory)
    assert old.first_seen == 0.0
    build, memory = pool(3, 1, known=old)
    _, after = build.decide(memory)
    assert (after.groups["g"].first_seen, after.groups["g"].last_add) == (NOW, 5.0)
