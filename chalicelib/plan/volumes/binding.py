"""VolumeBinding for WaitForFirstConsumer claims: finds a free volume, or a node on
which one can be provisioned.

Each claim is first checked separately over all rows. Only where claims of one pod would compete for
the same free volumes are the remaining rows checked one by one, as the scheduler does: smallest
claim first, each with the smallest suitable volume.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.selector import Selector
from chalicelib.model.storage import PersistentVolume
from chalicelib.plan.tables import Bools, NodeTable
from chalicelib.plan.volumes import topology
from chalicelib.plan.volumes.requirements import Free, Stock, Waiting
from chalicelib.plan.volumes.topology import Places


def mask(
    waiting: Sequence[Waiting],
    stock: Stock,
    table: NodeTable,
    among: Bools,
    claimed: ClaimedVolumes | None = None,
) -> Bools:
    """Return the rows where every claim can be bound; among: the rows to check; claimed: volumes
    taken by pods placed in this pass."""
    allowed: Bools = among.copy()
    all_can_be_made: Bools = np.ones(len(table), dtype=np.bool_)
    unbound = []
    for want in waiting:
        volume = claimed.volume_of(want) if claimed else None
        if volume is not None:
            allowed &= topology.rows(topology.places([volume.node_terms]), table)
        else:
            unbound.append(want)
    for want in unbound:
        can_be_made = _can_be_made(want, stock, table)
        all_can_be_made &= can_be_made
        # only on the node that the claim is assigned to, never on a template
        if want.claim.selected_node:
            allowed &= can_be_made & (
                np.arange(len(table)) == table.index.get(want.claim.selected_node, -1)
            )
        else:
            # Where a free volume is, whatever the other claims of the pod take.
            reserved = [topology.places([volume.node_terms]) for volume in want.reserved[:1]]
            places = (
                reserved[0] if reserved else claimed.places(want) if claimed else want.free.places
            )
            allowed &= topology.rows(places, table) | can_be_made
    # Two claims could compete for the same free volume: check the remaining rows one by one.
    choosing = [want for want in unbound if not want.claim.selected_node]
    names = [volume.name for want in choosing for volume in (*want.free.volumes, *want.reserved)]
    if len(choosing) > 1 and len(names) > len(set(names)):
        for row in np.flatnonzero(allowed & ~all_can_be_made).tolist():
            allowed[row] = reason(unbound, stock, table.nodes[row], claimed) is None
    return allowed


def counting(waiting: Sequence[Waiting]) -> tuple[Waiting, ...]:
    """Return the claims that compete for volumes: they need a free one that
    is not pre-bound to them."""
    return tuple(
        want
        for want in waiting
        if want.free.volumes and not want.reserved and not want.claim.selected_node
    )


def made_anywhere(waiting: Waiting, stock: Stock) -> bool:
    """Return whether a volume can be provisioned for a claim on any node, so that it
    needs none of the free ones."""
    return waiting.provisions and waiting.cls.topologies is None and not _is_counted(waiting, stock)


def _can_be_made(waiting: Waiting, stock: Stock, table: NodeTable) -> Bools:
    """Return the rows where the claim's storage class can provision a volume of its size."""
    allowed: Bools = np.full(len(table), waiting.provisions, dtype=np.bool_)
    if not waiting.provisions:
        return allowed
    if waiting.cls.topologies is not None:
        allowed &= topology.rows(topology.places([waiting.cls.topologies]), table)
    if _is_counted(waiting, stock):
        room: Bools = np.zeros(len(table), dtype=np.bool_)
        for selector in _places_with_room(waiting, stock):
            room |= topology.selected(selector, table)
        allowed &= room
    return allowed


def _is_counted(waiting: Waiting, stock: Stock) -> bool:
    return waiting.claim.request > 0 and waiting.cls.provisioner in stock.publishing


def _places_with_room(waiting: Waiting, stock: Stock) -> Iterator[Selector]:
    """Yield where a volume of the claim's size can be made, by the maximum volume size if the
    driver reports one, otherwise by the remaining capacity."""
    for capacity in stock.capacities.get(waiting.cls.name, ()):
        limit = capacity.capacity if capacity.largest is None else capacity.largest
        if (
            limit is not None
            and limit >= waiting.claim.request
            and capacity.node_topology is not None
        ):
            yield capacity.node_topology


