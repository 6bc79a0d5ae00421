"""Node templates of pools."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.plan.prices import has_gpu
from chalicelib.providers.cherryservers.decoding import CherryPlan
from chalicelib.providers.cherryservers.node_template import make_template
from tests.cases import each_row
from tests.providers.cherryservers.emulated import PLAN, definition

GIB = 2**30


def plan(**specs: Any) -> CherryPlan:
    """The example plan; specs: parts that replace those of the example."""
    parts = PLAN["specs"]
    changed = {
        key: {**parts[key], **value} if isinstance(value, dict) else value
        for key, value in specs.items()
    }
    return msgspec.convert(PLAN | {"specs": {**parts, **changed}}, CherryPlan)


def node(of: CherryPlan | None = None, reserve: dict[str, int] | None = None, **more: Any) -> Node:
    template = make_template(definition(**more), of or plan(), reserve or {})
    assert template.problem == ""
    assert template.node is not None
    return template.node


def test_cherry_template_example_plan_has_16_cores_192_gb_and_slug_labels() -> None:
    made = node()
    assert made.capacity == {
        "cpu": 16000,
        "memory": 206158430208,
        "pods": 110,
        "nvidia.com/gpu": 0,
        "ephemeral-storage": 2**40,
    }
    assert made.allocatable == made.capacity
    assert made.labels == {
        "pool": "pool3",
        "node.kubernetes.io/instance-type": "amd-ryzen-9950x",
        "beta.kubernetes.io/instance-type": "amd-ryzen-9950x",
        "topology.kubernetes.io/region": "LT-Siauliai",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        HOSTNAME_LABEL: made.name,
    }
    assert made.name.startswith("pool3-asg-")
    assert made.taints == ()
    assert not has_gpu(made)


def test_cherry_template_takes_no_label_from_a_plans_name() -> None:
    assert not [value for value in node().labels.values() if " " in value]


def test_cherry_template_unknown_plan_is_reported_without_a_node() -> None:
    template = make_template(definition(plan="wibble"), None, {})
    assert template.node is None
    assert "plan 'wibble' is not supported" in template.problem


@each_row(
    ("unit", "size"), [("KB", 2**10), ("MB", 2**20), ("GB", 2**30), ("TB", 2**40), (" gb ", 2**30)]
)
def test_cherry_template_memory_is_read_in_its_unit(unit: str, size: int) -> None:
    assert node(plan(memory={"total": 3, "unit": unit})).capacity["memory"] == 3 * size


@each_row(
    ("specs", "problem"),
    [
        ({"memory": {"unit": "PB"}}, "memory in 'PB', which is not one of KB, MB, GB, TB"),
        ({"memory": {"unit": ""}}, "memory in ''"),
        ({"memory": {"total": 0}}, "how much memory"),
        ({"cpus": {"cores": 0}}, "how many cores"),
        ({"cpus": {"cores": -1}}, "set cpu-override"),
    ],
)
def test_cherry_template_incomplete_plan_makes_no_node(specs: dict[str, Any], problem: str) -> None:
    template = make_template(definition(), plan(**specs), {})
    assert template.node is None
    assert problem in template.problem


def test_cherry_template_cores_are_those_of_the_machine_unless_overridden() -> None:
    assert node(plan(cpus={"count": 2, "cores": 52})).capacity["cpu"] == 52000
    assert node(plan(cpus={"cores": 0}), cpu_override=24).capacity["cpu"] == 24000


@each_row(
    ("specs", "partition", "size"),
    [
        ({}, 60, 60 * GIB),
        ({}, 0, 2**40),
        ({"storage": [{"count": 2, "size": 250.5, "unit": "GB"}]}, 0, int(250.5 * GIB)),
        (
            {
                "storage": [
                    {"count": 1, "size": 0.5, "unit": "TB"},
                    {"count": 9, "size": 8, "unit": "TB"},
                ]
            },
            0,
            2**39,
        ),
    ],
)
def test_cherry_template_disk_is_the_partition_or_one_disk_of_the_first_kind(
    specs: dict[str, Any], partition: int, size: int
) -> None:
    assert node(plan(**specs), os_partition_size=partition).capacity["ephemeral-storage"] == size


@each_row(
    "storage", [[], [{"count": 1, "size": 1, "unit": "floppies"}], [{"count": 1, "unit": "GB"}]]
)
def test_cherry_template_disk_of_unknown_size_is_omitted_with_a_warning(
    storage: list[dict[str, Any]],
) -> None:
    template = make_template(definition(), plan(storage=storage), {})
    assert template.node is not None
    assert "ephemeral-storage" not in template.node.capacity
    assert "os-partition-size" in template.warnings[0]


def test_cherry_template_reserved_resources_reduce_the_allocatable() -> None:
    made = node(reserve={"cpu": 500, "memory": GIB, "ephemeral-storage": 2**50})
    assert made.capacity["cpu"] == 16000
    assert made.allocatable == {
        **made.capacity,
        "cpu": 15500,
        "memory": 191 * GIB,
        "ephemeral-storage": 0,
    }


@each_row(
    ("region", "label"),
    [
        ("LT-Siauliai", "LT-Siauliai"),
        ("Lithuania", "LT-Siauliai"),
        ("1", "LT-Siauliai"),
        ("eu_nord_1", "eu_nord_1"),
    ],
)
def test_cherry_template_region_label_is_a_slug_however_configured(region: str, label: str) -> None:
    assert node(region=region).labels["topology.kubernetes.io/region"] == label
