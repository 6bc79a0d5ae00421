"""Node templates: the node that a group is expected to add."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory, LearntTemplate, Memory, ScaleUpRequest
from chalicelib.model.node import HOSTNAME_LABEL, TO_BE_DELETED, Taint
from chalicelib.model.pod import Owner
from chalicelib.model.snapshot import DaemonSet, Snapshot
from chalicelib.model.storage import CSINode, Storage
from chalicelib.plan.state.cluster_state import Occupancy
from chalicelib.plan.state.node_templates import Template, learn, templates
from chalicelib.plan.state.readiness import lacks_device
from chalicelib.policy.settings.cluster_options import Options
from tests.builders import NOW, OLD, ClusterBuilder, cluster, growth, node

# pods there are believed to be what they claim
SYSTEM: dict[str, Any] = {"namespace": "kube-system"}


def of_snapshot(
    snapshot: Snapshot, learnt: LearntTemplate | None = None, **options: Any
) -> Template | None:
    """The template of group g."""
    members = {
        group.id: [n for n in snapshot.nodes if n.name in {i.node for i in group.instances}]
        for group in snapshot.groups
    }
    found = templates(
        snapshot,
        members,
        {"g": learnt} if learnt else {},
        msgspec.structs.replace(Options(), **options),
        NOW,
        Occupancy(snapshot).on,
        {n.name for n in snapshot.nodes if lacks_device(n)},
    )
    return found.get("g")


def of(build: ClusterBuilder, learnt: LearntTemplate | None = None, **options: Any) -> Template:
    found = of_snapshot(build.snapshot(), learnt, **options)
    assert found is not None
    return found


def daemons(
    build: ClusterBuilder, learnt: LearntTemplate | None = None, **options: Any
) -> list[str]:
    """Pods on the template, by the name of their owner."""
    classes = build.snapshot().classes
    owners = [classes[cls].owner for cls in of(build, learnt, **options).daemons]
    return sorted(owner.name if owner else "none" for owner in owners)


@pytest.mark.parametrize(
    ("fields", "wins"),
    [
        pytest.param({"ready_since": NOW - 120}, "real", id="T1-ready-for-two-minutes"),
        pytest.param({"ready_since": NOW - 30}, "provider", id="T1-ready-for-half-a-minute"),
        pytest.param({"ready": False}, "provider", id="T1-unready"),
        pytest.param(
            {"taints": [Taint(TO_BE_DELETED, "NoSchedule", "1")]}, "provider", id="T2-leaving"
        ),
        pytest.param({"unschedulable": True}, "provider", id="T2-cordoned"),
    ],
)
def test_source_of_a_node_template(fields: dict[str, Any], wins: str) -> None:
    build = cluster().node("n", "2", group="g", **fields).running("n", 1, "2", owner=None)
    build.group("g", template=node("t", "4")).pending(2, "2")
    assert growth(build.plan()) == {"g": ((2 if wins == "real" else 1), 2)}


def test_learnt_template_overrides_the_providers_and_outlives_the_last_node() -> None:
    full = (
        cluster().node("n", "2", group="g").running("n", 1, "2").group("g", template=node("t", "4"))
    )
    _, after = full.decide()
    gone = cluster().group("g", template=node("t", "4")).pending(2, "2")
    assert growth(gone.plan()) == {"g": (1, 2)}
    assert growth(gone.plan(Memory(templates=after.templates))) == {"g": (2, 2)}
    assert isinstance(after.templates["g"], LearntTemplate)


def test_unready_node_is_used_as_a_template_if_there_is_no_other() -> None:
    build = cluster().node("n", "2", group="g", ready=False).group("g").pending(1, "1")
    assert growth(build.plan()) == {"g": (1, 1)}


def test_only_daemonsets_that_match_the_template_take_room() -> None:
    build = (
        cluster()
        .daemonset("everywhere", "500m")
        .daemonset("gpu-only", "500m", node_selector={"gpu": "yes"})
    )
    assert growth(build.group("g", template=node("t", "1")).pending(2, "500m").plan()) == {
        "g": (2, 2)
    }


def test_daemonset_too_big_for_the_template_leaves_no_room() -> None:
    build = cluster().daemonset("huge", "4").group("g", template=node("t", "2")).pending(1, "100m")
    assert growth(build.plan()) == {}


@pytest.mark.parametrize(
    ("taint", "options", "blocks"),
    [
        pytest.param("node.kubernetes.io/not-ready", {}, False, id="condition"),
        pytest.param(
            "startup-taint.cluster-autoscaler.kubernetes.io/x", {}, False, id="T5-startup-prefix"
        ),
        pytest.param("cni", {"startup_taint": ("cni",)}, False, id="T5-startup-flag"),
        pytest.param("status-taint.cluster-autoscaler.kubernetes.io/x", {}, False, id="T5-status"),
        pytest.param("dedicated", {}, True, id="T5-any-other"),
    ],
)
def test_temporary_taints_are_not_part_of_the_template(
    taint: str, options: dict[str, Any], blocks: bool
) -> None:
    build = (
        cluster()
        .group("g", template=node("t", "2", taints=[Taint(taint, "NoSchedule")]))
        .pending(1, "1")
    )
    assert growth(build.plan(**options)) == ({} if blocks else {"g": (1, 1)})


def test_upcoming_nodes_take_pods_so_that_nothing_is_bought_twice() -> None:
    build = cluster().group("g", target=2, template=node("t", "2")).pending(4, "1")
    known = Memory(
        groups={"g": GroupMemory(target=2, request=ScaleUpRequest(2, NOW - 60, NOW + 840))}
    )
    plan = build.plan(known)
    assert (growth(plan), len(plan.fits_existing), plan.health.upcoming) == ({}, 4, 2)


def test_expired_scale_up_request_is_a_failure_and_starts_a_backoff() -> None:
    build = cluster().group("g", target=2, template=node("t", "2")).pending(4, "1")
    known = Memory(
        groups={"g": GroupMemory(target=2, request=ScaleUpRequest(2, NOW - 1000, NOW - 100))}
    )
    _, after = build.decide(known)
    kept = after.groups["g"]
    assert kept.request is None
    assert kept.backoff is not None
    assert (kept.backoff.code, kept.backoff.until) == ("timeout", NOW + 300)


def test_scale_up_request_ends_when_its_nodes_have_joined() -> None:
    build = cluster().node("a", group="g").node("b", group="g").group("g")
    known = Memory(
        groups={"g": GroupMemory(target=2, request=ScaleUpRequest(2, NOW - 60, NOW + 840))}
    )
    assert build.decide(known)[1].groups["g"].request is None


@pytest.mark.parametrize(
    ("unready", "healthy"),
    [
        pytest.param((3, 3), True, id="C8-three-are-always-tolerated"),
        pytest.param((4, 10), True, id="C8-four-of-ten"),
        pytest.param((5, 10), False, id="C8-five-of-ten"),
    ],
)
def test_cluster_health_by_number_of_unready_nodes(unready: tuple[int, int], healthy: bool) -> None:
    build = cluster()
    for at in range(unready[1]):
        build.node(f"n{at}", group="all", ready=at >= unready[0])
    build.group("all").group("g", template=node("t", "2")).pending(1, "2")
    plan = build.plan()
    assert plan.health.healthy is healthy
    assert growth(plan) == ({"g": (1, 1)} if healthy else {})


def test_group_that_misses_most_of_its_nodes_is_not_scaled_up() -> None:
    build = (
        cluster()
        .node("n", "2", group="g")
        .running("n", 1, "2")
        .group("g", target=5, template=node("t", "2"))
    )
    build.pending(1, "1")
    assert growth(build.plan()) == {}
    asked = Memory(
        groups={"g": GroupMemory(target=5, request=ScaleUpRequest(4, NOW - 60, NOW + 840))}
    )
    assert len(build.plan(asked).fits_existing) == 1, "four are upcoming"


@pytest.mark.parametrize(("age", "bucket"), [(600, "not_started"), (1200, "unready")])
def test_young_node_counts_as_not_started(age: float, bucket: str) -> None:
    plan = cluster().node("n", ready=False, created=NOW - age).plan()
    assert getattr(plan.health, bucket) == 1


# -- sources of a template, in detail


@pytest.mark.parametrize(
    ("age", "source"),
    [
        pytest.param(3600, "learnt", id="until-it-expires"),
        pytest.param(3601, "provider", id="expired"),
    ],
)
def test_learnt_template_is_used_until_it_expires(age: float, source: str) -> None:
    build = cluster().group("g", template=node("t"))
    assert (
        of(build, LearntTemplate(node("n"), NOW - age), node_info_cache_expire_time=3600).source
        == source
    )


def test_leaving_node_is_the_last_choice_for_a_template() -> None:
    leaving = [Taint(TO_BE_DELETED, "NoSchedule", "1")]
    build = cluster().node("a", "1", group="g", taints=leaving)
    assert of(build.group("g")).node.taints == ()
    build = (
        cluster()
        .node("a", "1", group="g", taints=leaving)
        .node("b", "3", group="g", unschedulable=True)
    )
    assert of(build.group("g")).node.allocatable["cpu"] == 3000
    build = cluster().node("a", "1", group="g", taints=leaving)
    assert of(build.group("g", template=node("t"))).source == "provider"
    assert of_snapshot(cluster().group("g").snapshot()) is None, "nothing is known of it"


def test_node_with_a_startup_taint_is_not_a_template_but_one_with_a_status_taint_is() -> None:
    for taint, source in (
        ("startup-taint.cluster-autoscaler.kubernetes.io/x", "provider"),
        ("mine/x", "provider"),
        ("status-taint.cluster-autoscaler.kubernetes.io/x", "node"),
        ("dedicated", "node"),
    ):
        build = (
            cluster()
            .node("n", group="g", taints=[Taint(taint, "NoSchedule")])
            .group("g", template=node("t"))
        )
        made = of(build, startup_taint_prefix=("mine/",))
        assert made.source == source
        assert [t.key for t in made.node.taints] == (["dedicated"] if taint == "dedicated" else [])


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("ignore-taint.cluster-autoscaler.kubernetes.io/x", {}),
        ("node.cluster.x-k8s.io/outdated-revision", {}),
        ("mine/booting", {"startup_taint_prefix": ("mine/",)}),
        ("state", {"status_taint": ("state",)}),
        ("node.cloudprovider.kubernetes.io/uninitialized", {}),
        ("NodeWithImpairedVolumes", {}),
    ],
)
def test_further_taints_that_a_template_drops(key: str, options: dict[str, Any]) -> None:
    build = cluster().group(
        "g", template=node("t", taints=[Taint(key, "NoSchedule"), Taint("own", "NoExecute")])
    )
    assert [taint.key for taint in of(build, **options).node.taints] == ["own"]


def test_template_of_a_cordoned_node_stays_cordoned_unless_the_option_says_otherwise() -> None:
    build = cluster().node("n", group="g", unschedulable=True).group("g")
    assert of(build).node.unschedulable
    assert not of(build, scale_from_unschedulable=True).node.unschedulable


def test_template_has_its_own_name_and_host_name_label() -> None:
    build = (
        cluster()
        .node("n", group="g", annotations={"a": "b"}, labels={HOSTNAME_LABEL: "n", "pool": "x"})
        .group("g")
    )
    made = of(build).node
    assert made.labels == {
        HOSTNAME_LABEL: made.name,
        "pool": "x",
        "cluster-autoscaler.kubernetes.io/template-node": "true",
    }
    assert (made.name, made.annotations, made.provider_id, made.uid) == (
        "template-node-for-g",
        {},
        "",
        "",
    )


def test_deprecated_labels_are_added_to_a_provider_template_and_never_replaced() -> None:
    labels = {
        "topology.kubernetes.io/zone": "z",
        "topology.kubernetes.io/region": "r",
        "node.kubernetes.io/instance-type": "big",
        "beta.kubernetes.io/instance-type": "kept",
    }
    made = of(cluster().group("g", template=node("t", labels=labels))).node.labels
    assert made["failure-domain.beta.kubernetes.io/zone"] == "z"
    assert made["failure-domain.beta.kubernetes.io/region"] == "r"
    assert made["beta.kubernetes.io/instance-type"] == "kept"
    real = of(cluster().node("n", group="g", labels=labels).group("g")).node.labels
    assert "failure-domain.beta.kubernetes.io/zone" not in real, (
        "a real node has what its kubelet gave it"
    )


# -- pods of a template


@pytest.mark.parametrize(
    ("options", "fields", "expected"),
    [
        pytest.param({}, {}, ["a"], id="T3-force-ds-off"),
        pytest.param({"force_ds": True}, {}, ["a", "b"], id="T3-force-ds-on"),
        pytest.param(
            {}, {"priority_class": "system-node-critical"}, ["a", "b"], id="T3-system-node-critical"
        ),
        pytest.param(
            {},
            {"priority_class": "system-node-critical", "preemption_policy": "PreemptLowerPriority"},
            ["a", "b"],
            id="T3-preempting",
        ),
        pytest.param(
            {},
            {"priority_class": "system-node-critical", "preemption_policy": "Never"},
            ["a"],
            id="T3-critical-but-never-preempting",
        ),
        pytest.param(
            {}, {"priority_class": "system-cluster-critical"}, ["a"], id="T3-another-priority-class"
        ),
        pytest.param(
            {"force_ds": True},
            {"node_selector": {"gpu": "yes"}},
            ["a"],
            id="T3-forced-but-not-meant-for-it",
        ),
    ],
)
def test_daemonset_missing_on_the_copied_node(
    options: dict[str, Any], fields: dict[str, Any], expected: list[str]
) -> None:
    build = cluster().node("n", group="g").daemonset("a", "100m").daemonset("b", "200m", **fields)
    build.running(
        "n",
        cpu="100m",
        owner="a",
        kind="DaemonSet",
        namespace="kube-system",
        tolerations=build.classes[0].tolerations,
    )
    assert daemons(build.group("g", template=node("t")), **options) == expected


def test_provider_and_learnt_templates_get_all_matching_daemonsets() -> None:
    build = (
        cluster()
        .daemonset("a", "100m")
        .daemonset("b", "200m")
        .daemonset("c", node_selector={"gpu": "yes"})
    )
    build.group("g", template=node("t"))
    assert daemons(build) == ["a", "b"]
    assert daemons(build, LearntTemplate(node("n", labels={"gpu": "yes"}), NOW)) == ["a", "b", "c"]


def test_template_copies_only_daemonset_and_mirror_pods_of_the_real_node() -> None:
    build = cluster().node("n", group="g").node("other", group="g")
    build.running("n", owner="web", **SYSTEM).running(
        "n", owner=None, mirror=True, cpu="1m", **SYSTEM
    )
    build.running("n", owner="agent", kind="DaemonSet", **SYSTEM)
    build.running("n", owner="custom", daemonset_annotation="true", **SYSTEM)
    build.running("n", owner="going", kind="DaemonSet", pod={"deleted": NOW - 5}, **SYSTEM)
    build.running("n", owner="over", kind="DaemonSet", pod={"phase": "Failed"}, **SYSTEM)
    build.running("other", owner="elsewhere", kind="DaemonSet", **SYSTEM)
    assert daemons(build.group("g")) == ["agent", "custom", "none"]


def test_daemonset_pod_of_the_copied_node_takes_its_room() -> None:
    build = (
        cluster()
        .node("n", "2", group="g")
        .running("n", owner="huge", kind="DaemonSet", cpu="4", **SYSTEM)
    )
    assert daemons(build.group("g")) == ["huge"]


# -- pods of a tenant that claim to run on every node


def tenants_daemonset(build: ClusterBuilder, name: str, cpu: str | int = 0, **more: Any) -> Owner:
    """Add a DaemonSet of the namespace `default`, and return its pods' owner."""
    cls = build.cls(cpu, owner=name, kind="DaemonSet", **more)
    build.daemonsets.append(DaemonSet("default", name, f"uid-{name}", cls))
    return Owner("DaemonSet", name, f"uid-{name}", "apps/v1")


