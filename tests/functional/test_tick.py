"""One tick after the other: what is sent, and what never piles up."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json

import pytest

from chalicelib.dispatch.messages import decode_act
from chalicelib.handlers.tick import tick
from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind
from chalicelib.reconciler import scan_scheduler
from chalicelib.reconciler.scan_slots import is_superseded
from chalicelib.runtime.runtime import install
from chalicelib.store import Store
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.functional.app_client import AppClient, Premises, sample
from tests.operations import new_operation


@pytest.fixture
def desk(premises: Premises) -> AppClient:
    """A desk over a table of the test's own: a tick looks at every cluster there is."""
    return Premises(premises.aws, premises.clock).desk()


def _scans(desk: AppClient, name: str) -> list[int]:
    """Delays of the messages sent for a cluster; they count as sent no more."""
    delays = [delay for message, delay in desk.outbox.scans() if message.cluster == name]
    desk.outbox.sent.clear()
    return delays


def _pass(desk: AppClient, name: str) -> None:
    """What a reconcile does to the schedule: takes the lease and gives it back."""
    lease = desk.store.leases.acquire(name, f"pass-{desk.clock()}", 60)
    desk.store.leases.release(lease, passed_at=desk.clock())


@pytest.mark.parametrize(("interval", "delays"), [("20s", [0, 20, 40]), ("30s", [0, 30]), ("60s", [0]), ("5m", [0])])
def test_a_scan_interval_below_a_minute_is_delayed_messages(desk: AppClient, interval: str, delays: list[int]) -> None:
    name = desk.cluster(spec={"scanInterval": interval})
    report = scan_scheduler.run(desk.runtime)
    assert (report.clusters, report.queued, report.failed) == (1, (name,), ())
    assert [message.at - desk.clock() for message, _ in desk.outbox.scans()] == delays
    assert _scans(desk, name) == delays


def test_a_cluster_that_is_queued_already_is_not_queued_twice(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "20s"})
    for _ in range(3):  # nobody picks anything up: the functions are throttled, say
        scan_scheduler.run(desk.runtime)
        desk.clock.advance(60)
    assert _scans(desk, name) == [0, 20, 40]
    _pass(desk, name)  # the first of the three is picked up at last
    scan_scheduler.run(desk.runtime)
    assert _scans(desk, name) == [20, 40]


def test_late_messages_of_a_standstill_are_one_pass(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "20s"})
    scan_scheduler.run(desk.runtime)
    desk.clock.advance(150)
    done = 0
    for message, _ in desk.outbox.scans():
        if not is_superseded(message.at, desk.store.scan_states.due(name).last_pass, 20.0):
            _pass(desk, name)
            done += 1
    assert done == 1


def test_a_lost_message_silences_a_cluster_for_minutes_only(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "60s"})
    scan_scheduler.run(desk.runtime)
    _scans(desk, name)  # and lost
    heard_after = 0
    while not _scans(desk, name):
        desk.clock.advance(60)
        heard_after += 60
        scan_scheduler.run(desk.runtime)
    assert heard_after == 240


def test_ten_minutes_of_ticks_keep_the_interval(desk: AppClient) -> None:
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


def test_an_interval_of_minutes_waits_for_its_time(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "3m"})
    sent = []
    for _ in range(7):
        scan_scheduler.run(desk.runtime)
        if _scans(desk, name):
            sent.append(desk.clock())
            _pass(desk, name)
        desk.clock.advance(60)
    assert [later - sent[0] for later in sent] == [0, 180, 360]


def test_a_cluster_that_is_off_is_left_alone(desk: AppClient) -> None:
    desk.cluster(mode="off")
    shadow = desk.cluster(mode="shadow")
    assert scan_scheduler.run(desk.runtime).queued == (shadow,)


def test_one_bad_policy_does_not_stop_the_others(desk: AppClient, log: io.StringIO) -> None:
    bad, good = desk.cluster(), desk.cluster()
    desk.store_text(bad, "kind: [")
    report = scan_scheduler.run(desk.runtime)
    assert (report.queued, report.failed) == ((good,), (bad,))
    assert bad in log.getvalue()


