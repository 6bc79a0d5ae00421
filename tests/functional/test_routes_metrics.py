"""GET /metrics as Prometheus scrapes it: from the table alone, for every cluster."""

from __future__ import annotations

import pytest
from chalice.test import HTTPResponse
from prometheus_client.parser import text_string_to_metric_families

from chalicelib.cluster.errors import Forbidden
from chalicelib.journal import carry_over
from chalicelib.journal.recorder import Recorder, record_failure, record_outcome, record_plan
from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.model.outcome import Succeeded
from chalicelib.model.pause import Pause
from chalicelib.model.plan import Health, Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.store.tables import PAUSES, PauseRow
from tests.functional.app_client import AppClient
from tests.operations import new_operation

pytestmark = pytest.mark.filterwarnings("ignore:IAMAuthorizer is not a supported in local mode")


def recorder(desk: AppClient) -> Recorder:
    return Recorder(
        journal=desk.store.journal,
        board=None,
        clock=desk.clock,
        options=Options(),
        emit=lambda line: None,
    )


def a_pass(desk: AppClient, name: str, *, ready: int = 3, error: Exception | None = None) -> None:
    """Records one pass as the reconcile function does, under its lease."""
    lease = desk.store.leases.acquire(name, f"pass-{desk.clock()}", 60)
    before = carry_over.read(lease.carry_over)
    if error:
        after, decision = (
            record_failure(name, error, recorder(desk), before, {"main": 0.5}),
            lease.decision,
        )
    else:
        plan = Plan(
            id="p", cluster=name, at=desk.clock(), health=Health(registered=ready, ready=ready)
        )
        reported = record_plan(
            plan,
            Snapshot(name, desk.clock()),
            recorder(desk),
            before,
            lease.decision,
            seconds={"main": 0.5},
        )
        after, decision = reported.left, reported.decision
    desk.store.leases.release(
        lease, passed_at=desk.clock(), decision=decision, carry_over=carry_over.write(after)
    )


def bought(desk: AppClient, name: str, nodes: int) -> None:
    """Records one finished scale-up."""
    operation = new_operation(
        id=f"grow-{desk.clock()}",
        cluster=name,
        provider="clusterapi",
        group="workers",
        kind=OperationKind.SCALE_UP,
        plan="p",
        created_at=desk.clock(),
        to_size=nodes,
        state=OperationState.SUCCEEDED,
    )
    record_outcome(operation, Succeeded(), recorder(desk))


def samples(answer: HTTPResponse, cluster: str) -> dict[str, float]:
    """The samples of one cluster in a scrape, by name and the other labels."""
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            if sample.labels.pop("cluster") == cluster:
                labels = ",".join(sample.labels.values())
                found[f"{sample.name.removeprefix('cluster_autoscaler_')} {labels}".strip()] = (
                    sample.value
                )
    return found


OWN = {"outscaler_mode active": 1, "outscaler_paused": 0, "outscaler_pass_late": 0}
"""Metrics of a cluster without a pass."""


def test_scrape_has_every_cluster_with_the_gauges_of_its_last_pass(desk: AppClient) -> None:
    one, other, fresh = desk.cluster(), desk.cluster(mode="shadow"), desk.cluster()
    a_pass(desk, one, ready=3)
    a_pass(desk, other, ready=5)
    answer = desk.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert (
        samples(answer, one)["nodes_count ready"],
        samples(answer, other)["nodes_count ready"],
    ) == (3, 5)
    assert samples(answer, one)["last_activity main"] == desk.clock()
    assert samples(answer, fresh) == OWN


def test_pass_and_operation_counters_never_decrease(desk: AppClient) -> None:
    name = desk.cluster()
    seen: dict[str, float] = {}
    for number in range(4):
        desk.clock.advance(60)
        a_pass(desk, name, error=Forbidden("nodes is forbidden") if number == 2 else None)
        bought(desk, name, 2)
        shown = samples(desk.get("/metrics"), name)
        counters = {
            series: value
            for series, value in shown.items()
            if "total" in series or "duration" in series
        }
        assert all(counters[series] >= value for series, value in seen.items())
        seen = counters
    assert seen["scaled_up_nodes_total"] == 8
    assert seen["errors_total apiCallError"] == 1
    assert seen["function_duration_seconds_count main"] == 4


def test_failed_pass_hides_no_gauge(desk: AppClient) -> None:
    name = desk.cluster()
    a_pass(desk, name, ready=4)
    at = desk.clock()
    desk.clock.advance(600)
    a_pass(desk, name, error=Forbidden("nodes is forbidden"))
    shown = samples(desk.get("/metrics"), name)
    assert (shown["nodes_count ready"], shown["last_activity main"]) == (4, at)


def test_cluster_that_is_off_has_counters_only(desk: AppClient) -> None:
    name = desk.cluster()
    a_pass(desk, name)
    bought(desk, name, 1)
    desk.apply(name, mode="off")
    shown = samples(desk.get("/metrics"), name)
    assert shown["scaled_up_nodes_total"] == 1
    assert "nodes_count ready" not in shown


def test_unreadable_policy_or_row_hides_no_other_metric(desk: AppClient) -> None:
    unreadable, torn, well = desk.cluster(), desk.cluster(), desk.cluster()
    for name in (unreadable, torn, well):
        a_pass(desk, name)
    desk.store_text(unreadable, "kind: Cluster")
    lease = desk.store.leases.acquire(torn, "x", 60)
    desk.store.leases.release(lease, carry_over=b"rubbish")
    answer = desk.get("/metrics")
    assert (
        samples(answer, unreadable)["nodes_count ready"]
        == samples(answer, well)["nodes_count ready"]
        == 3
    )
    assert samples(answer, torn) == OWN


def test_scrape_shows_the_mode_and_a_pause_at_once(desk: AppClient) -> None:
    name, other = desk.cluster(), desk.cluster(mode="shadow")
    pause = Pause(reason="release test", by="someone", since=desk.clock(), until=desk.clock() + 600)
    desk.store.pauses.change(name, lambda before: (*before, pause))
    answer = desk.get("/metrics")
    late = {"outscaler_pass_late": 0}
    assert samples(answer, name) == {"outscaler_mode active": 1, "outscaler_paused": 1} | late
    assert samples(answer, other) == {"outscaler_mode shadow": 1, "outscaler_paused": 0} | late
    desk.clock.advance(601)
    assert samples(desk.get("/metrics"), name)["outscaler_paused"] == 0


def test_unreadable_pause_hides_no_other_metric(desk: AppClient) -> None:
    name = desk.cluster()
    a_pass(desk, name, ready=3)
    table = desk.store.policy_table
    row = PauseRow(PAUSES, name, text="{", version="1", expires_at=int(desk.clock()) + 600)
    table.write(table.put(row, PauseRow.version.does_not_exist()))
    try:
        answer = desk.get("/metrics")
    finally:
        table.write(table.delete(PAUSES, name, PauseRow.version == "1"))
    shown = samples(answer, name)
    assert shown["nodes_count ready"] == 3
    assert "outscaler_paused" not in shown
