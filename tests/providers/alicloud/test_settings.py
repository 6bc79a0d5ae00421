"""`providers.alicloud` of a policy, as the provider reads it."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.vendors.alicloud import AlicloudBounds
from chalicelib.providers.alicloud.settings import Network, Service, read_settings
from tests.cases import each_row

RIGHT = {"region": "cn-hangzhou", "credentialsSecret": "key", "nodes": "0:5:asg-1"}


def problems(settings: dict[str, str], *groups: GroupPolicy) -> list[str]:
    with pytest.raises(BadInput) as raised:
        read_settings(settings, groups)
    bad = raised.value
    return [str(each) for each in (bad.problems if isinstance(bad, InputErrors) else (bad,))]


def test_alicloud_settings_valid_ones_are_read() -> None:
    settings = read_settings(
        {
            **RIGHT,
            "nodes": "0:5:asg-1\n 2:10:asg-2 \n",
            "network": "vpc",
            "essEndpoint": "https://ess.example.com/",
            "ecsEndpoint": "http://127.0.0.1:8080",
            "reservedCpu": "100m",
            "reservedMemory": "1Gi",
            "callsPerSecond": "2.5",
            "roleArn": "acs:ram::1:role/r",
        },
        [GroupPolicy("alicloud", "asg-3", 1, 2, 7), GroupPolicy("exoscale", "pool", 1, 2)],
    )
    assert settings.groups == (
        AlicloudBounds("asg-1", 0, 5),
        AlicloudBounds("asg-2", 2, 10),
        AlicloudBounds("asg-3", 1, 2, 7),
    )
    assert settings.region == "cn-hangzhou"
    assert settings.endpoints.network is Network.VPC
    assert settings.endpoints.url(Service.ESS) == "https://ess.example.com"
    assert settings.endpoints.url(Service.ECS) == "http://127.0.0.1:8080"
    assert settings.reserve == {"cpu": 100, "memory": 2**30}
    assert settings.calls_per_second == 2.5
    assert settings.access.role_arn == "acs:ram::1:role/r"


def parse_spec(text: str) -> AlicloudBounds:
    [bounds] = read_settings({**RIGHT, "nodes": text}).groups
    return bounds


@each_row(
    ("text", "bounds"),
    [
        ("0:5:asg-1", AlicloudBounds("asg-1", 0, 5)),
        ("+1:+3:asg-1", AlicloudBounds("asg-1", 1, 3)),
        ("3:3:asg-x:y", AlicloudBounds("asg-x:y", 3, 3)),
    ],
)
def test_alicloud_settings_valid_group_specs(text: str, bounds: AlicloudBounds) -> None:
    assert parse_spec(text) == bounds


@each_row(
    "text",
    [
        "a:5:x",
        "5:3:x",
        "-1:3:x",
        "1:3:",
        "1:3",
        "1_0:20:x",
        "1: 3:x",
        "1:3:x y",
        ":3:x",
        "1::x",
        "::",
        "\uff11:3:x",
        "1.0:3:x",
        "0x1:3:x",
        "99999999999:99999999999:x",
        "1:3: x",
    ],
)
def test_alicloud_settings_invalid_group_specs(text: str) -> None:
    with pytest.raises(BadInput):
        parse_spec(text)
    assert problems({**RIGHT, "nodes": text})


def test_alicloud_settings_duplicate_group_is_refused_in_every_place() -> None:
    assert "asg-1 is given twice" in problems({**RIGHT, "nodes": "0:5:asg-1\n0:6:asg-1"})[0]
    assert "asg-1 is given twice" in problems(RIGHT, GroupPolicy("alicloud", "asg-1", 0, 5))[0]


@each_row(
    ("change", "place"),
    [
        ({"region": ""}, "providers.alicloud.region: is missing"),
        ({"region": " "}, "providers.alicloud.region: is missing"),
        ({"region": "Hangzhou"}, "providers.alicloud.region: 'Hangzhou'"),
        ({"region": "cn-hangzhou.evil.example"}, "providers.alicloud.region"),
        ({"network": "private"}, "providers.alicloud.network"),
        (
            {"essEndpoint": "http://ess.aliyuncs.com"},
            "providers.alicloud.essEndpoint: is not an https address",
        ),
        ({"ecsEndpoint": "ecs.aliyuncs.com"}, "providers.alicloud.ecsEndpoint"),
        ({"stsEndpoint": "https://user:pass@sts.aliyuncs.com"}, "providers.alicloud.stsEndpoint"),
        ({"essEndpoint": "https://ess.aliyuncs.com/path"}, "providers.alicloud.essEndpoint"),
        ({"essEndpoint": "https://["}, "providers.alicloud.essEndpoint"),
        ({"callsPerSecond": "0"}, "providers.alicloud.callsPerSecond"),
        ({"callsPerSecond": "nan"}, "providers.alicloud.callsPerSecond"),
        ({"callsPerSecond": "1001"}, "providers.alicloud.callsPerSecond"),
        ({"reservedCpu": "-1"}, "providers.alicloud.reservedCpu"),
        ({"reservedMemory": "much"}, "providers.alicloud.reservedMemory"),
        ({"nodes": ""}, "providers.alicloud.nodes: no scaling group is named"),
        (
            {"nodeGroupAutoDiscovery": "x"},
            "providers.alicloud.nodeGroupAutoDiscovery: there is no such setting",
        ),
        ({"credentialsSecret": ""}, "providers.alicloud.credentialsSecret: is missing"),
        (
            {"credentialsSecret": "", "roleArn": "acs:ram::1:role/r"},
            "providers.alicloud.credentialsSecret: is missing",
        ),
        (
            {"credentialsSecret": "", "oidcProviderArn": "acs:ram::1:p"},
            "providers.alicloud.roleArn: is missing",
        ),
        (
            {"credentialsSecret": "", "oidcTokenSecret": "t", "roleArn": "acs:r"},
            "providers.alicloud.oidcProviderArn",
        ),
        (
            {"credentialsSecret": "", "oidcProviderArn": "acs:ram::1:p", "roleArn": "acs:ram::1:r"},
            "providers.alicloud.oidcTokenSecret",
        ),
        (
            {"oidcTokenSecret": "t", "oidcTokenFile": "f"},
            "providers.alicloud.oidcTokenFile: conflicts with",
        ),
        ({"credentialsSecret": "", "ramRole": "r", "oidcTokenFile": "f"}, "names two ways"),
        ({"metadataEndpoint": "100.100.100.200"}, "providers.alicloud.metadataEndpoint"),
        ({"metadataEndpoint": "http://metadata.example"}, "providers.alicloud.metadataEndpoint"),
    ],
)
def test_alicloud_settings_invalid_or_incomplete_ones_are_named_by_path(
    change: dict[str, str], place: str
) -> None:
    [problem] = problems(RIGHT | change)
    assert place in problem


def test_alicloud_settings_errors_are_reported_all_at_once() -> None:
    reported = problems(
        {"nodes": "a:5:x\n5:3:y", "network": "x", "colour": "red"},
        GroupPolicy("alicloud", "asg-9", 3, 1),
        GroupPolicy("alicloud", "asg-8"),
    )
    assert [problem.split(":")[0] for problem in reported] == [
        "providers.alicloud.region",
        "providers.alicloud.nodes",
        "providers.alicloud.nodes",
        "providers.alicloud.network",
        "providers.alicloud.credentialsSecret",
        "nodeGroups",
        "nodeGroups",
        "providers.alicloud.colour",
    ]


def test_alicloud_settings_group_entry_needs_a_maximum() -> None:
    assert "has no max" in problems(RIGHT, GroupPolicy("alicloud", "asg-8", 1))[0]


@each_row(
    "settings",
    [
        {"ramRole": "worker"},
        {"metadataEndpoint": "http://100.100.100.200"},
        {
            "oidcProviderArn": "acs:ram::1:p",
            "roleArn": "acs:ram::1:r",
            "oidcTokenFile": "/var/run/token",
        },
    ],
)
def test_alicloud_settings_other_credential_modes_need_no_secret(settings: dict[str, str]) -> None:
    assert (
        read_settings(
            {"region": "cn-hangzhou", "nodes": "0:5:asg-1"} | settings
        ).access.credentials_secret
        == ""
    )
