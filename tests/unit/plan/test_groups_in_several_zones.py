"""Groups whose new nodes may be in one of several zones, pass by pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.reasons.text import text
from tests.builders import ZONE
from tests.unit.plan.hour_of_joins import HOUR, MINUTE, HourOfJoins, Json, Shape, node_object

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


def in_zones(*zones: str) -> Shape:
    """Return nodes that come in these zones in turn, by their number."""

    def shape(name: str, age: float) -> Json:
        number = int(name.rpartition("-")[2])
        return node_object(name, labels={ZONE: zones[(number - 1) % len(zones)]})

    return shape


def first_then(first: Sequence[str], *then: str) -> Shape:
    """Return nodes that come in these zones first, and then in the others in turn."""

    def shape(name: str, age: float) -> Json:
        number = int(name.rpartition("-")[2]) - 1
        zone = first[number] if number < len(first) else then[(number - len(first)) % len(then)]
        return node_object(name, labels={ZONE: zone})

    return shape


def hour(shape: Shape, *, size: int = 2, **more: Any) -> HourOfJoins:
    """Return a cluster with one group in several zones; its nodes are full."""
    story = HourOfJoins()
    story.group("g", shape, size=size, **more)
    for number in range(size):
        story.deploy("old", 1, "4", "1Gi", on=f"g-{number + 1}")
    return story


def in_zone(zone: str) -> dict[str, Any]:
    return {"nodeSelector": {ZONE: zone}}


def spread(app: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    term = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    return {"topologySpreadConstraints": [term]}


def apart(app: str) -> dict[str, Any]:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


def promised(plan: Plan) -> set[bool]:
    return {placement.promised for placement in plan.promises}


def first_purchase(story: HourOfJoins) -> Plan:
    """Return the first plan that buys, from now on."""
    for _ in range(10):
        plan = story.run_pass()
        story.now += 20.0
        if plan.scale_ups:
            return plan
    raise AssertionError("nothing is bought")


def test_pods_that_may_be_anywhere_are_planned_as_before() -> None:
    story = hour(in_zones("a", "b"))
    story.deploy("web", 5, "4")

    plan = first_purchase(story)

    assert story.bought_nodes() == 5
    assert promised(plan) == {True}


def test_pods_that_may_be_in_all_zones_of_the_group_are_promised_a_node() -> None:
    story = hour(in_zones("a", "b"))
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}]
    story.deploy(
        "web",
        4,
        "4",
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        },
    )

    assert promised(first_purchase(story)) == {True}
    assert story.bought_nodes() == 4


def test_pods_of_one_zone_get_one_attempt_that_is_not_promised() -> None:
    story = hour(in_zones("a", "b"))
    story.deploy("web", 3, "4", **in_zone("b"))

    plan = first_purchase(story)

    assert story.bought_nodes() == 1
    assert promised(plan) == {False}


@pytest.mark.parametrize(
    "spec", [in_zone("b"), {"nodeSelector": {BETA_ZONE: "b"}}], ids=["zone", "beta"]
)
def test_vendor_that_always_picks_another_zone_is_asked_three_times_an_hour(
    spec: dict[str, Any],
) -> None:
    story = hour(first_then(["a", "b"], "a"))
    if BETA_ZONE in spec["nodeSelector"]:
        story.groups["g"].shape = _with_beta(story.groups["g"].shape)
    story.deploy("web", 1, "4", **spec)

    story.play(HOUR)

    assert 1 <= story.bought_nodes() <= 3
    assert story.size("g") <= 3
    assert story.pending()


def _with_beta(shape: Shape) -> Shape:
    def both(name: str, age: float) -> Json:
        node = shape(name, age)
        node["metadata"]["labels"][BETA_ZONE] = node["metadata"]["labels"][ZONE]
        return node

    return both


def test_waits_grow_while_the_zone_never_comes() -> None:
    story = hour(first_then(["a", "b"], "a"))
    story.deploy("web", 1, "4", **in_zone("b"))

    story.play(12 * HOUR, every=60.0)

    assert story.bought_nodes() <= 10
    assert story.size("g") <= 3


@pytest.mark.parametrize("zones", [("a", "b"), ("b", "a"), ("b",), ("a", "a", "b")], ids=str)
def test_pods_of_one_zone_are_served_whatever_the_vendor_alternates(zones: tuple[str, ...]) -> None:
    story = hour(first_then(["a", "b"], *zones))
    story.deploy("web", 3, "4", **in_zone("b"))

    story.play(HOUR)

    served = 3 - len(story.pending())
    assert served
    assert story.bought_nodes() <= served + 3
    assert story.size("g") <= 2 + served + 1
    story.play(3 * HOUR, every=60.0)
    assert not story.pending()


def test_successful_attempts_follow_one_another_at_once() -> None:
    story = hour(first_then(["a", "b"], "b"))
    story.deploy("web", 10, "4", **in_zone("b"))

    story.play(20 * MINUTE)

    assert not story.pending()
    assert story.bought_nodes() == 10


def test_attempts_grow_by_one_node_with_each_that_comes_in_the_zone() -> None:
    story = hour(first_then(["a", "b"], "b"))
    story.deploy("web", 10, "4", **in_zone("b"))

    story.play(20 * MINUTE)

    assert [nodes for _, _, nodes in story.bought][:3] == [1, 2, 3]


def test_pods_of_both_zones_are_served() -> None:
    story = hour(in_zones("a", "b"))
    story.deploy("one", 3, "4", **in_zone("a"))
    story.deploy("two", 3, "4", **in_zone("b"))

    story.play(HOUR)

    assert not story.pending()
    assert story.bought_nodes() <= 6 + 3
    assert story.size("g") <= 2 + 6 + 1


@pytest.mark.parametrize("rule", [spread, apart], ids=["spread", "anti-affinity"])
def test_pods_spread_over_zones_get_all_nodes_at_once_without_a_promise(
    rule: Callable[[str], dict[str, Any]],
) -> None:
    story = hour(in_zones("a", "b"))
    story.deploy("web", 2, "4", **rule("web"))

    plan = first_purchase(story)

    assert story.bought_nodes() == 2
    assert promised(plan) == {False}


@pytest.mark.parametrize("zones", [("a", "b"), ("a",), ("b", "b", "a")], ids=str)
def test_spread_pods_do_not_buy_without_end(zones: tuple[str, ...]) -> None:
    story = hour(first_then(["a", "b"], *zones))
    story.deploy("web", 4, "4", **spread("web"))

    story.play(HOUR)

    assert story.bought_nodes() <= 4 + 3
    assert story.size("g") <= 2 + 4 + 1
    if zones == ("a", "b"):
        assert not story.pending()
        assert story.bought_nodes() == 4


def test_empty_group_of_which_only_the_vendor_knows_the_zones() -> None:
    template = node_object("template")
    story = hour(in_zones("a", "b"), size=0, template=template, zones=("a", "b"))
    story.deploy("web", 2, "4", **in_zone("b"))

    story.play(HOUR)

    assert not story.pending()
    assert story.bought_nodes() <= 2 + 3
    assert story.size("g") <= 2 + 1


def test_pods_of_a_zone_are_served_by_a_group_whose_old_nodes_have_no_zone() -> None:
    def shape(name: str, age: float) -> Json:
        is_old = int(name.rpartition("-")[2]) <= 2
        return node_object(name, labels={} if is_old else {ZONE: "b"})

    story = hour(shape, zones=("a", "b"))
    story.deploy("web", 1, "4", **in_zone("b"))

    story.play(10 * MINUTE)

    assert not story.pending()
    assert story.bought_nodes() == 1


def test_zones_are_remembered_while_the_group_is_empty() -> None:
    story = HourOfJoins()
    story.group("g", in_zones("a", "b"), size=2)
    names = [*story.deploy("old", 1, "4", on="g-1"), *story.deploy("old", 1, "4", on="g-2")]
    story.play(5 * MINUTE)
    story.delete_pods(*names)
    story.play(30 * MINUTE)
    assert story.size("g") == 0

    story.deploy("web", 2, "4", **in_zone("b"))
    plan = first_purchase(story)

    assert story.bought_nodes() == 1
    assert promised(plan) == {False}
    story.play(HOUR)
    assert not story.pending()
    assert story.bought_nodes() <= 2 + 3


def _forget(memory: Memory) -> Memory:
    groups = {
        name: msgspec.structs.replace(group, attempts=None) for name, group in memory.groups.items()
    }
    return msgspec.structs.replace(memory, groups=groups)


@pytest.mark.parametrize("every", [1, 10, 30], ids=str)
def test_lost_memory_of_attempts_does_not_buy_without_end(every: int) -> None:
    story = hour(first_then(["a", "b"], "a"))
    story.deploy("web", 1, "4", **in_zone("b"))

    for number in range(180):
        story.run_pass()
        story.now += 20.0
        if number % every == 0:
            story.memory = _forget(story.memory)

    assert story.bought_nodes() <= 1 + 4
    assert story.size("g") <= 3


def test_coming_node_of_an_attempt_takes_other_pods_too() -> None:
    story = hour(in_zones("a", "b"))
    story.deploy("web", 1, "2", **in_zone("b"))
    first_purchase(story)
    story.deploy("more", 1, "2")

    story.play(MINUTE)

    assert story.bought_nodes() == 1


CSI_ZONE = "topology.diskplugin.csi.alibabacloud.com/zone"


def _with_csi(shape: Shape) -> Shape:
    def both(name: str, age: float) -> Json:
        node = shape(name, age)
        node["metadata"]["labels"][CSI_ZONE] = node["metadata"]["labels"][ZONE]
        return node

    return both


def _bound_disk(zone: str) -> list[Json]:
    terms = [{"matchExpressions": [{"key": CSI_ZONE, "operator": "In", "values": [zone]}]}]
    volume = {
        "kind": "PersistentVolume",
        "apiVersion": "v1",
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disk",
            "claimRef": {"namespace": "default", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": "d-1"},
        },
        "status": {"phase": "Bound"},
    }
    claim = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": {
            "name": "data",
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disk",
            "volumeName": "pv",
            "resources": {"requests": {"storage": "10Gi"}},
        },
        "status": {"phase": "Bound"},
    }
    return [volume, claim]


@pytest.mark.parametrize("size", [2, 0], ids=["with nodes", "empty"])
def test_volume_that_names_the_zone_by_the_key_of_its_driver_gets_attempts(size: int) -> None:
    template = None if size else node_object("template")
    story = hour(
        _with_csi(first_then(["a", "b"], "a", "b")), size=size, template=template, zones=("a", "b")
    )
    story.objects += _bound_disk("b")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    story.deploy("db", 1, "4", volumes=[volume])

    assert promised(first_purchase(story)) == {False}
    story.play(HOUR)

    assert not story.pending()
    assert story.bought_nodes() <= 1 + 3


def test_balanced_groups_in_several_zones_grow_evenly() -> None:
    story = HourOfJoins(balance_similar_node_groups=True)
    for name in ("g", "h"):
        story.group(name, in_zones("a", "b"), size=2)
        story.deploy("old", 1, "4", "1Gi", on=f"{name}-1")
        story.deploy("old", 1, "4", "1Gi", on=f"{name}-2")
    story.deploy("web", 6, "4")

    story.play(10 * MINUTE)

    assert (story.bought_nodes("g"), story.bought_nodes("h")) == (3, 3)


def test_maximum_holds_for_all_zones_together() -> None:
    story = hour(in_zones("a", "b"), max=4)
    story.deploy("any", 3, "4")
    story.deploy("web", 6, "4", **spread("web"))
    story.deploy("one", 2, "4", **in_zone("a"))

    story.play(HOUR)

    assert story.bought_nodes() == 2
    assert story.size("g") == 4


def test_reasons_and_note_name_the_group_and_its_zones() -> None:
    story = hour(first_then(["a", "b"], "a"))
    story.deploy("web", 1, "4", **in_zone("b"))
    story.play(15 * MINUTE)

    plan = story.plans[-1]

    (verdict,) = plan.unschedulable
    texts = [text(reason) for reason in verdict.reasons["g"]]
    assert texts == ["a new node of group g may come in another zone"]
    notes = [note for note in plan.notes if note.code is ReasonCode.GROUP_IN_ZONES]
    assert [note.params for note in notes] == [{"group": "g", "zones": "a, b"}]


def test_sick_zone_gets_no_attempt() -> None:
    story = hour(in_zones("a", "b"))
    for number in range(8):
        story.group(f"other-{number}", _unready("b"), size=1, max=1)
    story.deploy("web", 1, "4", **in_zone("b"))

    story.play(3 * MINUTE)

    assert story.bought_nodes("g") == 0


def _unready(zone: str) -> Shape:
    def shape(name: str, age: float) -> Json:
        node = node_object(name, labels={ZONE: zone})
        node["status"]["conditions"] = [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2027-01-15T06:00:00Z"}
        ]
        return node

    return shape