def reason(
    waiting: Sequence[Waiting], stock: Stock, node: Node, claimed: ClaimedVolumes | None = None
) -> Reason | None:
    """Return what prevents the claims from being bound on one node, None if nothing does. Claims
    that have taken a volume count as bound."""
    waiting = [want for want in waiting if not claimed or claimed.volume_of(want) is None]
    for want in waiting:
        if want.claim.selected_node not in {"", node.name}:
            return Reason.of(ReasonCode.NOTHING_TO_BIND, claim=want.claim.name)
    to_make = [want for want in waiting if want.claim.selected_node]
    taken: set[str] = set(claimed.taken() if claimed else ())
    for want in waiting:
        if not want.claim.selected_node:
            volume = _choose(want, node, taken)
            if volume is None:
                to_make.append(want)
            else:
                taken.add(volume.name)
    for want in to_make:
        if not want.provisions or not topology.one_matches(want.cls.topologies, node):
            return Reason.of(ReasonCode.NOTHING_TO_BIND, claim=want.claim.name)
        if _is_counted(want, stock) and not any(
            s.matches(node.labels) for s in _places_with_room(want, stock)
        ):
            return Reason.of(ReasonCode.STORAGE_CAPACITY, claim=want.claim.name)
    return None


def _choose(waiting: Waiting, node: Node, taken: set[str]) -> PersistentVolume | None:
    reserved = next((volume for volume in waiting.reserved if volume.name not in taken), None)
    if reserved is not None:
        return reserved if topology.one_matches(reserved.node_terms, node) else None
    return next(
        (
            v
            for v in waiting.free.volumes
            if v.name not in taken and topology.one_matches(v.node_terms, node)
        ),
        None,
    )


_DEPTH = 16  # how many claims may switch to other volumes to free one for another claim


class _Slot:
    """A claim and the free volume that it takes; None: one is provisioned for it. nodes: row
    -> the node and its users."""

    def __init__(self, waiting: Waiting) -> None:
        self.want = waiting
        self.volume: PersistentVolume | None = None
        self.nodes: dict[int, tuple[Node, int]] = {}

    def reaches(self, volume: PersistentVolume) -> bool:
        """Return whether all users could use a volume."""
        return all(topology.one_matches(volume.node_terms, node) for node, _ in self.nodes.values())


class _Untaken:
    """The untaken volumes of one `Free`, by place."""

    def __init__(self, free: Free, taken: Collection[str]) -> None:
        self.free = free
        self.names = {volume.name for volume in free.volumes}
        self._selectors = Counter(
            volume.node_terms for volume in free.volumes if volume.name not in taken
        )
        self._places: Places | None = None

    def change(self, volume: PersistentVolume, by: int) -> None:
        """Add or remove one volume."""
        before = self._selectors[volume.node_terms]
        self._selectors[volume.node_terms] = before + by
        if not before or not before + by:
            self._places = None

    @property
    def places(self) -> Places:
        """Return where at least one of them can be used."""
        if self._places is None:
            self._places = topology.places(
                terms for terms, count in self._selectors.items() if count > 0
            )
        return self._places


