"""Makes functions use rights that an ordinary day does not need; shared by
worlds and deployed functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import GroupMemory
from chalicelib.model.operation import OperationKind
from chalicelib.runtime.messages import PROVIDERS
from chalicelib.store import Store
from chalicelib.store.errors import StoreUnavailable
from infra.emulators.aws_faults import AwsFaults, lost_answer
from tests.operations import new_operation


def operations_of_every_provider(
    store: Store, now: float, word: str, due_in: float = 0.0, cluster: str = "shop"
) -> None:
    """Operations planned and never sent, as by a pass that died: the sweeper sends them, and the
    act functions carry them out."""
    lease = store.leases.acquire(cluster, "a-pass", 1.0)
    memory = store.memory.load(cluster)
    planned = [
        new_operation(
            id=f"grow-{word}-{name}",
            cluster=cluster,
            provider=name,
            group=f"no-group-of-{name}",
            kind=OperationKind.SCALE_UP,
            plan="plan-1",
            created_at=now,
            from_size=0,
            to_size=1,
            due_at=now + due_in,
        )
        for name in PROVIDERS
    ]
    store.memory.save(cluster, memory, memory, planned, lease)
    store.leases.release(lease)


def unfinished_save(faulty: Callable[[AwsFaults], Store], now: float) -> None:
    """A large save whose transaction was lost; the next reader finishes it.
    faulty: a Store with faults."""
    faults = AwsFaults()
    store = faulty(faults)
    lease = store.leases.acquire("shop", f"a-pass-{now}", 1.0)
    before = store.memory.load("shop")
    before_size = before.groups["g0"].target if "g0" in before.groups else 0
    groups = {f"g{number}": GroupMemory(target=before_size + 1) for number in range(120)}
    faults.instead("transact_write_items", None, lost_answer())
    with pytest.raises(StoreUnavailable):
        store.memory.save(
            "shop",
            before,
            msgspec.structs.replace(before, groups=before.groups | groups),
            [],
            lease,
        )
    store.leases.release(lease)


def unreadable_policy(store: Store, webhook: str, cluster: str = "shop") -> None:
    """Stores an unreadable policy; operations are then rolled back with the last readable
    version."""
    current = store.policies.current(cluster)
    assert current is not None
    store.policies.put(
        cluster, "apiVersion: outscaler.dev/v9", "digest", current.version, webhook=webhook
    )


def unused(
    judges: Sequence[Any], not_played: frozenset[str] = frozenset()
) -> list[tuple[str, str, str]]:
    """(function, statement, action) that is granted and that no checker saw used; all
    checkers have the same roles.

    Raises AssertionError where more was used than is granted.
    """
    used = {
        (function, sid, asked.action) for judge in judges for function, sid, asked in judge.used
    }
    granted = {
        (function, statement.sid, action)
        for function, statements in judges[0].roles.items()
        for statement in statements
        for action in statement.actions
        if action not in not_played
    }
    assert used <= granted
    return sorted(granted - used)
