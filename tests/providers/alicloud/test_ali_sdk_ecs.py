"""The vendor's own ECS client reads instance types and launch templates from the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from infra.emulators.alicloud.account import REGION, AlicloudCloud
from infra.emulators.alicloud.models import AlicloudTemplate
from infra.emulators.alicloud.server import AlicloudServer
from infra.emulators.controllers.clock import ManualClock
from tests.providers.alicloud.sdk import load, wall

KEY, SECRET = "LTAI-EXAMPLE-KEY-ID", "example-key-secret-0123456789"


@pytest.fixture(scope="module")
def bed() -> Iterator[Any]:
    sdk = load("ecs20140526")
    with AlicloudServer(AlicloudCloud(ManualClock(wall()))) as server:
        server.ring.add(KEY, SECRET)
        client = sdk.Client(
            sdk.Config(
                access_key_id=KEY,
                access_key_secret=SECRET,
                endpoint=server.host,
                protocol="http",
                region_id=REGION,
            )
        )
        yield SimpleNamespace(
            server=server, cloud=server.cloud, ecs=client, models=sdk.models, errors=sdk.errors
        )


def _types(bed: Any, **asked: Any) -> Any:
    return bed.ecs.describe_instance_types(bed.models.DescribeInstanceTypesRequest(**asked)).body


def test_alicloud_sdk_reads_instance_types_of_both_architectures_and_gpus(bed: Any) -> None:
    body = _types(
        bed,
        instance_types=["ecs.g7.xlarge", "ecs.g8y.xlarge", "ecs.gn6i-c4g1.xlarge", "ecs.unknown"],
    )
    found = {each.instance_type_id: each for each in body.instance_types.instance_type}
    assert set(found) == {"ecs.g7.xlarge", "ecs.g8y.xlarge", "ecs.gn6i-c4g1.xlarge"}
    plain, arm, gpu = found["ecs.g7.xlarge"], found["ecs.g8y.xlarge"], found["ecs.gn6i-c4g1.xlarge"]
    assert (plain.cpu_core_count, plain.memory_size, plain.cpu_architecture) == (4, 16.0, "X86")
    assert arm.cpu_architecture == "ARM"
    assert (gpu.gpuamount, gpu.gpuspec) == (1, "NVIDIA T4")


def test_alicloud_sdk_reads_all_instance_types_page_by_page(bed: Any) -> None:
    first = _types(bed, max_results=5)
    second = _types(bed, max_results=5, next_token=first.next_token)
    names = [
        each.instance_type_id
        for page in (first, second)
        for each in page.instance_types.instance_type
    ]
    assert sorted(names) == sorted(bed.cloud.types)
    assert not second.next_token


def test_alicloud_sdk_reads_a_launch_template_by_version_and_by_default(bed: Any) -> None:
    group = bed.cloud.add_group(
        "from-template", template=True, machine_tags={"team": "web"}, disk=80
    )
    bed.cloud.templates[group.template, 2] = AlicloudTemplate(
        group.template, 2, "ecs.g6.xlarge", default=False
    )
    request = bed.models.DescribeLaunchTemplateVersionsRequest

    def read(**asked: Any) -> Any:
        body = bed.ecs.describe_launch_template_versions(
            request(region_id=REGION, launch_template_id=group.template, **asked)
        ).body
        return [
            each.launch_template_data
            for each in body.launch_template_version_sets.launch_template_version_set
        ]

    (default,) = read(default_version=True)
    assert (default.instance_type, default.system_disk.size) == ("ecs.g7.xlarge", 80)
    assert [(tag.key, tag.value) for tag in default.tags.instance_tag] == [("team", "web")]
    assert [each.instance_type for each in read(launch_template_version=[2])] == ["ecs.g6.xlarge"]
    with pytest.raises(bed.errors.ClientException) as caught:
        bed.ecs.describe_launch_template_versions(
            request(region_id=REGION, launch_template_id="lt-unknown")
        )
    assert caught.value.code == "InvalidLaunchTemplateId.NotFound"


def test_alicloud_sdk_reads_announced_spot_instances_page_by_page(bed: Any) -> None:
    group = bed.cloud.add_group("announced", size=103, most=200, spot="SpotAsPriceGo")
    names = sorted(group.machines)
    for name in names:
        bed.cloud.interrupt(name)
    request, token, read = bed.models.DescribeInstancesRequest, None, []
    for _ in range(2):
        body = bed.ecs.describe_instances(
            request(region_id=REGION, lock_reason="Recycling", max_results=100, next_token=token)
        ).body
        read += body.instances.instance
        token = body.next_token
    assert not token
    assert sorted(each.instance_id for each in read) == names
    assert {each.operation_locks.lock_reason[0].lock_reason for each in read} == {"Recycling"}
    with pytest.raises(bed.errors.ClientException) as caught:
        bed.ecs.describe_instances(request(region_id=REGION, dry_run=True))
    assert caught.value.code == "DryRunOperation"


def test_alicloud_sdk_restarts_an_instance_once_it_runs(bed: Any) -> None:
    group = bed.cloud.add_group("restarted", size=1)
    (name,) = group.machines
    reboot = bed.models.RebootInstanceRequest(instance_id=name, force_stop=True)
    bed.ecs.reboot_instance(reboot)

    def status() -> str:
        request = bed.models.DescribeInstancesRequest(region_id=REGION, instance_ids=f'["{name}"]')
        (found,) = bed.ecs.describe_instances(request).body.instances.instance
        return str(found.status)

    assert status() == "Starting"
    with pytest.raises(bed.errors.ClientException) as caught:
        bed.ecs.reboot_instance(reboot)
    assert caught.value.code == "IncorrectInstanceStatus"
    bed.cloud.machine(name).running_at = 0.0
    assert status() == "Running"


def test_alicloud_sdk_reads_advice_for_spot_types_by_zone(bed: Any) -> None:
    bed.cloud.add_group("advised")
    bed.cloud.interruptions["ecs.g7.xlarge", "cn-hangzhou-i"] = "10-100%"
    request = bed.models.DescribeSpotAdviceRequest(
        region_id=REGION, instance_types=["ecs.g7.xlarge"]
    )
    (zone,) = bed.ecs.describe_spot_advice(request).body.available_spot_zones.available_spot_zone
    (kind,) = zone.available_spot_resources.available_spot_resource
    assert (zone.zone_id, kind.instance_type, kind.interrupt_rate_desc) == (
        "cn-hangzhou-i",
        "ecs.g7.xlarge",
        "10-100%",
    )
