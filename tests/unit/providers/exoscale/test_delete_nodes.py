"""Removal: exactly the named machines, by one eviction, or none."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.errors import Conflict, Transient
from chalicelib.providers.exoscale.decoding import Work
from tests.cases import each_row
from tests.operations import new_operation
from tests.unit.providers.exoscale.fake_api import (
    A,
    B,
    FakeApiKube,
    FakeApiPool,
    FakeExoscaleApi,
    continued,
    operation,
    provider,
    remove,
    seen,
    to_the_end,
    uuid,
)


def sks(size: int = 4, **more: object) -> FakeExoscaleApi:
    return FakeExoscaleApi(FakeApiPool(size=size, **more))  # type: ignore[arg-type]


def discard(size: int, *handles: str) -> Operation:
    return remove(size, *handles, kind=OperationKind.DELETE_INSTANCES)


@each_row(
    ("pool", "call"), [(FakeApiPool(size=4), "evict_nodepool web"), (FakeApiPool(A, "db", "", size=4), "evict_pool db")]
)
def test_exoscale_remove_is_one_eviction_by_the_call_of_the_pool_kind(pool: FakeApiPool, call: str) -> None:
    api = FakeExoscaleApi(pool)
    first, second, third, fourth = pool.members
    outcome = to_the_end(api, remove(4, second, fourth))
    assert isinstance(outcome, Succeeded)
    assert outcome.facts["removed"] == 2
    assert api.writes() == [f"{call} {second} {fourth}"]
    assert (pool.members, pool.size, api.chosen) == ([first, third], 2, [])


def test_exoscale_remove_below_the_minimum_is_refused_before_any_write() -> None:
    api = sks(3)
    names = api.all[A].members
    outcome = provider(api, "2:9:web").delete_nodes(remove(3, names[0], names[1]))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, "minimum 2" in outcome.message) == ("InvalidRequest", True)
    assert not api.writes()
    assert isinstance(provider(api, "2:9:web").delete_nodes(remove(3, names[0])), InProgress)


def test_exoscale_remove_keeps_one_without_a_spec_and_may_empty_a_nodepool_with_one() -> None:
    api = sks(1)
    (name,) = api.all[A].members
    assert isinstance(provider(api).delete_nodes(remove(1, name)), Failed)
    assert isinstance(to_the_end(api, remove(1, name), "0:9:web"), Succeeded)
    assert api.all[A].size == 0


def test_exoscale_remove_names_another_groups_machine_before_any_write() -> None:
    api = FakeExoscaleApi(FakeApiPool(size=3), FakeApiPool(B, "db", "", size=3))
    theirs = api.all[B].members[0]
    outcome = provider(api).delete_nodes(remove(3, api.all[A].members[0], theirs))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "InvalidRequest"
    assert theirs in outcome.message
    assert B in outcome.message
    assert not api.writes()


def test_exoscale_remove_refuses_a_machine_of_no_pool() -> None:
    api = sks(3)
    name = api.all[A].members.pop()
    api.machines[name] = type(api.machines[name])(name, state="running")
    outcome = provider(api).delete_nodes(remove(3, name))
    assert isinstance(outcome, Failed)
    assert name in outcome.message


@each_row(
    "target", [RemovalTarget("n", "aws:///i-1", "i-1"), RemovalTarget("n", ""), RemovalTarget("n", "", "../evil")]
)
def test_exoscale_remove_refuses_a_target_that_is_not_a_machine_of_this_cloud(target: RemovalTarget) -> None:
    api = sks()
    asked = new_operation("r", "ours", "exoscale", A, OperationKind.DELETE_NODES, "p", 0.0, 4, 3, (target,))
    assert isinstance(provider(api).delete_nodes(asked), Failed)
    assert api.calls == []


def test_exoscale_remove_skips_machines_already_gone() -> None:
    api = sks(4)
    gone, going, left = api.all[A].members[:3]
    del api.machines[gone]
    api.all[A].members.remove(gone)
    api.all[A].members.remove(going)
    api.set_state(going, "destroying")
    api.all[A].size = 2
    assert isinstance(to_the_end(api, remove(4, gone, going, left)), Succeeded)
    assert api.evicted == [left]
    assert api.all[A].size == 1


def test_exoscale_remove_with_all_machines_gone_is_done_without_a_write() -> None:
    api = sks(4)
    asked = remove(4, api.all[A].members[0])
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert isinstance(provider(api).delete_nodes(asked), Succeeded)
    assert len(api.writes()) == 1


@each_row("lag", [False, True])
def test_exoscale_remove_with_a_lost_answer_never_evicts_twice(lag: bool) -> None:
    api = sks(5, lag=lag)
    asked = remove(5, api.all[A].members[1], api.all[A].members[3])
    api.lost.add("evict_nodepool")
    with pytest.raises(Transient):
        provider(api).delete_nodes(asked)
    assert isinstance(to_the_end(api, asked), Succeeded)
    api.step()
    assert len(api.evicted) == 2
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (3, 3, [])


def test_exoscale_remove_repeats_an_eviction_that_did_not_arrive() -> None:
    api = sks(3)
    api.trouble["evict_nodepool"] = [Transient("HTTP 503")]
    assert isinstance(to_the_end(api, remove(3, api.all[A].members[0])), Succeeded)
    assert len(api.writes()) == 2
    assert (api.all[A].size, len(api.evicted)) == (2, 1)


def test_exoscale_remove_by_two_functions_evicts_once() -> None:
    api = sks(4, steps=3)
    asked = remove(4, api.all[A].members[0])
    assert isinstance(provider(api).delete_nodes(asked), InProgress)
    assert isinstance(provider(api).delete_nodes(asked), Succeeded)  # its deletion has begun
    api.set_state(api.all[A].members[0], "running")
    for _ in range(2):
        with pytest.raises(Conflict):
            provider(api).delete_nodes(asked)
    assert isinstance(to_the_end(api, asked), Succeeded)
    assert len(api.writes()) == 1
    assert api.all[A].size == 3


def test_exoscale_concurrent_removals_remove_one_machine_each() -> None:
    api = sks(5)
    one, two = (remove(5, api.all[A].members[at]) for at in (0, 2))
    assert isinstance(provider(api).delete_nodes(one), InProgress)
    with pytest.raises(Conflict):
        provider(api).delete_nodes(two)
    assert isinstance(to_the_end(api, two), Succeeded)
    assert isinstance(to_the_end(api, one), Succeeded)
    assert (api.all[A].size, len(api.evicted), api.chosen) == (3, 2, [])


@each_row("refused", [False, True])
def test_exoscale_remove_from_a_busy_pool_waits_long_enough(refused: bool) -> None:
    """The executor makes eight attempts; ten removals of one plan were abandoned, fully drained, in less time than five
    evictions take. A deletion of unregistered instances drains nothing and has ten minutes, so its retry delay is
    unchanged."""
    api = sks(5)
    if refused:
        api.trouble["evict_nodepool"] = [Conflict("409", code="409")] * 2
    else:
        api.all[A].state = "scaling-down"
    name = api.all[A].members[0]
    with pytest.raises(Conflict) as raised:
        provider(api).delete_nodes(remove(5, name))
    assert raised.value.retry_after >= 60.0
    with pytest.raises(Conflict) as raised:
        provider(api, kube=FakeApiKube()).delete_nodes(discard(5, name))
    assert raised.value.retry_after == 0.0


def test_exoscale_slow_eviction_costs_one_call_per_message() -> None:
    api = sks(4, steps=50)
    asked = remove(4, api.all[A].members[0])
    asked = continued(asked, provider(api).delete_nodes(asked))
    api.calls.clear()
    for _ in range(3):
        asked = continued(asked, provider(api).poll(asked))
    assert api.calls == [f"work {asked.status.data['work']}"] * 3


@each_row(
    ("reason", "cls"),
    [("unavailable", "OutOfStock"), ("busy", "Conflict"), ("fault", "Unknown"), ("incorrect", "InvalidRequest")],
)
def test_exoscale_failed_eviction_reports_the_reason_and_the_remaining_machines(reason: str, cls: str) -> None:
    api = sks(4, lag=True, steps=10_000)
    name, other = api.all[A].members[:2]
    asked = remove(4, name, other)
    asked = continued(asked, provider(api).delete_nodes(asked))
    api.works[asked.status.data["work"]] = Work(asked.status.data["work"], "failure", reason, "no")
    api.all[A].members.remove(other)
    outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code, outcome.facts["removed"]) == (cls, reason, 1)
    assert name in outcome.message


def test_exoscale_eviction_that_succeeds_without_effect_finally_fails() -> None:
    api = sks(4, lag=True, steps=10_000)
    asked = remove(4, api.all[A].members[0])
    asked = continued(asked, provider(api).delete_nodes(asked))
    api.works[asked.status.data["work"]] = Work(asked.status.data["work"], "success")
    outcome = provider(api).poll(asked)
    while isinstance(outcome, InProgress):
        asked = continued(asked, outcome)
        outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert len(api.writes()) == 1


def test_exoscale_remove_counts_machines_of_a_deleted_pool_as_removed() -> None:
    api = sks(2)
    asked = remove(2, *api.all[A].members)
    del api.all[A]
    outcome = provider(api).delete_nodes(asked)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"
    api.machines.clear()
    assert isinstance(provider(api).delete_nodes(asked), Succeeded)
    assert provider(api).cancel_delete(asked) is False


# -- deletion of unregistered instances


def test_exoscale_delete_instances_ignores_the_minimum_and_spares_joined_ones() -> None:
    api = sks(2)
    name, other = api.all[A].members
    outcome = provider(api, "2:9:web", kube=FakeApiKube(f"exoscale://{other}")).delete_nodes(discard(2, name, other))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, other in outcome.message) == ("Conflict", True)
    assert not api.writes()
    assert isinstance(provider(api, "2:9:web", kube=FakeApiKube("")).delete_nodes(discard(2, name)), InProgress)


def test_exoscale_delete_instances_waits_for_a_silent_cluster() -> None:
    api, kube = sks(2), FakeApiKube()
    kube.down = True
    with pytest.raises(Transient):
        provider(api, kube=kube).delete_nodes(discard(2, api.all[A].members[0]))
    assert not api.writes()


def test_exoscale_delete_instances_of_placeholders_only_lowers_the_size() -> None:
    api = sks(2)
    api.all[A].size, api.all[A].stock = 5, 0
    handles = [each.handle for each in seen(api)[A].instances if each.error]
    assert isinstance(to_the_end(api, discard(5, *handles)), Succeeded)
    assert api.writes() == ["scale_nodepool web 2"]
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (2, 2, [])
    assert isinstance(to_the_end(api, discard(5, *handles)), Succeeded)
    assert len(api.writes()) == 1


def test_exoscale_delete_instances_spares_machines_that_arrived_late() -> None:
    """Between the plan and the deletion, two of the three have been created."""
    api = sks(2)
    api.all[A].size, api.all[A].stock = 5, 0
    handles = [each.handle for each in seen(api)[A].instances if each.error]
    api.fill(A, 2)
    assert isinstance(to_the_end(api, discard(5, *handles)), Succeeded)
    assert (api.all[A].size, len(api.all[A].members), api.chosen) == (4, 4, [])


def test_exoscale_delete_instances_handles_failed_and_missing_ones_together() -> None:
    api = sks(3)
    api.all[A].size, api.all[A].stock = 5, 0
    broken = api.all[A].members[1]
    api.set_state(broken, "error")
    nodes = [each for each in api.nodes() if not each.provider_id.endswith(broken)]
    handles = [each.handle for each in seen(api, nodes=nodes)[A].instances if each.error]
    assert len(handles) == 3
    assert isinstance(to_the_end(api, discard(5, *handles)), Succeeded)
    assert api.writes() == ["scale_nodepool web 3", f"evict_nodepool web {broken}"]
    assert (api.all[A].size, len(api.all[A].members), api.evicted, api.chosen) == (2, 2, [broken], [])
    assert isinstance(to_the_end(api, discard(5, *handles)), Succeeded)
    assert len(api.writes()) == 2


def test_exoscale_delete_instances_reports_a_size_the_vendor_refuses_to_lower() -> None:
    api = sks(2, lag=True, steps=10_000)
    api.all[A].size = 4
    asked = discard(4, f"placeholder-{A}-0", f"placeholder-{A}-1")
    asked = continued(asked, provider(api).delete_nodes(asked))
    api.works[asked.status.data["work"]] = Work(asked.status.data["work"], "failure", "forbidden")
    outcome = provider(api).poll(asked)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, len(api.writes())) == ("Unauthorized", 1)


def test_exoscale_delete_instances_waits_for_a_pool_in_change() -> None:
    api = sks(2)
    api.all[A].size, api.all[A].state = 4, "scaling-up"
    with pytest.raises(Conflict):
        provider(api).delete_nodes(discard(4, f"placeholder-{A}-0"))
    assert not api.writes()


def test_exoscale_placeholders_of_a_group_grown_meanwhile_are_kept() -> None:
    api = sks(2)
    api.all[A].size = 6
    outcome = provider(api).delete_nodes(discard(5, f"placeholder-{A}-0"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert not api.writes()


def test_exoscale_placeholder_of_another_group_is_refused() -> None:
    api = sks(2)
    assert isinstance(provider(api).delete_nodes(discard(2, f"placeholder-{B}-0")), Failed)
    assert api.calls == []


# -- rollback


def test_exoscale_removal_not_yet_accepted_can_be_rolled_back() -> None:
    api = sks(3)
    asked = remove(3, api.all[A].members[0])
    assert provider(api).cancel_delete(asked) is True
    assert not api.writes()


def test_exoscale_accepted_removal_cannot_be_rolled_back_and_is_unknown_meanwhile() -> None:
    api = sks(3, steps=2)
    asked = remove(3, api.all[A].members[0], api.all[A].members[1])
    provider(api).delete_nodes(asked)
    assert provider(api).cancel_delete(asked) is False  # both are being destroyed
    api.set_state(api.all[A].members[0], "running")
    with pytest.raises(Conflict):
        provider(api).cancel_delete(asked)
    api.step(2)
    assert provider(api).cancel_delete(asked) is False


@each_row(("field", "state"), [("state", "scaling-down"), ("nodepool_state", "scaling")])
def test_exoscale_rollback_result_is_unknown_while_a_pool_shrinks(field: str, state: str) -> None:
    api = sks(3)
    setattr(api.all[A], field, state)
    with pytest.raises(Conflict):
        provider(api).cancel_delete(remove(3, api.all[A].members[0]))


def test_exoscale_placeholders_can_be_rolled_back_while_the_size_stands() -> None:
    api = sks(2)
    api.all[A].size = 3
    asked = operation(OperationKind.DELETE_INSTANCES, A, 3, 2, f"placeholder-{A}-0")
    assert provider(api).cancel_delete(asked) is True
    api.all[A].size = 2
    assert provider(api).cancel_delete(asked) is False


def test_exoscale_rollback_counts_an_unknown_machine_as_removed() -> None:
    api = sks(3)
    assert isinstance(provider(api).delete_nodes(remove(3, uuid(900, "i"))), Succeeded)
    assert not api.writes()
