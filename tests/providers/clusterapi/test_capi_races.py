"""Changes between two requests of one operation, and records that became unreadable."""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.clusterapi.scale_up import MAY_LOWER_FOR
from chalicelib.providers.kit.errors import Conflict, Transient
from tests.providers.clusterapi.management import (
    PLURALS,
    Management,
    fill,
    finalized,
    management,
    operation,
)
from tests.providers.clusterapi.objects import GROUP, bounds, pool, pool_machine

RUBBISH = ("", "x", "-1", "1.5", "٣", "9" * 5000)


def finish(there: Management, wanted: Operation) -> Outcome:
    for _ in range(8):
        outcome = there.provider().delete_nodes(wanted)
        if not isinstance(outcome, InProgress):
            return outcome
        wanted = wanted.with_status(data=outcome.data)
        there.clock.advance(outcome.after)
        there.work(20)
    raise AssertionError(f"still {outcome}")


def test_capi_machine_deleted_before_its_annotation_counts_as_removed() -> None:
    with management() as there:
        fill(there, 3)
        there.fault("PATCH", "/machines/m-1", 404)
        outcome = there.provider().delete_nodes(operation(OperationKind.DELETE_NODES, 3, 1, 0, 1))
        # the second read showed that the contradiction was only apparent
        assert isinstance(outcome, InProgress)
        assert (there.size(), sorted(there.marked())) == (1, ["m-0", "m-1"])


@pytest.mark.parametrize("text", RUBBISH)
def test_capi_unreadable_attempt_count_is_treated_as_zero(text: str) -> None:
    with management() as there:
        fill(there, 1)
        gone = operation(OperationKind.DELETE_NODES, 2, 1, 7).with_status(
            data={"never_joined": text}
        )
        outcome = there.provider().delete_nodes(gone)
        assert isinstance(outcome, Succeeded)
        assert outcome.facts["never_joined"] == 0


@pytest.mark.parametrize("text", RUBBISH)
def test_capi_unreadable_pool_record_is_written_again(text: str) -> None:
    with management() as there:
        there.add(
            pool("mp", replicas=2, annotations={**bounds(), "local.outscaler/pool": "machines"})
        )
        there.add(
            *(
                finalized(pool_machine(f"m-{at}", "mp", provider_id=f"c:///i-{at}", node=f"n-{at}"))
                for at in range(2)
            )
        )
        there.controllers.step()
        corrupted = dict.fromkeys(
            ("pool_size", "pool_version", "pool_generation", "never_joined"), text
        )
        wanted = operation(OperationKind.DELETE_NODES, 2, 1, group="MachinePool/default/mp")
        targets = (RemovalTarget("n-0", "c:///i-0", "default/m-0"),)
        outcome = finish(there, wanted.with_spec(targets=targets).with_status(data=corrupted))
        assert isinstance(outcome, Succeeded)
        assert (there.size("mp", "MachinePool"), there.machines()) == (1, ["m-1"])


PAUSE, UNBOUND = f"{GROUP}/paused", "no bounds"


@pytest.mark.parametrize("kind", ["MachineDeployment", "MachinePool"])
@pytest.mark.parametrize("meanwhile", [PAUSE, UNBOUND])
def test_capi_delete_annotations_are_removed_from_paused_or_former_groups(
    kind: str, meanwhile: str
) -> None:
    """Left-over annotations would select these machines whenever a user makes
    the group smaller later."""
    with management() as there:
        if kind == "MachinePool":
            there.add(
                pool("md-0", replicas=2),
                pool_machine("m-0", "md-0", node="n-0"),
                pool_machine("m-1", "md-0"),
            )
        else:
            fill(there, 2)
        wanted = operation(OperationKind.DELETE_NODES, 2, 1, 0, group=f"{kind}/default/md-0")
        wanted = wanted.with_spec(targets=(RemovalTarget("n-0", "", "default/m-0"),))
        if kind == "MachineDeployment":
            there.fault("PATCH", "/scale", 500)
            with pytest.raises(Transient):
                there.provider().delete_nodes(wanted)
        else:
            # recorded and annotated, not lowered
            assert isinstance(there.provider().delete_nodes(wanted), InProgress)
        assert list(there.marked()) == ["m-0"]
        found = there.store.get(PLURALS[kind], "md-0", "default", GROUP)
        assert found is not None
        marks = {} if meanwhile == UNBOUND else {**found["metadata"]["annotations"], PAUSE: "true"}
        there.store.update(
            PLURALS[kind], {**found, "metadata": {**found["metadata"], "annotations": marks}}, GROUP
        )
        assert isinstance(there.provider().delete_nodes(wanted), Failed)
        there.clock.advance(MAY_LOWER_FOR + 1)
        assert there.provider().cancel_delete(wanted) is True
        assert (there.marked(), there.size("md-0", kind)) == ({}, 2)


