"""Machines that are missing in a pool, reported as failed creations."""

from __future__ import annotations

from chalicelib.providers.exoscale.decoding import Quota
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    A,
    B,
    FakeApiPool,
    FakeExoscaleApi,
    seen,
)
from tests.unit.providers.exoscale.test_node_groups import both

# -- missing capacity


def lost(api: FakeExoscaleApi, group: str = A) -> list[tuple[str, str]]:
    found = seen(api)[group].instances
    return [(each.handle, each.error.cls) for each in found if each.error is not None]


def test_exoscale_machines_missing_in_an_idle_pool_are_reported_in_the_same_pass() -> None:
    api = both()
    api.all[A].size = 5
    assert lost(api) == [(f"placeholder-{A}-0", "OutOfStock"), (f"placeholder-{A}-1", "OutOfStock")]
    assert not lost(api, B)
    assert {each.id for each in seen(api)[A].instances if each.error} == {
        f"exoscale://placeholder-{A}-0",
        f"exoscale://placeholder-{A}-1",
    }


def test_exoscale_missing_machines_with_an_exhausted_quota_are_a_quota_error() -> None:
    api = both(quota=Quota("instance", 20, 20))
    api.all[A].size = 4
    assert lost(api) == [(f"placeholder-{A}-0", "QuotaExceeded")]


@each_row(
    ("field", "state"),
    [
        ("state", "scaling-up"),
        ("state", "creating"),
        ("state", "updating"),
        ("state", "scaling-down"),
        ("nodepool_state", "scaling"),
        ("nodepool_state", "updating"),
        ("state", "a new word"),
    ],
)
def test_exoscale_no_machine_is_missing_while_the_vendor_works(field: str, state: str) -> None:
    api = both()
    api.all[A].size = 5
    setattr(api.all[A], field, state)
    assert not lost(api)
    assert seen(api)[A].target == 5


def test_exoscale_machine_leaving_between_two_answers_is_not_missing() -> None:
    api = both()
    api.set_state(api.all[A].members[0], "destroying")
    assert not lost(api)
    del api.machines[api.all[A].members[0]]
    assert not lost(api)


def test_exoscale_nodepool_ahead_of_its_pool_misses_no_machine() -> None:
    api = both()
    api.all[A].nodepool["size"] = 9
    assert not lost(api)
    assert seen(api)[A].target == 9


def test_exoscale_last_machine_of_a_standalone_pool_is_never_reported_missing() -> None:
    api = FakeExoscaleApi(FakeApiPool(A, "db", "", size=1))
    api.all[A].members.clear()
    api.machines.clear()
    assert not [each for each in seen(api, "1:4:db")[A].instances if each.error]
