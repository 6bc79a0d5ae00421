"""VolumeBinding for WaitForFirstConsumer claims: finds a free volume, or a node on which one can be provisioned.

Each claim is first checked separately over all rows. Only where claims of one pod would compete for the same free
volumes are the remaining rows checked one by one, as the scheduler does: smallest claim first, each with the smallest
suitable volume.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.storage import PersistentVolume, StorageCapacity
from chalicelib.plan.predicates.volumes import topology
from chalicelib.plan.predicates.volumes.claimed_volumes import ClaimedVolumes
from chalicelib.plan.predicates.volumes.requirements import Stock, Waiting
from chalicelib.plan.tables.array_types import Bools
from chalicelib.plan.tables.node_table import NodeTable


def mask(
    waiting: Sequence[Waiting], stock: Stock, table: NodeTable, among: Bools, claimed: ClaimedVolumes | None = None
) -> Bools:
    """Return the rows where every claim can be bound; among: the rows to check; claimed: volumes taken by pods placed
    in this pass."""
    allowed: Bools = among.copy()
    made: Bools = np.ones(len(table), dtype=np.bool_)
    given = [volume for want in waiting if claimed and (volume := claimed.given(want)) is not None]
    for volume in given:
        allowed &= topology.rows(topology.places([volume.node_terms]), table)
    waiting = [want for want in waiting if not claimed or claimed.given(want) is None]
    for want in waiting:
        can_make = _can_make(want, stock, table)
        made &= can_make
        found = (
            _promised(want, table) & can_make if want.claim.selected_node else _found(want, table, claimed) | can_make
        )
        allowed &= found
    if _compete(waiting):
        for row in np.flatnonzero(allowed & ~made).tolist():
            allowed[row] = not reasons(waiting, stock, table.nodes[row], claimed)
    return allowed


def counting(waiting: Sequence[Waiting]) -> tuple[Waiting, ...]:
    """Return the claims that compete for volumes: they need a free one that is not pre-bound to them."""
    return tuple(want for want in waiting if want.free.volumes and not want.reserved and not want.claim.selected_node)


def made_anywhere(waiting: Waiting, stock: Stock) -> bool:
    """Return whether a volume can be provisioned for a claim on any node, so that it needs none of the free ones."""
    return waiting.provisions and waiting.cls.topologies is None and not _is_counted(waiting, stock)


def _promised(waiting: Waiting, table: NodeTable) -> Bools:
    """Return the row of the node that the claim is assigned to; never the row of a template."""
    only: Bools = np.zeros(len(table), dtype=np.bool_)
    row = table.index.get(waiting.claim.selected_node)
    if row is not None:
        only[row] = True
    return only


def _found(waiting: Waiting, table: NodeTable, claimed: ClaimedVolumes | None) -> Bools:
    """Return the rows with a free volume for a claim, ignoring the other claims of its pod."""
    if waiting.reserved:
        return topology.rows(topology.places([waiting.reserved[0].node_terms]), table)
    return topology.rows(claimed.places(waiting) if claimed else waiting.free.places, table)


def _can_make(waiting: Waiting, stock: Stock, table: NodeTable) -> Bools:
    """Return the rows where the claim's storage class can provision a volume of its size."""
    allowed: Bools = np.full(len(table), waiting.provisions, dtype=np.bool_)
    if not waiting.provisions:
        return allowed
    if waiting.cls.topologies is not None:
        allowed &= topology.rows(topology.places([waiting.cls.topologies]), table)
    if _is_counted(waiting, stock):
        room: Bools = np.zeros(len(table), dtype=np.bool_)
        for capacity in _big_enough(waiting, stock):
            if capacity.node_topology is not None:
                room |= topology.selected(capacity.node_topology, table)
        allowed &= room
    return allowed


def _is_counted(waiting: Waiting, stock: Stock) -> bool:
    return waiting.claim.request > 0 and waiting.cls.provisioner in stock.publishing


def _big_enough(waiting: Waiting, stock: Stock) -> Iterable[StorageCapacity]:
    """Yield the capacities for a volume of the claim's size, by the maximum volume size if the driver reports one,
    otherwise by the remaining capacity."""
    for capacity in stock.capacities.get(waiting.cls.name, ()):
        limit = capacity.capacity if capacity.largest is None else capacity.largest
        if limit is not None and limit >= waiting.claim.request:
            yield capacity


def _compete(waiting: Sequence[Waiting]) -> bool:
    """Return whether two claims could compete for the same free volume."""
    asking = [want for want in waiting if not want.claim.selected_node]
    if len(asking) < 2:
        return False
    names = [volume.name for want in asking for volume in (*want.free.volumes, *want.reserved)]
    return len(names) > len(set(names))


def reasons(
    waiting: Sequence[Waiting], stock: Stock, node: Node, claimed: ClaimedVolumes | None = None
) -> list[Reason]:
    """Return what prevents the claims from being bound on one node, [] if nothing does. Claims that have taken a volume
    count as bound."""
    waiting = [want for want in waiting if not claimed or claimed.given(want) is None]
    for want in waiting:
        if want.claim.selected_node not in {"", node.name}:
            return [Reason.of(ReasonCode.NOTHING_TO_BIND, claim=want.claim.name)]
    to_make = [want for want in waiting if want.claim.selected_node]
    taken: set[str] = set(claimed.taken() if claimed else ())
    for want in waiting:
        if not want.claim.selected_node:
            chosen = _choose(want, node, taken)
            if chosen is None:
                to_make.append(want)
            else:
                taken.add(chosen.name)
    problems = (_why_not_made(want, stock, node) for want in to_make)
    first = next((problem for problem in problems if problem is not None), None)
    return [first] if first is not None else []


def _why_not_made(waiting: Waiting, stock: Stock, node: Node) -> Reason | None:
    if not waiting.provisions or not topology.one_matches(waiting.cls.topologies, node):
        return Reason.of(ReasonCode.NOTHING_TO_BIND, claim=waiting.claim.name)
    if _is_counted(waiting, stock) and not any(
        capacity.node_topology is not None and capacity.node_topology.matches(node.labels)
        for capacity in _big_enough(waiting, stock)
    ):
        return Reason.of(ReasonCode.STORAGE_CAPACITY, claim=waiting.claim.name)
    return None


def _choose(waiting: Waiting, node: Node, taken: set[str]) -> PersistentVolume | None:
    reserved = next((volume for volume in waiting.reserved if volume.name not in taken), None)
    if reserved is not None:
        return reserved if topology.one_matches(reserved.node_terms, node) else None
    return next(
        (v for v in waiting.free.volumes if v.name not in taken and topology.one_matches(v.node_terms, node)), None
    )
