"""Groups whose vendor's template changes after their template was learnt from a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.reason import ReasonCode
from chalicelib.plan.state.vendor_templates import compare, statement
from tests.unit.plan.hour_of_joins import (
    HOUR,
    MINUTE,
    HourOfJoins,
    Json,
    node_model,
    node_object,
    taint,
)

ZONE, ARCH, TYPE = (
    "topology.kubernetes.io/zone",
    "kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
)
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
PLAIN: dict[str, str] = {ZONE: "a", OLD_ZONE: "a", ARCH: "amd64", TYPE: "m.large"}
LEARNT = {"rack": "r7"}  # on the nodes, and in no vendor's template


def of(labels: dict[str, str] | None = None, **more: Any) -> Json:
    """A vendor's template."""
    return node_object("t", labels={**PLAIN, **(labels or {})}, **more)


def select(**labels: str) -> dict[str, Any]:
    """A pod's selector."""
    return {"nodeSelector": {key.replace("_", "-"): value for key, value in labels.items()}}


SMALL: dict[str, Any] = {"cpu": "2"}
LARGE: dict[str, Any] = {"cpu": "16"}
BUYS = [
    pytest.param(of(taints=[taint("old")]), of(), {}, id="taint-taken-off"),
    pytest.param(of(), of({"pool": "x"}), select(pool="x"), id="label-added"),
    pytest.param(of({"pool": "w"}), of({"pool": "x"}), select(pool="x"), id="label-changed"),
    pytest.param(of(), of({TYPE: "m.huge"}, **LARGE), {"cpu": "12"}, id="larger-type"),
    pytest.param(of(), of(**LARGE), {"cpu": "12"}, id="larger-without-a-type"),
    pytest.param(of(), of({ZONE: "b"}), {"nodeSelector": {ZONE: "b"}}, id="other-zone"),
    pytest.param(
        of(), of({ZONE: "b"}), {"nodeSelector": {OLD_ZONE: "b"}}, id="other-zone-by-its-old-name"
    ),
    pytest.param(
        of(), of({ARCH: "arm64"}), {"nodeSelector": {ARCH: "arm64"}}, id="other-architecture"
    ),
]
BUYS_NOT = [
    pytest.param(of(), of(taints=[taint("new")]), {}, id="taint-put-on"),
    pytest.param(of({"pool": "x"}), of(), select(pool="x"), id="label-taken-off"),
    pytest.param(of(**LARGE), of({TYPE: "m.small"}, **SMALL), {"cpu": "12"}, id="smaller-type"),
    pytest.param(of(), of({ZONE: "b"}), {"nodeSelector": {ZONE: "a"}}, id="out-of-the-zone"),
    pytest.param(
        of(), of({ARCH: "arm64"}), {"nodeSelector": {ARCH: "amd64"}}, id="out-of-the-architecture"
    ),
]


def shaped(template: Json) -> Any:
    """Nodes as the template says, and with what nobody states."""

    def shape(name: str, age: float) -> Json:
        node: Json = msgspec.json.decode(msgspec.json.encode(template))
        labels = {**node["metadata"]["labels"], **LEARNT, "kubernetes.io/hostname": name}
        if ZONE in labels:
            labels[OLD_ZONE] = labels[ZONE]
        node["metadata"] = {"name": name, "labels": labels}
        return node

    return shape


def emptied(before: Json, *, old_row: bool = False) -> HourOfJoins:
    """A group that had a node and has none any more. old_row: as an earlier release remembers
    it."""
    story = HourOfJoins()
    story.group("g", shaped(before), size=1, template=before)
    story.play(2 * MINUTE)
    story.lose_machine("g", "g-1")
    story.play(MINUTE)
    if old_row:
        rows = story.memory.templates
        row = msgspec.structs.replace(rows["g"], stated=None, own_labels=None)
        story.memory = msgspec.structs.replace(story.memory, templates={"g": row})
    return story


def changed(story: HourOfJoins, now: Json) -> None:
    """Change the group at its vendor."""
    story.groups["g"].template = node_model(now)
    story.groups["g"].shape = shaped(now)


@pytest.mark.parametrize(("before", "now", "spec"), BUYS)
def test_empty_group_that_fits_since_a_change_gets_a_node(
    before: Json, now: Json, spec: dict[str, Any]
) -> None:
    story = emptied(before)
    story.deploy("web", 1, **dict(spec))
    story.play(5 * MINUTE)
    assert story.bought_nodes() == 0
    changed(story, now)
    story.play(HOUR)
    assert (story.bought_nodes(), story.pending()) == (1, [])


@pytest.mark.parametrize(("before", "now", "spec"), BUYS_NOT)
def test_empty_group_that_fits_no_more_since_a_change_gets_none(
    before: Json, now: Json, spec: dict[str, Any]
) -> None:
    story = emptied(before)
    changed(story, now)
    story.deploy("web", 1, **dict(spec))
    story.play(HOUR)
    assert story.bought_nodes() == 0


@pytest.mark.parametrize(("before", "now", "spec"), [*BUYS[1:], BUYS_NOT[0], *BUYS_NOT[2:]])
def test_vendor_wins_over_a_row_of_an_earlier_release_in_what_it_states(
    before: Json, now: Json, spec: dict[str, Any]
) -> None:
    story = emptied(before, old_row=True)
    changed(story, now)
    story.deploy("web", 1, **dict(spec))
    story.play(HOUR)
    fits = (before, now, spec) in [case.values for case in BUYS]
    assert story.bought_nodes() == (1 if fits else 0)


