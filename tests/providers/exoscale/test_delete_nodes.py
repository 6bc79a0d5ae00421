"""Removals, rollbacks and target decreases of Exoscale: what the suite (tests/providers/suite) and
tests/providers/exoscale do not show."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.exoscale.scale_up import ENOUGH_LOOKS
from chalicelib.providers.kit.errors import Conflict, ProviderError, Transient
from infra.emulators.exoscale.account import example_id
from infra.emulators.exoscale.models import Ending
from tests.cases import each_row
from tests.providers.exoscale.fixture import (
    A,
    B,
    ExoscaleFixture,
    discard,
    drive,
    grow,
    remove,
    shrink,
    sks,
    standalone,
)

NO_EFFECT = Ending("success", "")


def _begun(zone: ExoscaleFixture, operation: Operation) -> Operation:
    """Returns an accepted change, as the executor passes it to the next step."""
    verb = zone.build().decrease_target if not operation.spec.targets else zone.build().delete_nodes
    outcome = verb(operation)
    assert isinstance(outcome, InProgress)
    return operation.with_status(data=outcome.data, step=outcome.step)


def _missing(zone: ExoscaleFixture) -> list[str]:
    return [each.handle for each in zone.groups()[A].instances if each.error]


def _silent(zone: ExoscaleFixture, handle: str) -> None:
    """The machine never joined the cluster."""
    zone.kubelets.silent.add(zone.zone.vms[handle].name)


def test_exoscale_removal_keeps_one_without_a_spec_and_may_empty_a_nodepool_with_one() -> None:
    zone = sks(1)
    (name,) = zone.machines(A)
    operation = remove(zone, 1, name)
    refused = zone.build().delete_nodes(operation)
    assert isinstance(refused, Failed)
    assert "minimum 1" in refused.message
    zone.bind("web", 0, 9)
    assert isinstance(drive(zone, operation), Succeeded)
    assert zone.target(A) == 0


def test_exoscale_removal_refuses_a_machine_of_no_pool() -> None:
    zone = sks(3)
    name = zone.zone.add_lonely()
    outcome = zone.build().delete_nodes(remove(zone, 3, name))
    assert isinstance(outcome, Failed)
    assert name in outcome.message
    assert "no pool" in outcome.message
    assert not zone.changes()


@each_row(
    "target",
    [
        RemovalTarget("n", "aws:///i-1", "i-1"),
        RemovalTarget("n", ""),
        RemovalTarget("n", "", "../evil"),
    ],
)
def test_exoscale_removal_refuses_a_target_that_is_not_a_machine_of_this_cloud(
    target: RemovalTarget,
) -> None:
    zone = sks(4)
    operation = remove(zone, 4, zone.machines(A)[0]).with_spec(targets=(target,))
    outcome = zone.build().delete_nodes(operation)
    assert isinstance(outcome, Failed)
    assert outcome.message == "n: no machine at Exoscale is known for it"
    assert zone.calls() == []


def test_exoscale_removal_skips_machines_already_gone() -> None:
    zone = sks(4)
    gone, leaving, left, stays = zone.machines(A)
    operation = remove(zone, 4, gone, leaving, left)
    zone.zone.vanish(gone)
    zone.zone.set_state(leaving, "stopping")
    zone.zone.shows_leaving, zone.pool(A).size = False, 2
    assert isinstance(drive(zone, operation), Succeeded)
    assert zone.changes() == [f'evict-sks-nodepool-members {{"instances":["{left}"]}}']
    assert zone.state() == (1, [stays])


def test_exoscale_removal_of_an_unknown_machine_is_done_without_a_write() -> None:
    zone = sks(3)
    assert isinstance(zone.build().delete_nodes(remove(zone, 3, example_id("vm", 900))), Succeeded)
    assert not zone.changes()


def test_exoscale_removal_by_two_functions_evicts_once() -> None:
    zone = sks(4)
    operation = remove(zone, 4, zone.machines(A)[0])
    victim = operation.spec.targets[0].handle
    _begun(zone, operation)
    assert isinstance(zone.build().delete_nodes(operation), Succeeded)  # its deletion has begun
    zone.zone.set_state(victim, "running")
    for _ in range(2):
        with pytest.raises(Conflict):
            zone.build().delete_nodes(operation)
    zone.zone.set_state(victim, "destroying")
    assert isinstance(drive(zone, operation), Succeeded)
    assert len(zone.changes()) == 1
    zone.settle()
    assert (zone.target(A), len(zone.machines(A))) == (3, 3)


@each_row("refused", [False, True])
def test_exoscale_removal_from_a_busy_pool_waits_long_enough(refused: bool) -> None:
    """The executor makes eight attempts; ten removals of one plan were abandoned, fully drained, in
    less time than five evictions take. A deletion of unregistered instances drains nothing and has
    ten minutes, so its retry delay is unchanged."""
    zone = sks(5)
    name = zone.machines(A)[0]
    if refused:
        zone.fail("PUT", 409, 2)
    else:
        zone.zone.set_state(A, "scaling-down")
    with pytest.raises(Conflict) as raised:
        zone.build().delete_nodes(remove(zone, 5, name))
    assert raised.value.retry_after >= 60.0
    _silent(zone, name)
    with pytest.raises(Conflict) as raised:
        zone.build().delete_nodes(discard(zone, 5, name))
    assert raised.value.retry_after == 0.0


def test_exoscale_slow_eviction_costs_one_call_per_message() -> None:
    zone = sks(4, operation=10_000.0)
    operation = _begun(zone, remove(zone, 4, zone.machines(A)[0]))
    zone.look()
    for _ in range(3):
        outcome = zone.build().poll(operation)
        assert isinstance(outcome, InProgress)
        operation = operation.with_status(data=outcome.data)
    assert zone.operations() == ["get-operation"] * 3


@each_row(
    ("reason", "cls"),
    [
        ("unavailable", "OutOfStock"),
        ("busy", "Conflict"),
        ("fault", "Unknown"),
        ("incorrect", "InvalidRequest"),
    ],
)
def test_exoscale_failed_eviction_reports_the_reason_and_the_remaining_machines(
    reason: str, cls: str
) -> None:
    zone = sks(4)
    name, other, *_ = zone.machines(A)
    zone.zone.end_next(A, Ending("failure", reason, "no"))
    operation = _begun(zone, remove(zone, 4, name, other))
    zone.zone.vanish(other)
    zone.settle()
    outcome = zone.build().poll(operation)
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, outcome.code, outcome.facts["removed"]) == (cls, reason, 1)
    assert name in outcome.message
    assert other not in outcome.message


def test_exoscale_eviction_that_succeeds_without_effect_finally_fails() -> None:
    zone = sks(4)
    zone.zone.end_next(A, NO_EFFECT)
    outcome = drive(zone, remove(zone, 4, zone.machines(A)[0]))
    assert isinstance(outcome, Failed)
    assert "lists it still" in outcome.message
    assert len(zone.changes()) == 1


def _poll(zone: ExoscaleFixture, operation: Operation) -> Operation:
    """Returns an operation that is not over yet, as the executor passes it to the next step."""
    outcome = zone.build().poll(operation)
    assert isinstance(outcome, InProgress)
    return operation.with_status(data=outcome.data, step=outcome.step)


def test_exoscale_machine_still_listed_after_its_eviction_may_go_later() -> None:
    zone = sks(4)
    name = zone.machines(A)[0]
    zone.zone.end_next(A, NO_EFFECT)
    operation = _begun(zone, remove(zone, 4, name))
    zone.settle()
    for _ in range(ENOUGH_LOOKS - 1):
        operation = _poll(zone, operation)
    zone.zone.vanish(name)
    assert isinstance(zone.build().poll(operation), Succeeded)


def test_exoscale_machine_still_listed_after_its_eviction_is_looked_at_five_times() -> None:
    zone = sks(4)
    zone.zone.end_next(A, NO_EFFECT)
    operation = _begun(zone, remove(zone, 4, zone.machines(A)[0]))
    zone.settle()
    for _ in range(4):
        operation = _poll(zone, operation)
    assert isinstance(zone.build().poll(operation), Failed)


@each_row("ending", [Ending("failure", "fault", "no"), NO_EFFECT])
def test_exoscale_evicted_machine_that_left_its_pool_and_still_runs_is_not_removed(
    ending: Ending,
) -> None:
    zone = sks(4)
    name, gone, *_ = zone.machines(A)
    zone.zone.end_next(A, ending)
    operation = _begun(zone, remove(zone, 4, name, gone))
    zone.settle()
    del zone.pool(A).members[name]
    zone.zone.vanish(gone)
    outcome = drive(zone, operation)
    assert isinstance(outcome, Failed)
    assert (outcome.facts["removed"], outcome.facts["left"]) == (1, name)
    zone.zone.set_state(name, "destroying")
    assert isinstance(zone.build().poll(operation), Succeeded)


def test_exoscale_removal_counts_machines_of_a_deleted_pool_as_removed() -> None:
    zone = sks(2)
    operation = remove(zone, 2, *zone.machines(A))
    del zone.zone.pools[A]
    outcome = zone.build().delete_nodes(operation)
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "NotFound"
    begun = zone.build().delete_nodes(operation.with_status(data={"evicted": "yes"}))
    assert isinstance(begun, InProgress)
    zone.zone.vms.clear()
    assert isinstance(zone.build().delete_nodes(operation), Succeeded)
    assert zone.build().cancel_delete(operation) is False


# -- deletion of unregistered instances


def test_exoscale_delete_instances_ignores_the_minimum_and_spares_joined_ones() -> None:
    zone = sks(2)
    name, other = zone.machines(A)
    _silent(zone, name)
    outcome = zone.build("2:9:web").delete_nodes(discard(zone, 2, name, other))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, other in outcome.message) == ("Conflict", True)
    assert not zone.changes()
    assert isinstance(zone.build("2:9:web").delete_nodes(discard(zone, 2, name)), InProgress)


def test_exoscale_delete_instances_waits_for_a_silent_cluster() -> None:
    zone = sks(2)
    operation = discard(zone, 2, zone.machines(A)[0])
    zone.down = True
    with pytest.raises(Transient):
        zone.build().delete_nodes(operation)
    assert not zone.changes()


def test_exoscale_delete_instances_spares_machines_that_arrived_late() -> None:
    """Between the plan and the deletion, two of the three have been created."""
    zone = sks(2)
    zone.pool(A).size = 5
    operation = discard(zone, 5, *_missing(zone))
    zone.zone.add_members(A, 2)
    assert isinstance(drive(zone, operation), Succeeded)
    assert (zone.target(A), len(zone.machines(A))) == (4, 4)


def test_exoscale_delete_instances_handles_failed_and_missing_ones_together() -> None:
    zone = sks(3)
    zone.pool(A).size = 5
    first, broken, last = zone.machines(A)
    zone.zone.set_state(broken, "error")
    _silent(zone, broken)
    operation = discard(zone, 5, *_missing(zone))
    assert len(operation.spec.targets) == 3
    assert isinstance(drive(zone, operation), Succeeded)
    assert zone.changes() == [
        'scale-sks-nodepool {"size":3}',
        f'evict-sks-nodepool-members {{"instances":["{broken}"]}}',
    ]
    assert zone.state() == (2, [first, last])
    assert isinstance(drive(zone, operation), Succeeded)
    assert not zone.changes()


def test_exoscale_delete_instances_reports_a_size_the_vendor_refuses_to_lower() -> None:
    zone = sks(2)
    zone.pool(A).size = 4
    zone.zone.end_next(A, Ending("failure", "forbidden"))
    outcome = drive(zone, discard(zone, 4, f"placeholder-{A}-0", f"placeholder-{A}-1"))
    assert isinstance(outcome, Failed)
    assert (outcome.error_class, len(zone.changes())) == ("Unauthorized", 1)


def test_exoscale_placeholders_of_a_group_grown_meanwhile_or_of_another_are_kept() -> None:
    zone = sks(2)
    zone.pool(A).size = 6
    outcome = zone.build().delete_nodes(discard(zone, 5, f"placeholder-{A}-0"))
    assert isinstance(outcome, Failed)
    assert outcome.error_class == "Conflict"
    assert not zone.changes()
    assert isinstance(zone.build().delete_nodes(discard(zone, 2, f"placeholder-{B}-0")), Failed)
    assert zone.calls() == []


# -- rollback


def test_exoscale_accepted_removal_cannot_be_rolled_back_and_is_unknown_meanwhile() -> None:
    zone = sks(3)
    first, second, _ = zone.machines(A)
    operation = remove(zone, 3, first, second)
    _begun(zone, operation)
    assert zone.build().cancel_delete(operation) is False  # both are being destroyed
    zone.zone.set_state(first, "running")
    with pytest.raises(Conflict):
        zone.build().cancel_delete(operation)
    zone.zone.set_state(first, "destroying")
    zone.settle()
    assert zone.build().cancel_delete(operation) is False


@each_row("nodepool", [False, True])
def test_exoscale_rollback_result_is_unknown_while_a_pool_shrinks(nodepool: bool) -> None:
    zone = sks(3)
    operation = remove(zone, 3, zone.machines(A)[0])
    if nodepool:
        zone.answers[zone.pool(A).nodepool] = {"state": "scaling"}
    else:
        zone.answers[A] = {"state": "scaling-down"}
    with pytest.raises(Conflict):
        zone.build().cancel_delete(operation)


def test_exoscale_placeholders_can_be_rolled_back_while_the_size_stands() -> None:
    zone = sks(2)
    zone.pool(A).size = 3
    operation = discard(zone, 3, f"placeholder-{A}-0")
    assert zone.build().cancel_delete(operation) is True
    zone.pool(A).size = 2
    assert zone.build().cancel_delete(operation) is False


# -- target decrease


@each_row("verb", ["decrease_target", "delete_nodes"])
def test_exoscale_size_is_not_lowered_while_the_vendor_creates_machines(verb: str) -> None:
    zone = sks(2)
    zone.pool(A).size = 5
    zone.zone.set_state(A, "scaling-up")
    operation = (
        shrink(zone, 5, 3) if verb == "decrease_target" else discard(zone, 5, f"placeholder-{A}-0")
    )
    with pytest.raises(Conflict):
        getattr(zone.build(), verb)(operation)
    assert not zone.changes()


@each_row(
    ("start", "to", "words"),
    [(6, 3, "has the size 5"), (5, -1, "not a valid size"), (5, 1, "2 machines that exist")],
)
def test_exoscale_impossible_decrease_of_the_target_is_refused(
    start: int, to: int, words: str
) -> None:
    zone = sks(2)
    zone.pool(A).size = 5
    zone.answers[A] = {"instances": []}  # the pool may omit its list
    outcome = zone.build().decrease_target(shrink(zone, start, to))
    assert isinstance(outcome, Failed)
    assert words in outcome.message
    assert not zone.changes()


def test_exoscale_decrease_of_the_target_not_carried_out_is_reported() -> None:
    zone = sks(2)
    zone.pool(A).size = 5
    zone.zone.end_next(A, NO_EFFECT)
    outcome = drive(zone, shrink(zone, 5, 2))
    assert isinstance(outcome, Failed)
    assert "still has the size 5" in outcome.message
    assert len(zone.changes()) == 1


def test_exoscale_decrease_of_the_target_keeps_the_last_of_a_standalone_pool() -> None:
    zone = standalone(1)
    zone.zone.vanish(zone.machines(A)[0])
    outcome = zone.build().decrease_target(shrink(zone, 1, 0))
    assert isinstance(outcome, Failed)
    assert "the least the vendor takes" in outcome.message
    assert not zone.changes()


# -- errors of every change (providers/kit/base.py)


@each_row(
    ("status", "cls"),
    [
        (429, "Throttled"),
        (500, "Transient"),
        (409, "Conflict"),
        (404, "NotFound"),
        (403, "Unauthorized"),
        (418, "Unknown"),
    ],
)
def test_exoscale_error_of_a_read_has_its_class_in_every_change(status: int, cls: str) -> None:
    zone = sks(3)
    zone.pool(A).size = 4
    removal, decrease = remove(zone, 4, zone.machines(A)[0]), shrink(zone, 4, 3)
    changes = [
        ("scale_up", grow(zone, 4, 5)),
        ("delete_nodes", removal),
        ("decrease_target", decrease),
    ]
    for verb, operation in [*changes, *(("poll", operation) for _, operation in changes)]:
        zone.fail(f"GET /v2/instance-pool/{A}$", status, 1 if status in (404, 409, 403, 418) else 3)
        provider = zone.build()
        if cls in ("Throttled", "Transient", "Conflict"):
            with pytest.raises(ProviderError) as raised:
                getattr(provider, verb)(operation)
            assert (type(raised.value).__name__, raised.value.code) == (cls, str(status))
            zone.settle(60.0)  # no pause is left
        else:
            outcome = getattr(provider, verb)(operation)
            assert isinstance(outcome, Failed)
            assert (outcome.error_class, outcome.code == str(status) or cls == "NotFound") == (
                cls,
                True,
            )
    assert not zone.changes()


def test_exoscale_pool_with_invalid_numbers_is_untouched() -> None:
    """Its Nodepool comes from a list in which it has no size (decoding.py)."""
    zone = sks(3)
    removal, decrease = remove(zone, 3, zone.machines(A)[0]), shrink(zone, 4, 3)
    zone.answers[zone.pool(A).nodepool] = {"size": 2**40}
    for verb, operation in (
        ("scale_up", grow(zone, 3, 4)),
        ("delete_nodes", removal),
        ("decrease_target", decrease),
    ):
        outcome = getattr(zone.build(), verb)(operation)
        assert isinstance(outcome, Failed)
        assert outcome.error_class == "Unknown"
    assert not zone.changes()