PRETENDED: dict[str, dict[str, Any]] = {
    "annotated": {"daemonset_annotation": "true"},
    "annotated-with-no-owner": {"daemonset_annotation": "true", "owner": None},
    "mirror": {"mirror": True},
    "mirror-without-an-owner": {"mirror": True, "owner": None},
    "mirror-of-another-node": {"mirror": True, "owner": Owner("Node", "other", "uid-other", "v1")},
    "mirror-of-an-earlier-node": {
        "mirror": True,
        "owner": Owner("Node", "n", "uid-of-another", "v1"),
    },
    "daemonset-that-does-not-exist": {"owner": Owner("DaemonSet", "gone", "uid-gone", "apps/v1")},
    "uid-of-none": {"owner": Owner("DaemonSet", "logs", "uid-guessed", "apps/v1")},
    "uid-of-another-name": {"owner": Owner("DaemonSet", "other", "uid-logs", "apps/v1")},
    "uid-of-another-namespace": {"owner": Owner("DaemonSet", "net", "uid-net", "apps/v1")},
    "kind-of-another-group": {
        "owner": Owner("DaemonSet", "logs", "uid-logs", "apps.kruise.io/v1alpha1")
    },
    "second-of-one-daemonset": {"owner": Owner("DaemonSet", "logs", "uid-logs", "apps/v1")},
}


