"""Empty Nodepools that Outscaler has made are deleted: after three looks, once, and only while they
are empty.
"""

from __future__ import annotations

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.providers.kit.base import PoolMaker
from chalicelib.providers.kit.managed_pools import MARK
from infra.emulators.exoscale.account import ExoscaleMutations
from infra.emulators.vendor_common.fault_injection import VendorFault
from tests.providers.exoscale.fixture import ExoscaleFixture
from tests.providers.exoscale.own_nodepools import LARGE, created, named, ready, sizes, writes
from tests.providers.managed import carried_out, failed, growth, own_group

DELETE = "delete-sks-nodepool"


def emptied(bench: ExoscaleFixture) -> str:
    """Opens a Nodepool and scales it to 0, as scale-down has done; returns its name."""
    group = created(bench, 2)
    (nodepool,) = named(bench, group.id)
    ExoscaleMutations(bench.zone).scale(nodepool.pool, 0)
    bench.settle()
    assert sizes(bench, group.id) == [0]
    bench.look()
    return group.id


def removal(bench: ExoscaleFixture, name: str) -> Operation:
    operation = growth(bench, own_group(bench, name), 1)
    return operation.with_spec(kind=OperationKind.REMOVE_GROUP, from_size=0, to_size=0)


def test_empty_nodepool_is_deleted_once_after_forty_seconds() -> None:
    bench = ready()
    name = emptied(bench)
    operation, begun, deleted = removal(bench, name), bench.now(), []

    def before(_: int) -> None:
        deleted.extend([bench.now() - begun] * writes(bench).count(DELETE))

    assert carried_out(bench, operation, before=before) == Succeeded({"deleted": name})
    before(0)
    assert len(deleted) == 1
    assert deleted[0] >= 40.0
    assert named(bench, name) == []
    assert sizes(bench, "web") == [2]


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_pool_45_nodepool_that_a_person_scales_between_looks_is_left_alone(moment: int) -> None:
    bench = ready()
    name = emptied(bench)

    def scale(number: int) -> None:
        for nodepool in named(bench, name) if number == moment else ():
            ExoscaleMutations(bench.zone).scale(nodepool.pool, 1)

    outcome = carried_out(bench, removal(bench, name), before=scale)
    assert failed(outcome) == ("Conflict", "InUse")
    assert sizes(bench, name) == [1]
    assert DELETE not in writes(bench)


@pytest.mark.parametrize("killed", range(6))
def test_deletion_that_is_killed_after_any_step_ends_without_the_nodepool(killed: int) -> None:
    bench = ready()
    name = emptied(bench)
    outcome = carried_out(bench, removal(bench, name), forgets=lambda number: number == killed)
    assert isinstance(outcome, Succeeded)
    assert (named(bench, name), sizes(bench, "web")) == ([], [2])


def test_lost_answer_of_a_deletion_deletes_nothing_else() -> None:
    bench = ready()
    name = emptied(bench)
    bench.server.faults.next(VendorFault.LOST_ANSWER, on=DELETE)
    assert isinstance(carried_out(bench, removal(bench, name)), Succeeded)
    assert (named(bench, name), sizes(bench, "web")) == ([], [2])


def test_nodepool_without_our_mark_is_never_deleted() -> None:
    bench = ready()
    name = emptied(bench)
    operation = removal(bench, name)
    (nodepool,) = named(bench, name)
    nodepool.labels = {}
    assert failed(carried_out(bench, operation))[1] == "NameTaken"
    assert sizes(bench, name) == [0]
    assert DELETE not in writes(bench)


def test_pool_36_empty_second_nodepool_of_a_name_is_deleted_and_the_first_stays() -> None:
    bench = ready()
    group = created(bench, 3)
    twin = bench.add_nodepool(group.id, size=0, type=LARGE, cluster="prod")
    twin.labels = dict(named(bench, group.id)[0].labels)
    operation = removal(bench, group.id).with_spec(group=twin.pool.id)
    assert isinstance(carried_out(bench, operation), Succeeded)
    bench.settle()
    assert sizes(bench, group.id) == [3]
    assert writes(bench).count(DELETE) == 1


def test_forged_deletion_of_a_nodepool_of_people_writes_nothing() -> None:
    bench = ready(size=0)
    name = emptied(bench)
    (web,) = named(bench, "web")
    operation = removal(bench, name).with_spec(group=web.pool.id)
    assert failed(carried_out(bench, operation)) == ("InvalidRequest", "NameTaken")
    assert sizes(bench, "web") == [0]
    assert DELETE not in writes(bench)


def test_pool_55_a_mark_is_taken_off_and_all_else_stays() -> None:
    bench = ready()
    name = created(bench, 2).id
    (nodepool,) = named(bench, name)
    before = dict(nodepool.labels)
    maker = bench.provider()
    assert isinstance(maker, PoolMaker)
    (title,) = maker.own_marks()
    assert title == f"Nodepool {name} ({nodepool.id})"
    for take_off in maker.own_marks().values():
        take_off()
    assert nodepool.labels == {key: text for key, text in before.items() if key != MARK}
    assert len(nodepool.labels) == len(before) - 1
    assert writes(bench)[-1] == "update-sks-nodepool"
    assert sizes(bench, name) == [2]
    assert maker.own_marks() == {}
