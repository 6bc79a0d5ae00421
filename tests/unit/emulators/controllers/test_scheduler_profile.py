"""What the scheduler's default profile makes of objects: which nodes and pods each score counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from infra.emulators.controllers import objects
from infra.emulators.controllers.manager import Pace
from infra.emulators.controllers.scheduler.cluster_view import ClusterView, Surroundings
from infra.emulators.controllers.scheduler.pod_and_node_info import read_pod
from infra.emulators.controllers.scheduler.scheduler import schedule_once
from infra.emulators.controllers.scheduler.scoring import DefaultProfile, plugin_scores
from tests.unit.emulators.controllers.cluster import EmulatedCluster
from tests.unit.emulators.controllers.objects import HOST, ZONE, container, expression, pod, term
from tests.unit.emulators.controllers.objects import node as small_node

Json = dict[str, Any]
SOFT = {"key": "leaving", "effect": "PreferNoSchedule"}
MIB = 2**20
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node(name: str, zone: str = "", **more: Any) -> Json:
    return small_node(name, zone, labels={HOST: name, **more.pop("labels", {})}, **more)


def scores(
    plugin: str,
    incoming: Json,
    nodes: Sequence[Json],
    existing: Sequence[Json] = (),
    around: Surroundings | None = None,
) -> list[int] | None:
    """The scores of one plugin for all nodes, None if it does not score the pod."""
    world = ClusterView.of(nodes, existing, around)
    scored = plugin_scores(read_pod(incoming), list(world.nodes.values()), world)
    return scored[plugin].tolist() if plugin in scored else None


def owned(raw: Json, name: str, kind: str = "ReplicaSet", controller: bool = True) -> Json:
    owner = {"kind": kind, "name": name, "controller": controller}
    return {**raw, "metadata": {**raw["metadata"], "ownerReferences": [owner]}}


def wish(weight: int, about: Json) -> Json:
    return {"weight": weight, "podAffinityTerm": about}


# -- taints


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({}, [300, 0]),
        ({"key": "leaving", "operator": "Exists"}, [300, 300]),
        ({"key": "leaving", "operator": "Exists", "effect": "NoSchedule"}, [300, 0]),
        ({"key": "other", "operator": "Exists"}, [300, 0]),
        ({"operator": "Exists", "effect": "PreferNoSchedule"}, [300, 300]),
    ],
)
def test_soft_taint_costs_300_points_unless_tolerated(
    toleration: Json, expected: list[int]
) -> None:
    hard = {"key": "hard", "effect": "NoSchedule"}
    nodes = [node("a", taints=[hard]), node("b", taints=[SOFT])]
    incoming = pod(tolerations=[toleration] if toleration else [])
    assert scores("TaintToleration", incoming, nodes) == expected


# -- nodes


def test_preferred_terms_of_nodes_add_up() -> None:
    wishes = [
        {"weight": 30, "preference": {"matchExpressions": [expression("disk", "In", "fast")]}},
        {"weight": 10, "preference": {"matchFields": [expression("metadata.name", "In", "b")]}},
        {"weight": 90, "preference": {}},  # an empty one matches no node
    ]
    incoming = pod(affinity={"nodeAffinity": {PREFERRED: wishes}})
    nodes = [node("a", labels={"disk": "fast"}), node("b", labels={"disk": "fast"}), node("c")]
    assert scores("NodeAffinity", incoming, nodes) == [150, 200, 0]
    assert scores("NodeAffinity", pod(), nodes) is None


def test_image_scores_by_size_and_share_of_nodes() -> None:
    nodes = [node("a"), node("b")]
    nodes[0]["status"]["images"] = [
        {"names": ["reg:5/web@sha256:1", "reg:5/web:latest"], "sizeBytes": 1000 * MIB}
    ]
    incoming = pod(containers=[container(image="reg:5/web")])
    # 1000 MiB on one of two nodes: 500 MiB, of 23 to 1000
    assert scores("ImageLocality", incoming, nodes) == [48, 0]
    two = pod(containers=[container(image="reg:5/web")], initContainers=[container(image="x:5")])
    assert scores("ImageLocality", two, nodes) == [24, 0]


# -- resources


def test_container_without_a_request_counts_for_fit_but_not_for_balance() -> None:
    nodes = [small_node("a", cpu="1"), small_node("b", cpu="1")]
    for raw in nodes:
        raw["status"]["allocatable"] = {"cpu": "1", "memory": str(2000 * MIB), "pods": "110"}
    lazy = pod("lazy", on="a", containers=[container(), container()])  # 200m and 400 MiB
    # (70 + 70) // 2 and (90 + 90) // 2
    assert scores("NodeResourcesFit", pod(), nodes, [lazy]) == [70, 90]
    assert scores("NodeResourcesBalancedAllocation", pod(), nodes, [lazy]) is None
    # without memory: balance 100, then 75
    assert scores("NodeResourcesBalancedAllocation", pod(cpu="500m"), nodes, [lazy]) == [62, 62]


# -- spread


def replica(name: str, on: str = "", owner: str = "rs", **more: Any) -> Json:
    return owned(pod(name, on, labels={"app": "web"}, **more), owner)


HOSTS = [node("a", "z1"), node("b", "z1"), node("c", "z2")]


def test_replicas_are_spread_over_hosts_and_zones_by_default() -> None:
    # hosts: ln(5) for the one on a, 2 for maxSkew 3; zones: ln(4) for z1, 4 for maxSkew 5
    # 9.0, 7.4 and 6.0, rounded to 9, 7 and 6
    existing = [replica("one", "a")]
    assert scores("PodTopologySpread", replica("new"), HOSTS, existing) == [132, 176, 200]


@pytest.mark.parametrize(
    "other",
    [
        replica("one", "a", owner="another"),
        replica("one", "a", namespace="elsewhere"),
        replica("one", "a", terminating=True),
        owned(pod("one", "a"), "rs", "StatefulSet"),
        owned(pod("one", "a"), "rs", controller=False),
    ],
)
def test_pods_of_others_and_terminating_ones_do_not_count(other: Json) -> None:
    assert scores("PodTopologySpread", replica("new"), HOSTS, [other]) == [200, 200, 200]


@pytest.mark.parametrize(
    "incoming",
    [
        pod("new", labels={"app": "web"}),
        owned(pod("new"), "job", "Job"),
        owned(pod("new"), "rs", controller=False),
    ],
)
def test_pods_without_service_and_replicating_owner_are_not_spread(incoming: Json) -> None:
    assert scores("PodTopologySpread", incoming, HOSTS, [replica("one", "a")]) is None


def service(selector: Mapping[str, str] | None, namespace: str = "default") -> Json:
    return {"metadata": {"name": "s", "namespace": namespace}, "spec": {"selector": selector}}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (service({"app": "web"}), [132, 176, 200]),
        (service({"app": "db"}), None),
        (service({"app": "web"}, "elsewhere"), None),
        (service({}), None),
        (service(None), None),
    ],
)
def test_pods_of_a_service_are_spread(chosen: Json, expected: list[int] | None) -> None:
    incoming, existing = pod("new", labels={"app": "web"}), [replica("one", "a")]
    around = Surroundings(services=(chosen,))
    assert scores("PodTopologySpread", incoming, HOSTS, existing, around) == expected


def test_selector_of_the_replica_set_is_merged_with_those_of_services() -> None:
    replica_set = {
        "metadata": {"name": "rs", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    incoming = owned(pod("new", labels={"app": "web", "tier": "front"}), "rs")
    existing = [replica("one", "a", owner="another")]
    around = Surroundings(replica_sets=(replica_set,))
    spread = [132, 176, 200]
    assert scores("PodTopologySpread", incoming, HOSTS, existing, around) == spread
    narrow = Surroundings(replica_sets=(replica_set,), services=(service({"tier": "front"}),))
    assert scores("PodTopologySpread", incoming, HOSTS, existing, narrow) == [200, 200, 200]


def constraint(key: str = ZONE, must: str = "ScheduleAnyway", **more: Any) -> Json:
    selector = {"matchLabels": {"app": "web"}}
    shape = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": must}
    return {**shape, "labelSelector": selector, **more}


def spread(*constraints: Json, **more: Any) -> Json:
    return replica("new", topologySpreadConstraints=list(constraints), **more)


def test_own_constraints_replace_the_default_ones() -> None:
    existing = [replica("one", "a"), replica("two", "a"), replica("three", "c")]
    # ln(4) a pod: 2.77 for z1, 1.39 for z2, rounded to 3 and 1
    assert scores("PodTopologySpread", spread(constraint()), HOSTS, existing) == [66, 66, 200]
    hard = spread(constraint(must="DoNotSchedule"))
    assert scores("PodTopologySpread", hard, HOSTS, existing) is None


def test_empty_selector_counts_no_pod() -> None:
    existing = [replica("one", "a")]
    empty = spread(constraint(labelSelector={}))
    assert scores("PodTopologySpread", empty, HOSTS, existing) == [200, 200, 200]


def test_own_constraint_counts_pods_with_the_same_values_of_its_label_keys() -> None:
    existing = [replica("old", "c")]
    existing[0]["metadata"]["labels"]["version"] = "1"
    incoming = spread(constraint(matchLabelKeys=["version"]))
    incoming["metadata"]["labels"]["version"] = "2"
    assert scores("PodTopologySpread", incoming, HOSTS, existing) == [200, 200, 200]
    incoming["metadata"]["labels"]["version"] = "1"
    assert scores("PodTopologySpread", incoming, HOSTS, existing) == [200, 200, 0]


def test_node_without_a_label_is_ignored_by_own_constraints_only() -> None:
    nodes, existing = [*HOSTS[1:], node("d")], [replica("one", "c"), replica("two", "d")]
    assert scores("PodTopologySpread", spread(constraint()), nodes, existing) == [200, 0, 0]
    # by default it is a host, and the lack of a zone is a domain that costs nothing:
    # hosts 2, 3.61, 3.61 and zones 4, 5.61, 0, in sum 6, 9 and 4
    assert scores("PodTopologySpread", replica("new"), nodes, existing) == [154, 88, 200]


def test_node_counts_for_own_constraints_only_with_the_labels_of_all() -> None:
    """The pod on d is in zone z1, but not counted; z3 and the host d are no domains."""
    nodes = [node("a", "z1", labels={"rack": "r"}), node("b", "z2", labels={"rack": "r"})]
    nodes += [node("c", "z3"), node("d", "z1")]
    existing = [replica("one", "a"), replica("two", "d"), replica("three", "d"), replica("4", "b")]
    existing += [replica("5", "b"), replica("6", "b")]
    incoming = spread(constraint(), constraint("rack"), constraint(HOST))
    # zones ln(4) a pod, racks ln(3), hosts ln(4): 1.39 + 4.39 + 1.39 and 4.16 + 4.39 + 4.16,
    # rounded to 7 and 13
    assert scores("PodTopologySpread", incoming, nodes, existing) == [200, 106, 0, 0]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({}, [200, 0]),
        ({"nodeAffinityPolicy": "Ignore"}, [200, 200]),
        ({"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}, [200, 0]),
    ],
)
def test_policies_decide_whether_nodes_count_that_the_pod_may_not_use(
    policies: Json, expected: list[int]
) -> None:
    inside, hard = {"pool": "x"}, {"key": "hard", "effect": "NoSchedule"}
    nodes = [node("a", "z1", labels=inside), node("c", "z2", labels=inside)]
    outside = node("b", "z1", taints=[hard])
    world = ClusterView.of([*nodes, outside], [replica("one", "b"), replica("two", "c")])
    incoming = read_pod(spread(constraint(**policies), nodeSelector=inside))
    scored = plugin_scores(incoming, [world.nodes["a"], world.nodes["c"]], world)
    assert scored["PodTopologySpread"].tolist() == expected


# -- pods


def test_preferred_pods_attract_and_repel_by_their_weight() -> None:
    rules = {
        "podAffinity": {PREFERRED: [wish(40, term("db"))]},
        "podAntiAffinity": {PREFERRED: [wish(60, term("web", HOST))]},
    }
    existing = [pod("db", "c", labels={"app": "db"}), replica("one", "a")]
    # -60, 0 and 40 of a range of 100
    assert scores("InterPodAffinity", pod(affinity=rules), HOSTS, existing) == [0, 120, 200]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("web")]}}, 200),
        ({"podAffinity": {PREFERRED: [wish(5, term("web"))]}}, 200),
        ({"podAntiAffinity": {PREFERRED: [wish(5, term("web"))]}}, 0),
    ],
)
def test_running_pods_have_wishes_about_a_new_one(rules: Json, expected: int) -> None:
    existing = [pod("db", "a", affinity=rules)]
    other = 200 - expected
    assert scores("InterPodAffinity", replica("new"), HOSTS, existing) == [
        expected,
        expected,
        other,
    ]
    assert scores("InterPodAffinity", pod("new"), HOSTS, existing) is None


# -- the whole


def test_marked_nodes_get_pods_only_if_no_other_has_room() -> None:
    nodes = [node("a", cpu="8", taints=[SOFT]), node("b", cpu="2"), node("c", cpu="2")]
    pods = [pod(f"p{number}", cpu="1") for number in range(5)]
    places = [decision.node for decision in schedule_once(nodes, pods, pick=DefaultProfile())]
    assert sorted(filter(None, places)) == ["a", "b", "b", "c", "c"]
    assert places[-1] == "a"


def test_default_profile_looks_at_part_of_a_large_cluster() -> None:
    nodes = [node(f"n{number:03d}", f"z{number // 150}", cpu="8") for number in range(300)]
    pods = [pod(f"p{number:03d}", cpu="1") for number in range(4)]
    picks = {
        seed: [d.node for d in schedule_once(nodes, pods, pick=DefaultProfile(seed=seed))]
        for seed in (None, 1)
    }
    # 144 of them at a time, the zones in turn, and all are equal
    assert picks[None] == ["n000", "n072", "n144", "n066"]
    assert picks[1] != picks[None]


def test_emulated_cluster_schedules_by_the_default_profile_if_asked() -> None:
    cluster = EmulatedCluster(
        objects.node("a", cpu="8", taints=[SOFT]),
        objects.node("b", cpu="2"),
        objects.deployment("web", replicas=3, cpu="1", memory="1Mi"),
        pace=Pace(pick=DefaultProfile()),
    )
    assert sorted(raw["spec"]["nodeName"] for raw in cluster.pods()) == ["a", "b", "b"]


@pytest.mark.parametrize(("app", "chosen"), [("web", "b"), ("another", "a")])
def test_emulated_cluster_spreads_the_pods_of_a_service(app: str, chosen: str) -> None:
    cluster = EmulatedCluster(pace=Pace(pick=DefaultProfile()))
    cluster.store.create("services", service({"app": app}))
    objects.apply(
        cluster.store,
        objects.node("a", cpu="4"),
        objects.node("b", cpu="4"),
        pod("one", on="a", labels={"app": "web"}, cpu="100m"),
        pod("other", on="b", cpu="1"),
        pod("new", labels={"app": "web"}, cpu="100m"),
    )
    cluster.sim.step()
    assert cluster.the("pods", "new")["spec"]["nodeName"] == chosen
