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
from chalicelib.providers.huaweicloud.provider import build
from chalicelib.providers.huaweicloud.provider_ids import handle_of
from chalicelib.providers.kit.base import Connection, Provider
from infra.emulators.vendor_common.http_messages import Answer, Incoming
from tests.cases import each_row
from tests.providers.huaweicloud.emulated import (
    CLUSTER,
    POOL,
    A,
    B,
    EmulatedCce,
    entry,
    grow,
    shrink,
    uid,
)
from tests.providers.huaweicloud.fixture import drive, order

MODULES = sorted(Path(package.__file__).parent.glob("*.py"))


def connection(**settings: str) -> Connection:
    fields = {"region": "cn-north-4", "clusterId": CLUSTER, "credentialsSecret": "cce", **settings}
    secret = json.dumps(
        {
            "accessKey": "AKIDEXAMPLE00000TEST",
            "secretKey": "SKEXAMPLEsecretkey0123456789abcdefghijkl",
        }
    )
    return Connection(
        "ours", fields, (entry("pool-a", 0, 5),), lambda name: secret, None, lambda: 0.0
    )


def test_huawei_provider_is_built_without_a_call() -> None:
    built: Provider = build(connection())
    assert built.name == "huaweicloud"


def test_huawei_provider_invalid_settings_are_one_clear_error() -> None:
    with pytest.raises(OutscalerError, match="clusterId"):
        build(connection(clusterId="ours"))


def test_CCE_DANGER_2_no_pass_and_no_change_writes_a_pools_settings() -> None:
    assert [path.name for path in MODULES if '"PUT"' in path.read_text()] == []
    cce = EmulatedCce(3, 2)
    cce.build().observe(())
    assert {request.method for request in cce.server.requests} == {"GET"}


def test_CCE_DANGER_1_totals_are_computed_in_two_places_from_a_fresh_read() -> None:
    users = [
        f"{path.stem}.{definition.name}"
        for path in MODULES
        for definition in ast.parse(path.read_text()).body
        if isinstance(definition, ast.FunctionDef | ast.ClassDef)
        and "api.scale(" in ast.unparse(definition)
    ]
    assert users == ["delete_nodes._lower", "scale_up._send_total"]


def test_CCE_DANGER_1_pool_change_during_other_reads_is_not_undone() -> None:
    cce, raced = EmulatedCce(3, 2, most=20), [5, 10]

    def race(request: Incoming) -> Answer:
        """Another user raises the pool while we read the cluster, once at each of these sizes."""
        if raced and cce.pool(A).desired == raced[0]:
            raced.pop(0)
            cce.resize(B, cce.target(B) + 2)
        return cce.server.front.served(request)

    operation = cce.announced(grow(cce, 3, 5))
    cce.server.reply(f"GET .*/clusters/{CLUSTER}$", race, always=True)
    assert isinstance(drive(cce, operation), Succeeded)
    assert (cce.changes(), raced) == (["scale 9 default"], [10])
    cce.lack(1)
    assert isinstance(drive(cce, shrink(cce, 6, 5)), Succeeded)
    assert (cce.changes()[1:], cce.chosen, raced) == (["scale 11 default"], set(), [])


@each_row("kind", list(OperationKind))
def test_huawei_provider_every_kind_of_operation_has_its_poll(kind: OperationKind) -> None:
    cce = EmulatedCce(2, 2)
    assert cce.build().poll(order(cce, kind, A, 3, 2)) is not None


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
