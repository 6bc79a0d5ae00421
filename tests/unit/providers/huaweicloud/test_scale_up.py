"""Scale-up of a scale group by the pool's total."""

from __future__ import annotations

import pytest

from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import Conflict, InvalidRequest, NotFound, Throttled, Transient, Unauthorized, Unknown
from chalicelib.providers.huaweicloud.models import Autoscaling, CceCondition, Flavor, NodeTemplate
from tests.cases import each_row
from tests.unit.providers.huaweicloud.fake_api import (
    AZ1,
    AZ2,
    FLAVOR,
    NO_QUOTA,
    NOT_SCALABLE,
    POOL,
    SOLD_OUT,
    A,
    B,
    Cce,
    FakeApiGroup,
    FakeCceApi,
    announced,
    continued,
    entry,
    growth,
    provider,
    to_the_end,
    true,
    two,
)


def refused(api: FakeCceApi, cls: str, *entries: object, size: int = 5, group: str = A) -> Failed:
    """A scale-up from 3 that is refused before anything is sent."""
    outcome = provider(api, *entries).scale_up(growth(3 if group == A else 2, size, group))  # type: ignore[arg-type]
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, api.writes()) == (cls, [])
    return outcome


def test_CCE_18_scale_up_sends_the_total_of_the_pool_and_the_right_group() -> None:
    api = FakeCceApi(two(3, 2))
    outcome = to_the_end(api, growth(3, 5))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["created"] == 2
    assert api.writes() == ["scale 7 default"]
    assert (len(api.of(POOL)), len(api.of(POOL, "c7-az2")), api.chosen) == (5, 2, [])


def test_CCE_18_request_is_recorded_before_it_is_sent() -> None:
    asked = announced(FakeCceApi(two(3, 2)), growth(2, 4, B))
    assert (asked.status.data["base"], asked.status.data["total"]) == ("5", "7")


def test_CCE_18_request_that_arrived_despite_a_timeout_is_not_repeated() -> None:
    api = FakeCceApi(two(3, 2))
    asked = announced(api, growth(3, 5))
    api.lost.add("scale")
    with pytest.raises(Transient):
        provider(api).scale_up(asked)
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert api.writes() == ["scale 7 default"]


def test_CCE_18_request_is_not_repeated_while_the_groups_number_lags() -> None:
    api = FakeCceApi(two(3, 2))
    api.lag = True
    asked = announced(api, growth(3, 5))
    api.lost.add("scale")
    with pytest.raises(Transient):
        provider(api).scale_up(asked)
    outcome = provider(api).scale_up(asked)
    assert isinstance(outcome, InProgress)
    assert outcome.step == "follow"
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert api.writes() == ["scale 7 default"]


def test_huawei_request_that_never_arrived_is_repeated_with_the_same_total() -> None:
    api = FakeCceApi(two(3, 2))
    asked = announced(api, growth(3, 5))
    api.trouble["scale"] = [Transient("no answer")]
    with pytest.raises(Transient):
        provider(api).scale_up(asked)
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert api.writes() == ["scale 7 default", "scale 7 default"]


def test_CCE_18_change_of_the_pool_by_another_writer_is_never_undone() -> None:
    api = FakeCceApi(two(3, 2, autoscaling=Autoscaling(True, 0, 20)))
    asked = announced(api, growth(3, 5))
    api.scale(POOL, 9, "c7-az2")
    outcome = provider(api).scale_up(asked)
    assert isinstance(outcome, InProgress)
    assert (outcome.step, outcome.data["total"]) == ("announce", "11")
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert api.writes() == ["scale 9 c7-az2", "scale 11 default"]
    assert not api.chosen


def test_CCE_18_change_of_the_group_by_another_writer_is_a_conflict() -> None:
    api = FakeCceApi(two(3, 2, autoscaling=Autoscaling(True, 0, 20)))
    asked = announced(api, growth(3, 5))
    api.scale(POOL, 9, "default")
    outcome = provider(api).scale_up(asked)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert api.writes() == ["scale 9 default"]


