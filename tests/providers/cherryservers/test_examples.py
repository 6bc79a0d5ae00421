"""The examples in infra/cherryservers, which users copy, are consistent and
readable by this program.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from chalicelib.model.secret import Secret
from chalicelib.policy.load import load
from chalicelib.policy.vendors.cherryservers import CherrySettings, read_settings
from chalicelib.providers.cherryservers.decoding import CherryServer
from chalicelib.providers.cherryservers.definition_reader import Definitions, read_definitions
from chalicelib.providers.cherryservers.instances import ServerList
from chalicelib.providers.cherryservers.pool_definition import hostname, needs_token, user_data
from chalicelib.providers.cherryservers.tokens import GROUPS, IDS, Token, parse_token

INFRA = Path(__file__).resolve().parents[3] / "infra"
FOLDER = INFRA / "cherryservers"


def example(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def settings() -> CherrySettings:
    policy, warnings = load(example("policy.yaml"), place="policy.yaml")
    assert warnings == ()
    return read_settings(policy.providers["cherryservers"], policy.node_groups)


def definitions() -> Definitions:
    given = settings()
    read = {given.definitions.secret: example("cloud-config.gcfg")}.__getitem__
    return read_definitions(given, read)


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(example("bootstrap-token.yaml"))
    return found


def test_cherry_example_policy_and_file_belong_together() -> None:
    found = definitions()
    assert {bounds.name for bounds in settings().groups} == {"pool1", "pool2"}
    first, second = found.of("pool1"), found.of("pool2")
    assert (first.plan, second.plan, second.os, second.spot) == (
        "e5_1620v4",
        "e3_1240v3",
        first.os,
        True,
    )
    assert hostname(second, "gndxdmmw") == "k8s-prod-vilnius-pool2-gndxdmmw"
    assert settings().definitions.secret in example("cloud-config.gcfg")


def test_cherry_example_script_equals_the_one_in_the_file() -> None:
    definition = definitions().of("pool1")
    assert base64.b64decode(definition.cloudinit).decode() == example("cloud-init.sh")
    assert needs_token(definition)
    script = base64.b64decode(
        user_data(definition, Token("exampl", Secret("exampleexample00")))
    ).decode()
    assert "--node-labels=pool=pool1" in script
    assert "--token exampl.exampleexample00 203.0.113.10:6443" in script


def test_cherry_example_bootstrap_secret_name_matches_the_token_id() -> None:
    secret = manifest()
    data = secret["stringData"]
    assert secret["metadata"] == {
        "name": f"bootstrap-token-{data['token-id']}",
        "namespace": "kube-system",
    }
    assert secret["type"] == "bootstrap.kubernetes.io/token"
    assert data["auth-extra-groups"] == GROUPS
    assert {data[f"usage-bootstrap-{use}"] for use in ("authentication", "signing")} == {"true"}
    assert (
        parse_token(f"{data['token-id']}.{data['token-secret']}", "manifest").id == data["token-id"]
    )


def test_cherry_example_role_names_exactly_the_created_tokens() -> None:
    text = (INFRA / "kubernetes" / "rbac-bootstrap-tokens.yaml").read_text(encoding="utf-8")
    role, binding = yaml.safe_load_all(text)
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [f"bootstrap-token-{name}" for name in IDS],
            "verbs": ["get", "update"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]
    workload = list(
        yaml.safe_load_all(
            (INFRA / "kubernetes" / "rbac-workload.yaml").read_text(encoding="utf-8")
        )
    )
    [account] = (each["metadata"] for each in workload if each["kind"] == "ServiceAccount")
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_cherry_example_tags_are_keys_with_values() -> None:
    definition = definitions().of("pool1")
    tags = [
        {"k8s-cluster": "prod-vilnius", "k8s-nodepool": "pool1"},
        {"k8s-cluster-prod-vilnius": "", "k8s-nodepool-pool1": ""},
    ]
    roll = ServerList(
        CherryServer(id=number, hostname=f"w{number}", tags=each)
        for number, each in enumerate(tags, start=1)
    )
    assert [each.id for each in roll.members(definition)] == [1]


def test_cherry_example_token_outlives_the_wait_for_a_machine() -> None:
    """At least half of a token's life is left when a machine is ordered."""
    policy = load(example("policy.yaml"), place="policy.yaml")[0]
    assert policy.options.max_node_provision_time < settings().bootstrap.lifetime / 2
