"""How many new nodes of one template a set of pods needs (scale-up.md §7), by arithmetic.

New nodes in the same state are one bin with a multiplicity. Placing n pods of a class where k fit per node fills whole
nodes by division and splits a bin at most once. The order is upstream's: classes by how much of the template one pod
takes, largest first; earlier nodes before later ones; a new node only when no earlier one has room.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from chalicelib.model.pod import HostPort, PodClass
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.arrays import Ints
from chalicelib.plan.demand import Demand
from chalicelib.plan.table import Columns, clash
from chalicelib.plan.template import Template


class Bin(msgspec.Struct):
    """`count` new nodes with the same room left. pods: class -> pods on each of them."""

    count: int
    free: Ints
    ports: tuple[HostPort, ...]
    pods: dict[int, int]


class Packing(msgspec.Struct, frozen=True):
    """nodes: how many; placed: class -> pods placed; refused: classes of which some found no room for want of nodes."""

    nodes: int
    placed: dict[int, int]
    refused: frozenset[int]


def pack(template: Template, demands: Sequence[Demand], classes: Sequence[PodClass], columns: Columns,
         limit: int) -> Packing:
    """Pack demands (all of which pass the template's filters) onto at most `limit` new nodes."""
    empty, taken = _fresh(template, classes, columns)
    bins: list[Bin] = []
    placed: dict[int, int] = {}
    refused: set[int] = set()
    made = 0
    for demand in _ordered(demands, template, classes):
        need, ports, rest = columns.need(demand.cls), classes[demand.cls].ports, len(demand.pods)
        rest, bins = _fill(bins, demand.cls, need, ports, rest)
        per_node = _room(empty, taken, need, ports)
        if rest and per_node > 0:
            new = min(-(-rest // per_node), limit - made)
            if new > 0:
                made += new
                rest, fresh = _fill([Bin(new, empty, taken, {})], demand.cls, need, ports, rest)
                bins += fresh
        if rest:
            refused.add(demand.cls)
        if len(demand.pods) > rest:
            placed[demand.cls] = len(demand.pods) - rest
    return Packing(nodes=made, placed=placed, refused=frozenset(refused))


def _fresh(template: Template, classes: Sequence[PodClass], columns: Columns) -> tuple[Ints, tuple[HostPort, ...]]:
    """The room of one new node once its DaemonSet pods are on it, and the ports they took."""
    free = columns.vector(template.node.allocatable)
    taken: tuple[HostPort, ...] = ()
    for cls in template.daemons:
        free = free - columns.need(cls)
        taken += classes[cls].ports
    return free, taken


def _ordered(demands: Sequence[Demand], template: Template, classes: Sequence[PodClass]) -> list[Demand]:
    """Largest share of the template first; equal ones by namespace and name of their first pod."""
    cpu, memory = (max(1, template.node.allocatable.get(name, 0)) for name in (CPU, MEMORY))

    def key(demand: Demand) -> tuple[float, str]:
        asks = classes[demand.cls].requests
        return -(asks.get(CPU, 0) / cpu + asks.get(MEMORY, 0) / memory), demand.pods[0].key

    return sorted(demands, key=key)


def _room(free: Ints, taken: Sequence[HostPort], need: Ints, ports: Sequence[HostPort]) -> int:
    asked = np.flatnonzero(need)
    count = int((free[asked] // need[asked]).min())
    if ports:
        count = 0 if any(clash(port, held) for port in ports for held in taken) else min(count, 1)
    return max(0, count)


def _fill(bins: list[Bin], cls: int, need: Ints, ports: tuple[HostPort, ...], rest: int) -> tuple[int, list[Bin]]:
    """Put up to `rest` pods on the bins, first fit. Returns what is left over and the bins, split where needed."""
    after: list[Bin] = []
    for bin_ in bins:
        per_node = _room(bin_.free, bin_.ports, need, ports) if rest else 0
        if not per_node:
            after.append(bin_)
            continue
        full, part = divmod(min(rest, per_node * bin_.count), per_node)
        for count, each in ((full, per_node), (1 if part else 0, part)):
            if count:
                pods = {**bin_.pods, cls: bin_.pods.get(cls, 0) + each}
                after.append(Bin(count, bin_.free - each * need, bin_.ports + ports * each, pods))
        left = bin_.count - full - (1 if part else 0)
        if left:
            after.append(Bin(left, bin_.free, bin_.ports, bin_.pods))
        rest -= full * per_node + part
    return rest, after
