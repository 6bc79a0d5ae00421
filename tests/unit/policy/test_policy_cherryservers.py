"""spec.providers.cherryservers: accepted settings, and their form for the provider."""

from __future__ import annotations

import base64

import pytest

from chalicelib.cli.serialize_policy import dump
from chalicelib.model.errors import BadInput
from chalicelib.policy.load import load
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.vendors.cherryservers import CherryBounds, CherrySettings, read_settings
from chalicelib.policy.vendors.settings import keys_of
from chalicelib.providers.cherryservers.definition_reader import CLOUD_INIT, KEYS, read_definitions
from tests.cases import each_row
from tests.unit.policy.policy_documents import HEAD, with_providers

WHOLE = f"""\
{HEAD}spec:
  mode: active
  kubernetes: {{eksCluster: a}}
  providers:
    cherryservers:
      credentialsSecret: outscaler/prod/cherryservers
      clusterName: prod
      nodes: ["0:5:pool1", "1:3:pool2"]
      projectId: 10001
      endpoint: http://127.0.0.1:8080/v1
      callsPerSecond: 2.5
      createBootstrapTokens: true
      bootstrapTokenLifetime: 90m
      controllerNodeLabel: example.com/controller
      reservedCpu: 200m
      reservedMemory: 500Mi
      reservedEphemeralStorage: 1Gi
      nodeGroupDefs:
        default:
          region: eu_nord_1
          plan: e5_1620v4
          os: ubuntu_24_04
          apiServerEndpoint: 203.0.113.10:6443
          sshKeyIds: [101, 102]
          hostnamePattern: 'w-{{{{.NodeGroup}}}}-{{{{.RandString8}}}}'
          cloudInit: |
            #!/bin/bash
            \techo "a: b"  # {{{{.NodeGroup}}}}

            kubeadm join --token {{{{.BootstrapTokenID}}}}.{{{{.BootstrapTokenSecret}}}} \
{{{{.APIServerEndpoint}}}}
        pool2: {{plan: 'on', osPartitionSize: 60, spotMarket: true, cpuOverride: 8, cloudinit: \
ZWNobwo=, sshKeyIds: []}}
        pool3:
  nodeGroups:
    - {{provider: cherryservers, id: pool3, min: 0, max: 2, priority: 3}}
"""
SCRIPT = (
    '#!/bin/bash\n\techo "a: b"  # {{.NodeGroup}}\n\n'
    "kubeadm join --token {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}}\n"
)
FILE = f"""\
{HEAD}spec:
  mode: active
  kubernetes: {{eksCluster: a}}
  providers:
    cherryservers:
      credentialsSecret: outscaler/prod/cherryservers
      nodes: 0:5:pool1
      cloudConfig: |
        ; as upstream has it
        [Global]
        project-id=10001
        region = eu_nord_1 # a note
        plan="e5_1620v4"
        os=ubuntu_24_04
        cluster-name=c
"""
REST = "credentialsSecret: s, nodes: '0:1:p', cloudConfigSecret: c"


def no_secret(name: str) -> str:
    raise AssertionError(f"nobody asked for {name}")


def test_cherryservers_settings_reach_the_provider() -> None:
    policy, warnings = load(WHOLE, place="p.yaml")
    assert warnings == ()
    settings = read_settings(policy.providers["cherryservers"], policy.node_groups)
    assert settings.groups == (
        CherryBounds("pool1", 0, 5),
        CherryBounds("pool2", 1, 3),
        CherryBounds("pool3", 0, 2, 3),
    )
    assert (settings.endpoint, settings.calls_per_second) == ("http://127.0.0.1:8080/v1", 2.5)
    assert (settings.bootstrap.create, settings.bootstrap.lifetime) == (True, 5400.0)
    assert settings.reserve == {"cpu": 200, "memory": 500 * 2**20, "ephemeral-storage": 2**30}
    definitions = read_definitions(settings, no_secret)
    first, second, third = (definitions.of(pool) for pool in ("pool1", "pool2", "pool3"))
    assert base64.b64decode(first.cloudinit).decode() == SCRIPT
    assert (first.project_id, first.ssh_key_ids, first.plan) == (10001, (101, 102), "e5_1620v4")
    assert (second.plan, second.os_partition_size, second.spot, second.cpu_override) == (
        "on",
        60,
        True,
        8,
    )
    assert (second.ssh_key_ids, second.cloudinit) == ((), "ZWNobwo=")
    assert third.cloudinit == first.cloudinit


def test_cherryservers_upstream_config_file_is_accepted_unchanged() -> None:
    policy, warnings = load(FILE, place="p.yaml")
    assert warnings == ()
    definitions = read_definitions(read_settings(policy.providers["cherryservers"]), no_secret)
    assert (definitions.of("pool1").region, definitions.of("pool1").cluster_name) == (
        "eu_nord_1",
        "c",
    )


@each_row("text", [WHOLE, FILE])
def test_cherryservers_settings_round_trip_through_a_dump(text: str) -> None:
    policy = load(text, place="p.yaml")[0]
    written = dump(policy)
    assert load(written, place="dumped")[0] == policy
    assert dump(load(written, place="dumped")[0]) == written


def test_cherryservers_definitions_are_dumped_as_a_mapping_and_not_as_json() -> None:
    assert "plan: e5_1620v4" in dump(load(WHOLE, place="p.yaml")[0])