@pytest.mark.parametrize("states_taints", [True, False])
def test_old_taint_is_gone_where_the_vendor_names_all_taints(states_taints: bool) -> None:
    story = emptied(of(taints=[taint("old")]), old_row=True)
    changed(story, of())
    story.groups["g"].more["states_taints"] = states_taints
    story.deploy("web", 1)
    story.play(HOUR)
    assert story.bought_nodes() == (1 if states_taints else 0)


def test_taint_that_nobody_states_costs_few_nodes_where_the_vendor_names_all() -> None:
    tainted = of(taints=[taint("by-a-controller")])
    story = emptied(tainted, old_row=True)
    changed(story, of())
    story.groups["g"].shape = shaped(tainted)
    story.groups["g"].more["states_taints"] = True
    story.deploy("web", 1)
    story.play(3 * HOUR, every=60.0)
    assert story.bought_nodes() <= 2, "one, and one while the first is young"
    assert story.size("g") == 0


@pytest.mark.parametrize("old_row", [False, True])
def test_what_the_vendor_never_stated_stays_learnt(old_row: bool) -> None:
    story = emptied(of(), old_row=old_row)
    changed(story, of({"pool": "x"}))
    story.deploy("web", 1, **select(rack="r7", pool="x"))
    story.play(HOUR)
    assert (story.bought_nodes(), story.pending()) == (1, [])


@pytest.mark.parametrize("old_row", [False, True])
def test_real_capacity_that_differs_a_little_from_the_vendors_stays_learnt(old_row: bool) -> None:
    story = HourOfJoins()
    real = of(memory="15Gi")
    story.group("g", shaped(real), size=1, template=of(memory="16Gi"))
    story.play(2 * MINUTE)
    story.lose_machine("g", "g-1")
    if old_row:
        row = msgspec.structs.replace(story.memory.templates["g"], stated=None)
        story.memory = msgspec.structs.replace(story.memory, templates={"g": row})
    story.deploy("web", 1, memory="15800Mi")
    story.play(10 * MINUTE)
    assert story.bought_nodes() == 0


def test_settled_old_node_of_a_changed_group_is_named_in_a_note() -> None:
    story = HourOfJoins()
    story.group("g", shaped(of()), size=1, template=of())
    story.play(2 * MINUTE)
    assert not [note for note in story.plans[-1].notes if note.code is ReasonCode.TEMPLATE_OUTDATED]
    story.groups["g"].template = node_model(of({"pool": "x"}, taints=[taint("new")]))
    story.play(2 * MINUTE)
    notes = [note for note in story.plans[-1].notes if note.code is ReasonCode.TEMPLATE_OUTDATED]
    assert [note.params for note in notes] == [
        {"group": "g", "differences": "label pool, taint new"}
    ]


def test_change_that_came_while_an_old_node_was_there_counts_once_it_has_gone() -> None:
    story = HourOfJoins()
    story.group("g", shaped(of()), size=1, template=of())
    story.play(2 * MINUTE)
    story.groups["g"].template = node_model(of({"pool": "x"}))
    story.play(5 * MINUTE)
    story.lose_machine("g", "g-1")
    story.groups["g"].shape = shaped(of({"pool": "x"}))
    story.deploy("web", 1, **select(pool="x"))
    story.play(HOUR)
    assert (story.bought_nodes(), story.pending()) == (1, [])


def test_promise_that_a_new_node_does_not_keep_is_not_believed_again() -> None:
    story = emptied(of())
    story.groups["g"].template = node_model(of({"pool": "x"}))  # its nodes join without the label
    story.deploy("web", 1, **select(pool="x"))
    story.play(3 * HOUR)
    assert story.bought_nodes() <= 2, "one, and one while the first is young"


def test_quiet_passes_do_not_write_templates_again() -> None:
    story = HourOfJoins()
    story.group("g", shaped(of()), size=1, min=1, template=of())
    story.group("without", shaped(of()), size=1, min=1)
    story.play(2 * MINUTE)
    before = story.memory.templates
    story.play(10 * MINUTE)
    story.groups["g"].template = node_model(of({"pool": "x"}))
    assert all(story.memory.templates[name] is row for name, row in before.items())
    story.run_pass()
    after = story.memory.templates["g"]
    assert after.differs_since == story.now, "an old node and a new template"
    story.play(10 * MINUTE)
    assert story.memory.templates["g"] is after


def test_template_of_the_new_machine_is_learnt_from_its_first_node() -> None:
    story = emptied(of())
    changed(story, of({TYPE: "m.huge"}, cpu="16", memory="64Gi"))
    story.groups["g"].shape = shaped(of({TYPE: "m.huge"}, cpu="16", memory="62Gi"))
    story.deploy("web", 1, cpu="12")
    story.play(10 * MINUTE)
    row = story.memory.templates["g"]
    assert (row.node.labels[TYPE], row.differs_since) == ("m.huge", 0.0)
    story.delete_pods(*story.pods)
    story.play(HOUR)
    assert story.size("g") == 0
    story.deploy("more", 1, cpu="12", memory="63Gi")
    story.play(10 * MINUTE)
    assert story.bought_nodes() == 1, "its real capacity is known"


def test_templates_that_state_only_what_is_allocatable_are_compared_by_it() -> None:
    small, large = (
        msgspec.structs.replace(node_model(of(**size)), capacity={}) for size in (SMALL, LARGE)
    )
    assert compare(statement(small), statement(large)).machine == "cpu"


def test_template_states_its_capacity_where_both_are_known() -> None:
    template = msgspec.structs.replace(node_model(of(**LARGE)), allocatable={"cpu": 1})
    assert statement(template).capacity == template.capacity
