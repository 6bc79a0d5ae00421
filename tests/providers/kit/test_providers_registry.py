"""Construction of a provider by name, without loading anything else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.model.errors import BadInput
from chalicelib.model.operation import OperationKind
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.providers.kit.base import Connection
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.registry import build, names, providers
from tests.cases import each_row
from tests.operations import new_operation

ROOT = Path(__file__).resolve().parents[3]


ANY = new_operation("o", "prod", "p", "g", OperationKind.SCALE_UP, "plan", 0.0)


ALICLOUD = {"region": "cn-hangzhou", "nodes": "0:5:asg-1", "credentialsSecret": "key"}
EXOSCALE = {"zone": "ch-gva-2", "credentialsSecret": "key"}
HUAWEICLOUD = {
    "region": "cn-north-4",
    "clusterId": "2292498e-1111-11ee-8b5e-0255ac1001ba",
    "credentialsSecret": "key",
}


def connection(kube: object | None = None, **settings: str) -> Connection:
    return Connection("test", settings, (), lambda name: name, kube, lambda: 0.0)


def test_registry_builds_a_provider_by_its_name() -> None:
    assert names() == ("alicloud", "cherryservers", "clusterapi", "exoscale", "huaweicloud")
    assert build("clusterapi", connection(kube=object())).name == "clusterapi"
    assert build("alicloud", connection(**ALICLOUD)).name == "alicloud"
    assert build("exoscale", connection(**EXOSCALE)).name == "exoscale"
    assert build("huaweicloud", connection(**HUAWEICLOUD)).name == "huaweicloud"


@each_row(
    ("name", "problem"),
    [("aws", "is not a provider"), ("", "is not a provider")],
)
def test_registry_refuses_an_unknown_name_and_lists_the_known_ones(name: str, problem: str) -> None:
    with pytest.raises(BadInput) as raised:
        build(name, connection())
    assert raised.value.place == f"providers.{name}"
    assert problem in raised.value.problem
    assert "clusterapi" in raised.value.remedy


def test_registry_checks_settings_and_connection_before_any_call() -> None:
    with pytest.raises(BadInput, match="no connection"):
        build("clusterapi", connection())
    with pytest.raises(BadInput, match="autoDiscovery"):
        build("clusterapi", connection(kube=object(), autoDiscovery="asg:x"))
    with pytest.raises(BadInput, match="no scaling group"):
        build("alicloud", connection(region="cn-hangzhou", credentialsSecret="key"))


@each_row(
    ("name", "settings"),
    [("alicloud", ALICLOUD), ("exoscale", EXOSCALE), ("huaweicloud", HUAWEICLOUD)],
)
def test_registry_builds_a_vendors_provider_without_a_call(
    name: str, settings: dict[str, str]
) -> None:
    def read_secret(name: str) -> str:
        raise AssertionError(name)

    assert (
        build(name, Connection("test", settings, (), read_secret, None, lambda: 0.0)).name == name
    )


@each_row("name", ["alicloud", "exoscale", "huaweicloud"])
def test_registry_loads_no_package_of_the_vendor(name: str) -> None:
    code = (
        f"import sys, chalicelib.providers.{name}.provider; "
        "print([m for m in sys.modules"
        " if m.startswith(('alibabacloud', 'Tea', 'boto', 'exoscale', 'huawei', "
        "'chalicelib.providers.cherry', "
        "'chalicelib.providers.clusterapi'))])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_registry_gives_each_provider_its_own_settings_and_groups() -> None:
    policy = Policy(
        "prod",
        providers={"clusterapi": {"namespace": "n"}},
        node_groups=(
            GroupPolicy("clusterapi", "md-0"),
            GroupPolicy("exoscale", "pool"),
        ),
    )
    [made] = providers(policy, object(), lambda name: name, lambda: 0.0)
    assert made.name == "clusterapi"


@each_row(
    ("name", "settings", "why"),
    [
        ("huaweicloud", {}, "provider huaweicloud: providers.huaweicloud.region: is missing"),
        ("exoscale", {}, "provider exoscale: providers.exoscale.zone: is missing"),
        ("clusterapi", {"autoDiscovery": "asg:x"}, "provider clusterapi: .*autoDiscovery"),
        ("alicloud", {}, "provider alicloud: providers.alicloud.region: is missing"),
    ],
)
def test_registry_replaces_an_unbuildable_provider_by_one_that_says_why(
    name: str, settings: dict[str, str], why: str
) -> None:
    policy = Policy("prod", providers={"clusterapi": {}} | {name: settings})
    made = {each.name: each for each in providers(policy, object(), lambda name: name, lambda: 0.0)}
    assert set(made) == {"clusterapi", name}
    absent = made[name]
    with pytest.raises(InvalidRequest, match=why):
        absent.observe(())
    for question in (absent.scale_up, absent.delete_nodes, absent.poll, absent.decrease_target):
        with pytest.raises(InvalidRequest, match=why):
            question(ANY)


def test_registry_itself_loads_no_provider_and_no_http() -> None:
    code = (
        "import sys, chalicelib.providers.registry; "
        "packages = ('chalicelib.providers.alicloud', 'chalicelib.providers.clusterapi', "
        "'requests', 'urllib3'); "
        "print([m for m in sys.modules if m.startswith(packages)])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_registry_builds_cluster_api_without_a_separate_http_client() -> None:
    code = "import sys, chalicelib.providers.clusterapi.provider; print('requests' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"
