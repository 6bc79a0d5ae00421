"""A due cluster is queued once; a lost message blocks no cluster; many events
cause one reconcile request.
"""

from __future__ import annotations

from chalicelib.store.leases import ScanState
from chalicelib.store.tables import DEBOUNCE, WEB
from tests.unit.store.support import START, RequestCounter, StoreFixture, all_at_once


def test_scan_state_cluster_is_queued_once_until_its_message_arrives(bench: StoreFixture) -> None:
    schedule = bench.store.scan_states
    assert schedule.mark_queued(bench.cluster, START + 120)
    assert not schedule.mark_queued(bench.cluster, START + 120)
    bench.lease()
    assert schedule.mark_queued(bench.cluster, START + 120), (
        "what happens during a pass deserves another"
    )


def test_scan_state_exactly_one_of_eight_ticks_queues_a_cluster(bench: StoreFixture) -> None:
    results = all_at_once(
        [lambda: bench.store.scan_states.mark_queued(bench.cluster, START + 120)] * 8
    )
    assert sorted(results, key=str) == [False] * 7 + [True]


def test_scan_state_queued_marker_of_a_lost_message_expires(bench: StoreFixture) -> None:
    bench.store.scan_states.mark_queued(bench.cluster, START + 120)
    bench.clock.advance(120)
    assert not bench.store.scan_states.mark_queued(bench.cluster, START + 240)
    bench.clock.advance(0.25)
    assert bench.store.scan_states.mark_queued(bench.cluster, START + 240)


def test_scan_state_queued_marker_can_be_cancelled_by_its_writer(bench: StoreFixture) -> None:
    schedule = bench.store.scan_states
    schedule.mark_queued(bench.cluster, START + 120)
    schedule.clear_queued(bench.cluster, START + 60)
    assert not schedule.mark_queued(bench.cluster, START + 180)
    schedule.clear_queued(bench.cluster, START + 120)
    assert schedule.mark_queued(bench.cluster, START + 180)
    schedule.clear_queued(bench.cluster)
    assert schedule.mark_queued(bench.cluster, START + 180)


def test_scan_state_has_the_last_pass_and_the_end_of_the_queued_message(
    bench: StoreFixture,
) -> None:
    assert bench.store.scan_states.due(bench.cluster) == ScanState()
    lease = bench.lease()
    bench.store.leases.release(lease, passed_at=START)
    assert bench.store.scan_states.due(bench.cluster) == ScanState(last_pass=START)
    bench.store.scan_states.mark_queued(bench.cluster, START + 180)
    assert bench.store.scan_states.due(bench.cluster).queued_until == START + 180
    bench.store.scan_states.passed(bench.cluster, START + 61)
    assert bench.store.scan_states.due(bench.cluster).last_pass == START + 61


def test_scan_state_overtaken_pass_is_not_counted(bench: StoreFixture) -> None:
    zombie = bench.lease("zombie")
    bench.clock.advance(61)
    bench.lease("newer")
    bench.store.leases.release(zombie, passed_at=bench.clock())
    assert bench.store.scan_states.due(bench.cluster).last_pass == 0.0


def test_debounce_thousand_requests_in_a_window_are_one(bench: StoreFixture) -> None:
    def storm() -> int:
        return sum(bench.store.debounce.wake(bench.cluster, 2.0) for _ in range(125))

    with RequestCounter(bench) as counter:
        woken = all_at_once([storm] * 8)
    assert sorted(woken, key=str) == [0] * 7 + [1]
    assert counter.items_written <= 8, "nearly all are answered by a read"


def test_debounce_next_window_requests_a_pass_again(bench: StoreFixture) -> None:
    assert bench.store.debounce.wake(bench.cluster, 2.0)
    bench.clock.advance(1.75)
    assert not bench.store.debounce.wake(bench.cluster, 2.0)
    bench.clock.advance(0.25)
    assert bench.store.debounce.wake(bench.cluster, 2.0)
    assert bench.store.debounce.wake(bench.cluster + "-other", 2.0)


def test_webhook_signature_can_be_used_once(bench: StoreFixture) -> None:
    first_use = bench.store.debounce.first_use
    assert all_at_once([lambda: first_use(bench.cluster, "sig-1", 600)] * 4).count(True) == 1
    assert not first_use(bench.cluster, "sig-1", 600)
    assert first_use(bench.cluster, "sig-2", 600)
    assert first_use(bench.cluster, "sig-1", 600, kind="event")
    bench.clock.advance(600)
    assert first_use(bench.cluster, "sig-1", 600)


def test_webhook_used_signature_row_expires_and_does_not_show_the_signature(
    bench: StoreFixture,
) -> None:
    bench.store.debounce.first_use(bench.cluster, "sig-secret", 600)
    (row,) = bench.store.table.query(WEB, f"{DEBOUNCE}signature#{bench.cluster}#")
    assert list(bench.store.table.query(bench.cluster, DEBOUNCE)) == []
    assert int(row["expires_at"]["N"]) >= START + 600
    assert "sig-secret" not in str(row)