def test_CCE_18_contradictory_numbers_are_read_again_and_never_written() -> None:
    api = FakeCceApi(two(3, 2, autoscaling=Autoscaling(True, 0, 20)))
    asked = announced(api, growth(3, 5))
    api.all[POOL].desired = 9  # and no group accounts for it
    for _ in range(4):
        outcome = provider(api).scale_up(asked)
        assert isinstance(outcome, InProgress)
        asked = continued(asked, outcome)
    outcome = provider(api).scale_up(asked)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, api.writes()) == ("Conflict", [])


def test_CCE_18_total_is_never_computed_from_the_lower_of_two_numbers() -> None:
    api = FakeCceApi(two(3, 2))
    api.all[POOL].desired = 4  # older than the numbers of the groups: 4 + 1 would remove one of five
    asked = growth(3, 4)
    for _ in range(12):
        outcome = provider(api).scale_up(asked)
        assert isinstance(outcome, InProgress)
        asked = continued(asked, outcome)
    outcome = provider(api).scale_up(asked)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, api.writes()) == ("Unknown", [])
    api.all[POOL].desired = 5
    assert isinstance(to_the_end(api, asked), Succeeded)


def test_huawei_group_lagging_behind_its_pool_is_awaited() -> None:
    api = FakeCceApi(two(3, 2))
    api.lag = True
    asked = announced(api, growth(3, 5))
    asked = continued(asked, provider(api).scale_up(asked))
    for _ in range(8):
        asked = continued(asked, provider(api).poll(asked))
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert api.writes() == ["scale 7 default"]


def test_huawei_increase_reverted_by_others_is_not_bought_again() -> None:
    api = FakeCceApi(two(3, 2))
    asked = announced(api, growth(3, 5))
    api.scale(POOL, 7, "default")
    asked = continued(asked, provider(api).scale_up(asked))
    api.scale(POOL, 5, "default")
    for _ in range(4):
        asked = continued(asked, provider(api).poll(asked))
    assert isinstance(provider(api).poll(asked), Failed)
    assert api.writes() == ["scale 7 default", "scale 5 default"]


def test_huawei_lowered_pool_lowers_the_next_total() -> None:
    api = FakeCceApi(two(3, 2))
    asked = announced(api, growth(3, 5))
    api.delete_node(api.of(POOL, "c7-az2")[0])
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert api.writes()[1:] == ["scale 6 default"]


def test_huawei_size_already_reached_sends_no_request() -> None:
    api = FakeCceApi(two(5, 2))
    assert isinstance(to_the_end(api, growth(3, 5)), Succeeded)
    assert not api.writes()


@each_row(("start", "to"), [(3, 3), (3, 1)])
def test_huawei_scale_up_without_an_increase_is_refused(start: int, to: int) -> None:
    outcome = provider(FakeCceApi(two())).scale_up(growth(start, to))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"


def test_CCE_A6_1_pool_maximum_applies_to_all_its_groups_together() -> None:
    api = FakeCceApi(two(3, 2, autoscaling=Autoscaling(True, 0, 6)))
    assert "6 of its pool" in refused(api, "InvalidRequest").message
    assert isinstance(to_the_end(api, growth(3, 4)), Succeeded)


def test_CCE_A6_3_flavour_maximum_applies_to_its_group() -> None:
    assert "maximum 6" in refused(FakeCceApi(two()), "InvalidRequest", size=7, group=B).message


@each_row(("name", "most"), [("pool-a", 6), (POOL, 6), ("pool-a/default", 4), (A, 4)])
def test_huawei_policy_maximum_replaces_that_of_the_pool(name: str, most: int) -> None:
    refused(FakeCceApi(two()), "InvalidRequest", entry(name, 0, most))


def test_CCE_A1_5_prepaid_and_default_pools_are_not_scaled_up() -> None:
    prepaid = Cce([FakeApiGroup(desired=3)], template=NodeTemplate(FLAVOR, AZ1, billing=1))
    assert "prepaid" in refused(FakeCceApi(prepaid), "InvalidRequest").message
    default = Cce([FakeApiGroup(desired=3)], name="DefaultPool")
    assert "default pool" in refused(FakeCceApi(default), "InvalidRequest").message
    refused(FakeCceApi(Cce([FakeApiGroup(desired=3)], phase="Deleting")), "InvalidRequest")


