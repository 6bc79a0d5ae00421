"""Node templates of groups: golden files, and uncertain values that are omitted."""

from __future__ import annotations

from pathlib import Path

from chalicelib.model.group import NodeGroup
from chalicelib.providers.alicloud.decoding import InstanceType, LaunchTemplateData, ScalingConfiguration, Tag
from chalicelib.providers.alicloud.node_template import is_label_key, is_label_value, label_value, read_tags
from chalicelib.providers.errors import Unauthorized
from tests.cases import each_row
from tests.contract.suite.golden import assert_golden
from tests.unit.providers.alicloud.fake_api import FakeAlicloudApi, FakeApiGroup, overrides, provider, refusal, tags

GOLDEN = Path(__file__).parents[3] / "contract" / "alicloud" / "golden"
PREFIX = "k8s.io/cluster-autoscaler/node-template/"
KINDS = {
    each.instance_type_id: each
    for each in (
        InstanceType("ecs.g7.xlarge", "ecs.g7", 4, 16.0),
        InstanceType("ecs.g6.xlarge", "ecs.g6", 4, 15.5),
        InstanceType("ecs.c7.large", "ecs.c7", 2, 4.0),
        InstanceType("ecs.g8y.xlarge", "ecs.g8y", 4, 16.0, "ARM"),
        InstanceType("ecs.gn5i-c4g1.xlarge", "ecs.gn5i", 4, 16.0, "X86", 1, "NVIDIA P4"),
        InstanceType("ecs.gn7i-c16g1.4xlarge", "ecs.gn7i", 16, 60.0, "X86", 1, "NVIDIA A10"),
        InstanceType("ecs.gn7i-c32g1.16xlarge", "ecs.gn7i", 64, 250.0, "X86", 2, "NVIDIA A10"),
        InstanceType("ecs.broken", "ecs.broken", 0, 0.0),
    )
}
ASKED = {"reservedCpu": "100m", "reservedMemory": "1Gi", "reservedEphemeralStorage": "5Gi"}


def configuration(
    *types: str,
    disk: int = 120,
    spot: str = "NoSpot",
    said: dict[str, str] | None = None,
) -> ScalingConfiguration:
    return ScalingConfiguration(
        "asc-1",
        instance_type=types[0] if types else "",
        instance_types=list(types),
        system_disk_size=disk,
        spot_strategy=spot,
        tags=[Tag(key=key, value=value) for key, value in (said or {}).items()],
    )


def group_of(
    plan: ScalingConfiguration | None = None, *, size: int = 0, api: FakeAlicloudApi | None = None, **more: object
) -> NodeGroup:
    api = api or FakeAlicloudApi(FakeApiGroup("asg-1", more=more))
    api.kinds = KINDS
    api.plans = {"asc-1": plan} if plan else {}
    api.fill("asg-1", size)
    return provider(api, kube=None, **ASKED).observe(()).groups[0]


def test_alicloud_template_x86_in_one_zone() -> None:
    assert_golden(group_of(configuration("ecs.g7.xlarge"), size=1).template, GOLDEN / "x86.json")


def test_alicloud_template_arm_from_zero() -> None:
    assert_golden(group_of(configuration("ecs.g8y.xlarge")).template, GOLDEN / "arm.json")


def test_alicloud_template_gpu_and_spot() -> None:
    plan = configuration("ecs.gn5i-c4g1.xlarge", spot="SpotAsPriceGo", disk=200)
    assert_golden(group_of(plan).template, GOLDEN / "gpu.json")


def test_alicloud_template_of_several_types_has_the_least_capacity() -> None:
    plan = configuration("ecs.g7.xlarge", "ecs.g6.xlarge", "ecs.c7.large")
    assert_golden(group_of(plan).template, GOLDEN / "several-types.json")


def test_alicloud_template_of_several_gpu_types_has_the_fewest_gpus() -> None:
    template = group_of(configuration("ecs.gn7i-c16g1.4xlarge", "ecs.gn7i-c32g1.16xlarge")).template
    assert template is not None
    assert template.capacity["nvidia.com/gpu"] == 1
    assert template.labels["aliyun.accelerator/nvidia_name"] == "NVIDIA-A10"
    template = group_of(configuration("ecs.gn7i-c16g1.4xlarge", "ecs.g7.xlarge")).template
    assert template is not None
    assert "nvidia.com/gpu" not in template.capacity
    assert "aliyun.accelerator/nvidia_name" not in template.labels