@pytest.mark.parametrize("claim", PRETENDED)
def test_pod_that_only_claims_to_run_on_every_node_shrinks_no_new_node(claim: str) -> None:
    build = cluster().node("n", "4", group="g").daemonset("net")
    logs = tenants_daemonset(build, "logs")
    build.running("n", cpu="100m", pod={"created": OLD - 60}, owner=logs)
    build.running("n", cpu="3", name="pretended", **PRETENDED[claim])
    build.group("g").pending(3, "1100m")
    assert growth(build.plan()) == {"g": (1, 3)}


def static_pod(build: ClusterBuilder, on: str, name: str) -> None:
    """Add a tenant's static pod of 3 cores, by its mirror."""
    build.running(on, cpu="3", mirror=True, owner=Owner("Node", on, f"uid-{on}", "v1"))
    build.pods[-1] = msgspec.structs.replace(build.pods[-1], name=name)


def test_static_pod_of_every_settled_node_takes_room_on_new_nodes() -> None:
    build = cluster()
    for name in ("n", "o"):
        static_pod(build.node(name, "4", group="g"), name, f"proxy-{name}")
    assert growth(build.group("g").pending(3, "1100m").plan()) == {}


@pytest.mark.parametrize("second", ["", "other-o", "proxy-n"])
def test_static_pod_that_not_every_settled_node_has_takes_no_room(second: str) -> None:
    """second: the static pod of the other node, if there is one."""
    build = cluster().node("n", "4", group="g")
    static_pod(build, "n", "proxy-n")
    if second:
        static_pod(build.node("o", "4", group="g"), "o", second)
    assert growth(build.group("g").pending(3, "1100m").plan()) == {"g": (1, 3)}


