"""Ends waits at an operator's request (`outscaler retry`): a node group's back-off, the wait after a failed removal.

Only the instant changes. The number of failures and the length of the back-off stay, so that another failure waits
twice as long as the last one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.model.memory import GroupMemory
from chalicelib.store.memory_patches import Patches
from chalicelib.store.staged_saves import Staging
from chalicelib.store.table_client import Table


class Retries:
    """Changes the memory of groups as executors do: a pass that decides at the same time decides again."""

    def __init__(self, table: Table, staging: Staging, clock: Callable[[], float]) -> None:
        self._patches, self._clock = Patches(table, staging), clock

    def end_backoff(self, cluster: str, group: str) -> None:
        """End the group's back-off and its wait for the next repair. Raises StoreError."""
        now = self._clock()

        def ended(memory: GroupMemory) -> GroupMemory:
            backoff = memory.backoff
            if backoff is not None and backoff.until >= now:
                memory = msgspec.structs.replace(memory, backoff=msgspec.structs.replace(backoff, until=_before(now)))
            return msgspec.structs.replace(memory, repair_after=min(memory.repair_after, now))

        self._patches.write(cluster, group, [], ended, None)

    def end_failed_removal(self, cluster: str, group: str, node: str) -> None:
        """End the wait after a failed removal of the node. Raises StoreError."""
        now = self._clock()

        def ended(memory: GroupMemory) -> GroupMemory:
            failed = memory.failed_removals.get(node)
            if failed is None:
                return memory
            removals = memory.failed_removals | {node: msgspec.structs.replace(failed, until=min(failed.until, now))}
            return msgspec.structs.replace(memory, failed_removals=removals)

        self._patches.write(cluster, group, [], ended, None)


def _before(now: float) -> float:
    """Return an instant at which a back-off is over: it is in force up to and including its end."""
    return now - 1.0
