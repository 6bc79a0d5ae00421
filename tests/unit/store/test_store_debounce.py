"""A one-time use (a signature, a debounce window) can be cancelled only by the request that made it."""

from __future__ import annotations

import pytest

from chalicelib.store.errors import StoreUnavailable
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.unit.store.support import StoreFixture


def test_debounce_use_is_cancelled_by_the_request_that_made_it(bench: StoreFixture) -> None:
    debounce = bench.store.debounce
    assert debounce.first_use(bench.cluster, "sig", 600, by="one")
    debounce.forget(bench.cluster, "sig", by="two")
    assert debounce.used(bench.cluster, "sig")
    debounce.forget(bench.cluster, "sig", by="one")
    assert not debounce.used(bench.cluster, "sig")
    assert debounce.first_use(bench.cluster, "sig", 600, by="two")


def test_debounce_unsigned_and_missing_uses_stay_unchanged(bench: StoreFixture) -> None:
    debounce = bench.store.debounce
    debounce.forget(bench.cluster, "never", by="one")
    assert debounce.first_use(bench.cluster, "sig", 600)
    debounce.forget(bench.cluster, "sig", by="one")
    assert debounce.used(bench.cluster, "sig")


def test_debounce_window_is_closed_only_by_the_request_that_opened_it(bench: StoreFixture) -> None:
    debounce = bench.store.debounce
    assert debounce.wake(bench.cluster, 2.0, by="one")
    debounce.forget_wake(bench.cluster, by="two")
    assert not debounce.wake(bench.cluster, 2.0, by="two")
    debounce.forget_wake(bench.cluster, by="one")
    assert debounce.wake(bench.cluster, 2.0, by="two")


def test_debounce_write_sent_twice_still_counts_as_the_first(bench: StoreFixture) -> None:
    """botocore repeats a call whose answer was lost, and then finds its own row."""
    debounce, other = bench.store.debounce, bench.fresh(faults=AwsFaults()).debounce
    bench.faults.before("put_item", lambda: other.note(bench.cluster, "sig", 600, by="one"))
    assert debounce.first_use(bench.cluster, "sig", 600, by="one")
    assert not debounce.note(bench.cluster, "sig", 600, by="two")
    assert not debounce.note(bench.cluster, "sig", 600)


def test_debounce_use_with_an_unknown_write_result_can_be_cancelled(bench: StoreFixture) -> None:
    debounce = bench.store.debounce
    bench.faults.after("put_item", lost_answer())
    with pytest.raises(StoreUnavailable):
        debounce.wake(bench.cluster, 2.0, by="one")
    debounce.forget_wake(bench.cluster, by="one")
    assert debounce.wake(bench.cluster, 2.0, by="one")