class ClaimedVolumes:
    """The free PersistentVolumes that claims of pods placed in this pass will use: each volume
    serves one claim. generation increases with every change.

    The scheduler binds nothing while it filters, but it remembers the volumes assigned to the pods
    that it has placed. Here, a pod placed on a row takes the smallest free volume that the node can
    use, one for each unbound claim, and releases it when it is removed from the row. Pods that
    share a claim share its volume and must be placed where it can be used. Capacity that a driver
    publishes (CSIStorageCapacity) is not reduced: the scheduler checks each claim separately,
    because drivers publish more than they have.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._holders: dict[str, _Slot] = {}  # volume -> its claim
        self._named: dict[str, _Slot] = {}  # namespace/name -> the claim
        # (class, row) -> claims owned by each pod
        self._own: dict[tuple[int, int], list[tuple[_Slot, ...]]] = {}
        self._removed: Counter[tuple[int, int]] = Counter()  # running pods removed from their rows
        self._untaken: dict[int, _Untaken] = {}  # by the identity of a Free

    def __bool__(self) -> bool:
        return bool(self._named) or bool(self._own)

    def taken(self) -> Collection[str]:
        """Return the names of the taken volumes."""
        return self._holders.keys()

    def has_claim(self, waiting: Waiting) -> bool:
        """Return whether a claim that pods share is among them."""
        return bool(waiting.claim.namespace) and waiting.claim.key in self._named

    def volume_of(self, waiting: Waiting) -> PersistentVolume | None:
        """Return the volume that a claim has taken, if any."""
        slot = self._named.get(waiting.claim.key) if waiting.claim.namespace else None
        return slot.volume if slot is not None else None

    def places(self, waiting: Waiting) -> Places:
        """Return where one of the remaining volumes suits a claim."""
        key = id(waiting.free)
        if key not in self._untaken:
            self._untaken[key] = _Untaken(waiting.free, self._holders.keys())
        return self._untaken[key].places

    def add(self, cls: int, wants: tuple[Waiting, ...], at: tuple[int, Node], count: int) -> None:
        """Add pods of a class with these claims to a row, or remove them with a negative count.
        at: the row and its node."""
        key = cls, at[0]
        if count < 0:
            for _ in range(-count):
                self._take_off(key, wants)
        else:
            running = min(count, self._removed[key])
            self._removed[key] -= running
            for _ in range(count - running):
                self._put_on(key, wants, at[1])
        self.generation += 1

    def _put_on(self, key: tuple[int, int], wants: tuple[Waiting, ...], node: Node) -> None:
        own: list[_Slot] = []
        for want in wants:
            slot = self._named.get(want.claim.key) if want.claim.namespace else None
            if slot is None:
                slot = _Slot(want)
                slot.nodes[key[1]] = node, 1
                self._choose(slot)
            else:
                slot.nodes[key[1]] = node, slot.nodes.get(key[1], (node, 0))[1] + 1
            if want.claim.namespace:
                self._named[want.claim.key] = slot
            else:
                own.append(slot)
        self._own.setdefault(key, []).append(tuple(own))

    def _take_off(self, key: tuple[int, int], wants: tuple[Waiting, ...]) -> None:
        pods = self._own.get(key)
        if not pods:
            self._removed[key] += 1
            return
        for slot in pods.pop():
            self._give_back(slot)
        if not pods:
            del self._own[key]
        for want in wants:
            if not want.claim.namespace or want.claim.key not in self._named:
                continue
            slot = self._named[want.claim.key]
            node, users = slot.nodes[key[1]]
            slot.nodes[key[1]] = node, users - 1
            if users == 1:
                del slot.nodes[key[1]]
            if not slot.nodes:
                self._give_back(slot)
                del self._named[want.claim.key]

    def _choose(self, slot: _Slot) -> None:
        """Choose the smallest remaining volume. If there is none, a volume is provisioned, or
        other claims switch volumes if that helps, because pods may be placed again in a
        different order than before."""
        for volume in slot.want.free.volumes:
            if volume.name not in self._holders and slot.reaches(volume):
                self._give(slot, volume)
                return
        if not slot.want.provisions:
            self._swap(slot, set(), _DEPTH)

    def _swap(self, slot: _Slot, tried: set[str], depth: int) -> bool:
        for volume in slot.want.free.volumes:
            if volume.name in tried or not slot.reaches(volume):
                continue
            tried.add(volume.name)
            holder = self._holders.get(volume.name)
            if holder is None or (depth and self._swap(holder, tried, depth - 1)):
                self._give(slot, volume)
                return True
        return False

    def _give(self, slot: _Slot, volume: PersistentVolume) -> None:
        if slot.volume is not None and self._holders.get(slot.volume.name) is slot:
            self._give_back(slot)
        if volume.name not in self._holders:
            self._change(volume, -1)
        slot.volume = volume
        self._holders[volume.name] = slot

    def _give_back(self, slot: _Slot) -> None:
        if slot.volume is not None:
            del self._holders[slot.volume.name]
            self._change(slot.volume, 1)
            slot.volume = None

    def _change(self, volume: PersistentVolume, by: int) -> None:
        for untaken in self._untaken.values():
            if volume.name in untaken.names:
                untaken.change(volume, by)
