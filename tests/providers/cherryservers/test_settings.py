"""`providers.cherryservers` of a policy, as the provider reads it."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.vendors.cherryservers import (
    Bootstrap,
    CherryBounds,
    CherryPoolSource,
    read_settings,
)
from chalicelib.providers.cherryservers.definition_reader import CLOUD_INIT, KEYS
from tests.cases import each_row
from tests.providers.cherryservers.config_documents import refused

RIGHT = {"credentialsSecret": "key", "nodes": "0:5:pool1", "cloudConfigSecret": "config"}


def problems(settings: dict[str, str], *groups: GroupPolicy) -> list[str]:
    with pytest.raises(BadInput) as raised:
        read_settings(settings, groups)
    bad = raised.value
    return [str(each) for each in (bad.problems if isinstance(bad, InputErrors) else (bad,))]


def test_cherry_settings_valid_ones_are_read() -> None:
    settings = read_settings(
        {
            **RIGHT,
            "nodes": "0:5:pool1\n 2:10:pool_2 \n",
            "clusterName": "c",
            "projectId": "10001",
            "endpoint": "http://127.0.0.1:8080/v1/",
            "controllerNodeLabel": "example.com/controller",
            "createBootstrapTokens": "true",
            "bootstrapTokenLifetime": "30m",
            "reservedCpu": "100m",
            "callsPerSecond": "2.5",
        },
        [GroupPolicy("cherryservers", "pool3", 1, 2, 7), GroupPolicy("exoscale", "pool", 1, 2)],
    )
    assert settings.groups == (
        CherryBounds("pool1", 0, 5),
        CherryBounds("pool_2", 2, 10),
        CherryBounds("pool3", 1, 2, 7),
    )
    assert (settings.cluster_name, settings.project_id, settings.endpoint) == (
        "c",
        10001,
        "http://127.0.0.1:8080/v1",
    )
    assert settings.controller_labels == ("example.com/controller",)
    assert settings.bootstrap == Bootstrap(create=True, lifetime=1800.0)
    assert settings.definitions == CherryPoolSource(secret="config")
    assert (settings.reserve, settings.calls_per_second) == ({"cpu": 100}, 2.5)


def test_cherry_settings_know_both_control_plane_labels() -> None:
    settings = read_settings(RIGHT)
    assert settings.controller_labels == (
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
    )
    assert settings.endpoint == "https://api.cherryservers.com/v1"
    assert (settings.calls_per_second, settings.bootstrap) == (4.0, Bootstrap())


def parse_spec(text: str) -> CherryBounds:
    [bounds] = read_settings({**RIGHT, "nodes": text}).groups
    return bounds


@each_row(
    ("text", "bounds"),
    [
        ("3:3:p", CherryBounds("p", 3, 3)),
        ("0:10:pool9", CherryBounds("pool9", 0, 10)),
        ("0:1:" + "a" * 63, CherryBounds("a" * 63, 0, 1)),
        ("0:1:A.b_c-d", CherryBounds("A.b_c-d", 0, 1)),
    ],
)
def test_cherry_settings_valid_pool_specs(text: str, bounds: CherryBounds) -> None:
    assert parse_spec(text) == bounds


@each_row(
    "text",
    [
        "5:4:p",
        "-1:2:p",
        "1:2:",
        "1:2:" + "a" * 64,
        "1:2:-x",
        "1:2:x-",
        "1:2:x:y",
        "1:2:x y",
        "a:2:p",
        "1:2",
        "",
        "1:2:é",
    ],
)
def test_cherry_settings_invalid_pool_specs(text: str) -> None:
    with pytest.raises(BadInput):
        parse_spec(text)


@each_row(
    ("change", "problem"),
    [
        ({"credentialsSecret": ""}, "providers.cherryservers.credentialsSecret: is missing"),
        ({"nodes": ""}, "providers.cherryservers.nodes: no pool is named"),
        ({"nodes": "0:1:a\n0:2:a"}, "a is given twice"),
        ({"cloudConfigSecret": ""}, "providers.cherryservers.cloudConfig: is missing"),
        (
            {"cloudConfig": "[Global]"},
            "providers.cherryservers.cloudConfig: conflicts with another one",
        ),
        ({"projectId": "0"}, "projectId: 0 is out of range; write a whole number of 1 or more"),
        ({"projectId": "99999999999"}, "projectId"),
        ({"clusterName": "a b"}, "clusterName: 'a b' is not one word"),
        ({"endpoint": "http://api.example.com"}, "endpoint: is not an https address"),
        ({"controllerNodeLabel": "a b"}, "controllerNodeLabel: 'a b' is not a label's key"),
        ({"createBootstrapTokens": "yes"}, "createBootstrapTokens: 'yes' is not true or false"),
        (
            {"createBootstrapTokens": "true", "bootstrapTokenSecret": "t"},
            "createBootstrapTokens: conflicts with",
        ),
        (
            {"bootstrapTokenLifetime": "5m"},
            "bootstrapTokenLifetime: '5m' is out of range; write a duration from 10m",
        ),
        ({"bootstrapTokenLifetime": "soon"}, "bootstrapTokenLifetime"),
        ({"callsPerSecond": "0"}, "callsPerSecond"),
        ({"authToken": "x"}, "authToken: there is no such setting"),
    ],
)
def test_cherry_settings_error_is_named_by_its_key(change: dict[str, str], problem: str) -> None:
    [found] = problems(RIGHT | change)
    assert problem in found


def test_cherry_settings_errors_are_reported_all_at_once() -> None:
    assert len(problems({"projectId": "x", "callsPerSecond": "x", "colour": "red"})) == 6


@each_row(
    ("entry", "problem"),
    [
        (GroupPolicy("cherryservers", "p", 1), "nodeGroups: p: has no max"),
        (GroupPolicy("cherryservers", "p", 3, 2), "max 2 is below min 3"),
        (GroupPolicy("cherryservers", "-p", 0, 2), "'-p' cannot name a pool"),
        (GroupPolicy("cherryservers", "pool1", 0, 2), "pool1 is given twice"),
    ],
)
def test_cherry_settings_node_group_entries_are_checked(entry: GroupPolicy, problem: str) -> None:
    assert problem in refused(lambda: read_settings(RIGHT, [entry]))


def test_cherry_settings_mapping_has_a_name_for_every_upstream_key() -> None:
    assert {*KEYS.values(), CLOUD_INIT} >= {
        "clusterName",
        "sshKeyIds",
        "cloudinit",
        "osPartitionSize",
    }
    assert len(set(KEYS.values())) == len(KEYS)
