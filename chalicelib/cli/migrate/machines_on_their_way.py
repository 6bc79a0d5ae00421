"""Machines that were requested and are no nodes yet: another autoscaler may buy them a second
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from chalicelib.model.memory import Memory
from chalicelib.model.operation import OperationKind
from chalicelib.model.snapshot import Snapshot

_MOST = 10  # groups that a text names


def on_their_way(snapshot: Snapshot) -> dict[str, int]:
    """Return how many nodes the size of each group lacks, without machines that could not be
    created. Groups that could not be read, and those that lack none, are left out."""
    joined = {word for node in snapshot.nodes for word in (node.name, node.provider_id)} - {""}
    lacking = {}
    for group in snapshot.groups:
        nodes = {
            machine.id
            for machine in group.instances
            if not joined.isdisjoint((machine.id, machine.node))
        }
        failed = {machine.id for machine in group.instances if machine.error is not None} - nodes
        count = group.target - len(nodes) - len(failed)
        if count > 0 and not group.error:
            lacking[group.id] = count
    return lacking


def asked_for(memory: Memory) -> dict[str, int]:
    """Return for each group how many nodes passes have bought that have not come yet, as far as
    memory knows, with those of open operations."""
    counts = Counter(
        {name: group.request.increase for name, group in memory.groups.items() if group.request}
    )
    for operation in memory.operations:
        if operation.is_open and operation.spec.kind is OperationKind.SCALE_UP:
            counts[operation.spec.group] += max(
                0, operation.spec.to_size - operation.spec.from_size
            )
    return dict(sorted(counts.items()))


def sentence(counts: Mapping[str, int]) -> str:
    """Return the groups and their machines in words: `3 machines are on
    their way (web 2, big 1)`."""
    total = sum(counts.values())
    named = [f"{name} {count}" for name, count in counts.items()]
    more = f" and {len(named) - _MOST} groups more" if len(named) > _MOST else ""
    are = "machine is on its way" if total == 1 else "machines are on their way"
    return f"{total} {are} ({', '.join(named[:_MOST])}{more})"
