"""A NodePool of Karpenter admits a pod as Karpenter's own scheduler does, and
whatever it contains is bounded.
"""

from __future__ import annotations

import json
from typing import Any

from chalicelib.cli.doctor.karpenter_pools import NodePool, alternatives, decode_pool
from chalicelib.model.pod import PodClass, Toleration
from chalicelib.model.selector import NodeTerm, Requirement
from tests.cases import each_row

Json = dict[str, Any]
Row = tuple[str, str, tuple[str, ...]]
GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def decoded(*requirements: Row, labels: Json | None = None, **spec: Any) -> NodePool:
    listed = [
        {"key": key, "operator": word, "values": list(values)} for key, word, values in requirements
    ]
    template = {"metadata": {"labels": labels}, "spec": {"requirements": listed, **spec}}
    return decode_pool(
        json.dumps({"metadata": {"name": "default"}, "spec": {"template": template}}).encode()
    )


def asking(*requirements: Row, **fields: Any) -> PodClass:
    expressions = tuple(Requirement(*row) for row in requirements)
    return PodClass(
        "shop",
        {},
        {},
        required_affinity=(NodeTerm(expressions),) if expressions else None,
        **fields,
    )


def admits(pool: NodePool, pod_class: PodClass) -> bool:
    assert pool.problem == ""
    return pool.admits(pod_class, alternatives(pod_class))


@each_row(
    "own, asked, expected",
    [
        (("k", "In", ("a", "b")), ("k", "In", ("b",)), True),
        (("k", "In", ("a", "b")), ("k", "In", ("c",)), False),
        (("k", "In", ("a", "b")), ("k", "NotIn", ("a",)), True),
        (("k", "In", ("a",)), ("k", "NotIn", ("a",)), False),
        (("k", "In", ("a",)), ("k", "Exists", ()), True),
        (("k", "In", ("a",)), ("k", "DoesNotExist", ()), False),
        (("k", "Exists", ()), ("k", "In", ("a",)), True),
        (("k", "Exists", ()), ("k", "DoesNotExist", ()), False),
        (("k", "NotIn", ("a",)), ("k", "In", ("a",)), False),
        (("k", "NotIn", ("a",)), ("k", "In", ("a", "b")), True),
        (("k", "NotIn", ("a",)), ("k", "DoesNotExist", ()), True),
        (("k", "NotIn", ("a",)), ("k", "NotIn", ("b",)), True),
        (("k", "DoesNotExist", ()), ("k", "In", ("a",)), False),
        (("k", "DoesNotExist", ()), ("k", "Exists", ()), False),
        (("k", "DoesNotExist", ()), ("k", "NotIn", ("a",)), True),
        (("k", "DoesNotExist", ()), ("k", "DoesNotExist", ()), True),
        (("k", "Gt", ("4",)), ("k", "In", ("4",)), False),
        (("k", "Gt", ("4",)), ("k", "In", ("5",)), True),
        (("k", "Gte", ("4",)), ("k", "In", ("4",)), True),
        (("k", "Lt", ("4",)), ("k", "In", ("4", "3")), True),
        (("k", "Lt", ("4",)), ("k", "In", ("4",)), False),
        (("k", "Lte", ("4",)), ("k", "In", ("4",)), True),
        (("k", "Gt", ("4",)), ("k", "Lt", ("5",)), False),
        (("k", "Gt", ("4",)), ("k", "Lt", ("6",)), True),
        (("k", "In", ("4", "16")), ("k", "Gt", ("8",)), True),
        (("k", "In", ("4", "x")), ("k", "Gt", ("8",)), False),
        (("other", "In", ("a",)), ("k", "In", ("a",)), False),  # a label that its nodes do not have
        (("other", "In", ("a",)), ("k", "Exists", ()), False),
        (("other", "In", ("a",)), ("k", "NotIn", ("a",)), True),
        (("other", "In", ("a",)), ("k", "DoesNotExist", ()), True),
        # a label that Karpenter gives
        (("other", "In", ("a",)), ("kubernetes.io/arch", "In", ("arm64",)), True),
        (("other", "In", ("a",)), ("karpenter.k8s.huawei/instance-family", "In", ("s7",)), True),
        (("other", "In", ("a",)), ("karpenter.sh/nodepool", "In", ("default",)), True),
        (("other", "In", ("a",)), ("karpenter.sh/nodepool", "In", ("another",)), False),
        (("other", "In", ("a",)), ("kubernetes.io/hostname", "In", ("a",)), False),
        (
            ("kubernetes.io/arch", "In", ("arm64",)),
            ("beta.kubernetes.io/arch", "In", ("amd64",)),
            False,
        ),
        (
            ("topology.kubernetes.io/zone", "In", ("a",)),
            ("failure-domain.beta.kubernetes.io/zone", "In", ("a",)),
            True,
        ),
    ],
)
def test_a_pool_agrees_with_what_a_pod_asks_of_a_label(
    own: Row, asked: Row, expected: bool
) -> None:
    assert admits(decoded(own), asking(asked)) == expected
    if asked[1] == "In" and len(asked[2]) == 1:
        selector = PodClass("shop", {}, {}, node_selector={asked[0]: asked[2][0]})
        assert admits(decoded(own), selector) == expected


