"""Consecutive ticks: the messages they send, and that messages never accumulate."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
from collections import Counter

import pytest

from chalicelib.functions.tick import tick
from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind
from chalicelib.passes import scan_scheduler
from chalicelib.passes.scan_scheduler import LOST_AFTER, MARGIN, is_superseded
from chalicelib.runtime.messages import decode_act
from chalicelib.runtime.runtime import Runtime, install
from chalicelib.store import Store
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.functional.app_client import AppClient, Premises, sample
from tests.operations import new_operation


@pytest.fixture
def desk(premises: Premises) -> AppClient:
    """An app client over tables of the test's own, because a tick scans every cluster there is."""
    return Premises(premises.aws, premises.clock).desk()


def _scans(desk: AppClient, name: str) -> list[int]:
    """Delays of the messages sent for a cluster since the last call."""
    delays = [delay for message, delay in desk.outbox.scans() if message.cluster == name]
    desk.outbox.sent.clear()
    return delays


def _pass(desk: AppClient, name: str) -> None:
    """The effect of a reconcile on the scan state: takes the lease and releases it."""
    lease = desk.store.leases.acquire(name, f"pass-{desk.clock()}", 60)
    desk.store.leases.release(lease, passed_at=desk.clock())


@pytest.mark.parametrize(
    ("interval", "delays"), [("20s", [0, 20, 40]), ("30s", [0, 30]), ("60s", [0]), ("5m", [0])]
)
def test_scan_interval_below_a_minute_uses_delayed_messages(
    desk: AppClient, interval: str, delays: list[int]
) -> None:
    name = desk.cluster(spec={"scanInterval": interval})
    report = scan_scheduler.run(desk.runtime)
    assert (report.clusters, report.queued, report.failed) == (1, (name,), ())
    assert [message.at - desk.clock() for message, _ in desk.outbox.scans()] == delays
    assert _scans(desk, name) == delays


def test_cluster_already_queued_is_not_queued_again(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "20s"})
    for _ in range(3):  # no message is received, for example because functions are throttled
        scan_scheduler.run(desk.runtime)
        desk.clock.advance(60)
    assert _scans(desk, name) == [0, 20, 40]
    _pass(desk, name)  # the first of the three is received at last
    scan_scheduler.run(desk.runtime)
    assert _scans(desk, name) == [20, 40]


def test_cluster_on_time_is_queued_without_a_marker(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "60s"})
    _pass(desk, name)
    for late_by in (0.0, MARGIN):
        desk.clock.advance(60 + late_by)
        assert scan_scheduler.run(desk.runtime).queued == (name,)
        assert desk.store.scan_states.due(name).queued_until == 0.0
        _pass(desk, name)
    desk.clock.advance(60 + MARGIN + 1)
    assert scan_scheduler.run(desk.runtime).queued == (name,)
    assert desk.store.scan_states.due(name).queued_until == desk.clock() + LOST_AFTER


def test_two_ticks_at_most_send_messages_that_nothing_receives(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "60s"})
    _pass(desk, name)
    sent = []
    for _ in range(4):
        desk.clock.advance(60)
        scan_scheduler.run(desk.runtime)
        sent.append(len(_scans(desk, name)))
    assert sent == [1, 1, 0, 0]


def test_marker_of_a_cluster_on_time_still_stops_messages(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "60s"})
    _pass(desk, name)
    desk.store.scan_states.mark_queued(name, desk.clock() + 90)
    desk.clock.advance(60)
    assert scan_scheduler.run(desk.runtime).queued == ()


def test_late_messages_after_a_standstill_cause_one_pass(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "20s"})
    scan_scheduler.run(desk.runtime)
    desk.clock.advance(150)
    done = 0
    for message, _ in desk.outbox.scans():
        if not is_superseded(message.at, desk.store.scan_states.due(name).last_pass, 20.0):
            _pass(desk, name)
            done += 1
    assert done == 1


def test_lost_message_stops_a_cluster_only_for_minutes(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "60s"})
    scan_scheduler.run(desk.runtime)
    _scans(desk, name)  # and it is lost
    heard_after = 0
    while not _scans(desk, name):
        desk.clock.advance(60)
        heard_after += 60
        scan_scheduler.run(desk.runtime)
    assert heard_after == 240


def test_ten_minutes_of_ticks_keep_the_scan_interval(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "20s"})
    passes = []
    for _ in range(10):
        scan_scheduler.run(desk.runtime)
        began = desk.clock()
        for delay in _scans(desk, name):
            desk.clock.advance(began + delay - desk.clock())
            _pass(desk, name)
            passes.append(desk.clock())
        desk.clock.advance(began + 60 - desk.clock())
    assert {later - earlier for earlier, later in itertools.pairwise(passes)} == {20.0}


def test_scan_interval_of_minutes_is_respected(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "3m"})
    sent = []
    for _ in range(7):
        scan_scheduler.run(desk.runtime)
        if _scans(desk, name):
            sent.append(desk.clock())
            _pass(desk, name)
        desk.clock.advance(60)
    assert [later - sent[0] for later in sent] == [0, 180, 360]


def test_tick_skips_a_cluster_that_is_off(desk: AppClient) -> None:
    desk.cluster(mode="off")
    shadow = desk.cluster(mode="shadow")
    assert scan_scheduler.run(desk.runtime).queued == (shadow,)


