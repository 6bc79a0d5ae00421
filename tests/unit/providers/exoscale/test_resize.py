"""Growing and taking back: absolute sizes, operations that are followed and not waited for (exoscale.md §3, §5, §6)."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers import errors
from chalicelib.providers.exoscale.models import Quota, Work
from tests.cases import each_row
from tests.unit.providers.exoscale.fake_api import (
    NP_A,
    A,
    B,
    FakeApi,
    FakeApiPool,
    continued,
    forbidden,
    grow,
    provider,
    seen,
    shrink,
    to_the_end,
)


def sks(size: int = 2, **more: object) -> FakeApi:
    return FakeApi(FakeApiPool(size=size, **more))  # type: ignore[arg-type]


def standalone(size: int = 2, **more: object) -> FakeApi:
    return FakeApi(FakeApiPool(A, "db", "", size=size, **more))  # type: ignore[arg-type]


@each_row(("api", "call"), [(sks(), "scale_nodepool web 5"), (standalone(), "scale_pool db 5")])
def test_EXO_7_each_kind_is_grown_by_its_own_call_to_an_absolute_size(api: FakeApi, call: str) -> None:
    outcome = to_the_end(api, grow(2, 5))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["created"] == 3
    assert api.writes() == [call]
    assert len(api.all[A].members) == 5


def test_EXO_7_from_zero() -> None:
    api = sks(0)
    assert isinstance(to_the_end(api, grow(0, 2)), Succeeded)
    assert len(api.all[A].members) == 2


@each_row(("start", "to"), [(2, 2), (2, 1), (2, 8)])
def test_EXO_7_no_growth_and_past_the_maximum_are_refused_before_any_write(start: int, to: int) -> None:
    api = sks()
    outcome = provider(api, "1:7:web").grow(grow(start, to))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert not api.writes()


@each_row(
    ("quota", "cls"), [(Quota("instance", 18, 20), "QuotaExceeded"), (Quota("instance", 2, -1), "InvalidRequest")]
)
def test_EXO_5_past_the_quota_is_refused_before_any_write(quota: Quota, cls: str) -> None:
    api = sks()
    api.limit = quota
    outcome = provider(api, unlimitedMax="4").grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == cls
    assert not api.writes()


def test_EXO_DEFECT_4_a_quota_that_cannot_be_read_forbids_no_growth() -> None:
    api = sks()
    api.trouble["quota"] = [errors.Transient("HTTP 500")]
    assert isinstance(provider(api).grow(grow(2, 5)), InProgress)


def test_a_size_that_somebody_changed_is_left_alone() -> None:
    api = sks(3)
    outcome = provider(api).grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert not api.writes()


def test_EXO_DEFECT_9_the_size_is_read_now_and_not_remembered() -> None:
    """A growth planned from a size that holds again is carried out; nothing is added to anything."""
    api = sks(2)
    api.all[A].size = 4
    assert isinstance(provider(api).grow(grow(2, 5)), Failed)
    api.all[A].size = 2
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)
    assert api.all[A].size == 5


def test_asked_again_it_buys_nothing_more() -> None:
    api = sks()
    for _ in range(3):
        assert isinstance(provider(api).grow(grow(2, 5)), InProgress)
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)
    assert len(api.writes()) == 1


@each_row("lag", [False, True])
@each_row("make", [sks, standalone])
def test_a_lost_answer_buys_nothing_twice(make: object, lag: bool) -> None:
    api: FakeApi = make(2, lag=lag)  # type: ignore[operator]
    api.lost.add(f"scale_{'nodepool' if api.all[A].cluster else 'pool'}")
    with pytest.raises(errors.Transient):
        provider(api).grow(grow(2, 5))
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (5, 5, [])


def test_EXO_8_EXO_DEFECT_5_EXO_DEFECT_6_a_slow_operation_is_followed_and_never_waited_for() -> None:
    api = sks(2, steps=20)
    asked, outcome = grow(2, 5), provider(api).grow(grow(2, 5))
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
        provider(api).grow(grow(5, 7))
    api.step(20)
    assert isinstance(provider(api).poll(asked), Succeeded)
    assert isinstance(to_the_end(api, grow(5, 7)), Succeeded)


def test_EXO_DEFECT_5_a_growth_that_takes_too_long_is_no_failure() -> None:
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
def test_EXO_9_EXO_DEFECT_12_a_failed_operation_says_why(reason: str, cls: str) -> None:
    api = sks(2, stock=0, reason=reason)
    outcome = to_the_end(api, grow(2, 4))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code, outcome.facts["created"]) == (cls, reason, 0)
    assert "Nodepool web of prod" in outcome.message


def test_EXO_9_a_partial_growth_says_how_many_came_and_the_rest_is_taken_back() -> None:
    api = sks(2, stock=2)
    outcome = to_the_end(api, grow(2, 6))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.facts["created"]) == ("OutOfStock", 2)
    group = seen(api)[A]
    assert [each.error.cls for each in group.instances if each.error] == ["OutOfStock", "OutOfStock"]
    assert isinstance(to_the_end(api, shrink(6, 4)), Succeeded)
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (4, 4, [])


@each_row("made", [0, 3])
def test_EXO_9_an_operation_that_timed_out_is_judged_by_the_pool(made: int) -> None:
    api = sks(2)
    asked = continued(grow(2, 5), provider(api).grow(grow(2, 5)))
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


def test_a_success_that_leaves_the_size_as_it_was_is_a_failure_that_lets_others_have_their_turn() -> None:
    """A Conflict would be forgiven and planned again for ever."""
    api = sks(2, lag=True, steps=10_000)
    asked = continued(grow(2, 4), provider(api).grow(grow(2, 4)))
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
def test_EXO_9_a_refusal_while_the_quota_is_used_up_is_for_want_of_quota(quota: Quota, cls: str) -> None:
    api = sks()
    api.limit = quota
    api.trouble["scale_nodepool"] = [errors.InvalidRequest("HTTP 400: no", code="400")]
    outcome = provider(api, "0:9:web").grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code) == (cls, "400")
    assert "HTTP 400: no" in outcome.message
    api.trouble["scale_nodepool"] = [errors.InvalidRequest("HTTP 400: no", code="400")]
    api.trouble["quota"] = [errors.Transient("503")]
    unread = provider(api, "0:9:web").grow(grow(2, 5))
    assert isinstance(unread, Failed)
    assert unread.error_class == "InvalidRequest"


def test_an_operation_that_the_vendor_knows_no_more_is_judged_by_the_pool() -> None:
    api = sks(2)
    asked = continued(grow(2, 5), provider(api).grow(grow(2, 5)))
    api.step()
    api.works.clear()
    assert isinstance(provider(api).poll(asked), Succeeded)
    assert len(api.writes()) == 1


def test_a_pool_that_is_still_at_it_after_its_operation_is_waited_for() -> None:
    api = sks(2)
    asked = continued(grow(2, 4), provider(api).grow(grow(2, 4)))
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
def test_rubbish_in_the_row_is_read_as_nothing(data: dict[str, str]) -> None:
    api = sks(2)
    asked = grow(2, 4).with_status(data=data)
    assert isinstance(provider(api).poll(asked), InProgress | Failed)
    api.step()
    assert isinstance(to_the_end(api, grow(2, 4)), Succeeded)
    assert api.all[A].size == 4


def test_a_success_that_brings_nothing_ends_with_a_note() -> None:
    api = sks(2)
    asked = continued(grow(2, 4), provider(api).grow(grow(2, 4)))
    api.step()
    del api.all[A].members[2:]
    outcome = provider(api).poll(asked)
    while isinstance(outcome, InProgress):
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Succeeded)
    assert "2 of 4" in str(outcome.facts["note"])


@each_row("state", ["scaling-up", "scaling-down", "updating", "creating"])
def test_EXO_10_EXO_17_a_pool_that_is_being_changed_is_a_conflict_and_no_failure(state: str) -> None:
    api = sks()
    api.all[A].state = state
    with pytest.raises(errors.Conflict):
        provider(api).grow(grow(2, 5))
    assert not api.writes()


def test_a_pool_that_has_more_than_its_size_is_not_made_to_delete_them() -> None:
    api = sks(4)
    api.all[A].size = 2
    with pytest.raises(errors.Conflict):
        provider(api).grow(grow(2, 3))
    assert not api.writes()


@each_row("error", [errors.Conflict("409"), errors.Throttled("429", retry_after=7.0), errors.Transient("503")])
def test_EXO_10_what_is_temporary_is_raised_for_the_caller_to_come_back(error: Exception) -> None:
    api = sks()
    api.trouble["scale_nodepool"] = [error]  # type: ignore[list-item]
    with pytest.raises(type(error)):
        provider(api).grow(grow(2, 5))
    assert isinstance(to_the_end(api, grow(2, 5)), Succeeded)


@each_row("error", [forbidden("scale-sks-nodepool"), errors.QuotaExceeded("402"), errors.NotFound("404")])
def test_what_is_not_temporary_fails_with_its_class(error: errors.Unauthorized) -> None:
    api = sks()
    api.trouble["scale_nodepool"] = [error]
    outcome = provider(api).grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == error.error_class


def test_EXO_13_EXO_DEFECT_7_a_suspended_pool_is_refused_at_once() -> None:
    api = sks()
    api.all[A].state = "suspended"
    outcome = provider(api).grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert "suspended" in outcome.message
    assert not api.writes()


def test_a_pool_of_sks_whose_cluster_is_unknown_is_not_touched() -> None:
    api = sks()
    api.all[A].cluster = ""
    api.all[A].more["manager"] = FakeApi(FakeApiPool())._pool(FakeApiPool()).manager
    outcome = provider(api).grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert NP_A in outcome.message
    assert not api.writes()


def test_EXO_13_a_pool_that_is_being_deleted_is_not_found() -> None:
    api = sks()
    api.all[A].state = "destroying"
    outcome = provider(api).grow(grow(2, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"
    assert not api.writes()


@each_row("group", [B, "no id at all"])
def test_a_group_that_there_is_not_is_refused(group: str) -> None:
    outcome = provider(sks()).grow(grow(2, 5, group))
    assert isinstance(outcome, Failed)
    assert outcome.error_class in {"NotFound", "InvalidRequest"}


# -- taking back


def test_EXO_12_EXO_DEFECT_8_only_what_never_came_is_taken_back_and_really_is() -> None:
    api = sks(2)
    api.all[A].size = 5
    assert isinstance(to_the_end(api, shrink(5, 3)), Succeeded)
    assert api.writes() == ["scale_nodepool web 3"]
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (3, 3, [])  # the vendor tries once more
    assert isinstance(to_the_end(api, shrink(5, 3)), Succeeded)
    assert len(api.writes()) == 1


def test_EXO_12_nothing_is_taken_back_while_the_vendor_makes_it() -> None:
    api = sks(2)
    api.all[A].size, api.all[A].state = 5, "scaling-up"
    with pytest.raises(errors.Conflict):
        provider(api).shrink_target(shrink(5, 3))
    assert not api.writes()


def test_EXO_12_a_size_below_what_exists_is_refused() -> None:
    api = sks(4)
    outcome = provider(api).shrink_target(shrink(4, 3))
    assert isinstance(outcome, Failed)
    assert "4 machines that exist" in outcome.message
    assert not api.writes()


def test_EXO_12_machines_that_the_pool_leaves_out_of_its_list_exist_too() -> None:
    api = sks(4)
    api.all[A].more["instances"] = ()
    assert isinstance(provider(api).shrink_target(shrink(4, 1)), Failed)
    assert not api.writes()


def test_EXO_12_a_lowering_that_the_vendor_does_not_carry_out_is_told() -> None:
    api = sks(2, lag=True, steps=10_000)
    api.all[A].size = 5
    asked = continued(shrink(5, 2), provider(api).shrink_target(shrink(5, 2)))
    api.works[asked.status.data["work"]] = Work(asked.status.data["work"], "success")
    outcome = provider(api).poll(asked)
    while isinstance(outcome, InProgress):
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert "still has the size 5" in outcome.message


def test_EXO_12_the_last_of_a_standalone_pool_is_not_taken_back() -> None:
    api = standalone(1)
    api.all[A].members.clear()
    api.machines.clear()
    outcome = provider(api).shrink_target(shrink(1, 0))
    assert isinstance(outcome, Failed)
    assert not api.writes()


@each_row(("start", "to"), [(6, 3), (5, -1)])
def test_EXO_12_another_size_or_none_is_refused(start: int, to: int) -> None:
    api = sks(2)
    api.all[A].size = 5
    assert isinstance(provider(api).shrink_target(shrink(start, to)), Failed)
    assert not api.writes()
