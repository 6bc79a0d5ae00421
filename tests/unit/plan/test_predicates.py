"""Filters that look at the node alone, tested through the planner or the pod reader, and features
that are not simulated. Inter-pod affinity is in test_pod_affinity, topology spread in
test_topology_spread, volumes in test_volumes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.cluster import api_types
from chalicelib.cluster.pod_classes import pod_requests
from chalicelib.model.node import Taint
from chalicelib.model.pod import HostPort, PodAffinityTerm, SpreadConstraint, Toleration, Volume
from chalicelib.model.selector import NodeTerm, Requirement, Selector
from chalicelib.plan.predicates import matches_node, untolerated
from chalicelib.plan.tables import HeldPorts
from chalicelib.reasons.text import text
from infra.emulators.controllers.scheduler.selectors import Expression
from tests.builders import ClusterBuilder, cluster, growth, node, tally, verdict, words


def _spec(text_: str) -> api_types.PodSpec:
    return msgspec.json.decode(text_, type=api_types.PodSpec)


def _container(cpu: int, more: str = "") -> str:
    return f'{{"resources": {{"requests": {{"cpu": "{cpu}m"}}}}{more}}}'


_MAIN = f"[{_container(100)}, {_container(200)}]"
_INIT, _SIDECAR = _container(400), _container(50, ', "restartPolicy": "Always"')


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param(
            f'{{"containers": {_MAIN}, "initContainers": [{_INIT}]}}', 400, id="P1-plain-init"
        ),
        pytest.param(
            f'{{"containers": {_MAIN}, "initContainers": [{_SIDECAR}, {_INIT}]}}',
            450,
            id="P2-sidecar-before",
        ),
        pytest.param(
            f'{{"containers": {_MAIN}, "initContainers": [{_INIT}, {_SIDECAR}]}}',
            400,
            id="P2-sidecar-after",
        ),
        pytest.param(
            (
                f'{{"containers": {_MAIN}, "initContainers": [{_SIDECAR}, {_INIT}], "overhead": '
                f'{{"cpu": "10m"}}}}'
            ),
            460,
            id="P3-overhead",
        ),
        pytest.param(
            f'{{"containers": {_MAIN}, "initContainers": [{_SIDECAR}, {_INIT}], "overhead": '
            f'{{"cpu": "10m"}}, '
            '"resources": {"requests": {"cpu": "1"}}}',
            1010,
            id="P3-pod-level",
        ),
    ],
)
def test_pod_request_includes_init_containers_and_overhead(spec: str, cpu: int) -> None:
    assert pod_requests(_spec(spec)) == {"cpu": cpu}


def _fits(build: ClusterBuilder) -> bool:
    """Whether the one pending pod fits an existing node."""
    return len(build.plan().fits_existing) == 1


@pytest.mark.parametrize(
    ("used", "asks", "fits"),
    [
        pytest.param("600m", "400m", True, id="P4-equality"),
        pytest.param("600m", "401m", False, id="P4-one-more"),
        pytest.param("1200m", "0", True, id="P5-overcommitted-asks-nothing"),
        pytest.param("1200m", "1m", False, id="P5-overcommitted-asks-one"),
    ],
)
def test_pod_fits_a_node_with_enough_free_resources(used: str, asks: str, fits: bool) -> None:
    assert _fits(cluster().node("n", "1").running("n", 1, used).pending(1, asks)) is fits


def test_pod_count_is_a_resource_of_the_node() -> None:
    build = (
        cluster().node("n", "1", pods=10, group="g").running("n", 10).group("g", max=1).pending(1)
    )
    assert not _fits(build)


def test_every_short_resource_of_a_node_is_named() -> None:
    build = (
        cluster().group("g", template=node("t", "1")).pending(1, "2", extra={"nvidia.com/gpu": 1})
    )
    assert [text(r) for r in build.plan().unschedulable[0].reasons["g"]] == [
        "Insufficient cpu",
        "Insufficient nvidia.com/gpu",
    ]


def test_room_on_a_node_is_allocatable_and_not_capacity() -> None:
    offered = node("t", "1900m", capacity={"cpu": 2000, "memory": 2**32, "pods": 110})
    assert growth(cluster().group("g", template=offered).pending(1, "1950m").plan()) == {}


def _in(key: str, *values: str) -> NodeTerm:
    return NodeTerm((Requirement(key, "In", values),))


@pytest.mark.parametrize(
    ("more", "labels", "fits"),
    [
        pytest.param(
            {"node_selector": {"a": "1"}, "required_affinity": (_in("b", "2"), _in("c", "3"))},
            {"a": "1", "c": "3"},
            True,
            id="P9-selector-and-one-term",
        ),
        pytest.param(
            {"node_selector": {"a": "1"}, "required_affinity": (_in("b", "2"), _in("c", "3"))},
            {"b": "2"},
            False,
            id="P9-term-without-selector",
        ),
        pytest.param(
            {"required_affinity": (NodeTerm((Requirement("zone", "NotIn", ("x",)),)),)},
            {},
            True,
            id="P10-NotIn",
        ),
        pytest.param(
            {"required_affinity": (NodeTerm((Requirement("zone", "DoesNotExist"),)),)},
            {},
            True,
            id="P10-DoesNotExist",
        ),
        pytest.param({"required_affinity": (_in("zone", "x"),)}, {}, False, id="P10-In"),
        pytest.param({"required_affinity": (NodeTerm(),)}, {"a": "1"}, False, id="P11-empty-term"),
        pytest.param({"required_affinity": ()}, {"a": "1"}, False, id="P11-no-terms"),
        pytest.param(
            {"required_affinity": (NodeTerm((Requirement("n", "Gt", ("5",)),)),)},
            {"n": "6"},
            True,
            id="Gt",
        ),
        pytest.param(
            {"required_affinity": (NodeTerm((Requirement("n", "Lt", ("5",)),)),)},
            {"n": "x"},
            False,
            id="Lt-of-no-number",
        ),
    ],
)
def test_pod_node_affinity_and_node_selector(
    more: dict[str, Any], labels: dict[str, str], fits: bool
) -> None:
    build = cluster().node("n", "1", labels=labels).pending(1, "1m", **more)
    assert _fits(build) is fits
    cls = build.classes[0]
    assert matches_node(cls, "n", build.nodes[0].labels) is fits, (
        "the same for one node as for the table"
    )


@pytest.mark.parametrize(
    ("bound", "label", "fits"),
    [
        ("5", "6", True),
        ("+5", "6", True),
        ("-7", "-6", True),
        ("007", "8", True),
        ("9223372036854775806", "9223372036854775807", True),
        ("5", "9223372036854775808", False),
        ("-9223372036854775809", "5", False),
        ("2024_10", "2024_11", False),
        ("1", "2024_11", False),
        ("1_00", "200", False),
        (" 5", "6", False),
        ("5 ", "6", False),
        ("5\n", "6", False),
        ("\u0665", "6", False),
        ("5", "\uff16", False),
        ("", "6", False),
        ("5", "", False),
        ("1" * 300, "6", False),
        ("5.0", "6", False),
        ("0x5", "6", False),
    ],
)
def test_numbers_are_those_that_the_scheduler_reads(bound: str, label: str, fits: bool) -> None:
    assert Requirement("n", "Gt", (bound,)).matches({"n": label}) is fits
    assert Requirement("n", "Lt", (label,)).matches({"n": bound}) is fits
    assert Expression("n", "Gt", (bound,)).holds({"n": label}) is fits
    assert Expression("n", "Lt", (label,)).holds({"n": bound}) is fits


def test_comparison_needs_exactly_one_number() -> None:
    assert not Requirement("n", "Gt", ()).matches({"n": "5"})
    assert not Requirement("n", "Gt", ("1", "2")).matches({"n": "5"})


def test_new_node_has_no_name_that_node_affinity_could_match() -> None:
    field = NodeTerm((), (Requirement("metadata.name", "In", ("node-7",)),))
    build = cluster().node("node-7", "1", group="g").group("g", template=node("t", "1"))
    assert _fits(build.pending(1, "1m", required_affinity=(field,)))
    other = (
        cluster()
        .node("node-8", "1", group="g")
        .group("g")
        .pending(1, "1m", required_affinity=(field,))
    )
    assert growth(other.plan()) == {}


_TAINT = Taint("k", "NoSchedule", "v")


@pytest.mark.parametrize(
    ("toleration", "ok"),
    [
        pytest.param(Toleration("k", "Exists"), True, id="P13-exists"),
        pytest.param(Toleration("k", "Equal", "v"), True, id="P13-equal"),
        pytest.param(Toleration("k", "Equal", "w"), False, id="P13-other-value"),
        pytest.param(Toleration("", "Exists"), True, id="P13-everything"),
        pytest.param(Toleration("k", "Equal", "v", "NoExecute"), False, id="P13-other-effect"),
    ],
)
def test_pod_tolerations_of_node_taints(toleration: Toleration, ok: bool) -> None:
    assert (untolerated((toleration,), (_TAINT,)) is None) is ok


def test_prefer_no_schedule_taint_never_blocks_a_pod() -> None:
    assert _fits(cluster().node("n", "1", taints=[Taint("k", "PreferNoSchedule")]).pending(1, "1m"))


def test_cordoned_node_gets_no_pods_even_if_they_tolerate_its_taint() -> None:
    tolerant = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    assert not _fits(
        cluster().node("n", "1", unschedulable=True).pending(1, "1m", tolerations=(tolerant,))
    )


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        pytest.param(HostPort(8080, "UDP", "127.0.0.1"), False, id="P16-other-protocol"),
        pytest.param(HostPort(8080, "TCP", "10.0.0.5"), False, id="P16-other-address"),
        pytest.param(HostPort(8080), True, id="P16-every-address"),
    ],
)
def test_pod_host_ports_conflict_on_one_node(wanted: HostPort, taken: bool) -> None:
    held = HostPort(8080, "TCP", "127.0.0.1")
    assert (HeldPorts((held,)).clash((wanted,)) is not None) is taken
    build = (
        cluster().node("n", "1").running("n", 1, ports=(held,)).pending(1, "1m", ports=(wanted,))
    )
    assert _fits(build) is not taken


def test_host_port_is_free_once_every_pod_that_held_it_is_gone() -> None:
    port = (HostPort(8080),)
    held = HeldPorts(port * 2)
    held.remove(port)
    assert held.clash(port) is not None
    held.remove(port)
    assert held.clash(port) is None


def test_container_port_alone_is_not_a_host_port() -> None:
    spec = _spec('{"containers": [{"ports": [{"containerPort": 80}]}]}')
    assert spec.containers[0].ports is not None
    assert spec.containers[0].ports[0].host_port == 0


_SELF = Selector((Requirement("app", "In", ("rs",)),))


def _offered(**more: Any) -> ClusterBuilder:
    return cluster().node("n", "8").group("g", template=node("t", "8")).pending(1, "1", **more)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        pytest.param({"resource_claims": ("gpu",)}, ["resource claims"], id="resource-claims"),
        pytest.param({"scheduler": "volcano"}, ["scheduler volcano"], id="another-scheduler"),
        pytest.param(
            {"volumes": (Volume("d", "unheard-of"),)},
            ["volumes"],
            id="a-volume-of-an-unheard-of-kind",
        ),
        pytest.param(
            {"resource_claims": ("gpu",), "scheduler": "volcano"},
            ["resource claims", "scheduler volcano"],
            id="both",
        ),
    ],
)
def test_pod_with_an_unsimulated_feature_is_reported_and_never_fits(
    more: dict[str, Any], what: list[str]
) -> None:
    plan = _offered(**more).plan()
    assert not plan.fits_existing
    assert growth(plan) == {}
    assert words(plan) == {"g": [f"NotSimulated({each})" for each in what]}
    assert tally(plan) == {f"NotSimulated({each})": 1 for each in what}


@pytest.mark.parametrize(
    "options",
    [{"bypassed_scheduler_names": ("volcano",)}, {"allowed_scheduler_names": ("volcano",)}],
    ids=["bypassed", "allowed"],
)
def test_scheduler_named_in_the_policy_is_simulated_as_the_default_one(
    options: dict[str, Any],
) -> None:
    assert _offered(scheduler="volcano").plan(**options).fits_existing


def test_pod_with_an_unsimulated_feature_does_not_block_other_pods() -> None:
    build = _offered(resource_claims=("gpu",), name="odd", owner="odd").pending(8, "1")
    plan = build.plan()
    assert len(plan.fits_existing) == 8
    assert [verdict.pods for verdict in plan.unschedulable] == [("default/odd-00000",)]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"pod_anti_affinity": (PodAffinityTerm("zone", _SELF),)}, id="anti-affinity"),
        pytest.param(
            {"spread": (SpreadConstraint("kubernetes.io/hostname", 1, _SELF),)}, id="spread"
        ),
        *[
            pytest.param({"volumes": (Volume("d", kind),)}, id=kind)
            for kind in (
                "emptyDir",
                "configMap",
                "hostPath",
                "gcePersistentDisk",
                "awsElasticBlockStore",
                "azureDisk",
                "rbd",
                "iscsi",
            )
        ],
    ],
)
def test_pods_with_simulated_features_fit(more: dict[str, Any]) -> None:
    assert _offered(**more).plan().fits_existing


@pytest.mark.parametrize(
    ("more", "why"),
    [
        pytest.param(
            {"pod_affinity": (PodAffinityTerm("zone", _SELF),)},
            "node(s) didn't match pod affinity rules",
            id="affinity-without-the-label",
        ),
        pytest.param(
            {"spread": (SpreadConstraint("zone", 1, _SELF),)},
            "node(s) didn't match pod topology spread constraints (missing required label)",
            id="spread-without-the-label",
        ),
        pytest.param(
            {"volumes": (Volume("d", "persistentVolumeClaim", "d"),)},
            'persistentvolumeclaim "d" not found',
            id="a-claim-that-is-missing",
        ),
    ],
)
def test_pods_with_simulated_features_are_rejected_with_the_schedulers_reason(
    more: dict[str, Any], why: str
) -> None:
    plan = _offered(**more).plan()
    assert words(plan) == {"g": [why]}
    assert tally(plan) == {why: 1}


def test_every_failing_filter_of_the_nearest_group_is_named_the_first_of_another() -> None:
    build = cluster().group("g", template=node("t", "1", taints=[_TAINT], labels={"zone": "b"}))
    build.pending(1, "2", required_affinity=(_in("zone", "a"),))
    taint, label = (
        "node(s) had untolerated taint(s)",
        "node(s) didn't match Pod's node affinity/selector",
    )
    assert words(build.plan()) == {"g": [taint, label, "Insufficient cpu"]}
    build.group("nearer", template=node("t", "1", labels={"zone": "b"}))
    assert words(build.plan()) == {"g": [taint], "nearer": [label, "Insufficient cpu"]}


def test_node_resources_are_counted_as_in_the_scheduler() -> None:
    build = (
        cluster().node("full", "1").node("small", "1", "1Gi").node("tainted", "8", taints=[_TAINT])
    )
    build.node("other", "8", labels={"disk": "hdd"}).node("cordoned", "8", unschedulable=True)
    build.running("full", 1, "1", owner="filler").pending(
        1, "2", "2Gi", node_selector={"disk": "ssd"}, name="picky"
    )
    plan = build.plan()
    assert verdict(plan).nodes == 5
    assert tally(plan) == {
        "node(s) didn't match Pod's node affinity/selector": 3,
        "node(s) were unschedulable": 1,
        "node(s) had untolerated taint(s)": 1,
    }
    plain = (
        cluster()
        .node("full", "1")
        .node("small", "1", "1Gi")
        .running("full", 1, "1", owner="filler")
    )
    assert tally(plain.pending(1, "2", "2Gi").plan()) == {
        "Insufficient cpu": 2,
        "Insufficient memory": 1,
    }
