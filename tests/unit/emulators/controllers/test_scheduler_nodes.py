"""Node selectors, node affinity, taints, cordon and host ports."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.emulators.controllers.objects import (
    ZONE,
    expression,
    fitting,
    node,
    node_terms,
    pod,
    reasons,
)


def in_(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [expression(key, "In", *values)]}


def test_scheduler_node_selector_and_one_affinity_term_must_match() -> None:
    asking = pod(nodeSelector={"a": "1"}, affinity=node_terms(in_("b", "2"), in_("c", "3")))
    nodes = [node("both", labels={"a": "1", "c": "3"}), node("term-only", labels={"b": "2"})]
    assert reasons(asking, nodes) == {
        "both": [],
        "term-only": ["node(s) didn't match Pod's node affinity/selector"],
    }


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        pytest.param(expression(ZONE, "NotIn", "x"), True, id="P10-NotIn"),
        pytest.param(expression(ZONE, "DoesNotExist"), True, id="P10-DoesNotExist"),
        pytest.param(expression(ZONE, "In", "x"), False, id="P10-In"),
        pytest.param(expression("size", "Gt", "7"), True, id="Gt"),
        pytest.param(expression("size", "Lt", "8"), False, id="Lt-equal"),
        pytest.param(expression("word", "Gt", "1"), False, id="Gt-no-number"),
        pytest.param(expression("size", "Exists"), True, id="Exists"),
    ],
)
def test_scheduler_node_affinity_expressions(wanted: dict[str, Any], fits: bool) -> None:
    there = node(labels={"size": "8", "word": "large"})
    assert bool(fitting(pod(affinity=node_terms({"matchExpressions": [wanted]})), [there])) is fits


@pytest.mark.parametrize(
    "terms", [pytest.param([{}], id="P11-empty-term"), pytest.param([], id="P11-no-term")]
)
def test_scheduler_node_affinity_terms_that_match_nothing(terms: list[dict[str, Any]]) -> None:
    assert not fitting(pod(affinity=node_terms(*terms)), [node()])


def test_scheduler_match_fields_name_one_node() -> None:
    only = pod(affinity=node_terms({"matchFields": [expression("metadata.name", "In", "node-7")]}))
    assert fitting(only, [node("node-7"), node("node-8")]) == {"node-7"}


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        pytest.param({"key": "k", "operator": "Exists"}, True, id="P13-exists"),
        pytest.param({"key": "k", "value": "v"}, True, id="P13-equal-by-default"),
        pytest.param({"key": "k", "value": "w"}, False, id="P13-other-value"),
        pytest.param({"operator": "Exists"}, True, id="P13-any-key"),
        pytest.param(
            {"key": "k", "value": "v", "effect": "NoExecute"}, False, id="P13-other-effect"
        ),
    ],
)
def test_scheduler_toleration_matching(toleration: dict[str, str], fits: bool) -> None:
    why = reasons(pod(tolerations=[toleration]), [node(taints=[TAINT])])["n1"]
    assert why == ([] if fits else ["node(s) had untolerated taint(s)"])


def test_scheduler_prefer_no_schedule_never_blocks() -> None:
    assert fitting(pod(), [node(taints=[{"key": "k", "effect": "PreferNoSchedule"}])])


def test_scheduler_cordoned_node_is_unschedulable() -> None:
    cordoned = node()
    cordoned["spec"]["unschedulable"] = True
    assert reasons(pod(), [cordoned]) == {"n1": ["node(s) were unschedulable"]}
    tolerant = pod(
        tolerations=[
            {
                "key": "node.kubernetes.io/unschedulable",
                "effect": "NoSchedule",
                "operator": "Exists",
            }
        ]
    )
    assert reasons(tolerant, [cordoned]) == {"n1": []}


def ports(ip: str = "", port: int = 8080, protocol: str = "TCP", **more: int) -> dict[str, Any]:
    return {
        "containers": [
            {
                "name": "c",
                "ports": [
                    {
                        "containerPort": 80,
                        "protocol": protocol,
                        "hostPort": port,
                        **({"hostIP": ip} if ip else {}),
                        **more,
                    }
                ],
            }
        ]
    }


@pytest.mark.parametrize(
    ("mine", "fits"),
    [
        pytest.param(ports("127.0.0.1", protocol="UDP"), True, id="P16-udp"),
        pytest.param(ports("10.0.0.5"), True, id="P16-other-address"),
        pytest.param(ports("0.0.0.0"), False, id="P16-all-addresses"),
        pytest.param(ports(), False, id="P16-no-address"),
        pytest.param(
            {"containers": [{"name": "c", "ports": [{"containerPort": 8080}]}]},
            True,
            id="P17-no-host-port",
        ),
    ],
)
def test_scheduler_host_port_conflicts(mine: dict[str, Any], fits: bool) -> None:
    why = reasons(pod(**mine), [node()], [pod("old", on="n1", **ports("127.0.0.1"))])["n1"]
    assert why == ([] if fits else ["node(s) didn't have free ports for the requested pod ports"])


def test_scheduler_first_refusing_predicate_gives_the_reason() -> None:
    assert reasons(pod(cpu="99"), [node(taints=[TAINT])]) == {
        "n1": ["node(s) had untolerated taint(s)"]
    }