def test_invalid_policy_does_not_stop_other_clusters(desk: AppClient, log: io.StringIO) -> None:
    bad, good = desk.cluster(), desk.cluster()
    desk.store_text(bad, "kind: [")
    report = scan_scheduler.run(desk.runtime)
    assert (report.queued, report.failed) == ((good,), (bad,))
    assert bad in log.getvalue()


def test_failed_call_for_one_cluster_does_not_stop_other_clusters(desk: AppClient) -> None:
    names = sorted([desk.cluster(), desk.cluster(), desk.cluster()])
    faults = AwsFaults()
    faults.instead("batch_get_item", lost_answer())  # the scan states of all clusters
    # the schema, and the first cluster's scan state
    faults.instead("get_item", None, lost_answer())
    report = scan_scheduler.run(_with_faults(desk, faults))
    assert report.failed == (names[0],)
    assert report.queued == tuple(names[1:])


def _with_faults(desk: AppClient, faults: AwsFaults) -> Runtime:
    client = faults.wrap(desk.premises.aws.client("dynamodb"))
    store = Store(desk.premises.table, clock=desk.clock, sleep=lambda _: None, client=client)
    return dataclasses.replace(desk.runtime, store=store)


def test_clusters_of_a_tick_take_one_read_and_one_write_of_the_table_each(desk: AppClient) -> None:
    calls: list[Counter[str]] = []
    for _ in range(2):
        for _ in range(3):
            desk.cluster()
        faults = AwsFaults()
        desk.clock.advance(3600)
        assert not scan_scheduler.run(_with_faults(desk, faults)).failed
        calls.append(Counter(faults.calls))
    assert calls[1] - calls[0] == Counter(query=3, update_item=3)


def test_operations_are_swept_where_the_gates_cannot_be_read_together(desk: AppClient) -> None:
    name = desk.cluster()
    planned = _planned(desk, name, 2)
    desk.clock.advance(600)
    faults = AwsFaults()
    faults.instead("batch_get_item", None, lost_answer())
    assert sorted(scan_scheduler.run(_with_faults(desk, faults)).swept) == sorted(planned)


def test_failed_send_is_retried_by_the_next_tick(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "60s"})
    desk.outbox.full.add("reconcile")
    assert scan_scheduler.run(desk.runtime).failed == (name,)
    desk.outbox.full.clear()
    desk.clock.advance(60)
    assert scan_scheduler.run(desk.runtime).queued == (name,)


def _planned(desk: AppClient, name: str, count: int = 1) -> list[str]:
    operations = tuple(
        new_operation(
            f"grow-{number}",
            name,
            "clusterapi",
            f"workers-{number}",
            OperationKind.SCALE_UP,
            "p1",
            desk.clock(),
        )
        for number in range(count)
    )
    lease = desk.store.leases.acquire(name, "planner", 60)
    desk.store.memory.save(name, Memory(), Memory(), operations, lease)
    desk.store.leases.release(lease, passed_at=desk.clock())
    return [operation.spec.id for operation in operations]


def test_operation_saved_but_never_sent_is_sent_by_the_sweeper(desk: AppClient) -> None:
    name = desk.cluster()
    planned = _planned(desk, name, 2)
    assert scan_scheduler.run(desk.runtime).swept == ()
    desk.clock.advance(60)
    assert scan_scheduler.run(desk.runtime).swept == tuple(planned)
    sent = [
        (queue, decode_act(body).operation)
        for queue, body, _ in desk.outbox.sent
        if queue != "reconcile"
    ]
    assert sent == [("act_clusterapi", operation) for operation in planned]
    desk.clock.advance(60)
    assert scan_scheduler.run(desk.runtime).swept == (), "sent a minute ago: patience"


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_operation_begun_before_a_mode_change_is_swept_and_then_abandoned(
    desk: AppClient, mode: str
) -> None:
    name = desk.cluster(mode=mode)
    planned = _planned(desk, name)
    desk.clock.advance(600)
    assert scan_scheduler.run(desk.runtime).swept == tuple(planned)


def test_operation_begun_under_a_policy_now_unreadable_is_swept(desk: AppClient) -> None:
    name = desk.cluster()
    planned = _planned(desk, name)
    current = desk.store.policies.current(name)
    assert current is not None
    desk.store.policies.put(name, "apiVersion: outscaler.dev/v9\n", "digest", current.version)
    desk.clock.advance(600)
    report = scan_scheduler.run(desk.runtime)
    assert (report.swept, report.failed) == (tuple(planned), (name,))


def test_failing_act_queue_does_not_stop_the_scan(desk: AppClient) -> None:
    name = desk.cluster()
    _planned(desk, name)
    desk.clock.advance(600)
    desk.outbox.full.add("act_clusterapi")
    report = scan_scheduler.run(desk.runtime)
    assert (report.queued, report.failed) == ((name,), (name,))


def test_tick_function_reports_its_actions(desk: AppClient) -> None:
    name = desk.cluster()
    install(desk.runtime)
    try:
        answer = tick(json.loads(sample("eventbridge-schedule")), None)
    finally:
        install(None)
    assert answer == {"clusters": 1, "queued": [name], "swept": [], "failed": []}