def test_one_failing_call_does_not_stop_the_others(desk: AppClient) -> None:
    names = sorted([desk.cluster(), desk.cluster(), desk.cluster()])
    faults = AwsFaults()
    store = Store(
        desk.premises.table,
        clock=desk.clock,
        sleep=lambda _: None,
        client=faults.wrap(desk.premises.aws.client("dynamodb")),
    )
    faults.instead("get_item", None, lost_answer())  # the schema; the first cluster's pace
    report = scan_scheduler.run(dataclasses.replace(desk.runtime, store=store))
    assert report.failed == (names[0],)
    assert report.queued == tuple(names[1:])


def test_a_send_that_fails_is_tried_again_by_the_next_tick(desk: AppClient) -> None:
    name = desk.cluster(spec={"scanInterval": "60s"})
    desk.outbox.full.add("reconcile")
    assert scan_scheduler.run(desk.runtime).failed == (name,)
    desk.outbox.full.clear()
    desk.clock.advance(60)
    assert scan_scheduler.run(desk.runtime).queued == (name,)


def _planned(desk: AppClient, name: str, count: int = 1) -> list[str]:
    operations = tuple(
        new_operation(
            f"grow-{number}", name, "clusterapi", f"workers-{number}", OperationKind.SCALE_UP, "p1", desk.clock()
        )
        for number in range(count)
    )
    lease = desk.store.leases.acquire(name, "planner", 60)
    desk.store.memory.save(name, Memory(), Memory(), operations, lease)
    desk.store.leases.release(lease, passed_at=desk.clock())
    return [operation.spec.id for operation in operations]


def test_what_was_saved_but_never_sent_is_sent(desk: AppClient) -> None:
    name = desk.cluster()
    planned = _planned(desk, name, 2)
    assert scan_scheduler.run(desk.runtime).swept == ()
    desk.clock.advance(60)
    assert scan_scheduler.run(desk.runtime).swept == tuple(planned)
    sent = [(queue, decode_act(body).operation) for queue, body, _ in desk.outbox.sent if queue != "reconcile"]
    assert sent == [("act_clusterapi", operation) for operation in planned]
    desk.clock.advance(60)
    assert scan_scheduler.run(desk.runtime).swept == (), "sent a minute ago: patience"


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_what_was_begun_before_the_mode_changed_is_swept_so_that_its_executor_calls_it_off(
    desk: AppClient, mode: str
) -> None:
    name = desk.cluster(mode=mode)
    planned = _planned(desk, name)
    desk.clock.advance(600)
    assert scan_scheduler.run(desk.runtime).swept == tuple(planned)


def test_what_was_begun_under_a_policy_that_cannot_be_read_any_more_is_swept_too(desk: AppClient) -> None:
    name = desk.cluster()
    planned = _planned(desk, name)
    current = desk.store.policies.current(name)
    assert current is not None
    desk.store.policies.put(name, "apiVersion: outscaler.dev/v9\n", "digest", current.version)
    desk.clock.advance(600)
    report = scan_scheduler.run(desk.runtime)
    assert (report.swept, report.failed) == (tuple(planned), (name,))


def test_an_act_queue_that_refuses_does_not_stop_the_scan(desk: AppClient) -> None:
    name = desk.cluster()
    _planned(desk, name)
    desk.clock.advance(600)
    desk.outbox.full.add("act_clusterapi")
    report = scan_scheduler.run(desk.runtime)
    assert (report.queued, report.failed) == ((name,), (name,))


def test_the_function_itself_reports_what_it_did(desk: AppClient) -> None:
    name = desk.cluster()
    install(desk.runtime)
    try:
        answer = tick(json.loads(sample("eventbridge-schedule")), None)
    finally:
        install(None)
    assert answer == {"clusters": 1, "queued": [name], "swept": [], "failed": []}
