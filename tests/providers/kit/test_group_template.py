"""What Kubernetes takes as a label, and the template node, for all vendors."""

from __future__ import annotations

from chalicelib.model.node import Node, Taint
from chalicelib.providers.kit.node_template import (
    is_label_key,
    is_label_value,
    template_name,
    template_node,
)
from tests.cases import each_row


@each_row(
    ("key", "good"),
    [
        ("a", True),
        ("a.b/c_d", True),
        ("x" * 63, True),
        ("a" * 253 + "/b", True),
        ("", False),
        ("/a", False),
        ("A.b/c", False),
        ("a..b/c", False),
        ("a b", False),
        ("a/", False),
        ("a/b/c", False),
        ("x" * 64, False),
        ("a" * 254 + "/b", False),
        ("acs:x", False),
        ("ä", False),
        ("a\n", False),
    ],
)
def test_key_of_a_label(key: str, good: bool) -> None:
    assert is_label_key(key) is good


@each_row(
    ("value", "good"),
    [
        ("", True),
        ("a-b.c_D", True),
        ("-a", False),
        ("a b", False),
        ("x" * 64, False),
        ("a\n", False),
    ],
)
def test_value_of_a_label(value: str, good: bool) -> None:
    assert is_label_value(value) is good


def test_template_node_keeps_its_reserve_and_its_own_host_name() -> None:
    taints = (Taint("dedicated", "NoSchedule", "web"),)
    labels = {"a": "b", "kubernetes.io/hostname": "other"}
    capacity = {"cpu": 4000, "pods": 110, "memory": 10}
    node = template_node(template_name("g"), labels, capacity, {"cpu": 100, "memory": 20}, taints)
    assert node == Node(
        name="template-node-for-g",
        labels={"a": "b", "kubernetes.io/hostname": "template-node-for-g"},
        capacity=capacity,
        allocatable={"cpu": 3900, "pods": 110, "memory": 0},
        taints=taints,
    )
