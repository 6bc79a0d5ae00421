"""Cases P1-P17: filters that look at the node alone, each through the planner or the reading of a pod; and what is
simulated at all. P18-P23 are in test_affinity, P24-P33 in test_spread, P34 and P35 in test_volumes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.node import Taint
from chalicelib.model.pod import HostPort, PodAffinityTerm, SpreadConstraint, Toleration, Volume
from chalicelib.model.selector import NodeTerm, Requirement, Selector
from chalicelib.plan.predicates.node_affinity import matches
from chalicelib.plan.predicates.taint_toleration import untolerated
from chalicelib.plan.tables.host_ports import HeldPorts
from chalicelib.reasons.text import text
from chalicelib.snapshot import api_types
from chalicelib.snapshot.pod_classes import pod_requests
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
        pytest.param(f'{{"containers": {_MAIN}, "initContainers": [{_INIT}]}}', 400, id="P1-plain-init"),
        pytest.param(
            f'{{"containers": {_MAIN}, "initContainers": [{_SIDECAR}, {_INIT}]}}', 450, id="P2-sidecar-before"
        ),
        pytest.param(f'{{"containers": {_MAIN}, "initContainers": [{_INIT}, {_SIDECAR}]}}', 400, id="P2-sidecar-after"),
        pytest.param(
            f'{{"containers": {_MAIN}, "initContainers": [{_SIDECAR}, {_INIT}], "overhead": {{"cpu": "10m"}}}}',
            460,
            id="P3-overhead",
        ),
        pytest.param(
            f'{{"containers": {_MAIN}, "initContainers": [{_SIDECAR}, {_INIT}], "overhead": {{"cpu": "10m"}}, '
            '"resources": {"requests": {"cpu": "1"}}}',
            1010,
            id="P3-pod-level",
        ),
    ],
)
def test_the_request_of_a_pod(spec: str, cpu: int) -> None:
    assert pod_requests(_spec(spec)) == {"cpu": cpu}


def _fits(build: ClusterBuilder) -> bool:
    """Whether the one pending pod fits the nodes there are."""
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
def test_room_on_a_node(used: str, asks: str, fits: bool) -> None:
    assert _fits(cluster().node("n", "1").running("n", 1, used).pending(1, asks)) is fits


def test_P6_the_number_of_pods_is_a_resource() -> None:
    build = cluster().node("n", "1", pods=10, group="g").running("n", 10).group("g", max=1).pending(1)
    assert not _fits(build)


def test_P7_every_short_resource_is_named() -> None:
    build = cluster().group("g", template=node("t", "1")).pending(1, "2", extra={"nvidia.com/gpu": 1})
    assert [text(r) for r in build.plan().unschedulable[0].reasons["g"]] == [
        "Insufficient cpu",
        "Insufficient nvidia.com/gpu",
    ]


def test_P8_allocatable_counts_not_capacity() -> None:
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
            {"required_affinity": (NodeTerm((Requirement("zone", "NotIn", ("x",)),)),)}, {}, True, id="P10-NotIn"
        ),
        pytest.param(
            {"required_affinity": (NodeTerm((Requirement("zone", "DoesNotExist"),)),)}, {}, True, id="P10-DoesNotExist"
        ),
        pytest.param({"required_affinity": (_in("zone", "x"),)}, {}, False, id="P10-In"),
        pytest.param({"required_affinity": (NodeTerm(),)}, {"a": "1"}, False, id="P11-empty-term"),
        pytest.param({"required_affinity": ()}, {"a": "1"}, False, id="P11-no-terms"),
        pytest.param({"required_affinity": (NodeTerm((Requirement("n", "Gt", ("5",)),)),)}, {"n": "6"}, True, id="Gt"),
        pytest.param(
            {"required_affinity": (NodeTerm((Requirement("n", "Lt", ("5",)),)),)},
            {"n": "x"},
            False,
            id="Lt-of-no-number",
        ),
    ],
)
def test_node_affinity(more: dict[str, Any], labels: dict[str, str], fits: bool) -> None:
    build = cluster().node("n", "1", labels=labels).pending(1, "1m", **more)
    assert _fits(build) is fits
    cls = build.classes[0]
    assert matches(cls, "n", build.nodes[0].labels) is fits, "the same for one node as for the table"


def test_P12_a_template_has_no_name_that_could_match() -> None:
    field = NodeTerm((), (Requirement("metadata.name", "In", ("node-7",)),))
    build = cluster().node("node-7", "1", group="g").group("g", template=node("t", "1"))
    assert _fits(build.pending(1, "1m", required_affinity=(field,)))
    other = cluster().node("node-8", "1", group="g").group("g").pending(1, "1m", required_affinity=(field,))
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
def test_tolerations(toleration: Toleration, ok: bool) -> None:
    assert (untolerated((toleration,), (_TAINT,)) is None) is ok


def test_P14_prefer_no_schedule_never_blocks() -> None:
    assert _fits(cluster().node("n", "1", taints=[Taint("k", "PreferNoSchedule")]).pending(1, "1m"))


def test_P15_a_cordoned_node_is_not_filled_even_for_pods_that_tolerate_it() -> None:
    tolerant = Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule")
    assert not _fits(cluster().node("n", "1", unschedulable=True).pending(1, "1m", tolerations=(tolerant,)))


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        pytest.param(HostPort(8080, "UDP", "127.0.0.1"), False, id="P16-other-protocol"),
        pytest.param(HostPort(8080, "TCP", "10.0.0.5"), False, id="P16-other-address"),
        pytest.param(HostPort(8080), True, id="P16-every-address"),
    ],
)
def test_host_ports(wanted: HostPort, taken: bool) -> None:
    held = HostPort(8080, "TCP", "127.0.0.1")
    assert (HeldPorts((held,)).clash((wanted,)) is not None) is taken
    build = cluster().node("n", "1").running("n", 1, ports=(held,)).pending(1, "1m", ports=(wanted,))
    assert _fits(build) is not taken


def test_P17_a_container_port_alone_is_no_host_port() -> None:
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
        pytest.param({"volumes": (Volume("d", "unheard-of"),)}, ["volumes"], id="a-volume-of-an-unheard-of-kind"),
        pytest.param(
            {"resource_claims": ("gpu",), "scheduler": "volcano"}, ["resource claims", "scheduler volcano"], id="both"
        ),
    ],
)
def test_what_is_not_simulated_says_so_and_never_fits(more: dict[str, Any], what: list[str]) -> None:
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
def test_a_scheduler_that_the_policy_names_is_taken_for_the_default_one(options: dict[str, Any]) -> None:
    assert _offered(scheduler="volcano").plan(**options).fits_existing


def test_what_is_not_simulated_holds_nobody_else_back() -> None:
    build = _offered(resource_claims=("gpu",), name="odd", owner="odd").pending(8, "1")
    plan = build.plan()
    assert len(plan.fits_existing) == 8
    assert [verdict.pods for verdict in plan.unschedulable] == [("default/odd-00000",)]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"pod_anti_affinity": (PodAffinityTerm("zone", _SELF),)}, id="anti-affinity"),
        pytest.param({"spread": (SpreadConstraint("kubernetes.io/hostname", 1, _SELF),)}, id="spread"),
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
def test_all_else_is_simulated(more: dict[str, Any]) -> None:
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
def test_and_turned_away_for_the_schedulers_own_reason(more: dict[str, Any], why: str) -> None:
    plan = _offered(**more).plan()
    assert words(plan) == {"g": [why]}
    assert tally(plan) == {why: 1}


def test_the_first_filter_that_fails_speaks() -> None:
    build = cluster().group("g", template=node("t", "1", taints=[_TAINT], labels={"zone": "b"}))
    build.pending(1, "2", required_affinity=(_in("zone", "a"),))
    assert words(build.plan()) == {"g": ["node(s) had untolerated taint(s)"]}


def test_what_nodes_say_is_counted_as_the_scheduler_counts() -> None:
    build = cluster().node("full", "1").node("small", "1", "1Gi").node("tainted", "8", taints=[_TAINT])
    build.node("other", "8", labels={"disk": "hdd"}).node("cordoned", "8", unschedulable=True)
    build.running("full", 1, "1", owner="filler").pending(1, "2", "2Gi", node_selector={"disk": "ssd"}, name="picky")
    plan = build.plan()
    assert verdict(plan).nodes == 5
    assert tally(plan) == {
        "node(s) didn't match Pod's node affinity/selector": 3,
        "node(s) were unschedulable": 1,
        "node(s) had untolerated taint(s)": 1,
    }
    plain = cluster().node("full", "1").node("small", "1", "1Gi").running("full", 1, "1", owner="filler")
    assert tally(plain.pending(1, "2", "2Gi").plan()) == {"Insufficient cpu": 2, "Insufficient memory": 1}
