"""Memory is loaded as it was saved, and unchanged rows are not written."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from chalicelib.model.memory import BreakerState, GroupMemory, Memory, NodeMemory
from chalicelib.model.node import Condition, Node
from chalicelib.plan.state.node_templates import learn
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.store.errors import LeaseLost, StaleWrite
from chalicelib.store.memory_rows import ChangedTimes, confirm
from chalicelib.store.tables import BREAKER, GROUPS, HEAD, HeadRow, MemoryRow
from tests.unit.store.support import START, RequestCounter, StoreFixture, full_memory

replace = msgspec.structs.replace


def test_memory_of_an_unknown_cluster_is_empty(bench: StoreFixture) -> None:
    assert bench.load() == Memory()


def test_memory_with_every_field_round_trips(bench: StoreFixture) -> None:
    operations = (
        bench.operation("a"),
        bench.operation("b", data={"uid": "x"}, created_at=START + 1),
    )
    bench.save(Memory(), full_memory(), *operations)
    assert bench.load() == full_memory(operations)
    assert bench.fresh().memory.load(bench.cluster) == full_memory(operations)


def test_memory_entries_can_all_be_deleted(bench: StoreFixture) -> None:
    bench.save(Memory(), full_memory())
    bench.save(bench.load(), Memory())
    assert bench.load() == Memory()
    bench.save(bench.load(), full_memory())
    assert bench.load() == full_memory()


def test_memory_is_unaffected_by_restarts_between_all_steps(bench: StoreFixture) -> None:
    kept = Memory()
    for step in range(6):
        store = bench.fresh()
        loaded = store.memory.load(bench.cluster)
        assert loaded == kept
        nodes = {
            f"n{number}": NodeMemory(START + number, START + step) for number in range(step, 6)
        }
        groups = loaded.groups | {f"g{step}": GroupMemory(target=step, last_add=step)}
        kept = replace(loaded, nodes=nodes, groups=groups, last_scale_up=float(step))
        lease = store.leases.acquire(bench.cluster, f"owner-{step}", 60)
        bench.fresh().memory.save(bench.cluster, loaded, kept, (), lease)
        bench.fresh().leases.release(lease)
    assert bench.load() == kept


@pytest.mark.parametrize("count", [10, 5000])
def test_memory_quiet_pass_writes_at_most_5_items_and_reads_at_most_25(
    bench: StoreFixture, count: int
) -> None:
    nodes = {f"ip-10-0-{n // 256}-{n % 256}": NodeMemory(START - n, START) for n in range(count)}
    groups = {f"g{n}": GroupMemory(target=n) for n in range(8)}
    model = Node(
        "n1",
        {"a": "b"},
        {"cpu": 7800},
        {"cpu": 8000},
        provider_id="p://n1",
        created=START - 900,
        conditions=(Condition("Ready", "True", changed=START - 900),),
    )
    learnt = learn(model, None, START, Options())
    assert learnt is not None
    templates = dict.fromkeys(groups, learnt)
    bench.save(Memory(), Memory(nodes=nodes, groups=groups, templates=templates, first_seen=START))
    bench.clock.advance(60)
    with RequestCounter(bench) as counter:
        bench.store.scan_states.due(bench.cluster)
        bench.store.scan_states.mark_queued(bench.cluster, bench.clock() + 120)
        lease = bench.lease("quiet")
        before = bench.load()
        confirmed = {
            name: replace(node, confirmed_at=bench.clock()) for name, node in before.nodes.items()
        }
        again = {
            name: learn(model, each, bench.clock(), Options())
            for name, each in before.templates.items()
        }
        after = replace(
            before, nodes=confirmed, templates={name: each for name, each in again.items() if each}
        )
        bench.store.memory.save(bench.cluster, before, after, (), lease)
        bench.store.leases.release(lease, passed_at=bench.clock(), succeeded=True)

    assert counter.items_written == 3  # the marker, the lease, the lease's end
    assert counter.items_read <= 25
    assert confirm(bench.load(), bench.lease().last_success).nodes == confirmed


def test_memory_writes_only_changed_rows(bench: StoreFixture) -> None:
    bench.save(Memory(), full_memory())
    before = bench.load()
    after = replace(before, groups=before.groups | {"workers": GroupMemory(target=9)})
    lease = bench.lease()
    with RequestCounter(bench) as counter:
        bench.store.memory.save(bench.cluster, before, after, (), lease)
    assert counter.items_written == 1
    assert bench.load() == after


def test_memory_without_changes_writes_nothing(bench: StoreFixture) -> None:
    bench.save(Memory(), full_memory())
    before = bench.load()
    lease = bench.lease()
    with RequestCounter(bench) as counter:
        bench.store.memory.save(bench.cluster, before, before, (), lease)
    assert counter.items_written == 0


def test_memory_node_template_is_written_when_changed_or_refreshed(bench: StoreFixture) -> None:
    """The planner decides how rarely an unchanged template is refreshed (plan/template.learn)."""
    bench.save(Memory(), full_memory())
    before = bench.load()
    template = before.templates["workers"]
    larger = replace(template, node=replace(template.node, allocatable={"cpu": 7900}))
    for changed in (replace(template, learnt_at=START + 1), larger):
        loaded = bench.load()
        bench.save(loaded, replace(loaded, templates={"workers": changed}))
        assert bench.load().templates == {"workers": changed}


def test_memory_save_of_an_overtaken_plan_is_stale_and_writes_nothing(bench: StoreFixture) -> None:
    bench.save(Memory(), full_memory())
    old = bench.load()
    bench.save(old, replace(old, groups=old.groups | {"workers": GroupMemory(target=5)}))
    current = bench.load()
    lease = bench.lease()
    changed = replace(
        old, groups=old.groups | {"workers": GroupMemory(target=6)}, last_scale_up=START + 9
    )
    with pytest.raises(StaleWrite) as stale:
        bench.store.memory.save(bench.cluster, old, changed, (), lease)
    assert stale.value.items == (f"{GROUPS}workers",)
    assert bench.load() == current


def test_memory_save_of_operations_requires_the_group_version_of_the_plan(
    bench: StoreFixture,
) -> None:
    """This plan does not write the group, but its decision for the group may be wrong by now."""
    bench.save(Memory(), full_memory())
    old = bench.load()
    bench.save(old, replace(old, groups=old.groups | {"workers": GroupMemory(target=5)}))
    lease = bench.lease()
    with pytest.raises(StaleWrite):
        bench.store.memory.save(bench.cluster, old, old, (bench.operation("a"),), lease)
    assert bench.load().operations == ()


def test_memory_save_of_an_overtaken_pass_leaves_no_operations(bench: StoreFixture) -> None:
    zombie = bench.lease("zombie")
    bench.clock.advance(61)
    bench.lease("newer")
    with pytest.raises(LeaseLost):
        bench.store.memory.save(bench.cluster, Memory(), Memory(), (bench.operation("a"),), zombie)
    assert bench.store.operations.list_open(bench.cluster) == ()


def test_memory_many_nodes_are_stored_in_several_rows_and_fewer_in_one(bench: StoreFixture) -> None:
    def nodes(count: int) -> dict[str, NodeMemory]:
        # nearly incompressible
        names = (hashlib.sha256(str(n).encode()).hexdigest() for n in range(count))
        return {name: NodeMemory(START + at * 1.37, START) for at, name in enumerate(names)}

    many, few = Memory(nodes=nodes(12_000)), Memory(nodes=nodes(10))
    bench.save(Memory(), many)
    assert bench.load() == many
    assert sum(1 for _ in bench.store.table.query(bench.cluster, "memory#nodes#")) > 1
    bench.save(many, few)
    assert bench.load() == few
    assert sum(1 for _ in bench.store.table.query(bench.cluster, "memory#nodes#")) == 1


def test_memory_rows_of_another_release_can_be_read_and_overwritten(bench: StoreFixture) -> None:
    """A field that this release does not know is ignored; the next save
    must not be stale forever."""
    table = bench.store.table
    table.write(
        table.put(
            MemoryRow(bench.cluster, f"{GROUPS}g", text='{"target":3,"hue":"red"}', version="other")
        )
    )
    table.write(
        table.put(
            HeadRow(bench.cluster, HEAD, text='{"last_scale_up":5,"mood":1}', version="other")
        )
    )
    before = bench.load()
    assert (before.groups, ChangedTimes.of(before)) == (
        {"g": GroupMemory(target=3)},
        ChangedTimes(last_scale_up=5),
    )
    after = replace(before, groups={"g": GroupMemory(target=4)}, last_scale_up=6.0)
    bench.save(before, after)
    assert bench.load() == after


def test_memory_breaker_state_is_written_on_change_and_deleted_when_over(
    bench: StoreFixture,
) -> None:
    taken = Memory(breaker=BreakerState(((START, 2, 7),)))
    bench.save(Memory(), taken)
    assert bench.load() == taken
    lease = bench.lease("quiet")
    with RequestCounter(bench) as counter:
        bench.store.memory.save(bench.cluster, bench.load(), taken, (), lease)
    assert counter.items_written == 0
    bench.store.leases.release(lease)
    bench.save(taken, Memory())
    assert bench.load() == Memory()
    assert list(bench.store.table.query(bench.cluster, BREAKER)) == []


def test_memory_breaker_state_changed_by_others_makes_the_plan_stale(bench: StoreFixture) -> None:
    """Two passes that both count from the old breaker state would allow twice the limit."""
    bench.save(Memory(), Memory(breaker=BreakerState(((START, 2, 7),))))
    old = bench.load()
    bench.save(old, replace(old, breaker=BreakerState(((START, 2, 7), (START + 1, 1, 1)))))
    lease = bench.lease()
    with pytest.raises(StaleWrite) as stale:
        bench.store.memory.save(
            bench.cluster,
            old,
            replace(old, breaker=BreakerState(tripped_at=START, wanted=9)),
            (),
            lease,
        )
    assert stale.value.items == (BREAKER,)


def test_memory_breaker_state_of_another_release_can_be_read_and_overwritten(
    bench: StoreFixture,
) -> None:
    table = bench.store.table
    text = '{"taken":[[5.0,1,2]],"why":"x"}'
    table.write(table.put(MemoryRow(bench.cluster, BREAKER, text=text, version="other")))
    before = bench.load()
    assert before.breaker == BreakerState(((5.0, 1, 2),))
    after = replace(before, breaker=BreakerState(((6.0, 1, 2),)))
    bench.save(before, after)
    assert bench.load() == after
