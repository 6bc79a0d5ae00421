"""The template node, for all vendors."""

from __future__ import annotations

from chalicelib.model.node import Node, Taint
from chalicelib.providers.kit.node_template import template_name, template_node


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
