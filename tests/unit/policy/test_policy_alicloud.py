"""spec.providers.alicloud: accepted settings, and their form for the provider."""

from __future__ import annotations

import pytest

from chalicelib.cli.serialize_policy import dump
from chalicelib.model.errors import BadInput
from chalicelib.policy.load import load
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.vendors.settings import keys_of
from chalicelib.providers.alicloud.settings import AlicloudSettings, read_settings
from tests.cases import each_row
from tests.unit.policy.policy_documents import HEAD, with_providers

GROUP = "asg-bp18p2yfxow2dloq0001"
WHOLE = f"""\
{HEAD}spec:
  mode: active
  kubernetes: {{eksCluster: a}}
  providers:
    alicloud:
      region: cn-hangzhou
      nodes: ["0:5:{GROUP}", "1:3:asg-2"]
      network: vpc
      credentialsSecret: outscaler/prod/alicloud
      roleArn: acs:ram::1234567890123456:role/outscaler
      sessionName: outscaler-prod
      essEndpoint: http://127.0.0.1:8080
      ecsEndpoint: https://ecs.example.com/
      callsPerSecond: 2.5
      reservedCpu: 200m
      reservedMemory: 500Mi
      reservedEphemeralStorage: 1Gi
  nodeGroups:
    - {{provider: alicloud, id: asg-3, min: 0, max: 2, priority: 3}}
"""


def test_alicloud_settings_reach_the_provider() -> None:
    policy, warnings = load(WHOLE, place="p.yaml")
    assert warnings == ()
    settings = read_settings(policy.providers["alicloud"], policy.node_groups)
    assert [(each.id, each.min, each.max, each.priority) for each in settings.groups] == [
        (GROUP, 0, 5, 0),
        ("asg-2", 1, 3, 0),
        ("asg-3", 0, 2, 3),
    ]
    assert settings.calls_per_second == 2.5
    assert settings.reserve == {"cpu": 200, "memory": 500 * 2**20, "ephemeral-storage": 2**30}


def test_alicloud_settings_round_trip_through_a_dump() -> None:
    policy = load(WHOLE, place="p.yaml")[0]
    assert load(dump(policy), place="dumped")[0] == policy


def test_alicloud_settings_table_has_exactly_the_providers_settings() -> None:
    section = vendor_section(PROVIDERS["alicloud"])
    assert {field.key for field in section.fields} == keys_of(AlicloudSettings)
    assert section.by_key


@each_row(
    ("settings", "path", "problem"),
    [
        ("{nodes: '0:5:asg-1'}", "region", "is missing"),
        ("{region: Hangzhou}", "region", "is not a region"),
        ("{region: cn-hangzhou, nodes: '5:3:asg-1'}", "nodes", "below the minimum"),
        (
            "{region: cn-hangzhou, nodes: ['0:5:asg-1', 'a:5:asg-2']}",
            "nodes[1]",
            "is not min:max:id",
        ),
        ("{region: cn-hangzhou, nodes: '-1:3:asg-1'}", "nodes", "negative"),
        ("{region: cn-hangzhou, nodes: '1_0:20:asg-1'}", "nodes", "is not min:max:id"),
        ("{region: cn-hangzhou, nodes: '1:3:workers'}", "nodes", "not the id of a scaling group"),
        ("{region: cn-hangzhou, network: intranet}", "network", "is unknown"),
        (
            "{region: cn-hangzhou, essEndpoint: 'http://ess.aliyuncs.com'}",
            "essEndpoint",
            "not an https address",
        ),
        (
            "{region: cn-hangzhou, stsEndpoint: 'https://u:p@sts'}",
            "stsEndpoint",
            "not an https address",
        ),
        ("{region: cn-hangzhou, ecsEndpoint: 'https://['}", "ecsEndpoint", "not an https address"),
        (
            "{region: cn-hangzhou, metadataEndpoint: 100.100.100.200}",
            "metadataEndpoint",
            "is not an address",
        ),
        (
            "{region: cn-hangzhou, metadataEndpoint: 'http://metadata.example'}",
            "metadataEndpoint",
            "is not an address",
        ),
        ("{region: cn-hangzhou, callsPerSecond: 0}", "callsPerSecond", "out of range"),
        ("{region: cn-hangzhou, reservedCpu: much}", "reservedCpu", "quantity"),
        ("{region: cn-hangzhou, roleArn: outscaler}", "roleArn", "is not a resource name"),
        ("{region: cn-hangzhou, accessKeySecret: 'LTAI x'}", "accessKeySecret", "is unknown"),
        ("{region: cn-hangzhou, accessKeyId: LTAI5tX}", "accessKeyId", "is unknown"),
    ],
)
def test_alicloud_invalid_settings_are_refused_by_their_path(
    settings: str, path: str, problem: str
) -> None:
    with pytest.raises(BadInput) as raised:
        load(with_providers(f"{{alicloud: {settings}}}"), place="p.yaml")
    assert f"spec.providers.alicloud.{path}: " in str(raised.value)
    assert problem in str(raised.value)


def test_alicloud_access_key_is_refused_as_a_setting() -> None:
    with pytest.raises(BadInput) as raised:
        load(
            with_providers("{alicloud: {region: cn-hangzhou, accessKeySecret: abcdefghijkl}}"),
            place="p.yaml",
        )
    assert "abcdefghijkl" not in str(raised.value)


def test_alicloud_group_id_without_the_vendors_form_is_warned_about() -> None:
    [warning] = load(WHOLE.replace("id: asg-3", "id: workers"), place="p.yaml")[1]
    assert "nodeGroups[0].id" in warning
    assert "asg-bp18p2yfxow2dloq0001" in warning
