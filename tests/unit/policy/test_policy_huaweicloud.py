"""spec.providers.huaweicloud: accepted settings, and their form for the provider."""

from __future__ import annotations

import pytest

from chalicelib.cli.serialize_policy import dump
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import STRICT
from chalicelib.policy.admission import Admission
from chalicelib.policy.load import load
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.vendors.huaweicloud import Agency, CceBounds, CceSettings, read_settings
from chalicelib.policy.vendors.settings import keys_of
from tests.cases import each_row
from tests.unit.policy.policy_documents import HEAD, with_providers

CLUSTER = "2292498e-1111-11ee-8b5e-0255ac1001ba"
POOL = "7d48eca7-3419-11ea-bc29-0255ac1001a8"
WHOLE = f"""\
{HEAD}spec:
  mode: active
  kubernetes: {{eksCluster: a}}
  providers:
    huaweicloud:
      region: cn-north-4
      clusterId: {CLUSTER}
      projectId: 0123456789abcdef0123456789abcdef
      credentialsSecret: outscaler/prod/huaweicloud
      nodes: ["0:5:pool-a", "1:3:{POOL}/c7-az2"]
      autodiscovery: false
      warnAboutAddon: false
      agencyName: scaler
      agencyDomain: Ops Team
      agencyDuration: 900
      cceEndpoint: http://127.0.0.1:8080
      callsPerSecond: 2.5
      reservedCpu: 200m
      reservedMemory: 500Mi
  nodeGroups:
    - {{provider: huaweicloud, id: pool-b, max: 2, priority: 3}}
"""
SMALL = f"region: cn-north-4, clusterId: {CLUSTER}, credentialsSecret: s"


def test_huaweicloud_settings_reach_the_provider() -> None:
    policy, warnings = load(WHOLE, place="p.yaml")
    assert warnings == ()
    settings = read_settings(policy.providers["huaweicloud"], policy.node_groups)
    assert settings.groups == (
        CceBounds("pool-a", 0, 5),
        CceBounds(f"{POOL}/c7-az2", 1, 3),
        CceBounds("pool-b", None, 2, 3),
    )
    assert settings.agency == Agency("scaler", "Ops Team", 900)
    assert (settings.autodiscovery, settings.warn_about_addon, settings.calls_per_second) == (
        False,
        False,
        2.5,
    )
    assert settings.reserve == {"cpu": 200, "memory": 500 * 2**20}


def test_huaweicloud_minimal_settings_suffice() -> None:
    policy, warnings = load(with_providers(f"{{huaweicloud: {{{SMALL}}}}}"), place="p.yaml")
    assert warnings == ()
    assert read_settings(policy.providers["huaweicloud"]).cluster_id == CLUSTER


def test_huaweicloud_unknown_region_is_a_warning() -> None:
    text = with_providers(f"{{huaweicloud: {{{SMALL.replace('cn-north-4', 'xx-moon-1')}}}}}")
    policy, warnings = load(text, place="p.yaml")
    assert [
        warning for warning in warnings if "'xx-moon-1' is not a known region of CCE" in warning
    ]
    assert policy.providers["huaweicloud"]["region"] == "xx-moon-1"


def test_huaweicloud_settings_round_trip_through_a_dump() -> None:
    policy = load(WHOLE, place="p.yaml")[0]
    assert load(dump(policy), place="dumped")[0] == policy


def test_huaweicloud_settings_table_has_exactly_the_providers_settings() -> None:
    section = vendor_section(PROVIDERS["huaweicloud"])
    assert {field.key for field in section.fields} == keys_of(CceSettings)
    assert section.by_key


@each_row(
    ("settings", "path", "problem"),
    [
        (f"{{clusterId: {CLUSTER}, credentialsSecret: s}}", "region", "is missing"),
        ("{region: cn-north-4, credentialsSecret: s}", "clusterId", "is missing"),
        (f"{{region: cn-north-4, clusterId: {CLUSTER}}}", "credentialsSecret", "is missing"),
        ("{region: Beijing, clusterId: prod, credentialsSecret: s}", "region", "is not a region"),
        (
            "{region: cn-north-4, clusterId: prod, credentialsSecret: s}",
            "clusterId",
            "is not the id",
        ),
        (f"{{{SMALL}, projectId: mine}}", "projectId", "is not the id of a project"),
        (f"{{{SMALL}, nodes: '5:3:web'}}", "nodes", "below the minimum"),
        (f"{{{SMALL}, nodes: ['0:5:web', 'a:5:web']}}", "nodes[1]", "is not min:max:pool"),
        (f"{{{SMALL}, nodes: '-1:3:web'}}", "nodes", "negative"),
        (f"{{{SMALL}, autodiscovery: maybe}}", "autodiscovery", "is not true or false"),
        (f"{{{SMALL}, agencyName: 'a b'}}", "agencyName", "is not an agency's name"),
        (f"{{{SMALL}, agencyDuration: 60}}", "agencyDuration", "out of range"),
        (
            f"{{{SMALL}, cceEndpoint: 'http://cce.example.com'}}",
            "cceEndpoint",
            "not an https address",
        ),
        (
            f"{{{SMALL}, iamEndpoint: 'https://iam.example.com/v3'}}",
            "iamEndpoint",
            "not an https address",
        ),
        (f"{{{SMALL}, ecsEndpoint: 'https://['}}", "ecsEndpoint", "not an https address"),
        (f"{{{SMALL}, callsPerSecond: 0}}", "callsPerSecond", "out of range"),
        (f"{{{SMALL}, reservedCpu: much}}", "reservedCpu", "quantity"),
        (f"{{{SMALL}, zone: a}}", "zone", "is unknown"),
    ],
)
def test_huaweicloud_invalid_settings_are_refused_by_their_path(
    settings: str, path: str, problem: str
) -> None:
    with pytest.raises(BadInput) as raised:
        load(with_providers(f"{{huaweicloud: {settings}}}"), place="p.yaml")
    assert f"spec.providers.huaweicloud.{path}: " in str(raised.value)
    assert problem in str(raised.value)


def test_huaweicloud_malformed_region_is_reported_once_by_a_deployment() -> None:
    settings = SMALL.replace("cn-north-4", "North")
    text = with_providers(f"{{huaweicloud: {{{settings}}}}}")
    with pytest.raises(BadInput) as raised:
        load(text, place="p.yaml", admission=Admission(STRICT))
    reported = str(raised.value).splitlines()
    assert len([line for line in reported if "huaweicloud.region: " in line]) == 1, reported


def test_huaweicloud_access_key_is_refused_as_a_setting() -> None:
    with pytest.raises(BadInput) as raised:
        load(
            with_providers(f"{{huaweicloud: {{{SMALL}, secretKey: abcdefghijkl}}}}"), place="p.yaml"
        )
    assert "abcdefghijkl" not in str(raised.value)


@each_row("name", ["pool-a", POOL, f"{POOL}/default", "pool-a/c7-az2"])
def test_huaweicloud_group_accepts_the_names_that_users_know(name: str) -> None:
    text = (
        with_providers(f"{{huaweicloud: {{{SMALL}}}}}")
        + f"  nodeGroups: [{{provider: huaweicloud, id: {name}}}]\n"
    )
    policy, warnings = load(text, place="p.yaml")
    assert warnings == ()
    assert [
        each.name
        for each in read_settings(policy.providers["huaweicloud"], policy.node_groups).groups
    ] == [name]
