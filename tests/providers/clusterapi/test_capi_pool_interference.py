"""Removals from a MachinePool with lost answers, conflicts, lost records and concurrent scale-ups.

Where the pool's infrastructure provider honours the delete annotations, no other machine is lost.
Where it does not, or cannot be given any, the size decreases by no more than requested, however
often a step is repeated.
"""

from __future__ import annotations

import random

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Succeeded
from chalicelib.providers.kit.errors import ProviderError
from tests.amounts import examples
from tests.providers.clusterapi.management import Management, management, operation
from tests.providers.clusterapi.objects import bounds
from tests.providers.clusterapi.test_capi_pools import (
    ALLOWED,
    GROUP_ID,
    SCALE,
    backed,
    bare,
    of_instance,
    of_machine,
    removal,
)

SIZE, TURNS = 7, 200


def disturb(there: Management, rng: random.Random) -> int:
    """Applies a random event to the cluster; returns the number of instances that it added."""
    match rng.randrange(7):
        case 0 | 1:
            there.controllers.step()
        case 2:
            there.fault(
                "PATCH", rng.choice(["/scale", "/machines/"]), close=True, late=rng.random() < 0.5
            )
        case 3:
            there.fault("PATCH", rng.choice(["/scale", "/machines/"]), 409)
        case 4:
            there.touch("mp", "MachinePool")
        case 5 if rng.random() < 0.2:
            size = there.size("mp", "MachinePool")
            try:
                return int(
                    isinstance(
                        there.provider().scale_up(
                            operation(OperationKind.SCALE_UP, size, size + 1, group=GROUP_ID)
                        ),
                        Succeeded,
                    )
                )
            except ProviderError:
                return there.size("mp", "MachinePool") - size
    return 0


def run(there: Management, rng: random.Random, todo: dict[str, Operation]) -> tuple[int, list[str]]:
    """Runs until all removals are over. Returns (instances added, removals that succeeded)."""
    added, done = 0, []
    for turn in range(TURNS):
        if turn < TURNS // 4:
            added += disturb(there, rng)
        else:
            there.server.faults.clear()
            there.controllers.step()
        there.clock.advance(rng.choice((0.5, 2.0)))
        name = rng.choice(sorted(todo))
        try:
            outcome = there.provider(settings=ALLOWED).delete_nodes(todo[name])
        except ProviderError:
            continue
        if isinstance(outcome, InProgress):
            if rng.random() < 0.8:  # otherwise the function died before it recorded this
                todo[name] = todo[name].with_status(data=outcome.data)
            continue
        if isinstance(outcome, Succeeded):
            done.append(name)
        del todo[name]
        if not todo:
            break
    assert not todo
    there.server.faults.clear()
    there.work(120)
    return added, done


@pytest.mark.more
@pytest.mark.parametrize("seed", range(examples(1, 3)))
def test_capi_pool_honouring_delete_annotations_loses_no_other_machine(seed: int) -> None:
    rng = random.Random(seed)
    with management() as there:
        backed(there, SIZE, annotations=bounds(0, 50))
        going = rng.sample(range(SIZE), 3)
        staying = {f"m-{at}" for at in range(SIZE)} - {f"m-{at}" for at in going}
        added, done = run(
            there, rng, {f"op-{at}": removal(of_machine(at), op=f"op-{at}") for at in going}
        )
        gone = {f"m-{name.removeprefix('op-')}" for name in done}
        assert staying <= set(there.machines())
        assert not gone & set(there.machines())
        assert len(there.machines()) == there.size("mp", "MachinePool")
        assert (
            SIZE - len(going) + added <= there.size("mp", "MachinePool") <= SIZE - len(done) + added
        )
        assert added or len(done) == len(going)  # only a concurrent scale-up can make one fail


@pytest.mark.more
@pytest.mark.parametrize("how", ["heedless", "instances"])
@pytest.mark.parametrize("seed", range(examples(1, 3)))
def test_capi_pool_ignoring_delete_annotations_shrinks_once_per_removal(
    seed: int, how: str
) -> None:
    rng = random.Random(seed)
    with management() as there:
        if how == "heedless":
            backed(there, SIZE, how, annotations=bounds(0, 50))
        else:
            bare(there, SIZE, annotations=bounds(0, 50))
        going = rng.sample(range(SIZE), 3)
        targets = {
            at: of_machine(at) if how == "heedless" else of_instance(f"mp-{at:04d}") for at in going
        }
        there.requests()
        added, _ = run(
            there, rng, {f"op-{at}": removal(targets[at], op=f"op-{at}") for at in going}
        )
        assert SIZE - len(going) + added <= there.size("mp", "MachinePool") <= SIZE + added
        assert there.writes().count(f"PATCH {SCALE} 200") <= len(going) + added
