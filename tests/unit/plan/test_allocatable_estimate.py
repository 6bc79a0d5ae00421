"""The allocatable resources of a node template."""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import LearntTemplate
from chalicelib.model.node import Node
from tests.builders import NOW, cluster, node
from tests.unit.plan.test_node_templates import of

# -- allocatable of a template


GIB = 2**30


def bare(**amounts: int) -> Node:
    """A template that only has a capacity."""
    return node(
        "t",
        capacity={"cpu": 4000, "memory": 8 * GIB, "ephemeral-storage": 100, "pods": 110, **amounts},
        allocatable={},
    )


def kubelet(millicores: int = 4000, **allocatable: int) -> Node:
    """A node whose kubelet has reported capacity and allocatable."""
    capacity = {"cpu": millicores, "memory": 8 * GIB, "ephemeral-storage": 200, "pods": 110}
    return node("n", capacity=capacity, allocatable=capacity | allocatable)


def test_kubelet_defaults_are_reserved_where_only_the_capacity_is_known() -> None:
    found = of(cluster().group("g", template=bare())).node.allocatable
    assert found == {
        "cpu": 4000,
        "memory": 8 * GIB - 100 * 2**20,
        "ephemeral-storage": 90,
        "pods": 110,
    }


def test_huge_pages_reduce_the_memory_of_a_template() -> None:
    found = of(cluster().group("g", template=bare(**{"hugepages-2Mi": GIB}))).node.allocatable
    assert (found["memory"], found["hugepages-2Mi"]) == (7 * GIB - 100 * 2**20, GIB)


def test_allocatable_of_a_template_is_not_changed() -> None:
    same = node("t", "4", "8Gi")
    assert same.capacity == same.allocatable
    assert of(cluster().group("g", template=same)).node.allocatable == same.allocatable


def test_learnt_node_of_the_group_gives_the_reservation_even_after_it_expired() -> None:
    build = cluster().group("g", template=bare(**{"example.com/fpga": 2}))
    old = LearntTemplate(
        kubelet(**{"cpu": 3900, "memory": 7 * GIB, "ephemeral-storage": 150}), NOW - 7200
    )
    found = of(build, old, node_info_cache_expire_time=3600)
    assert found.source == "provider"
    assert found.node.allocatable == {
        "cpu": 3900,
        "memory": 7 * GIB,
        "ephemeral-storage": 50,
        "pods": 110,
        "example.com/fpga": 2,
    }


def test_newly_joined_node_gives_the_kubelets_reservation() -> None:
    build = cluster()
    build.nodes.append(
        msgspec.structs.replace(
            kubelet(memory=6 * GIB),
            provider_id="test://g/n",
            conditions=node("n", ready_since=NOW - 30).conditions,
        )
    )
    found = of(build.group("g", template=bare()))
    assert (found.source, found.node.allocatable["memory"]) == ("provider", 6 * GIB)


def test_nodes_of_another_size_give_no_reservation() -> None:
    old = LearntTemplate(kubelet(64000, memory=GIB), NOW - 7200)
    found = of(cluster().group("g", template=bare()), old, node_info_cache_expire_time=3600)
    assert found.node.allocatable["memory"] == 8 * GIB - 100 * 2**20
