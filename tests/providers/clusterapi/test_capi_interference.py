"""Concurrent removals with lost answers, conflicts, controllers and scale-ups, in a random
order drawn from a seed.

Invariants: no other machine is lost, all machines to be removed are gone, and the size
decreased by their number.
"""

from __future__ import annotations

import random

import pytest

from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import InProgress, Succeeded
from chalicelib.providers.kit.errors import Conflict, ProviderError
from tests.providers.clusterapi.management import Management, fill, management, operation
from tests.providers.clusterapi.objects import bounds

SIZE, ROUNDS = 8, 400


def disturb(there: Management, rng: random.Random) -> int:
    """Applies a random event to the cluster; returns the number of machines that it added."""
    match rng.randrange(6):
        case 0 | 1:
            there.controllers.step()
        case 2:
            there.fault(
                "PATCH", rng.choice(["/scale", "/machines/"]), close=True, late=rng.random() < 0.5
            )
        case 3:
            there.fault("PATCH", rng.choice(["/scale", "/machines/"]), 409)
        case 4:
            there.touch()
        case 5 if rng.random() < 0.3:
            return grown(there)
    return 0


def grown(there: Management) -> int:
    """Grows by one, with a scale-up planned a moment ago and repeated until its result is known."""
    size, provider = there.size(), there.provider()
    for _ in range(20):
        try:
            return int(
                isinstance(
                    provider.scale_up(operation(OperationKind.SCALE_UP, size, size + 1)), Succeeded
                )
            )
        except Conflict:
            return 0  # nothing was written; the next reconcile pass would plan it again
        except ProviderError:
            continue
    return 0


@pytest.mark.parametrize(
    ("seed", "version"), [*((seed, "") for seed in range(6)), (6, "v1beta1"), (7, "v1beta1")]
)
def test_capi_random_disturbance_never_loses_a_machine_not_to_be_removed(
    seed: int, version: str
) -> None:
    rng = random.Random(seed)
    with management() as there:
        fill(there, SIZE, annotations=bounds(0, 50))
        going = rng.sample(range(SIZE), 4)
        todo: dict[str, Operation] = {
            f"op-{at}": operation(OperationKind.DELETE_NODES, SIZE, SIZE - 1, at, op=f"op-{at}")
            for at in going
        }
        staying = {f"m-{at}" for at in range(SIZE) if at not in going}
        provider, added = there.provider(settings={"version": version}), 0
        for turn in range(ROUNDS):
            if turn < ROUNDS // 4:
                added += disturb(there, rng)
            else:
                there.server.faults.clear()
                there.controllers.step()
            there.clock.advance(1.0)
            name = rng.choice(sorted(todo))
            try:
                outcome = provider.delete_nodes(todo[name])
            except ProviderError:
                continue
            assert isinstance(outcome, Succeeded | InProgress), outcome
            if isinstance(outcome, InProgress):
                todo[name] = todo[name].with_status(data=outcome.data)
                continue
            del todo[name]
            assert staying <= set(there.machines())
            if not todo:
                break
        there.server.faults.clear()
        there.work()
        there.clock.advance(60.0)  # leaving machines are gone, and missing ones are created
        there.work()
        assert not todo
        assert staying <= set(there.machines())
        assert not {f"m-{at}" for at in going} & set(there.machines())
        assert there.size() == SIZE - len(going) + added
        assert len(there.machines()) == there.size()
