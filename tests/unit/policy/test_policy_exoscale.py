"""spec.providers.exoscale: accepted settings, and their form for the provider."""

from __future__ import annotations

import pytest

from chalicelib.cli.serialize_policy import dump
from chalicelib.model.errors import BadInput
from chalicelib.policy.load import load
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.vendors.exoscale import ExoscaleBounds, ExoscaleSettings, read_settings
from chalicelib.policy.vendors.settings import keys_of
from tests.cases import each_row
from tests.unit.policy.policy_documents import HEAD, with_providers

WHOLE = f"""\
{HEAD}spec:
  mode: active
  kubernetes: {{eksCluster: a}}
  providers:
    exoscale:
      zone: ch-gva-2
      credentialsSecret: outscaler/prod/exoscale
      nodes: ["0:5:web", "1:3:0f7c2a6e-6d3a-4f0e-9b55-6f1d2c3b4a59"]
      sksCluster: prod
      scaleFromZero: false
      autoDiscovery: true
      unlimitedMax: 200
      endpoint: http://127.0.0.1:8080/v2
      callsPerSecond: 2.5
      reservedCpu: 200m
      reservedMemory: 500Mi
      reservedEphemeralStorage: 1Gi
  nodeGroups:
    - {{provider: exoscale, id: prod/batch, max: 2, priority: 3}}
"""
SMALL = "zone: ch-gva-2, credentialsSecret: s"


def test_exoscale_settings_reach_the_provider() -> None:
    policy, warnings = load(WHOLE, place="p.yaml")
    assert warnings == ()
    settings = read_settings(policy.providers["exoscale"], policy.node_groups)
    assert settings.groups == (
        ExoscaleBounds("web", 0, 5),
        ExoscaleBounds("0f7c2a6e-6d3a-4f0e-9b55-6f1d2c3b4a59", 1, 3),
        ExoscaleBounds("prod/batch", 1, 2, 3),
    )
    assert settings.root == "http://127.0.0.1:8080/v2"
    assert (settings.sks_cluster, settings.scale_from_zero, settings.unlimited_max) == (
        "prod",
        False,
        200,
    )
    assert settings.auto_discovery is True
    assert settings.calls_per_second == 2.5
    assert settings.reserve == {"cpu": 200, "memory": 500 * 2**20, "ephemeral-storage": 2**30}


def test_exoscale_minimal_settings_suffice() -> None:
    policy, warnings = load(
        with_providers(f"{{exoscale: {{{SMALL}, environment: ppapi}}}}"), place="p.yaml"
    )
    assert warnings == ()
    settings = read_settings(policy.providers["exoscale"])
    assert settings.root == "https://ppapi-ch-gva-2.exoscale.com/v2"
    assert settings.auto_discovery is False


def test_exoscale_settings_round_trip_through_a_dump() -> None:
    policy = load(WHOLE, place="p.yaml")[0]
    assert load(dump(policy), place="dumped")[0] == policy


def test_exoscale_settings_table_has_exactly_the_providers_settings() -> None:
    section = vendor_section(PROVIDERS["exoscale"])
    assert {field.key for field in section.fields} == keys_of(ExoscaleSettings)
    assert section.by_key


@each_row(
    ("settings", "path", "problem"),
    [
        ("{credentialsSecret: s}", "zone", "is missing"),
        ("{zone: ch-gva-2}", "credentialsSecret", "is missing"),
        ("{zone: Geneva, credentialsSecret: s}", "zone", "is not a zone"),
        (f"{{{SMALL}, nodes: '5:3:web'}}", "nodes", "below the minimum"),
        (f"{{{SMALL}, nodes: ['0:5:web', 'a:5:web']}}", "nodes[1]", "is not min:max:name"),
        (f"{{{SMALL}, nodes: '-1:3:web'}}", "nodes", "negative"),
        (f"{{{SMALL}, nodes: '1:3:'}}", "nodes", "is not min:max:name"),
        (
            f"{{{SMALL}, endpoint: 'http://api.exoscale.com/v2'}}",
            "endpoint",
            "not an https address",
        ),
        (
            f"{{{SMALL}, endpoint: 'https://u:p@api.exoscale.com/v2'}}",
            "endpoint",
            "not an https address",
        ),
        (f"{{{SMALL}, endpoint: 'https://['}}", "endpoint", "not an https address"),
        (f"{{{SMALL}, endpoint: 'https://a example/v2'}}", "endpoint", "not an https address"),
        (f"{{{SMALL}, environment: 'api.evil/'}}", "environment", "is not the beginning"),
        (f"{{{SMALL}, scaleFromZero: maybe}}", "scaleFromZero", "is not true or false"),
        (f"{{{SMALL}, unlimitedMax: 0}}", "unlimitedMax", "out of range"),
        (f"{{{SMALL}, unlimitedMax: 9999999}}", "unlimitedMax", "out of range"),
        (f"{{{SMALL}, callsPerSecond: 0}}", "callsPerSecond", "out of range"),
        (f"{{{SMALL}, reservedCpu: much}}", "reservedCpu", "quantity"),
        (f"{{{SMALL}, region: ch-gva-2}}", "region", "is unknown"),
        (f"{{{SMALL}, apiKey: EXOx}}", "apiKey", "is unknown"),
    ],
)
def test_exoscale_invalid_settings_are_refused_by_their_path(
    settings: str, path: str, problem: str
) -> None:
    with pytest.raises(BadInput) as raised:
        load(with_providers(f"{{exoscale: {settings}}}"), place="p.yaml")
    assert f"spec.providers.exoscale.{path}: " in str(raised.value)
    assert problem in str(raised.value)


def test_exoscale_api_key_is_refused_as_a_setting() -> None:
    with pytest.raises(BadInput) as raised:
        load(with_providers(f"{{exoscale: {{{SMALL}, apiSecret: abcdefghijkl}}}}"), place="p.yaml")
    assert "abcdefghijkl" not in str(raised.value)


@each_row("name", ["web", "prod/web", "0f7c2a6e-6d3a-4f0e-9b55-6f1d2c3b4a59"])
def test_exoscale_group_accepts_the_names_that_users_know(name: str) -> None:
    text = (
        with_providers(f"{{exoscale: {{{SMALL}}}}}")
        + f"  nodeGroups: [{{provider: exoscale, id: {name}}}]\n"
    )
    policy, warnings = load(text, place="p.yaml")
    assert warnings == ()
    assert [
        each.name for each in read_settings(policy.providers["exoscale"], policy.node_groups).groups
    ] == [name]