def test_huawei_flavour_disabled_meanwhile_is_not_scaled_up() -> None:
    api = FakeCceApi(two())
    api.all[POOL].group("c7-az2").enabled = False
    assert "switched off" in refused(api, "InvalidRequest", size=4, group=B).message


@each_row(
    ("beside", "cls"),
    [
        (SOLD_OUT, "OutOfStock"),
        (NO_QUOTA, "QuotaExceeded"),
        (true("UnexpectedError"), "InstallFailed"),
        (true("LockedByOrder", "order-1"), "Unknown"),
        (true("TaintSynchronizing"), "Unknown"),
    ],
)
def test_CCE_A9_1_group_that_is_not_scalable_is_refused_with_its_reasons_class(
    beside: CceCondition,
    cls: str,
) -> None:
    api = FakeCceApi(two())
    api.all[POOL].groups[0].conditions = (NOT_SCALABLE, beside)
    refused(api, cls)


def test_huawei_pool_that_is_not_scalable_refuses_for_all_its_groups() -> None:
    refused(FakeCceApi(two(conditions=(NOT_SCALABLE, NO_QUOTA))), "QuotaExceeded")


def test_huawei_flavour_that_ecs_reports_as_sold_out_is_not_requested() -> None:
    api = FakeCceApi(two())
    api.kinds = {FLAVOR: Flavor(FLAVOR, 4, 8192, state="normal", states={AZ2: "sellout"})}
    refused(api, "OutOfStock", size=4, group=B)
    assert isinstance(to_the_end(api, growth(3, 4)), Succeeded)


def test_huawei_sold_out_hint_is_not_decisive() -> None:
    api = FakeCceApi(two())
    api.trouble["flavors"] = [Unauthorized("no"), Throttled("slowly")]
    assert isinstance(to_the_end(api, growth(3, 4)), Succeeded)


@each_row("phase", ["Upgrading", "Creating", "Unavailable", "Resizing"])
def test_huawei_busy_cluster_is_awaited(phase: str) -> None:
    api = FakeCceApi(two())
    api.cluster = phase
    with pytest.raises(Conflict):
        provider(api).scale_up(growth(3, 5))
    assert not api.writes()


@each_row("phase", ["Hibernation", "Deleting", "Empty"])
def test_huawei_disabled_cluster_is_not_awaited(phase: str) -> None:
    api = FakeCceApi(two())
    api.cluster = phase
    refused(api, "InvalidRequest")


def test_huawei_key_forbidden_to_read_the_cluster_scales_up_nevertheless() -> None:
    api = FakeCceApi(two())
    api.trouble["cluster_phase"] = [Unauthorized("403"), Unauthorized("403")]
    assert isinstance(to_the_end(api, growth(3, 5)), Succeeded)


def test_huawei_scale_up_of_a_deleted_or_undecodable_pool_or_group_fails() -> None:
    outcome = provider(FakeCceApi()).scale_up(growth(3, 5))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == NotFound.__name__
    refused(FakeCceApi(Cce([FakeApiGroup(desired=3)], error="spec is missing")), "Unknown")
    refused(FakeCceApi(Cce([FakeApiGroup(desired=3, error="its numbers are missing")])), "Unknown")
    refused(FakeCceApi(Cce([FakeApiGroup("other", desired=3)])), "NotFound")


@each_row(
    ("why", "cls"), [(SOLD_OUT, "OutOfStock"), (NO_QUOTA, "QuotaExceeded"), (true("UnexpectedError"), "InstallFailed")]
)
def test_CCE_A9_1_scale_up_without_nodes_fails_with_the_class_of_the_condition(why: CceCondition, cls: str) -> None:
    api = FakeCceApi(two())
    api.all[POOL].groups[0].stock, api.all[POOL].groups[0].why = 1, why
    outcome = to_the_end(api, growth(3, 6))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code, outcome.facts["created"]) == (cls, why.type, 1)
    assert api.writes() == ["scale 8 default"]