def test_pod_that_claims_a_daemonset_counts_as_the_daemonset_describes_it() -> None:
    build = cluster().node("n", "4", group="g")
    build.running("n", cpu="4", owner=tenants_daemonset(build, "logs", "100m"))
    assert growth(build.group("g").pending(3, "1100m").plan()) == {"g": (1, 3)}


def test_daemonset_that_does_not_run_on_new_nodes_takes_no_room_there() -> None:
    build = cluster().node("n", "4", group="g")
    owner = tenants_daemonset(build, "logs", "2", node_selector={"kubernetes.io/hostname": "n"})
    build.running("n", cpu="2", owner=owner)
    assert growth(build.group("g").pending(3, "1100m").plan()) == {"g": (1, 2)}, (
        "one fits the old node"
    )


def test_pod_of_a_tenants_own_daemonset_takes_room_on_new_nodes() -> None:
    build = cluster().node("n", "4", group="g")
    build.running("n", cpu="2", owner=tenants_daemonset(build, "logs", "2"))
    assert growth(build.group("g").pending(3, "1100m").plan()) == {"g": (2, 2)}


# -- volumes


def test_template_has_the_volume_limits_of_the_node_it_was_copied_from() -> None:
    build = (
        cluster()
        .node("a", group="g", ready=False)
        .node("b", group="g")
        .group("g", template=node("t"))
    )
    build.more["storage"] = Storage(
        csi_nodes=(CSINode("a", {"disk": 8}), CSINode("b", {"disk": 16}))
    )
    assert of(build).volume_limits == {"disk": 16}