def test_cherryservers_settings_tables_have_exactly_the_providers_settings() -> None:
    section = vendor_section(PROVIDERS["cherryservers"])
    assert {field.key for field in section.fields} == keys_of(CherrySettings)
    assert section.by_key
    for key in (*KEYS.values(), CLOUD_INIT):
        settings = (
            f"{{credentialsSecret: s, nodes: '0:1:p', nodeGroupDefs: {{default: {{{key}: {{}}}}}}}}"
        )
        with pytest.raises(BadInput) as raised:
            load(with_providers(f"{{cherryservers: {settings}}}"), place="p.yaml")
        assert "is unknown" not in str(raised.value)  # known, but not a mapping


@each_row(
    ("settings", "path", "problem"),
    [
        ("{nodes: '0:1:p'}", "credentialsSecret", "is missing"),
        ("{credentialsSecret: s, nodes: ['0:1:p', '5:4:p']}", "nodes[1]", "below the minimum"),
        ("{credentialsSecret: s, nodes: '5:4:p'}", "nodes", "below the minimum"),
        ("{credentialsSecret: s, nodes: '-1:2:p'}", "nodes", "negative"),
        ("{credentialsSecret: s, nodes: '1:2:'}", "nodes", "is not min:max:pool"),
        ("{credentialsSecret: s, nodes: '1:2:-x'}", "nodes", "cannot name a pool"),
        (f"{{{REST}, projectId: 0}}", "projectId", "out of range"),
        (f"{{{REST}, projectId: abc}}", "projectId", "not a whole number"),
        (f"{{{REST}, clusterName: a b}}", "clusterName", "is not one word"),
        (f"{{{REST}, endpoint: 'http://api.example.com/v1'}}", "endpoint", "not an https address"),
        (
            f"{{{REST}, endpoint: 'https://u:p@api.example.com/v1'}}",
            "endpoint",
            "not an https address",
        ),
        (f"{{{REST}, bootstrapTokenLifetime: 5m}}", "bootstrapTokenLifetime", "out of range"),
        (f"{{{REST}, createBootstrapTokens: maybe}}", "createBootstrapTokens", "true or false"),
        (f"{{{REST}, controllerNodeLabel: a b}}", "controllerNodeLabel", "is not a label's key"),
        (f"{{{REST}, cloudConfig: ''}}", "cloudConfig", "is empty"),
        (f"{{{REST}, authToken: abcdefghijkl}}", "authToken", "is unknown"),
        (f"{{{REST}, reservedCpu: much}}", "reservedCpu", "quantity"),
        (f"{{{REST}, nodeGroupDefs: {{}}}}", "nodeGroupDefs", "defines nothing"),
        (f"{{{REST}, nodeGroupDefs: [default]}}", "nodeGroupDefs", "write a mapping"),
        (
            f"{{{REST}, nodeGroupDefs: {{default: {{planet: x}}}}}}",
            "nodeGroupDefs.default.planet",
            "is unknown",
        ),
        (
            f"{{{REST}, nodeGroupDefs: {{default: {{plan: [a]}}}}}}",
            "nodeGroupDefs.default.plan",
            "is a list",
        ),
        (
            f"{{{REST}, nodeGroupDefs: {{default: {{sshKeyIds: [a1]}}}}}}",
            "nodeGroupDefs.default.sshKeyIds[0]",
            "not a whole number",
        ),
        (
            f"{{{REST}, nodeGroupDefs: {{default: {{cloudinit: '?'}}}}}}",
            "nodeGroupDefs.default.cloudinit",
            "not base64",
        ),
        (
            f"{{{REST}, nodeGroupDefs: {{default: {{cloudinit: YQ==, cloudInit: a}}}}}}",
            "nodeGroupDefs.default.cloudInit",
            "conflicts with",
        ),
        (
            f"{{{REST}, nodeGroupDefs: {{'-x': {{plan: x}}}}}}",
            "nodeGroupDefs.-x",
            "cannot name a pool",
        ),
        (
            f"{{{REST}, nodeGroupDefs: {{default: {{osPartitionSize: -1}}}}}}",
            "nodeGroupDefs.default.osPartitionSize",
            "out of range",
        ),
        (
            f"{{{REST}, nodeGroupDefs: {{default: {{spotMarket: 1}}}}}}",
            "nodeGroupDefs.default.spotMarket",
            "true or false",
        ),
    ],
)
def test_cherryservers_invalid_settings_are_refused_by_their_path(
    settings: str, path: str, problem: str
) -> None:
    with pytest.raises(BadInput) as raised:
        load(with_providers(f"{{cherryservers: {settings}}}"), place="p.yaml")
    assert f"spec.providers.cherryservers.{path}: " in str(raised.value)
    assert problem in str(raised.value)


def test_cherryservers_scripts_and_tokens_are_not_repeated_in_errors() -> None:
    for settings in (
        f"{{{REST}, authToken: hunter2hunter2}}",
        f'{{{REST}, cloudConfig: "hunter2\\u0007"}}',
        f"{{{REST}, nodeGroupDefs: {{default: {{cloudinit: hunter2?}}}}}}",
        f'{{{REST}, nodeGroupDefs: {{default: {{cloudInit: "hunter2\\u0007"}}}}}}',
    ):
        with pytest.raises(BadInput) as raised:
            load(with_providers(f"{{cherryservers: {settings}}}"), place="p.yaml")
        assert "hunter2" not in str(raised.value)


def test_cherryservers_group_id_that_cannot_be_a_pool_is_warned_about() -> None:
    [warning] = load(WHOLE.replace("id: pool3", "id: pool/3"), place="p.yaml")[1]
    assert "nodeGroups[0].id" in warning
    assert "pool1" in warning
