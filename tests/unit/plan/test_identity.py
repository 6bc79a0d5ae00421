"""A machine that more than one Node claims: it exists, and nothing is done with it or with these Nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import Instance, InstanceState
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ClusterBuilder, growth, node, stays
from tests.unit.plan.instances_builder import (
    HOUR,
    anchored,
    asked,
    facts_of,
    filled,
    group_verdict,
    repaired,
    seen,
    with_machines,
)

STOLEN = "test://g/g-0"


def claimed(*, how: str = "same id", size: int = 3, **group: Any) -> ClusterBuilder:
    """Group g of `size` nodes; the first machine is claimed by the node `thief` as well."""
    build = filled(anchored(), "g", size).group("g", **group)
    if how == "same id":
        build.node("thief", provider_id=STOLEN)
        return build
    build.node("thief", provider_id="test://other/spelling")
    made = build.groups[-1]
    first = msgspec.structs.replace(made.instances[0], node="", claimants=("g-0", "thief"))
    build.groups[-1] = msgspec.structs.replace(made, instances=(first, *made.instances[1:]))
    return build


BOTH = pytest.mark.parametrize("how", ["same id", "said by the provider"])


@BOTH
def test_nodes_that_claim_one_machine_stay_and_say_why(how: str) -> None:
    plan = claimed(how=how).plan(unneeded=HOUR)
    told = {each.node: each for each in plan.unremovable}
    assert {name for name, code in stays(plan).items() if code == "NodeIdentityContested"} == {"g-0", "thief"}
    assert sentence(told["thief"].reason) == (
        "which machine it is cannot be known (machine test://g/g-0, nodes g-0, thief)"
    )
    assert not {"g-0", "thief"} & {*plan.unneeded, *(gone.node for gone in plan.removals)}
    assert [gone.node for gone in plan.removals] == ["g-1", "g-2"]


@BOTH
def test_a_contested_machine_is_there_and_neither_missing_nor_late(how: str) -> None:
    build = claimed(how=how)
    facts = facts_of(build, Memory(unregistered={STOLEN: NOW - HOUR}, first_seen=NOW - HOUR))
    assert (facts.unregistered, facts.long_unregistered, facts.missing, facts.frozen) == ((), (), 0, None)
    assert (facts.contested, facts.target, len(facts.nodes)) == ((STOLEN,), 3, 2)


@BOTH
def test_a_request_is_fulfilled_by_a_contested_machine(how: str) -> None:
    build = claimed(how=how)
    assert facts_of(build, Memory(groups={"g": asked(1, 60.0)})).upcoming == 0
    assert not repaired(build.plan(Memory(groups={"g": asked(1, HOUR)})))


@BOTH
def test_a_contested_machine_costs_the_group_neither_size_nor_machine(how: str) -> None:
    build = claimed(how=how)
    wrong = GroupMemory(size_wrong_since=NOW - HOUR, size_wrong=(2, 3))
    assert not repaired(build.plan(seen(build, HOUR, {"g": wrong})))


def test_others_of_the_group_are_repaired_as_ever() -> None:
    build = with_machines(filled(anchored(), "g", 3), "g", 1)
    build.node("thief", provider_id=STOLEN, created=NOW - 2 * HOUR)
    plan = build.plan(seen(build, HOUR))
    assert repaired(plan) == {"g": ("discard", 4, 3)}
    assert plan.repairs[0].instances == ("test://g/m-0",)


def test_a_group_with_a_contested_machine_still_grows() -> None:
    build = claimed(template=node("t")).pending(90, "1")
    plan = build.plan()
    assert growth(plan)["g"][0] > 0
    assert group_verdict(plan).healthy


def test_a_group_that_goes_as_a_whole_stays_with_a_contested_machine() -> None:
    build = claimed()
    made = build.groups[-1]
    options = msgspec.structs.replace(made.options, zero_or_max=True)
    build.groups[-1] = msgspec.structs.replace(made, options=options)
    plan = build.plan(unneeded=HOUR)
    assert not plan.removals
    assert stays(plan)["g-1"] == "AtomicScaleDownFailed"


def test_a_contested_node_teaches_no_template() -> None:
    build = filled(anchored(), "g", 1).group("g", template=node("t", "2")).node("thief", "64", provider_id=STOLEN)
    _, memory = build.decide()
    assert "g" not in memory.templates


def test_a_machine_that_is_going_is_not_contested() -> None:
    build = claimed()
    made = build.groups[-1]
    going = msgspec.structs.replace(made.instances[0], state=InstanceState.DELETING)
    build.groups[-1] = msgspec.structs.replace(made, instances=(going, *made.instances[1:]))
    assert "NodeIdentityContested" not in stays(build.plan()).values()


@pytest.mark.parametrize(
    ("created", "registered", "goes"),
    [
        pytest.param(NOW - 9 * HOUR, NOW - HOUR, False, id="it ran, and a node appeared when it lost its own"),
        pytest.param(NOW - 9 * HOUR, NOW - 8 * HOUR, True, id="the node is older"),
        pytest.param(NOW - HOUR - 60, NOW - HOUR, True, id="it never ran"),
        pytest.param(0.0, NOW - HOUR, True, id="the vendor does not say when it was made"),
    ],
)
def test_a_machine_that_lost_its_node_to_a_stranger_is_kept(created: float, registered: float, *, goes: bool) -> None:
    """The node has taken a foreign machine's id, so that its own machine looks as if it had never joined."""
    build = with_machines(filled(anchored(), "g", 3), "g", 1, template=node("t"))
    made = build.groups[-1]
    build.groups[-1] = msgspec.structs.replace(
        made, instances=(*made.instances[:-1], msgspec.structs.replace(made.instances[-1], created=created))
    )
    build.node("stray", created=registered)
    plan = build.plan(seen(build, HOUR))
    assert bool(repaired(plan)) is goes
    if not goes:
        assert [note.code.value for note in plan.notes] == ["DiscardHeld"]
        assert "node stray" in sentence(plan.notes[0])


def test_a_node_without_an_id_claims_nothing() -> None:
    build = filled(anchored(), "g", 2).group("g").node("one", provider_id="").node("two", provider_id="")
    made = build.groups[-1]
    build.groups[-1] = msgspec.structs.replace(made, instances=(*made.instances, Instance("", InstanceState.CREATING)))
    assert "NodeIdentityContested" not in stays(build.plan()).values()