@pytest.mark.parametrize("learnt", [LearntTemplate(node("n"), NOW), None])
def test_provider_template_has_the_volume_limits_of_any_node_of_the_group(
    learnt: LearntTemplate | None,
) -> None:
    build = cluster().node("a", group="g", ready=False).node("other").group("g", template=node("t"))
    build.more["storage"] = Storage(
        csi_nodes=(CSINode("other", {"disk": 4}), CSINode("a", {"disk": 16}))
    )
    assert of(build, learnt).volume_limits == {"disk": 16}
    assert of(cluster().group("g", template=node("t")), learnt).volume_limits == {}


# -- labels that a new node was expected to have


@pytest.mark.parametrize(
    ("joined", "bought"),
    [
        pytest.param({"ready_since": NOW - 20}, 0, id="joined-without"),
        pytest.param(
            {"ready_since": NOW - 20, "labels": {"pool": "g"}, "unschedulable": True},
            1,
            id="joined-with",
        ),
        pytest.param({"ready": False, "created": NOW - 20}, 0, id="is-joining"),
        pytest.param({"ready": False}, 1, id="never-became-ready"),
        pytest.param(
            {
                "ready_since": NOW - 20,
                "taints": [
                    Taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", "true")
                ],
            },
            1,
            id="not-initialised",
        ),
    ],
)
def test_group_whose_node_joined_without_a_label_grows_for_no_pod_that_asks_for_it(
    joined: dict[str, Any], bought: int
) -> None:
    build = (
        cluster()
        .node("n", "2", group="g", **joined)
        .group("g", template=node("t", "2", labels={"pool": "g"}))
    )
    plan = build.pending(1, "1", node_selector={"pool": "g"}).plan()
    assert growth(plan) == ({"g": (1, 1)} if bought else {})


