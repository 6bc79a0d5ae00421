"""An instance that several Nodes claim is counted as existing; neither it nor
these Nodes are changed.
"""

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
    """Group g of `size` nodes; the node `thief` also claims the first instance."""
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
def test_nodes_that_claim_the_same_instance_stay_and_report_why(how: str) -> None:
    plan = claimed(how=how).plan(unneeded=HOUR)
    reported = {each.node: each for each in plan.unremovable}
    assert {name for name, code in stays(plan).items() if code == "NodeIdentityContested"} == {
        "g-0",
        "thief",
    }
    assert sentence(reported["thief"].reason) == (
        "which machine it is cannot be known (machine test://g/g-0, nodes g-0, thief)"
    )
    assert not {"g-0", "thief"} & {*plan.unneeded, *(gone.node for gone in plan.removals)}
    assert [gone.node for gone in plan.removals] == ["g-1", "g-2"]


@BOTH
def test_contested_instance_counts_as_existing_and_is_neither_missing_nor_late(how: str) -> None:
    build = claimed(how=how)
    facts = facts_of(build, Memory(unregistered={STOLEN: NOW - HOUR}, first_seen=NOW - HOUR))
    assert (facts.unregistered, facts.long_unregistered, facts.missing, facts.frozen) == (
        (),
        (),
        0,
        None,
    )
    assert (facts.contested, facts.target, len(facts.nodes)) == ((STOLEN,), 3, 2)


@BOTH
def test_contested_instance_fulfils_a_scale_up_request(how: str) -> None:
    build = claimed(how=how)
    assert facts_of(build, Memory(groups={"g": asked(1, 60.0)})).upcoming == 0
    assert not repaired(build.plan(Memory(groups={"g": asked(1, HOUR)})))


@BOTH
def test_contested_instance_causes_no_target_decrease_and_no_deletion(how: str) -> None:
    build = claimed(how=how)
    wrong = GroupMemory(size_wrong_since=NOW - HOUR, size_wrong=(2, 3))
    assert not repaired(build.plan(seen(build, HOUR, {"g": wrong})))


def test_other_instances_of_a_group_with_a_contested_instance_are_repaired() -> None:
    build = with_machines(filled(anchored(), "g", 3), "g", 1)
    build.node("thief", provider_id=STOLEN, created=NOW - 2 * HOUR)
    plan = build.plan(seen(build, HOUR))
    assert repaired(plan) == {"g": ("discard", 4, 3)}
    assert plan.repairs[0].instances == ("test://g/m-0",)


def test_group_with_a_contested_instance_still_scales_up() -> None:
    build = claimed(template=node("t")).pending(90, "1")
    plan = build.plan()
    assert growth(plan)["g"][0] > 0
    assert group_verdict(plan).healthy


def test_zero_or_max_group_with_a_contested_instance_stays() -> None:
    build = claimed()
    made = build.groups[-1]
    options = msgspec.structs.replace(made.options, zero_or_max=True)
    build.groups[-1] = msgspec.structs.replace(made, options=options)
    plan = build.plan(unneeded=HOUR)
    assert not plan.removals
    assert stays(plan)["g-1"] == "AtomicScaleDownFailed"


def test_contested_node_is_not_learnt_as_a_template() -> None:
    build = (
        filled(anchored(), "g", 1)
        .group("g", template=node("t", "2"))
        .node("thief", "64", provider_id=STOLEN)
    )
    _, memory = build.decide()
    assert "g" not in memory.templates


def test_instance_in_deletion_is_not_contested() -> None:
    build = claimed()
    made = build.groups[-1]
    going = msgspec.structs.replace(made.instances[0], state=InstanceState.DELETING)
    build.groups[-1] = msgspec.structs.replace(made, instances=(going, *made.instances[1:]))
    assert "NodeIdentityContested" not in stays(build.plan()).values()


@pytest.mark.parametrize(
    ("created", "registered", "goes"),
    [
        pytest.param(
            NOW - 9 * HOUR, NOW - HOUR, False, id="it ran, and a node appeared when it lost its own"
        ),
        pytest.param(NOW - 9 * HOUR, NOW - 8 * HOUR, True, id="the node is older"),
        pytest.param(NOW - HOUR - 60, NOW - HOUR, True, id="it never ran"),
        pytest.param(0.0, NOW - HOUR, True, id="the vendor does not say when it was made"),
    ],
)
def test_instance_whose_node_claims_a_foreign_id_is_kept(
    created: float, registered: float, *, goes: bool
) -> None:
    """The node has taken a foreign instance's id, so its own instance looks
    as if it had never joined."""
    build = with_machines(filled(anchored(), "g", 3), "g", 1, template=node("t"))
    made = build.groups[-1]
    build.groups[-1] = msgspec.structs.replace(
        made,
        instances=(
            *made.instances[:-1],
            msgspec.structs.replace(made.instances[-1], created=created),
        ),
    )
    build.node("stray", created=registered)
    plan = build.plan(seen(build, HOUR))
    assert bool(repaired(plan)) is goes
    if not goes:
        assert [note.code.value for note in plan.notes] == ["DiscardHeld"]
        assert "node stray" in sentence(plan.notes[0])


def test_node_without_a_provider_id_claims_no_instance() -> None:
    build = (
        filled(anchored(), "g", 2)
        .group("g")
        .node("one", provider_id="")
        .node("two", provider_id="")
    )
    made = build.groups[-1]
    build.groups[-1] = msgspec.structs.replace(
        made, instances=(*made.instances, Instance("", InstanceState.CREATING))
    )
    assert "NodeIdentityContested" not in stays(build.plan()).values()
