"""Node templates of groups: golden files, and uncertain values that are omitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chalicelib.model.group import NodeGroup
from chalicelib.model.label_syntax import is_label_value
from chalicelib.providers.alicloud.node_template import (
    label_value,
    read_tags,
)
from infra.emulators.alicloud.models import MachineType
from tests.cases import each_row
from tests.providers.alicloud.emulated import EmulatedEss
from tests.providers.suite.golden import assert_golden

GOLDEN = Path(__file__).with_name("golden")
PREFIX = "k8s.io/cluster-autoscaler/node-template/"
TYPES = (
    MachineType("ecs.g6.xlarge", 4, 15.5),
    MachineType("ecs.c7.large", 2, 4.0),
    MachineType("ecs.gn5i-c4g1.xlarge", 4, 16.0, gpus=1, gpu="NVIDIA P4"),
    MachineType("ecs.gn7i-c16g1.4xlarge", 16, 60.0, gpus=1, gpu="NVIDIA A10"),
    MachineType("ecs.gn7i-c32g1.16xlarge", 64, 250.0, gpus=2, gpu="NVIDIA A10"),
    MachineType("ecs.broken", 0, 0.0),
)
RESERVED = {"reservedCpu": "100m", "reservedMemory": "1Gi", "reservedEphemeralStorage": "5Gi"}


def ess_with(*types: str, size: int = 0, disk: int = 120, **more: Any) -> EmulatedEss:
    """Returns an account with a group of these instance types."""
    ess = EmulatedEss()
    ess.cloud.types |= {each.id: each for each in TYPES}
    ess.cloud.add_group("asg-1", size=size, types=types, disk=disk, **more)
    return ess


def observed(ess: EmulatedEss) -> NodeGroup:
    return ess.build(**RESERVED).observe(()).groups[0]


def group_of(*types: str, **more: Any) -> NodeGroup:
    return observed(ess_with(*types, **more))


def test_alicloud_template_x86_in_one_zone() -> None:
    assert_golden(group_of("ecs.g7.xlarge", size=1).template, GOLDEN / "x86.json")


def test_alicloud_template_arm_from_zero() -> None:
    assert_golden(group_of("ecs.g8y.xlarge").template, GOLDEN / "arm.json")


def test_alicloud_template_gpu_and_spot() -> None:
    template = group_of("ecs.gn5i-c4g1.xlarge", spot="SpotAsPriceGo", disk=200).template
    assert_golden(template, GOLDEN / "gpu.json")


def test_alicloud_template_of_several_types_has_the_least_capacity() -> None:
    template = group_of("ecs.g7.xlarge", "ecs.g6.xlarge", "ecs.c7.large").template
    assert_golden(template, GOLDEN / "several-types.json")


def test_alicloud_template_of_several_gpu_types_has_the_fewest_gpus() -> None:
    template = group_of("ecs.gn7i-c16g1.4xlarge", "ecs.gn7i-c32g1.16xlarge").template
    assert template is not None
    assert template.capacity["nvidia.com/gpu"] == 1
    assert template.labels["aliyun.accelerator/nvidia_name"] == "NVIDIA-A10"
    template = group_of("ecs.gn7i-c16g1.4xlarge", "ecs.g7.xlarge").template
    assert template is not None
    assert "nvidia.com/gpu" not in template.capacity
    assert "aliyun.accelerator/nvidia_name" not in template.labels


def launched(*own: str) -> NodeGroup:
    """Returns a group with a launch template, version 3, and these types of its own."""
    ess = ess_with("ecs.g7.xlarge", template=True, disk=80, machine_tags={"team": "web"})
    (made,) = ess.cloud.templates.values()
    made.version = 3
    ess.cloud.templates = {(made.id, 3): made}
    ess.group.template_version, ess.group.overrides = "3", own
    return observed(ess)


def test_alicloud_template_from_a_launch_template_alone() -> None:
    assert_golden(launched().template, GOLDEN / "launch-template.json")


def test_alicloud_template_groups_own_types_override_the_launch_template() -> None:
    template = launched("ecs.c7.large", "ecs.g8y.xlarge").template
    assert template is not None
    assert template.capacity["cpu"] == 2000
    assert "kubernetes.io/arch" not in template.labels  # one of each: neither value may be stated


def test_alicloud_template_tags_become_labels_taints_and_resources() -> None:
    group = group_of(
        "ecs.g7.xlarge",
        machine_tags={
            "workload": "web",
            "cost centre": "12",
            "note": "not a label!",
            "acs:autoscaling:id": "x",
            "kubernetes.io/arch": "arm64",
            f"{PREFIX}label/tier": "back",
        },
        tags={
            "env": "prod",
            f"{PREFIX}label/tier": "front",
            f"{PREFIX}label/bad key": "x",
            f"{PREFIX}label/topology.kubernetes.io/zone": "z",
            f"{PREFIX}taint/dedicated": "web:NoSchedule",
            f"{PREFIX}taint/gone": ":NoExecute",
            f"{PREFIX}taint/odd": "web:Sometimes",
            f"{PREFIX}resources/example.com/card": "2",
            f"{PREFIX}resources/ephemeral-storage": "50Gi",
            f"{PREFIX}resources/hugepages-2Mi": "many",
        },
    )
    assert_golden(group.template, GOLDEN / "tags.json")


def test_alicloud_template_reports_invalid_tags() -> None:
    said = read_tags(
        [
            (f"{PREFIX}taint/odd", "web:Sometimes"),
            (f"{PREFIX}resources/cpu", "-1"),
            (f"{PREFIX}label/", "x"),
            (f"{PREFIX}unknown/x", "y"),
        ],
        [],
    )
    assert len(said.warnings) == 3
    assert all(PREFIX in warning for warning in said.warnings)
    assert (said.labels, said.taints, said.resources) == ({}, (), {})


def test_alicloud_template_label_is_the_closest_that_kubernetes_takes() -> None:
    assert label_value("NVIDIA  A10 (24 GB)") == "NVIDIA-A10-24-GB"
    assert is_label_value(label_value("--" + "é x" * 60))


def test_alicloud_template_states_a_zone_only_if_there_is_one() -> None:
    one = group_of("ecs.g7.xlarge", size=1, zones=("cn-hangzhou-i", "cn-hangzhou-j"))
    none = group_of("ecs.g7.xlarge")
    for group in (one, none):
        assert group.template is not None
        assert "topology.kubernetes.io/zone" not in group.template.labels


@each_row("policy", ["COST_OPTIMIZED", "COMPOSABLE"])
def test_alicloud_template_of_mixed_spot_and_regular_instances_states_neither(policy: str) -> None:
    ess = ess_with("ecs.g7.xlarge", spot="SpotAsPriceGo")
    ess.group.multi_zone = policy
    template = observed(ess).template
    assert template is not None
    assert "node.alibabacloud.com/spot-strategy" not in template.labels


@each_row(
    ("types", "word"),
    [
        ((), "scaling configuration does not exist"),
        (("",), "names no instance type"),
        (("ecs.unheard",), "ECS knows none of ecs.unheard"),
        (("ecs.broken",), "ECS knows none of ecs.broken"),
    ],
)
def test_alicloud_group_without_a_template_says_why(types: tuple[str, ...], word: str) -> None:
    ess = ess_with(*(types or ("ecs.g7.xlarge",)))
    if not types:
        ess.cloud.configurations.clear()
    group = observed(ess)
    assert group.template is None
    assert word in group.template_error
    assert group.error == ""


def test_alicloud_group_without_a_scaling_configuration_says_so() -> None:
    ess = EmulatedEss(0)
    ess.group.configuration = ""
    assert "neither a scaling configuration nor a launch template" in observed(ess).template_error


def test_alicloud_template_omits_and_reports_one_unknown_type_of_several() -> None:
    ess = ess_with("ecs.unheard", "ecs.g7.xlarge")
    assert observed(ess).template is not None
    assert "ecs.unheard" in ess.warnings()


def test_alicloud_template_reports_a_missing_launch_template_and_refusal_once() -> None:
    ess = EmulatedEss(0, template=True)
    ess.group.template, ess.group.template_version = "lt-gone", ""
    assert "lt-gone (Default)" in observed(ess).template_error
    ess = EmulatedEss(0, 0, 0, template=True)
    ess.fail("DescribeLaunchTemplateVersions", "Forbidden.RAM", status=403)
    assert all("Forbidden.RAM" in each.template_error for each in ess.groups())
    assert ess.actions().count("DescribeLaunchTemplateVersions") == 0, (
        "the others were not requested"
    )
