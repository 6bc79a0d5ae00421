"""Scale-ups of Exoscale: what the suite (tests/providers/suite) and
tests/providers/exoscale do not show.
"""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.errors import Conflict
from infra.emulators.exoscale.models import Ending
from infra.emulators.vendor_common.http_messages import scripted
from tests.cases import each_row
from tests.providers.exoscale.fixture import A, B, ExoscaleFixture, drive, grow, sks


def _begun(zone: ExoscaleFixture, from_size: int, to_size: int) -> Operation:
    """Returns an accepted scale-up, as the executor passes it to the next step."""
    operation = grow(zone, from_size, to_size)
    outcome = zone.build().scale_up(operation)
    assert isinstance(outcome, InProgress)
    return operation.with_status(data=outcome.data, step=outcome.step)


@each_row(("limit", "cls"), [(20, "QuotaExceeded"), (-1, "InvalidRequest")])
def test_exoscale_scale_up_past_the_quota_is_refused_before_any_write(limit: int, cls: str) -> None:
    zone = sks()
    zone.zone.limit, zone.zone.other_usage = limit, 16
    outcome = zone.build(unlimitedMax="4").scale_up(grow(zone, 2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == cls
    assert not zone.changes()


def test_exoscale_unreadable_quota_forbids_no_scale_up() -> None:
    zone = sks()
    zone.fail("GET /v2/quota")
    assert isinstance(zone.build().scale_up(grow(zone, 2, 5)), InProgress)


@each_row(
    ("limit", "usage", "cls"),
    [(20, 19, "QuotaExceeded"), (20, 10, "InvalidRequest"), (-1, 10, "InvalidRequest")],
)
def test_exoscale_refusal_with_an_exhausted_quota_is_a_quota_error(
    limit: int, usage: int, cls: str
) -> None:
    zone = sks()
    zone.zone.limit, zone.zone.other_usage = limit, usage - 2
    zone.server.reply("PUT", *[scripted(400, {"message": "no"})] * 2)
    outcome = zone.build("0:9:web").scale_up(grow(zone, 2, 5))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == (cls, "400")
    assert "HTTP 400: no" in outcome.message
    zone.fail("GET /v2/quota", 503)
    unread = zone.build("0:9:web").scale_up(grow(zone, 2, 5))
    assert isinstance(unread, Failed)
    assert unread.error_class == "InvalidRequest"


def test_exoscale_polls_are_one_call_each_with_growing_delays() -> None:
    zone = sks(operation=100_000.0)
    operation, waits = _begun(zone, 2, 5), list[float]()
    zone.look()
    for _ in range(12):
        outcome = zone.build().poll(operation)
        assert isinstance(outcome, InProgress)
        waits.append(outcome.after)
        operation = operation.with_status(data=outcome.data)
        assert zone.operations() == ["get-operation"]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (3.0, 60.0)


def test_exoscale_scale_up_that_takes_too_long_is_not_a_failure() -> None:
    zone = sks(operation=100_000.0, create=100_000.0)
    outcome = drive(zone, grow(zone, 2, 5))
    assert isinstance(outcome, Succeeded)
    assert "under way" in str(outcome.facts["note"])
    assert not [each for each in zone.groups()[A].instances if each.error]


@each_row(
    ("ending", "cls", "words"),
    [
        (Ending("failure", "unavailable", "vendor's words"), "OutOfStock", "vendor's words"),
        (Ending("failure", "busy", "vendor's words"), "Conflict", "vendor's words"),
        (Ending("failure", "incorrect"), "InvalidRequest", ""),
        (Ending("failure", "fault"), "Unknown", ""),
        # A Conflict would cause no backoff and would be planned again forever.
        (Ending("success", ""), "Unknown", "ended as success"),
    ],
)
def test_exoscale_failed_scale_up_reports_the_reason(ending: Ending, cls: str, words: str) -> None:
    zone = sks()
    zone.zone.end_next(A, ending)
    outcome = drive(zone, grow(zone, 2, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code, outcome.facts["created"]) == (
        cls,
        ending.reason or "success",
        0,
    )
    assert "Nodepool web of prod" in outcome.message
    assert words in outcome.message
    assert len(zone.changes()) == 1


def test_exoscale_operation_the_vendor_no_longer_knows_is_judged_by_the_pool() -> None:
    zone = sks()
    operation = _begun(zone, 2, 5)
    zone.settle()
    zone.zone.works.clear()
    assert isinstance(zone.build().poll(operation), Succeeded)
    assert len(zone.changes()) == 1


def test_exoscale_pool_still_changing_after_its_operation_is_awaited() -> None:
    zone = sks(operation=10.0, create=500.0)
    operation = _begun(zone, 2, 4)
    zone.settle(20.0)
    zone.zone.shows_leaving = False
    zone.answers[A] = {"instances": [{"id": name} for name in zone.machines(A)[:2]]}
    for _ in range(8):
        outcome = zone.build().poll(operation)
        assert isinstance(outcome, InProgress)
        operation = operation.with_status(data=outcome.data)
    zone.answers.clear()
    zone.settle()
    assert isinstance(zone.build().poll(operation), Succeeded)


@each_row(
    "data",
    [
        {"work": "no id"},
        {"polls": "-1", "looks": "many", "work": ""},
        {"looks": "9" * 50},
        {"polls": "\u0663"},
    ],
)
def test_exoscale_invalid_operation_data_count_as_empty(data: dict[str, str]) -> None:
    zone = sks()
    assert isinstance(
        zone.build().poll(grow(zone, 2, 4).with_status(data=data)), InProgress | Failed
    )
    zone.settle()
    assert isinstance(drive(zone, grow(zone, 2, 4)), Succeeded)
    assert zone.target(A) == 4


def test_exoscale_success_without_new_machines_ends_with_a_note() -> None:
    zone = sks()
    operation = _begun(zone, 2, 4)
    zone.settle()
    for name in zone.machines(A)[2:]:
        zone.zone.vanish(name)
    outcome = drive(zone, operation)
    assert isinstance(outcome, Succeeded)
    assert "2 of 4" in str(outcome.facts["note"])


@each_row(
    "state", ["scaling-up", "scaling-down", "updating", "creating", "more machines than its size"]
)
def test_exoscale_pool_in_change_is_a_conflict_and_no_failure(state: str) -> None:
    zone = sks(4)
    if " " in state:
        zone.pool(A).size = 2
    else:
        zone.zone.set_state(A, state)
    with pytest.raises(Conflict):
        zone.build().scale_up(grow(zone, zone.target(A), 5))
    assert not zone.changes()


@each_row(
    ("group", "state", "cls", "words"),
    [
        (A, "suspended", "InvalidRequest", "suspended"),
        (A, "destroying", "NotFound", ""),
        (B, "", "NotFound", ""),
        ("no id at all", "", "InvalidRequest", ""),
    ],
)
def test_exoscale_scale_up_of_an_unusable_pool_is_refused_at_once(
    group: str, state: str, cls: str, words: str
) -> None:
    zone = sks()
    zone.zone.set_state(A, state)
    outcome = zone.build().scale_up(grow(zone, 2, 5, group))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, words in outcome.message) == (cls, True)
    assert not zone.changes()


def test_exoscale_sks_pool_of_an_unknown_cluster_is_untouched() -> None:
    zone = sks()
    zone.server.reply("GET /v2/sks-cluster", scripted(200, {}))
    outcome = zone.build().scale_up(grow(zone, 2, 5))
    assert isinstance(outcome, Failed)
    assert zone.pool(A).nodepool in outcome.message
    assert not zone.changes()
