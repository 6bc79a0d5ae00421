"""Tracks free PersistentVolumes that claims of pods placed in this pass will use: each volume serves one claim.

The scheduler binds nothing while it filters, but it remembers the volumes assigned to the pods that it has placed.
Here, a pod placed on a row takes the smallest free volume that the node can use, one for each unbound claim, and
releases it when it is removed from the row. Pods that share a claim share its volume and must be placed where it can be
used.

Capacity that a driver publishes (CSIStorageCapacity) is not reduced: the scheduler checks each claim separately,
because drivers publish more than they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chalicelib.model.node import Node
from chalicelib.model.storage import PersistentVolume
from chalicelib.plan.predicates.volumes import topology
from chalicelib.plan.predicates.volumes.requirements import Free, Waiting
from chalicelib.plan.predicates.volumes.topology import Places

_DEPTH = 16  # how many claims may switch to other volumes to free one for another claim


class _Slot:
    """A claim and the free volume that it takes; None: one is provisioned for it. nodes: row -> the node and its
    users."""

    def __init__(self, waiting: Waiting) -> None:
        self.want = waiting
        self.volume: PersistentVolume | None = None
        self.nodes: dict[int, tuple[Node, int]] = {}

    def reaches(self, volume: PersistentVolume) -> bool:
        """Return whether all users could use a volume."""
        return all(topology.one_matches(volume.node_terms, node) for node, _ in self.nodes.values())


class _Left:
    """The untaken volumes of one `Free`, by place."""

    def __init__(self, free: Free, taken: Iterable[str]) -> None:
        self.free = free
        self.names = {volume.name: volume for volume in free.volumes}
        gone = set(taken)
        self._selectors = Counter(volume.node_terms for volume in free.volumes if volume.name not in gone)
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
            self._places = topology.places(terms for terms, count in self._selectors.items() if count > 0)
        return self._places


class ClaimedVolumes:
    """The taken volumes. generation increases with every change."""

    def __init__(self) -> None:
        self.generation = 0
        self._holders: dict[str, _Slot] = {}  # volume -> its claim
        self._named: dict[str, _Slot] = {}  # namespace/name -> the claim
        self._own: dict[tuple[int, int], list[tuple[_Slot, ...]]] = {}  # (class, row) -> claims owned by each pod
        self._gone: Counter[tuple[int, int]] = Counter()  # running pods removed from their rows
        self._left: dict[int, _Left] = {}  # by the identity of a Free

    def __bool__(self) -> bool:
        return bool(self._named) or bool(self._own)

    def taken(self) -> Iterable[str]:
        """Return the names of the taken volumes."""
        return self._holders

    def given(self, waiting: Waiting) -> PersistentVolume | None:
        """Return the volume that a claim has taken, if any."""
        slot = self._named.get(waiting.claim.key) if waiting.claim.namespace else None
        return slot.volume if slot is not None else None

    def places(self, waiting: Waiting) -> Places:
        """Return where one of the remaining volumes suits a claim."""
        return self._of(waiting.free).places

    def unsettled(self, wants: Iterable[Waiting]) -> bool:
        """Return whether a pod with these claims takes a volume that the next such pod would also have counted on."""
        return any(not want.claim.namespace or want.claim.key not in self._named for want in wants)

    def add(self, cls: int, wants: tuple[Waiting, ...], at: tuple[int, Node], count: int) -> None:
        """Add pods of a class with these claims to a row, or remove them with a negative count. at: the row and its
        node."""
        key = cls, at[0]
        if count < 0:
            for _ in range(-count):
                self._take_off(key, wants)
        else:
            running = min(count, self._gone[key])
            self._gone[key] -= running
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
            self._gone[key] += 1
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
        """Choose the smallest remaining volume. If there is none, a volume is provisioned, or other claims switch
        volumes if that helps, because pods may be placed again in a different order than before."""
        for volume in slot.want.free.volumes:
            if volume.name not in self._holders and slot.reaches(volume):
                self._give(slot, volume)
                return
        if not slot.want.provisions:
            self._swap(slot, set(), _DEPTH)

    def _swap(self, slot: _Slot, seen: set[str], depth: int) -> bool:
        for volume in slot.want.free.volumes:
            if volume.name in seen or not slot.reaches(volume):
                continue
            seen.add(volume.name)
            holder = self._holders.get(volume.name)
            if holder is None or (depth and self._swap(holder, seen, depth - 1)):
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
        for left in self._left.values():
            if volume.name in left.names:
                left.change(volume, by)

    def _of(self, free: Free) -> _Left:
        found = self._left.get(id(free))
        if found is None:
            found = self._left[id(free)] = _Left(free, self._holders)
        return found