def test_group_whose_node_joined_without_a_label_grows_for_other_pods() -> None:
    build = cluster().node("n", "2", group="g", ready_since=NOW - 20).running("n", 1, "2")
    build.group("g", template=node("t", "2", labels={"pool": "g"})).pending(1, "1")
    assert growth(build.plan()) == {"g": (1, 1)}


# -- learnt templates in memory


def test_learnt_template_has_no_data_of_a_single_node() -> None:
    first = node(
        "a",
        group="g",
        labels={HOSTNAME_LABEL: "a"},
        taints=[Taint("dedicated", "NoSchedule")],
        annotations={"x": "y"},
    )
    second = node(
        "b",
        group="g",
        labels={HOSTNAME_LABEL: "b"},
        resource_version="7",
        taints=[
            Taint("dedicated", "NoSchedule"),
            Taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
        ],
    )
    known = learn(first, None, NOW, Options())
    assert known is not None
    assert learn(second, known, NOW + 60, Options()) is known, "nothing to write"


def test_unchanged_learnt_template_is_renewed_before_it_expires() -> None:
    options = msgspec.structs.replace(Options(), node_info_cache_expire_time=3600)
    known = learn(node("a"), None, NOW, options)
    assert known is not None
    assert learn(node("a"), known, NOW + 300, options) is known
    assert learn(node("a"), known, NOW + 600, options) == LearntTemplate(known.node, NOW + 600, ())
    assert learn(None, known, NOW + 86400, options) is known, (
        "expired, but it knows what the kubelets keep back"
    )


def test_learnt_templates_do_not_depend_on_input_order() -> None:
    build = cluster()
    for name, cpu in (("c", "3"), ("a", "1"), ("b", "2")):
        build.node(name, cpu, group="g").daemonset(
            name, "100m", priority_class="system-node-critical"
        )
        build.running(name, 2, owner=f"agent-{name}", kind="DaemonSet").running(name, owner="web")
        build.running(name, owner="logs", kind="DaemonSet").running(
            name, owner="net", kind="DaemonSet"
        )
    snapshot = build.group("g").snapshot()
    expected = of_snapshot(snapshot)
    assert expected is not None
    assert expected.node.allocatable["cpu"] == 1000
    for seed in range(5):
        order = random.Random(seed)
        mixed = {
            part: tuple(order.sample(getattr(snapshot, part), len(getattr(snapshot, part))))
            for part in ("nodes", "pods", "daemonsets")
        }
        assert of_snapshot(msgspec.structs.replace(snapshot, **mixed)) == expected