def test_capi_mark_stays_while_an_unanswered_request_may_lower_the_size() -> None:
    """Such a request would otherwise delete a Machine whose Node was not drained."""
    with management() as there:
        fill(there, 3)
        wanted = operation(OperationKind.DELETE_NODES, 3, 2, 1)
        # a proxy's word: the API server may have the request, too
        there.fault("PATCH", "/scale", 503, times=-1)
        with pytest.raises(Transient):
            there.provider().delete_nodes(wanted)
        there.clock.advance(MAY_LOWER_FOR)
        with pytest.raises(Transient, match="m-1: a request that lowers the size may be under way"):
            there.provider().cancel_delete(wanted)
        there.resize(2)  # it arrives now
        there.work()
        assert there.machines() == ["m-0", "m-2"]


def test_capi_mark_is_renewed_before_each_request_for_the_size() -> None:
    with management() as there:
        fill(there, 3)
        wanted = operation(OperationKind.DELETE_NODES, 3, 2, 1)
        for _ in range(2):
            there.fault("PATCH", "/scale", 503, times=-1)
            with pytest.raises(Transient):
                there.provider().delete_nodes(wanted)
            there.server.faults.clear()
            there.clock.advance(MAY_LOWER_FOR - 1)
        with pytest.raises(Transient):  # the second request may arrive still
            there.provider().cancel_delete(wanted)
        there.clock.advance(2.0)
        assert there.provider().cancel_delete(wanted) is True
        assert (there.marked(), there.size()) == ({}, 3)


def test_capi_size_is_not_lowered_for_an_annotation_of_a_stopped_function() -> None:
    """A pod may have been scheduled to that node meanwhile; the function
    that continues checks first."""
    with management() as there:
        fill(there, 4)
        first, second = (
            operation(OperationKind.DELETE_NODES, 4, 3, 0, op="first"),
            operation(OperationKind.DELETE_NODES, 4, 3, 1, op="second"),
        )
        there.fault("PATCH", "/scale", 503, times=-1)
        with pytest.raises(Transient):
            there.provider().delete_nodes(first)  # annotated, and dies before the size
        there.server.faults.clear()
        there.clock.advance(31.0)

        with pytest.raises(Conflict, match="m-0 is marked"):
            there.provider().delete_nodes(second)
        assert (there.size(), set(there.marked())) == (4, {"m-0"})

        assert isinstance(there.provider().delete_nodes(first), InProgress)
        there.work()
        assert isinstance(there.provider().delete_nodes(second), InProgress)
        there.work()
        assert (there.size(), there.machines()) == (2, ["m-2", "m-3"])


def test_capi_recent_annotation_of_a_concurrent_removal_is_counted() -> None:
    with management() as there:
        fill(there, 4)
        there.fault("PATCH", "/scale", 503, times=-1)
        with pytest.raises(Transient):
            there.provider().delete_nodes(
                operation(OperationKind.DELETE_NODES, 4, 3, 0, op="first")
            )
        there.server.faults.clear()
        there.clock.advance(5.0)
        assert isinstance(
            there.provider().delete_nodes(
                operation(OperationKind.DELETE_NODES, 4, 3, 1, op="second")
            ),
            InProgress,
        )
        there.work()
        assert (there.size(), there.machines()) == (2, ["m-2", "m-3"])
