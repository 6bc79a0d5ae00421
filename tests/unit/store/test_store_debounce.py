"""What counts once can be taken back by whoever used it, and by nobody else."""

from __future__ import annotations

import pytest

from chalicelib.store.errors import StoreUnavailable
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.unit.store.support import StoreFixture


def test_a_use_is_taken_back_by_whoever_used_it(bench: StoreFixture) -> None:
    debounce = bench.store.debounce
    assert debounce.first_use(bench.cluster, "sig", 600, by="one")
    debounce.forget(bench.cluster, "sig", by="two")
    assert debounce.used(bench.cluster, "sig")
    debounce.forget(bench.cluster, "sig", by="one")
    assert not debounce.used(bench.cluster, "sig")
    assert debounce.first_use(bench.cluster, "sig", 600, by="two")


def test_an_unsigned_use_and_none_at_all_stay_as_they_are(bench: StoreFixture) -> None:
    debounce = bench.store.debounce
    debounce.forget(bench.cluster, "never", by="one")
    assert debounce.first_use(bench.cluster, "sig", 600)
    debounce.forget(bench.cluster, "sig", by="one")
    assert debounce.used(bench.cluster, "sig")


def test_a_window_closes_for_whoever_opened_it_only(bench: StoreFixture) -> None:
    debounce = bench.store.debounce
    assert debounce.wake(bench.cluster, 2.0, by="one")
    debounce.forget_wake(bench.cluster, by="two")
    assert not debounce.wake(bench.cluster, 2.0, by="two")
    debounce.forget_wake(bench.cluster, by="one")
    assert debounce.wake(bench.cluster, 2.0, by="two")


def test_a_write_that_was_sent_twice_is_still_the_first(bench: StoreFixture) -> None:
    """botocore repeats a call whose answer got lost, and then meets its own row."""
    debounce, other = bench.store.debounce, bench.fresh(faults=AwsFaults()).debounce
    bench.faults.before("put_item", lambda: other.note(bench.cluster, "sig", 600, by="one"))
    assert debounce.first_use(bench.cluster, "sig", 600, by="one")
    assert not debounce.note(bench.cluster, "sig", 600, by="two")
    assert not debounce.note(bench.cluster, "sig", 600)


def test_what_may_have_been_written_can_be_forgotten(bench: StoreFixture) -> None:
    debounce = bench.store.debounce
    bench.faults.after("put_item", lost_answer())
    with pytest.raises(StoreUnavailable):
        debounce.wake(bench.cluster, 2.0, by="one")
    debounce.forget_wake(bench.cluster, by="one")
    assert debounce.wake(bench.cluster, 2.0, by="one")