def test_all_requirements_of_a_label_count_together() -> None:
    pool = decoded(("k", "Exists", ()), ("k", "In", ("a", "b")), ("k", "NotIn", ("a",)))
    assert admits(pool, asking(("k", "In", ("b",))))
    assert not admits(pool, asking(("k", "In", ("a",))))


def test_labels_of_the_template_count_as_requirements() -> None:
    pool = decoded(labels={"team": "red"})
    assert admits(pool, asking(("team", "In", ("red",))))
    assert not admits(pool, asking(("team", "In", ("blue",))))


def test_one_of_several_terms_is_enough() -> None:
    terms = tuple(NodeTerm((Requirement("k", "In", (value,)),)) for value in ("x", "a"))
    assert admits(decoded(("k", "In", ("a",))), PodClass("shop", {}, {}, required_affinity=terms))


@each_row(
    "terms",
    [
        (),
        (NodeTerm(),),
        (NodeTerm(fields=(Requirement("metadata.name", "In", ("node-1",)),)),),
        (NodeTerm((Requirement("k", "Near", ("a",)),)),),
    ],
)
def test_a_pod_that_no_new_node_can_take_is_admitted_nowhere(terms: tuple[NodeTerm, ...]) -> None:
    assert not admits(decoded(), PodClass("shop", {}, {}, required_affinity=terms))


def test_taints_need_a_toleration_and_startup_taints_do_not() -> None:
    tolerating = asking(tolerations=(Toleration("gpu", "Exists"),))
    assert not admits(decoded(taints=[GPU]), asking())
    assert admits(decoded(taints=[GPU]), tolerating)
    assert admits(decoded(startupTaints=[GPU]), asking())
    assert admits(decoded(taints=[{**GPU, "effect": "PreferNoSchedule"}]), asking())


def test_minimum_values_and_weight_keep_no_pod_away() -> None:
    body = {"key": "k", "operator": "In", "values": ["a", "b"], "minValues": 2}
    spec = {"template": {"spec": {"requirements": [body]}}, "weight": 90}
    pool = decode_pool(json.dumps({"metadata": {"name": "default"}, "spec": spec}).encode())
    assert admits(pool, asking(("k", "In", ("a",))))


@each_row(
    "more, expected",
    [
        ({}, True),
        ({"metadata": {"name": "default", "deletionTimestamp": "2026-11-28T00:00:00Z"}}, False),
        ({"spec": {"replicas": 0}}, False),
        ({"spec": {"limits": {"cpu": 4}}, "status": {"resources": {"cpu": "3999m"}}}, True),
        ({"spec": {"limits": {"cpu": 4}}, "status": {"resources": {"cpu": "4"}}}, False),
        ({"spec": {"limits": {"cpu": "0"}}}, False),
        (
            {
                "spec": {"limits": {"memory": "1Gi"}},
                "status": {"resources": {"memory": "1048576Ki"}},
            },
            False,
        ),
        (
            {
                "spec": {"limits": {"nvidia.com/gpu": "2"}},
                "status": {"resources": {"nvidia.com/gpu": 1}},
            },
            True,
        ),
        ({"spec": {"limits": None}, "status": None}, True),
    ],
)
def test_a_pool_buys_until_a_limit_is_reached(more: Json, expected: bool) -> None:
    assert (
        decode_pool(json.dumps({"metadata": {"name": "default"}, **more}).encode()).buys == expected
    )


@each_row(
    "body",
    [
        b"{",
        b"[]",
        b'{"metadata":{}}',
        b'{"metadata":{"name":"x"},"spec":{"template":{"spec":{"requirements":[{"key":"k"}]}}}}',
        b'{"metadata":{"name":"x"},"spec":{"template":{"metadata":{"labels":{"a":1}}}}}',
        b'{"metadata":{"name":"x"},"spec":{"limits":{"cpu":"much"}}}',
        b'{"metadata":{"name":"x"},"spec":{"limits":{"cpu":1e999}}}',
        b'{"metadata":{"name":"x"},"spec":{"limits":{"cpu":-1}}}',
        b'{"metadata":{"name":"x"},"spec":{"replicas":"three"}}',
        b'{"metadata":{"name":"x"},"spec":' + b'{"template":' * 2000 + b"1" + b"}" * 2001,
        *(
            json.dumps(
                {
                    "metadata": {"name": "x"},
                    "spec": {"template": {"spec": {"requirements": [row], "taints": []}}},
                }
            ).encode()
            for row in (
                {"key": "k", "operator": "Gt", "values": []},
                {"key": "k", "operator": "Gt", "values": ["1_0"]},
                {"key": "k", "operator": "Gt", "values": ["9" * 5000]},
                {"key": "k", "operator": "Gt", "values": ["1", "2"]},
                {"key": "k", "operator": "in", "values": ["1"]},
                {"key": "k", "operator": "In", "values": [str(number) for number in range(10_001)]},
            )
        ),
    ],
)
def test_a_malformed_pool_has_a_problem_and_raises_nothing(body: bytes) -> None:
    pool = decode_pool(body)
    assert 0 < len(pool.problem) <= 200
    assert pool.name in ("x", "without a name")
