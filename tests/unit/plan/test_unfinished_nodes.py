"""Young nodes that are ready and lack what a new node of their group has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.memory import GroupMemory, LearntTemplate, Memory, Undelivered
from chalicelib.model.node import Taint
from chalicelib.model.plan import Plan, PodPlacement
from chalicelib.model.pod import Toleration
from chalicelib.model.reason import ReasonCode
from chalicelib.model.selector import NodeTerm, Requirement
from chalicelib.plan.state.cluster_state import ClusterState, build_cluster_state
from chalicelib.plan.state.unfinished_nodes import Unfinished
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from tests.builders import NOW, ClusterBuilder, amounts, cluster, even, growth, having, node

FUSE: dict[str, Any] = {"extra": {"smarter-devices/fuse": 4}}
YOUNG: dict[str, Any] = {"created": NOW - 120, "ready_since": NOW - 100}
AGENT = Taint("node.cilium.io/agent-not-ready", "NoExecute")
STATUS = Taint("status-taint.cluster-autoscaler.kubernetes.io/dns", "NoSchedule")
UNINITIALIZED = Taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", "true")


def state_of(build: ClusterBuilder, memory: Memory | None = None, **options: Any) -> ClusterState:
    policy = Policy(
        name="test", mode=Mode.ACTIVE, options=msgspec.structs.replace(Options(), **options)
    )
    return build_cluster_state(build.snapshot(), policy, memory or Memory(), NOW)


def pair(
    old: Mapping[str, Any], young: Mapping[str, Any], newcomers: int = 1, **group: Any
) -> ClusterBuilder:
    """A full old node and empty young ones of a group."""
    build = cluster().node("a-old", "4", group="g", **old)
    for name in ("b-young", "c-young")[:newcomers]:
        build.node(name, **{"cpu": "4", "group": "g", **YOUNG, **young})
    return build.running("a-old", 1, "4").group("g", **group)


def promise_of(plan: Plan, pod: str) -> PodPlacement:
    return next(
        promise
        for promise in plan.promises
        if any(name.startswith(f"default/{pod}") for name in promise.pods)
    )


# -- what is unfinished


@pytest.mark.parametrize(
    ("old", "young", "lacks"),
    [
        ({"labels": {"a": "1"}}, {}, Unfinished(labels=("a",))),
        ({"labels": {"a": "1"}}, {"labels": {"a": "2"}}, None),
        (FUSE, {}, Unfinished(resources=("smarter-devices/fuse",))),
        (FUSE, {"extra": {"smarter-devices/fuse": 0}},
         Unfinished(resources=("smarter-devices/fuse",))),
        (FUSE, {"extra": {"smarter-devices/fuse": 1}}, None),
        ({"extra": amounts(ephemeral_storage="1Gi")}, {},
         Unfinished(resources=("ephemeral-storage",))),
        ({"extra": amounts(ephemeral_storage="2Gi")}, {"extra": amounts(ephemeral_storage="1Gi")},
         None),
        ({}, {"cpu": "2", "memory": "0"}, None),
        ({}, {"taints": [UNINITIALIZED]}, Unfinished(taints=(UNINITIALIZED,))),
        ({}, {"taints": [AGENT]}, Unfinished(taints=(AGENT,))),
        ({}, {"taints": [STATUS]}, Unfinished(taints=(STATUS,))),
        ({}, {"taints": [Taint("spread-me", "PreferNoSchedule")]}, None),
        ({}, {"taints": [Taint("ToBeDeletedByClusterAutoscaler", "NoSchedule")]}, None),
        ({}, {"taints": [Taint("aws-node-termination-handler/spot-itn", "NoSchedule")]}, None),
        ({"taints": [Taint("own", "NoSchedule", "a")]},
         {"taints": [Taint("own", "NoSchedule", "b")]}, None),
        ({"labels": {"a": "1"}}, {"created": NOW - 901}, None),
        ({"labels": {"a": "1"}}, {"ready": False}, None),
    ],
)  # fmt: skip
def test_young_node_is_compared_with_an_older_one(
    old: Mapping[str, Any], young: Mapping[str, Any], lacks: Unfinished | None
) -> None:
    assert state_of(pair(old, young)).unfinished == ({"b-young": lacks} if lacks else {})


def test_group_with_its_own_startup_time_counts_by_that() -> None:
    own = GroupOptions(max_node_startup_time=1000.0)
    build = pair({"labels": {"a": "1"}}, {"created": NOW - 901}, options=own)
    assert set(state_of(build).unfinished) == {"b-young"}


def test_labels_that_new_nodes_may_lack_are_no_difference() -> None:
    build = pair({"labels": {"a": "1"}}, {}, options=GroupOptions(unpromised_labels=("a",)))
    assert state_of(build).unfinished == {}


@pytest.mark.parametrize("source", ["learnt", "vendor"])
def test_first_node_of_a_group_is_compared_with_what_is_known_of_it(source: str) -> None:
    known = node("t", "4", labels={"a": "1"}, **FUSE)
    memory = Memory(templates={"g": LearntTemplate(known, NOW - 600)} if source == "learnt" else {})
    build = (
        cluster()
        .node("n", "4", group="g", **YOUNG)
        .group("g", template=known if source == "vendor" else None)
    )

    assert state_of(build, memory).unfinished == {
        "n": Unfinished(("a",), ("smarter-devices/fuse",))
    }


def test_young_node_of_which_nothing_else_is_known_is_finished_but_for_known_taints() -> None:
    taints = [UNINITIALIZED, Taint("dedicated", "NoSchedule")]
    build = cluster().node("n", "4", group="g", taints=taints, **YOUNG).group("g")
    assert state_of(build).unfinished == {"n": Unfinished(taints=(UNINITIALIZED,))}


def test_nodes_that_were_bought_together_are_compared_with_the_one_that_has_most() -> None:
    build = (
        cluster()
        .node("a", "4", group="g", **YOUNG)
        .node("b", "4", group="g", **YOUNG, **FUSE)
        .group("g")
    )
    build.pending(2, "3", extra={"smarter-devices/fuse": 1})

    assert state_of(build).unfinished == {"a": Unfinished(resources=("smarter-devices/fuse",))}
    assert growth(build.plan()) == {}


def test_taint_that_the_vendor_states_does_not_go() -> None:
    kept = Taint("dedicated", "NoSchedule")
    build = pair({}, {"taints": [kept]}, template=node("t", "4", taints=[kept]))
    assert state_of(build).unfinished == {}


# -- pods


def test_pod_that_needs_the_difference_waits_for_it_and_is_promised_nothing() -> None:
    build = (
        pair(FUSE, {})
        .pending(1, "2", name="picky", extra={"smarter-devices/fuse": 1})
        .pending(1, "2", name="any")
    )

    plan = build.plan()

    assert growth(plan) == {}
    assert promise_of(plan, "any").promised
    picky = promise_of(plan, "picky")
    assert (picky.node, picky.promised) == ("b-young", False)
    assert picky.lacks == ("resource smarter-devices/fuse",)


def test_room_of_an_unfinished_node_exists_once() -> None:
    build = (
        pair(FUSE, {})
        .pending(1, "3", name="picky", extra={"smarter-devices/fuse": 1})
        .pending(1, "3", name="any")
    )
    assert growth(build.plan()) == {"g": (1, 1)}


def test_pod_of_which_a_running_pod_took_the_room_is_bought_for() -> None:
    build = (
        pair(FUSE, {}).running("b-young", 1, "3").pending(1, "2", extra={"smarter-devices/fuse": 1})
    )
    assert growth(build.plan()) == {"g": (1, 1)}


def test_more_of_a_late_resource_than_a_node_has_is_bought_for() -> None:
    build = pair(FUSE, {}).pending(3, "1", extra={"smarter-devices/fuse": 2})
    assert growth(build.plan()) == {"g": (1, 1)}


def test_pods_wait_for_a_taint_to_go_and_those_that_tolerate_it_do_not() -> None:
    build = pair({}, {"taints": [UNINITIALIZED]}).pending(1, "1", name="web")
    build.pending(1, "1", name="tolerant", tolerations=(Toleration(operator="Exists"),))

    plan = build.plan()

    assert growth(plan) == {}
    assert promise_of(plan, "tolerant").promised
    assert promise_of(plan, "web").lacks == (f"removal of taint {UNINITIALIZED.key}",)


def test_pod_that_shuns_a_late_label_has_a_certain_place() -> None:
    shuns = (NodeTerm((Requirement("a", "DoesNotExist"),)),)
    plan = pair({"labels": {"a": "1"}}, {}).pending(1, "1", required_affinity=shuns).plan()
    assert (growth(plan), plan.promises[0].promised) == ({}, True)


def test_pod_spread_over_a_late_label_waits_for_it() -> None:
    app = {"app": "web"}
    spread = (even("rack", having(app="web")),)
    build = pair({"labels": {"rack": "r1"}}, {}).pending(1, "1", labels=app, spread=spread)

    plan = build.plan()

    assert growth(plan) == {}
    assert plan.promises[0].lacks == ("label rack",)


def test_certain_places_come_before_those_on_unfinished_nodes() -> None:
    build = (
        cluster()
        .node("a-young", "4", group="g", **YOUNG)
        .node("b-old", "4", group="g", **FUSE)
        .group("g")
    )
    plan = build.pending(1, "2", extra={"smarter-devices/fuse": 1}).plan()
    assert [(promise.node, promise.promised) for promise in plan.promises] == [("b-old", True)]


def test_node_that_is_not_ready_counts_as_a_whole_template_as_before() -> None:
    build = pair(FUSE, {"ready": False}).pending(1, "2", extra={"smarter-devices/fuse": 1})

    plan = build.plan()

    assert growth(plan) == {}
    assert (plan.promises[0].node, plan.promises[0].promised) == ("upcoming-0-for-g", True)


# -- removals


def test_pods_that_need_the_difference_are_not_moved_to_an_unfinished_node() -> None:
    def build(**asks: Any) -> ClusterBuilder:
        made = cluster().node("a-full", "4", group="g", **FUSE).running("a-full", 1, "4")
        made.node("b-old", "4", group="g", **FUSE).running("b-old", 1, "1", **asks)
        return made.node("c-young", "4", group="g", **YOUNG).running("c-young", 1, "2").group("g")

    assert "b-old" in build().plan(unneeded=3600).unneeded
    assert "b-old" not in build(extra={"smarter-devices/fuse": 1}).plan(unneeded=3600).unneeded


def test_node_for_which_pods_wait_is_not_removed() -> None:
    build = pair(FUSE, {}).pending(1, "2", extra={"smarter-devices/fuse": 1})
    verdicts = {
        verdict.node: verdict.reason.code for verdict in build.plan(unneeded=3600).unremovable
    }
    assert verdicts["b-young"] is ReasonCode.PROMISED


# -- templates


def test_unfinished_node_is_not_copied_and_teaches_nothing() -> None:
    known = node("t", "4", labels={"a": "1"}, **FUSE)
    build = (
        cluster().node("n", "8", group="g", **YOUNG).running("n", 1, "8").group("g", template=known)
    )
    build.pending(1, "1", node_selector={"a": "1"}, extra={"smarter-devices/fuse": 1})

    plan, memory = build.decide()

    assert growth(plan) == {"g": (1, 1)}, "the template still has both"
    assert memory.templates == {}


def test_template_of_an_unfinished_group_has_the_amounts_of_its_nodes() -> None:
    promised = node("t", "8", labels={"a": "1"})
    build = (
        cluster()
        .node("n", "4", group="g", **YOUNG)
        .running("n", 1, "4")
        .group("g", template=promised)
    )
    build.pending(1, "6", node_selector={"a": "1"})
    assert growth(build.plan()) == {}, "the vendor promised 8 cores, and nodes have 4"


def test_vendor_label_is_struck_off_by_a_node_that_is_not_young_any_more() -> None:
    def grown(created: float) -> dict[str, tuple[int, int]]:
        build = cluster().node(
            "n", "4", group="g", created=created, ready=True, ready_since=NOW - 30
        )
        build.running("n", 1, "4").group("g", template=node("t", "4", labels={"a": "1"}))
        return growth(build.pending(1, "1", node_selector={"a": "1"}).plan())

    assert (grown(NOW - 120), grown(NOW - 7200)) == ({"g": (1, 1)}, {})


def test_old_label_names_are_struck_off_by_a_young_node_with_the_new_ones() -> None:
    types = {"node.kubernetes.io/instance-type": "m"}
    build = (
        cluster()
        .node("n", "4", group="g", labels=types, **YOUNG)
        .group("g", template=node("t", "4", labels=types))
    )
    assert state_of(build).unfinished == {}


# -- what never comes


def grown_up(age: float = 1000.0, newcomers: int = 1) -> ClusterBuilder:
    """An old node with a resource, and some without that were young until a
    moment ago; a pod asks for it."""
    build = pair(FUSE, {"created": NOW - age, "ready_since": NOW - age + 10}, newcomers)
    return build.pending(1, "2", extra={"smarter-devices/fuse": 1})


def undelivered(memory: Memory) -> dict[str, Undelivered]:
    return memory.groups["g"].undelivered


def test_node_that_never_got_its_parts_stops_purchases_for_them() -> None:
    plan, memory = grown_up(newcomers=2).decide()

    assert growth(plan) == {}
    rest = Undelivered(until=NOW + 3600, times=1, created=NOW - 1000)
    assert undelivered(memory) == {"resource smarter-devices/fuse": rest}
    note = next(note for note in plan.notes if note.code is ReasonCode.NEW_NODES_LACK)
    assert note.params == {
        "group": "g",
        "what": "resource smarter-devices/fuse",
        "until": NOW + 3600,
    }


def test_single_node_without_its_parts_may_be_broken_and_is_followed_by_one_more() -> None:
    plan, memory = grown_up().decide()
    assert growth(plan) == {"g": (1, 1)}
    first = undelivered(memory)["resource smarter-devices/fuse"]
    assert (first.times, first.until) == (0, NOW)
    assert not [note for note in plan.notes if note.code is ReasonCode.NEW_NODES_LACK]

    later = NOW + 1000.0
    build = grown_up()
    build.nodes.append(node("c-young", "4", group="g", created=NOW + 60.0, ready_since=NOW + 90.0))
    build.groups.clear()
    plan, memory = build.group("g").decide(memory, now=later)

    assert growth(plan) == {}
    assert undelivered(memory)["resource smarter-devices/fuse"].until == later + 3600.0


def test_part_that_no_pod_asks_for_is_not_remembered() -> None:
    _, memory = pair({"labels": {"a": "1"}}, {"created": NOW - 1000}).decide()
    assert undelivered(memory) == {}


def test_rest_doubles_when_the_next_node_lacks_the_part_too() -> None:
    known = Undelivered(until=NOW - 60, times=2, created=NOW - 5000)
    memory = Memory(groups={"g": GroupMemory(undelivered={"resource smarter-devices/fuse": known})})

    after = undelivered(grown_up().decide(memory)[1])["resource smarter-devices/fuse"]

    assert (after.times, after.until) == (3, NOW + 4 * 3600)


@pytest.mark.parametrize(
    ("known", "grows"),
    [
        pytest.param(Undelivered(until=NOW + 60, times=1, created=NOW - 1000), False, id="rests"),
        pytest.param(Undelivered(until=NOW - 1, times=1, created=NOW - 1000), True, id="over"),
        pytest.param(
            Undelivered(until=NOW + 60, times=1, created=NOW - 9000), True, id="came-since"
        ),
        pytest.param(
            Undelivered(until=NOW + 1e9, times=1, created=NOW - 1000), True, id="wrong-clock"
        ),
    ],
)
def test_part_is_expected_again_after_its_rest_or_when_a_node_has_it(
    known: Undelivered, *, grows: bool
) -> None:
    memory = Memory(groups={"g": GroupMemory(undelivered={"resource smarter-devices/fuse": known})})
    build = cluster().node("n", "4", group="g", **FUSE).running("n", 1, "4").group("g")
    build.pending(1, "1", extra={"smarter-devices/fuse": 1})

    assert bool(growth(build.plan(memory))) is grows


def test_taint_that_never_went_is_expected_of_new_nodes() -> None:
    build = pair({}, {"created": NOW - 1000, "taints": [UNINITIALIZED]}, 2).pending(1, "2")

    plan, memory = build.decide()

    assert growth(plan) == {}
    assert undelivered(memory)[f"taint {UNINITIALIZED.key}"].taint == UNINITIALIZED


def test_what_is_remembered_and_named_has_limits() -> None:
    labels = {f"l{number:02}": "1" for number in range(30)}
    build = pair({"labels": labels}, {"created": NOW - 1000}, 2).pending(
        1, "1", node_selector=labels
    )

    plan, memory = build.decide()

    assert len(undelivered(memory)) == 20
    what = str(
        next(note for note in plan.notes if note.code is ReasonCode.NEW_NODES_LACK).params["what"]
    )
    assert what == "label l00, label l01, label l02, label l03, label l04, 15 more"
