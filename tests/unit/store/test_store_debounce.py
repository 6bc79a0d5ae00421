"""A one-time use (a signature, a debounce window) can be cancelled only by
the request that made it.
"""

from __future__ import annotations

import hashlib

import pytest

from chalicelib.store.errors import StoreUnavailable
from chalicelib.store.tables import WEB
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


def test_debounce_rows_keep_their_names(bench: StoreFixture) -> None:
    """Functions of two releases run at the same time, so the name of a row is the same in both."""
    debounce = bench.store.debounce
    assert debounce.first_use(bench.cluster, "sig", 600)
    assert debounce.wake(bench.cluster, 2.0)
    assert debounce.first_use(bench.cluster, "a", 600, kind="other")
    of_sig, of_nothing, of_a = (hashlib.sha256(key).hexdigest()[:40] for key in (b"sig", b"", b"a"))
    rows = {
        (row["cluster"]["S"], row["item"]["S"])
        for row in bench.client.scan(TableName=bench.table)["Items"]
    }
    assert {row for row in rows if any(bench.cluster in part for part in row)} == {
        (WEB, f"seen#signature#{bench.cluster}#{of_sig}"),
        (WEB, f"seen#wake#{bench.cluster}#{of_nothing}"),
        (bench.cluster, f"seen#other#{of_a}"),
    }
