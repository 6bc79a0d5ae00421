"""The provider as the registry builds it, and requests that none of its parts ever sends."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import chalicelib.providers.huaweicloud as package
from chalicelib.model.errors import OutscalerError
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.base import Connection, Provider
from chalicelib.providers.huaweicloud.models import Autoscaling
from chalicelib.providers.huaweicloud.provider import build
from chalicelib.providers.huaweicloud.provider_ids import handle_of
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import (
    CLUSTER,
    POOL,
    A,
    FakeCceApi,
    announced,
    entry,
    growth,
    operation,
    provider,
    shrinkage,
    to_the_end,
    two,
    uid,
)

MODULES = sorted(Path(package.__file__).parent.glob("*.py"))


def connection(**settings: str) -> Connection:
    fields = {"region": "cn-north-4", "clusterId": CLUSTER, "credentialsSecret": "cce", **settings}
    secret = json.dumps({"accessKey": "AKIDEXAMPLE00000TEST", "secretKey": "SKEXAMPLEsecretkey0123456789abcdefghijkl"})
    return Connection("ours", fields, (entry("pool-a", 0, 5),), lambda name: secret, None, lambda: 0.0)


def test_huawei_provider_is_built_without_a_call() -> None:
    built: Provider = build(connection())
    assert built.name == "huaweicloud"


def test_huawei_provider_invalid_settings_are_one_clear_error() -> None:
    with pytest.raises(OutscalerError, match="clusterId"):
        build(connection(clusterId="ours"))


def test_CCE_DANGER_2_no_pass_and_no_change_writes_a_pools_settings() -> None:
    assert [path.name for path in MODULES if '"PUT"' in path.read_text()] == []
    api = FakeCceApi(two())
    provider(api).observe(())
    assert not api.writes()


def test_CCE_DANGER_1_totals_are_computed_in_two_places_from_a_fresh_read() -> None:
    users = [
        f"{path.stem}.{definition.name}"
        for path in MODULES
        for definition in ast.parse(path.read_text()).body
        if isinstance(definition, ast.FunctionDef | ast.ClassDef) and "api.scale(" in ast.unparse(definition)
    ]
    assert users == ["delete_nodes._lower", "scale_up._send_total"]


def test_CCE_DANGER_1_pool_change_during_other_reads_is_not_undone() -> None:
    class Raced(FakeCceApi):
        def cluster_phase(self) -> str:
            pool = self.all[POOL]
            if pool.desired == self.meant:
                pool.desired, pool.groups[1].desired = pool.desired + 2, pool.groups[1].desired + 2
            return super().cluster_phase()

        meant = 0

    api = Raced(two(3, 2, autoscaling=Autoscaling(True, 0, 20)))
    asked = announced(api, growth(3, 5))
    api.meant = 5
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert api.writes() == ["scale 9 default"]
    api.all[POOL].groups[0].stock = 0
    api.all[POOL].desired, api.all[POOL].groups[0].desired = 10, 6
    api.meant = 10
    assert isinstance(to_the_end(api, shrinkage(6, 5)), Succeeded)
    assert (api.writes()[1:], api.chosen) == (["scale 11 default"], [])


@each_row("kind", list(OperationKind))
def test_huawei_provider_every_kind_of_operation_has_its_poll(kind: OperationKind) -> None:
    outcome = provider(FakeCceApi(two(2, 2))).poll(operation(kind, A, 3, 2))
    assert outcome is not None


@each_row(
    ("handle", "instance", "found"),
    [
        (uid(1), "", uid(1)),
        ("", f"x:///{uid(1)}", uid(1)),
        (uid(1).upper(), "", uid(1)),
        ("", "", ""),
        (f"{A}/placeholder-3", "", f"{A}/placeholder-3"),
        ("", f"{A}/placeholder-3", f"{A}/placeholder-3"),
        ("192.0.2.1", "i-1", ""),
        (f"{POOL}/../nodes", "", ""),
    ],
)
def test_huawei_provider_node_of_a_target(handle: str, instance: str, found: str) -> None:
    assert handle_of(RemovalTarget("n", instance, handle)) == found