def test_CCE_A9_1_earlier_condition_must_persist_before_it_counts() -> None:
    api = FakeCceApi(two())
    api.all[POOL].groups[0].conditions = (SOLD_OUT,)
    asked = announced(api, growth(3, 4))
    asked = continued(asked, provider(api).scale_up(asked))
    outcome = provider(api).poll(asked)
    assert isinstance(outcome, InProgress)
    assert isinstance(to_the_end(api, continued(asked, outcome)), Succeeded)


@each_row("phase", ["Build", "Installing"])
def test_CCE_A9_3_operation_ends_once_a_node_is_listed_and_the_core_waits(phase: str) -> None:
    """A node that installs forever must not shorten the fifteen minutes of the scale-up request."""
    api = FakeCceApi(two())
    asked = announced(api, growth(3, 4))
    asked = continued(asked, provider(api).scale_up(asked))
    assert isinstance(provider(api).poll(asked), InProgress)
    api.add(POOL, phase=phase)
    outcome = provider(api).poll(asked)
    assert isinstance(outcome, Succeeded)
    assert (outcome.facts["created"], api.writes()) == (1, ["scale 6 default"])


def test_CCE_A9_1_permanent_condition_does_not_affect_nodes_in_creation() -> None:
    api = FakeCceApi(two())
    api.all[POOL].groups[0].conditions = (true("UnexpectedError"),)
    asked = announced(api, growth(3, 4))
    asked = continued(asked, provider(api).scale_up(asked))
    api.add(POOL, phase="Build")
    for _ in range(6):
        outcome = provider(api).poll(asked)
        assert isinstance(outcome, Succeeded)


def test_CCE_A9_3_operation_ends_after_three_idle_minutes_and_the_core_waits() -> None:
    api = FakeCceApi(two())
    asked = announced(api, growth(3, 4))
    outcome = provider(api).scale_up(asked)
    waited = 0.0
    while isinstance(outcome, InProgress):
        waited += outcome.after
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Succeeded)
    assert 180.0 <= waited < 240.0
    assert api.writes() == ["scale 6 default"]


def test_huawei_request_accepted_without_effect_fails() -> None:
    api = FakeCceApi(two())
    asked = announced(api, growth(3, 4))
    asked = continued(asked, provider(api).scale_up(asked))
    api.all[POOL].desired, api.all[POOL].groups[0].desired = 5, 3
    for _ in range(4):
        asked = continued(asked, provider(api).poll(asked))
    outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Unknown"
    assert api.writes() == ["scale 6 default"]


@each_row("error", [InvalidRequest("no", code="CCE.01400001"), Unknown("no", code="CCE.0")])
def test_huawei_conditions_take_precedence_over_the_code_of_a_refusal(error: InvalidRequest | Unknown) -> None:
    api = FakeCceApi(two())
    asked = announced(api, growth(3, 4))
    api.trouble["scale"] = [error]
    outcome = provider(api).scale_up(asked)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == error.error_class
    api.trouble["scale"] = [error]
    api.all[POOL].groups[0].conditions = (SOLD_OUT,)
    outcome = provider(api).scale_up(asked)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "OutOfStock"


def test_huawei_locked_pool_is_awaited() -> None:
    api = FakeCceApi(two())
    asked = announced(api, growth(3, 4))
    api.trouble["scale"] = [Conflict("locked", code="CCE.01429002")]
    with pytest.raises(Conflict):
        provider(api).scale_up(asked)
    assert isinstance(to_the_end(api, asked), Succeeded)


@each_row("rubbish", ["", "-1", "x", "9" * 40, "²"])
def test_huawei_unreadable_operation_data_never_become_a_total(rubbish: str) -> None:
    api = FakeCceApi(two())
    asked = growth(3, 5).with_status(data={"base": rubbish, "total": rubbish, "looks": rubbish})
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert api.writes() == ["scale 7 default"]