def launched(*own: str) -> NodeGroup:
    api = FakeAlicloudApi(
        FakeApiGroup(
            "asg-1",
            configuration="",
            more={
                "launch_template_id": "lt-1",
                "launch_template_version": "3",
                "launch_template_overrides": overrides(*own),
            },
        )
    )
    api.launch["lt-1", "3"] = LaunchTemplateData("ecs.g7.xlarge", 80, "NoSpot", [Tag(key="team", value="web")])
    return group_of(api=api)


def test_alicloud_template_from_a_launch_template_alone() -> None:
    assert_golden(launched().template, GOLDEN / "launch-template.json")


def test_alicloud_template_groups_own_types_override_the_launch_template() -> None:
    template = launched("ecs.c7.large", "ecs.g8y.xlarge").template
    assert template is not None
    assert template.capacity["cpu"] == 2000
    assert "kubernetes.io/arch" not in template.labels  # one of each: neither value may be stated


def test_alicloud_template_tags_become_labels_taints_and_resources() -> None:
    plan = configuration(
        "ecs.g7.xlarge",
        said={
            "workload": "web",
            "cost centre": "12",
            "note": "not a label!",
            "acs:autoscaling:id": "x",
            "kubernetes.io/arch": "arm64",
            f"{PREFIX}label/tier": "back",
        },
    )
    group = group_of(
        plan,
        tags=tags(
            {
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
            }
        ),
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


@each_row(
    ("key", "good"),
    [
        ("a", True),
        ("a.b/c_d", True),
        ("", False),
        ("/a", False),
        ("A.b/c", False),
        ("a b", False),
        ("a/", False),
        ("x" * 64, False),
        ("acs:x", False),
        ("ä", False),
    ],
)
def test_alicloud_template_label_keys(key: str, good: bool) -> None:
    assert is_label_key(key) is good


def test_alicloud_template_label_values() -> None:
    assert all(map(is_label_value, ("", "a-b.c_D")))
    assert not any(map(is_label_value, ("-a", "a b", "x" * 64)))
    assert label_value("NVIDIA  A10 (24 GB)") == "NVIDIA-A10-24-GB"
    assert is_label_value(label_value("--" + "é x" * 60))


def test_alicloud_template_states_a_zone_only_if_there_is_one() -> None:
    one = group_of(configuration("ecs.g7.xlarge"), size=1, v_switch_ids=["vsw-1", "vsw-2"])
    none = group_of(configuration("ecs.g7.xlarge"), size=0)
    for group in (one, none):
        assert group.template is not None
        assert "topology.kubernetes.io/zone" not in group.template.labels


def test_alicloud_template_of_mixed_spot_and_regular_instances_states_neither() -> None:
    plan = configuration("ecs.g7.xlarge", spot="SpotAsPriceGo")
    template = group_of(plan, multi_az_policy="COST_OPTIMIZED").template
    assert template is not None
    assert "node.alibabacloud.com/spot-strategy" not in template.labels


@each_row(
    ("plan", "word"),
    [
        (None, "scaling configuration does not exist"),
        (configuration(), "names no instance type"),
        (configuration("ecs.unheard"), "ECS knows none of ecs.unheard"),
        (configuration("ecs.broken"), "ECS knows none of ecs.broken"),
    ],
)
def test_alicloud_group_without_a_template_says_why(plan: ScalingConfiguration | None, word: str) -> None:
    group = group_of(plan)
    assert group.template is None
    assert word in group.template_error
    assert group.error == ""


def test_alicloud_group_without_a_scaling_configuration_says_so() -> None:
    group = group_of(api=FakeAlicloudApi(FakeApiGroup("asg-1", configuration="")))
    assert "neither a scaling configuration nor a launch template" in group.template_error


def test_alicloud_template_omits_and_reports_one_unknown_type_of_several() -> None:
    api = FakeAlicloudApi(FakeApiGroup("asg-1"))
    api.kinds, api.plans = KINDS, {"asc-1": configuration("ecs.unheard", "ecs.g7.xlarge")}
    observed = provider(api).observe(())
    assert observed.groups[0].template is not None
    assert any("ecs.unheard" in gap.detail for gap in observed.gaps)


def test_alicloud_template_reports_a_missing_launch_template_and_refusal_once() -> None:
    group = group_of(
        api=FakeAlicloudApi(FakeApiGroup("asg-1", configuration="", more={"launch_template_id": "lt-gone"}))
    )
    assert "lt-gone (Default)" in group.template_error
    api = FakeAlicloudApi(
        *(FakeApiGroup(f"asg-{n}", configuration="", more={"launch_template_id": f"lt-{n}"}) for n in range(3))
    )
    api.trouble["launch_template"] = [refusal(Unauthorized, "Forbidden.RAM")]
    assert all("Forbidden.RAM" in each.template_error for each in provider(api).observe(()).groups)
