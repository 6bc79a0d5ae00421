"""Policies in the state table, where older releases stored them, are never
used and always reported.
"""

from __future__ import annotations

import io
import json

import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.operation import Operation, OperationKind, OperationState
from chalicelib.operations.runner import handle
from chalicelib.passes import scan_scheduler
from chalicelib.policy.load import digest
from chalicelib.runtime.runtime import install
from chalicelib.store.errors import NotMoved
from tests.functional.app_client import AppClient, Premises, sample
from tests.functional.legacy_policies import store_as_before
from tests.operations import new_operation

pytestmark = pytest.mark.filterwarnings("ignore:IAMAuthorizer is not a supported in local mode")
BODY = sample("core-v1-failed-scheduling")
TEXT = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/shop/kubeconfig}
  providers: {clusterapi: {namespace: capi}}
  webhook: {secret: outscaler/shop/webhook}
"""


@pytest.fixture
def desk(premises: Premises) -> AppClient:
    """An app client over tables of the test's own, with a policy in the old table."""
    made = Premises(premises.aws, premises.clock).desk()
    store_as_before(made.store, "shop", TEXT)
    return made


def _errors(log: io.StringIO) -> list[dict[str, object]]:
    return [
        line for line in map(json.loads, log.getvalue().splitlines()) if line["level"] == "ERROR"
    ]


def test_tick_reports_unmigrated_policies_and_the_command_once(
    desk: AppClient, log: io.StringIO
) -> None:
    report = scan_scheduler.run(desk.runtime)
    assert (report.clusters, report.queued, report.failed) == (0, (), ())
    [line] = _errors(log)
    assert line["message"] == "policies are not used"
    assert line["detail"] == "policies in the state table are not used, clusters shop"
    assert line["remedy"] == "run outscaler migrate"


def test_tick_does_not_report_migrated_policies(desk: AppClient, log: io.StringIO) -> None:
    desk.store.moving.copy("shop", lambda _: None)
    assert scan_scheduler.run(desk.runtime).queued == ("shop",)
    assert _errors(log) == []


def test_planted_cluster_names_do_not_flood_the_log(desk: AppClient, log: io.StringIO) -> None:
    for number in range(30):
        store_as_before(desk.store, f"x{number}-" + "\u00e9\n" * 200, "text")
    scan_scheduler.run(desk.runtime)
    [line] = _errors(log)
    assert len(str(line["detail"])) < 3_000
    assert "and 21 more" in str(line["detail"])
    assert str(line["detail"]).isascii()


def test_list_of_clusters_reports_unmigrated_policies(desk: AppClient) -> None:
    install(desk.runtime)
    try:
        said = desk.get("/clusters").json_body
        assert said == {
            "clusters": [],
            "problems": [
                "policies in the state table are not used, clusters shop; run outscaler migrate"
            ],
        }
        assert desk.post("shop", BODY).status_code == 404
        desk.store.moving.copy("shop", lambda _: None)
        assert set(desk.get("/clusters").json_body) == {"clusters"}
    finally:
        install(None)


def _planned(desk: AppClient) -> Operation:
    operation = new_operation(
        "grow-1", "shop", "clusterapi", "workers", OperationKind.SCALE_UP, "p1", desk.clock()
    )
    lease = desk.store.leases.acquire("shop", "planner", 60)
    desk.store.memory.save("shop", Memory(), Memory(), (operation,), lease)
    desk.store.leases.release(lease, passed_at=desk.clock())
    return operation


def test_operations_wait_for_the_migration_of_their_policy(desk: AppClient) -> None:
    operation = _planned(desk)
    body = json.dumps({"cluster": "shop", "operation": operation.spec.id})
    with pytest.raises(NotMoved, match="run outscaler migrate"):
        handle(body, desk.runtime)
    still = desk.store.operations.get("shop", operation.spec.id)
    assert still is not None
    assert still.is_open
    desk.store.moving.copy("shop", lambda _: None)
    desk.clock.advance(600)
    assert scan_scheduler.run(desk.runtime).swept == (operation.spec.id,)


def test_operation_of_a_cluster_without_any_policy_is_abandoned(desk: AppClient) -> None:
    operation = _planned(desk)
    desk.store.moving.copy("shop", lambda _: None)
    desk.store.moving.delete_old("shop")
    for table, items in (
        (desk.store.policy_table, [("!policies", "shop"), ("shop", "policy#0000000001")]),
    ):
        for key in items:
            table.write(table.delete(*key))
    handle(json.dumps({"cluster": "shop", "operation": operation.spec.id}), desk.runtime)
    over = desk.store.operations.get("shop", operation.spec.id)
    assert over is not None
    assert (
        over.status.state is OperationState.FAILED or over.status.state is OperationState.ABANDONED
    )


def test_policy_writable_by_a_function_is_never_in_force(desk: AppClient) -> None:
    """An attacker who controls a function can write every row of the state table."""
    for version in range(1, 4):
        store_as_before(
            desk.store, "shop", *[TEXT.replace("outscaler/shop", "outscaler/other")] * version
        )
    assert desk.store.policies.current("shop") is None
    desk.store.policies.put("shop", TEXT, digest(TEXT), None)
    current = desk.store.policies.current("shop")
    assert current is not None
    assert current.text == TEXT
