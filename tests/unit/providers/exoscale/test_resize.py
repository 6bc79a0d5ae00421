"""Scale-up and target decrease: absolute sizes, and operations that are polled without waiting."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers import errors
from chalicelib.providers.exoscale.decoding import Quota, Work
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    NP_A,
    A,
    B,
    FakeApiPool,
    FakeExoscaleApi,
    continued,
    forbidden,
    grow,
    provider,
    seen,
    shrink,
    to_the_end,
)


def sks(size: int = 2, **more: object) -> FakeExoscaleApi:
    return FakeExoscaleApi(FakeApiPool(size=size, **more))  # type: ignore[arg-type]


def standalone(size: int = 2, **more: object) -> FakeExoscaleApi:
    return FakeExoscaleApi(FakeApiPool(A, "db", "", size=size, **more))  # type: ignore[arg-type]


@each_row(("api", "call"), [(sks(), "scale_nodepool web 5"), (standalone(), "scale_pool db 5")])
def test_exoscale_scale_up_sends_an_absolute_size_by_the_call_of_the_pool_kind(api: FakeExoscaleApi, call: str) -> None:
    outcome = to_the_end(api, grow(2, 5))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["created"] == 3
    assert api.writes() == [call]
    assert len(api.all[A].members) == 5


def test_exoscale_scale_up_from_zero() -> None:
    api = sks(0)
    assert isinstance(to_the_end(api, grow(0, 2)), Succeeded)
    assert len(api.all[A].members) == 2


@each_row(("start", "to"), [(2, 2), (2, 1), (2, 8)])
def test_exoscale_invalid_or_too_large_scale_up_is_refused_before_any_write(start: int, to: int) -> None:
    api = sks()
    outcome = provider(api, "1:7:web").scale_up(grow(start, to))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert not api.writes()


@each_row(
    ("quota", "cls"), [(Quota("instance", 18, 20), "QuotaExceeded"), (Quota("instance", 2, -1), "InvalidRequest")]
)
def test_exoscale_scale_up_past_the_quota_is_refused_before_any_write(quota: Quota, cls: str) -> None:
    api = sks()
    api.limit = quota
    outcome = provider(api, unlimitedMax="4").scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == cls
    assert not api.writes()


def test_exoscale_unreadable_quota_forbids_no_scale_up() -> None:
    api = sks()
    api.trouble["quota"] = [errors.Transient("HTTP 500")]
    assert isinstance(provider(api).scale_up(grow(2, 5)), InProgress)


def test_exoscale_scale_up_leaves_a_size_changed_by_others() -> None:
    api = sks(3)
    outcome = provider(api).scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert not api.writes()


def test_exoscale_scale_up_reads_the_current_size() -> None:
    """A scale-up planned from a size that holds again is carried out; sizes are absolute and never added."""
    api = sks(2)
    api.all[A].size = 4
    assert isinstance(provider(api).scale_up(grow(2, 5)), Failed)
    api.all[A].size = 2
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)
    assert api.all[A].size == 5


def test_exoscale_repeated_scale_up_buys_nothing_more() -> None:
    api = sks()
    for _ in range(3):
        assert isinstance(provider(api).scale_up(grow(2, 5)), InProgress)
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)
    assert len(api.writes()) == 1


@each_row("lag", [False, True])
@each_row("make", [sks, standalone])
def test_exoscale_scale_up_with_a_lost_answer_never_buys_twice(make: object, lag: bool) -> None:
    api: FakeExoscaleApi = make(2, lag=lag)  # type: ignore[operator]
    api.lost.add(f"scale_{'nodepool' if api.all[A].cluster else 'pool'}")
    with pytest.raises(errors.Transient):
        provider(api).scale_up(grow(2, 5))
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (5, 5, [])


def test_exoscale_slow_scale_up_is_polled_without_waiting() -> None:
    api = sks(2, steps=20)
    asked, outcome = grow(2, 5), provider(api).scale_up(grow(2, 5))
    waits: list[float] = []
    assert len(api.calls) <= 4
    while isinstance(outcome, InProgress) and len(waits) < 12:
        waits.append(outcome.after)
        asked = continued(asked, outcome)
        api.calls.clear()
        outcome = provider(api).poll(asked)
        assert api.calls == [f"work {asked.status.data['work']}"]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (3.0, 60.0)
    assert seen(api)[A].target == 5
    with pytest.raises(errors.Conflict):
        provider(api).scale_up(grow(5, 7))
    api.step(20)
    assert isinstance(provider(api).poll(asked), Succeeded)
    assert isinstance(to_the_end(api, grow(5, 7)), Succeeded)


def test_exoscale_scale_up_that_takes_too_long_is_not_a_failure() -> None:
    api = sks(2, steps=10_000)
    outcome = to_the_end(api, grow(2, 5))
    assert isinstance(outcome, Succeeded)
    assert "under way" in str(outcome.facts["note"])
    assert not [each for each in seen(api)[A].instances if each.error]


@each_row(
    ("reason", "cls"),
    [
        ("unavailable", "OutOfStock"),
        ("busy", "Conflict"),
        ("incorrect", "InvalidRequest"),
        ("fault", "Unknown"),
        ("a new word", "Unknown"),
    ],
)
def test_exoscale_failed_scale_up_reports_the_reason(reason: str, cls: str) -> None:
    api = sks(2, stock=0, reason=reason)
    outcome = to_the_end(api, grow(2, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code, outcome.facts["created"]) == (cls, reason, 0)
    assert "Nodepool web of prod" in outcome.message


def test_exoscale_partial_scale_up_reports_its_count_and_lowers_the_rest() -> None:
    api = sks(2, stock=2)
    outcome = to_the_end(api, grow(2, 6))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.facts["created"]) == ("OutOfStock", 2)
    group = seen(api)[A]
    assert [each.error.cls for each in group.instances if each.error] == ["OutOfStock", "OutOfStock"]
    assert isinstance(to_the_end(api, shrink(6, 4)), Succeeded)
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (4, 4, [])


@each_row("made", [0, 3])
def test_exoscale_timed_out_operation_is_judged_by_the_pool(made: int) -> None:
    api = sks(2)
    asked = continued(grow(2, 5), provider(api).scale_up(grow(2, 5)))
    api.step()
    if not made:
        for name in api.all[A].members[2:]:
            del api.machines[name]
        del api.all[A].members[2:]
    api.works[asked.status.data["work"]] = Work(asked.status.data["work"], "timeout")
    outcome = provider(api).poll(asked)
    while isinstance(outcome, InProgress):
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Succeeded if made else Failed)


def test_exoscale_success_without_a_size_change_is_a_failure_with_backoff() -> None:
    """A Conflict would cause no backoff and would be planned again forever."""
    api = sks(2, lag=True, steps=10_000)
    asked = continued(grow(2, 4), provider(api).scale_up(grow(2, 4)))
    api.works[asked.status.data["work"]] = Work(asked.status.data["work"], "success")
    outcome = provider(api).poll(asked)
    while isinstance(outcome, InProgress):
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, len(api.writes())) == ("Unknown", 1)
    assert "ended as success" in outcome.message


@each_row(
    ("quota", "cls"),
    [
        (Quota("instance", 19, 20), "QuotaExceeded"),
        (Quota("instance", 10, 20), "InvalidRequest"),
        (Quota("instance", 10, -1), "InvalidRequest"),
    ],
)
def test_exoscale_refusal_with_an_exhausted_quota_is_a_quota_error(quota: Quota, cls: str) -> None:
    api = sks()
    api.limit = quota
    api.trouble["scale_nodepool"] = [errors.InvalidRequest("HTTP 400: no", code="400")]
    outcome = provider(api, "0:9:web").scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == (cls, "400")
    assert "HTTP 400: no" in outcome.message
    api.trouble["scale_nodepool"] = [errors.InvalidRequest("HTTP 400: no", code="400")]
    api.trouble["quota"] = [errors.Transient("503")]
    unread = provider(api, "0:9:web").scale_up(grow(2, 5))
    assert isinstance(unread, Failed)
    assert unread.error_class == "InvalidRequest"


def test_exoscale_operation_the_vendor_no_longer_knows_is_judged_by_the_pool() -> None:
    api = sks(2)
    asked = continued(grow(2, 5), provider(api).scale_up(grow(2, 5)))
    api.step()
    api.works.clear()
    assert isinstance(provider(api).poll(asked), Succeeded)
    assert len(api.writes()) == 1


def test_exoscale_pool_still_changing_after_its_operation_is_awaited() -> None:
    api = sks(2)
    asked = continued(grow(2, 4), provider(api).scale_up(grow(2, 4)))
    api.step()
    members, api.all[A].members = api.all[A].members, api.all[A].members[:2]
    api.all[A].state = "scaling-up"
    for _ in range(8):
        asked = continued(asked, provider(api).poll(asked))
    api.all[A].state, api.all[A].members = "running", members
    assert isinstance(provider(api).poll(asked), Succeeded)


@each_row(
    "data", [{"work": "no id"}, {"polls": "-1", "looks": "many", "work": ""}, {"looks": "9" * 50}, {"polls": "\u0663"}]
)
def test_exoscale_invalid_operation_data_count_as_empty(data: dict[str, str]) -> None:
    api = sks(2)
    asked = grow(2, 4).with_status(data=data)
    assert isinstance(provider(api).poll(asked), InProgress | Failed)
    api.step()
    assert isinstance(to_the_end(api, grow(2, 4)), Succeeded)
    assert api.all[A].size == 4


def test_exoscale_success_without_new_machines_ends_with_a_note() -> None:
    api = sks(2)
    asked = continued(grow(2, 4), provider(api).scale_up(grow(2, 4)))
    api.step()
    del api.all[A].members[2:]
    outcome = provider(api).poll(asked)
    while isinstance(outcome, InProgress):
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Succeeded)
    assert "2 of 4" in str(outcome.facts["note"])


@each_row("state", ["scaling-up", "scaling-down", "updating", "creating"])
def test_exoscale_pool_in_change_is_a_conflict_and_no_failure(state: str) -> None:
    api = sks()
    api.all[A].state = state
    with pytest.raises(errors.Conflict):
        provider(api).scale_up(grow(2, 5))
    assert not api.writes()


def test_exoscale_pool_with_more_machines_than_its_size_loses_none() -> None:
    api = sks(4)
    api.all[A].size = 2
    with pytest.raises(errors.Conflict):
        provider(api).scale_up(grow(2, 3))
    assert not api.writes()


@each_row("error", [errors.Conflict("409"), errors.Throttled("429", retry_after=7.0), errors.Transient("503")])
def test_exoscale_scale_up_raises_temporary_errors(error: Exception) -> None:
    api = sks()
    api.trouble["scale_nodepool"] = [error]  # type: ignore[list-item]
    with pytest.raises(type(error)):
        provider(api).scale_up(grow(2, 5))
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)


@each_row("error", [forbidden("scale-sks-nodepool"), errors.QuotaExceeded("402"), errors.NotFound("404")])
def test_exoscale_scale_up_permanent_error_fails_with_its_class(error: errors.Unauthorized) -> None:
    api = sks()
    api.trouble["scale_nodepool"] = [error]
    outcome = provider(api).scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == error.error_class


def test_exoscale_scale_up_of_a_suspended_pool_is_refused_at_once() -> None:
    api = sks()
    api.all[A].state = "suspended"
    outcome = provider(api).scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert "suspended" in outcome.message
    assert not api.writes()


def test_exoscale_sks_pool_of_an_unknown_cluster_is_untouched() -> None:
    api = sks()
    api.all[A].cluster = ""
    api.all[A].more["manager"] = FakeExoscaleApi(FakeApiPool())._pool(FakeApiPool()).manager
    outcome = provider(api).scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert NP_A in outcome.message
    assert not api.writes()


def test_exoscale_scale_up_of_a_pool_in_deletion_is_not_found() -> None:
    api = sks()
    api.all[A].state = "destroying"
    outcome = provider(api).scale_up(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"
    assert not api.writes()


@each_row("group", [B, "no id at all"])
def test_exoscale_scale_up_of_an_unknown_group_is_refused(group: str) -> None:
    outcome = provider(sks()).scale_up(grow(2, 5, group))
    assert isinstance(outcome, Failed)
    assert outcome.error_class in {"NotFound", "InvalidRequest"}
