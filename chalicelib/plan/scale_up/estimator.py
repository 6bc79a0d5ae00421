"""The estimator: how many new nodes of one template a set of pods needs, by arithmetic on bins.

The order is Cluster Autoscaler's: classes by the share of the template that one pod takes, largest first; earlier nodes
before later ones; a new node only when no earlier one has room. A class with rules about other pods is tried again
after others were placed. A class that spreads over host names may return to existing nodes, as in Cluster Autoscaler,
but those do not count as new. See docs/reference/scale-up.md "Estimator".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.pod import HostPort
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.simulation.pod_constraints import PodConstraints, SpreadConstraint
from chalicelib.plan.simulation.pod_topology import UNLIMITED, Cap, NewNodeTopology
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.node_templates import Template
from chalicelib.plan.tables import LARGEST, Bools, HeldPorts, Ints, least_fit
from chalicelib.plan.volumes.requirements import Attachment

_PACKED = -1  # the row of all packed pods, as long as they only take free volumes
_ROUNDS = 4  # maximum number of retries of classes without room because others were placed meanwhile


class PodRequest(msgspec.Struct, frozen=True):
    """A number of pods of a class; first: the sort key of the first pod, for the order among equals."""

    cls: int
    count: int
    first: str = ""


class NodeShape(msgspec.Struct, frozen=True):
    """An empty new node. free: its room with the DaemonSet pods on it; ports: the ports these use."""

    template: Template
    free: Ints
    ports: tuple[HostPort, ...]


class Estimate(msgspec.Struct, frozen=True):
    """nodes: number of new nodes; placed: class -> pods on them; refused: classes of which some pods found no room
    because of the node limit; order: the classes in packing order; out_of_time: some classes were not checked."""

    nodes: int
    placed: dict[int, int]
    refused: frozenset[int]
    order: tuple[int, ...]
    out_of_time: bool = False

    @property
    def count(self) -> int:
        """Return the total number of placed pods."""
        return sum(self.placed.values())


def shape_of(template: Template, simulated: SimulatedCluster) -> NodeShape:
    """Return a template as an empty new node."""
    columns = simulated.table.columns
    free = columns.vector(template.node.allocatable)
    ports: tuple[HostPort, ...] = ()
    for cls in template.daemons:
        free = np.maximum(free - columns.need(cls), -LARGEST)
        ports += simulated.classes[cls].ports
    return NodeShape(template, free, ports)


def orders(asks: Sequence[PodRequest], template: Template, simulated: SimulatedCluster) -> list[list[PodRequest]]:
    """Return the orders to try: Cluster Autoscaler's, by the share of the template that one pod takes, largest first;
    and, if some classes allow only one pod per node, an order with these first, since other pods fit next to them.

    Equal shares: classes with rules about other pods first, then by namespace and name of the first pod.
    """
    cpu, memory = (max(1, template.node.allocatable.get(name, 0)) for name in (CPU, MEMORY))

    def key(request: PodRequest) -> tuple[float, bool, str]:
        wants = simulated.classes[request.cls].requests
        return (
            -(wants.get(CPU, 0) / cpu + wants.get(MEMORY, 0) / memory),
            simulated.needs(request.cls) is None,
            request.first,
        )

    largest = sorted(asks, key=key)
    apart = [ask for ask in largest if _apart(simulated.needs(ask.cls))]
    if not apart:
        return [largest]
    return [largest, apart + [ask for ask in largest if not _apart(simulated.needs(ask.cls))]]


def _apart(constraints: PodConstraints | None) -> bool:
    """Return whether no two pods of a class may share a node."""
    return constraints is not None and any(each.own and each.key == HOSTNAME_LABEL for each in constraints.repulsions)


def estimate(
    shape: NodeShape,
    asks: Sequence[PodRequest],
    simulated: SimulatedCluster,
    limit: int,
    stop: Callable[[], bool] = lambda: False,
) -> Estimate:
    """Pack the classes that pass the template's constant predicates onto at most `limit` new nodes: prefers the order
    that places most pods, then the one that needs fewest nodes. The simulated cluster is left unchanged. stop:
    called before every class."""
    best: Estimate | None = None
    for order in orders(asks, shape.template, simulated):
        mark = simulated.checkpoint()
        packing = _Packer(shape, order, simulated, limit, stop).run()
        if simulated.checkpoint() > mark:
            simulated.rollback(mark)
        if best is None or (-packing.count, packing.nodes) < (-best.count, best.nodes):
            best = packing
    assert best is not None
    return best


class _Packer:
    def __init__(
        self,
        shape: NodeShape,
        asks: Sequence[PodRequest],
        simulated: SimulatedCluster,
        limit: int,
        stop: Callable[[], bool],
    ) -> None:
        self.shape, self.simulated, self.limit, self.stop = shape, simulated, limit, stop
        self.out_of_time = False
        self.asks = asks
        self.needs = {ask.cls: simulated.needs(ask.cls) for ask in asks}
        coupled = any(needs is not None for needs in self.needs.values()) or any(
            simulated.classes[ask.cls].ports or simulated.volumes.concerns(ask.cls) for ask in asks
        )
        self.tracked = tuple(ask.cls for ask in self.asks) if coupled else ()
        self.at = {cls: at for at, cls in enumerate(self.tracked)}
        self.bins = Bins(len(shape.free), len(self.tracked))
        self.fresh = NewNodeTopology(simulated.rows, shape.template.node.labels, self.tracked, shape.template.daemons)
        self.made = 0
        self.refused: set[int] = set()
        self.bound: dict[int, int] = {}  # class -> pods that have taken free volumes

    def run(self) -> Estimate:
        placed: dict[int, int] = {}
        left = list(self.asks)
        for _ in range(_ROUNDS):
            rest = []
            for ask in left:
                self.out_of_time = self.out_of_time or self.stop()
                done = 0 if self.out_of_time else self._place(ask)
                if done:
                    placed[ask.cls] = placed.get(ask.cls, 0) + done
                if done < ask.count:
                    rest.append(PodRequest(ask.cls, ask.count - done, ask.first))
            moved = sum(ask.count for ask in left) > sum(ask.count for ask in rest)
            left = [ask for ask in rest if self.needs[ask.cls] is not None]
            if not moved or not left:
                break
        for cls, count in self.bound.items():
            self._bind(cls, -count)
        return Estimate(
            self.made, placed, frozenset(self.refused), tuple(ask.cls for ask in self.asks), self.out_of_time
        )

    def _place(self, request: PodRequest) -> int:
        """Place pods of one class; returns how many were placed on new nodes."""
        simulated, needs = self.simulated, self.needs[request.cls]
        asked, need = simulated.table.columns.asked(request.cls)
        alone = int(least_fit(self.shape.free[None, :], asked, need)[0])
        rest, elsewhere = request.count, 0
        while rest > 0 and not self.out_of_time:
            cap = self._cap(request.cls, needs)
            room = min(rest, cap.total)
            quota = np.minimum(self.bins.room(asked, need), cap.each)
            done = self._fill(request.cls, quota, room)
            rest, room = rest - done, room - done
            if done and cap.again:
                self.out_of_time = self.stop()
                continue
            if rest and (gone := self._lend(request.cls, needs, rest)):
                rest, elsewhere = rest - gone, elsewhere + gone
                continue
            each = min(alone, cap.fresh)
            if room <= 0 or each <= 0:
                break
            new = min(self._wanted(request.cls, needs, room, each, alone), self.limit - self.made)
            if new <= 0:
                self.refused.add(request.cls)
                break
            self.bins.add(self.shape.free, new)
            self.made += new
            quota = np.zeros(len(self.bins.mult), dtype=np.int64)
            quota[-1] = each
            done = self._fill(request.cls, quota, room)
            rest -= done
            if rest and not cap.again:
                if room > done:
                    self.refused.add(request.cls)
                break
        return request.count - rest - elsewhere

    def _fill(self, cls: int, quota: Ints, count: int) -> int:
        """Place up to `count` pods of a class into the bins; returns how many were placed."""
        done = self.bins.fill(self.at.get(cls, -1), self.simulated.table.columns.need(cls), quota, count)
        if done and self.simulated.volumes.concerns(cls) and self.simulated.volumes.counting(cls):
            self._bind(cls, done)
            self.bound[cls] = self.bound.get(cls, 0) + done
        return done

    def _bind(self, cls: int, count: int) -> None:
        """Let pods take free volumes, as on a node like the template, or release them."""
        node, counting = self.shape.template.node, self.simulated.volumes.counting(cls)
        self.simulated.attached.held.add(cls, counting, (_PACKED, node), count)

    def _cap(self, cls: int, constraints: PodConstraints | None) -> Cap:
        """Return what rules, ports and volumes allow on the bins and on one more node."""
        bins, simulated = self.bins, self.simulated
        cap = (
            self.fresh.cap(cls, constraints, bins.pods, bins.mult)
            if constraints is not None
            else Cap(np.full(len(bins.mult), UNLIMITED, dtype=np.int64))
        )
        ports = simulated.classes[cls].ports
        if ports:
            rivals = sorted(self.at[other] for other in simulated.rivals.of(cls) if other in self.at)
            np.minimum(cap.each, np.where(bins.pods[rivals].any(axis=0), 0, 1), out=cap.each)
            taken = HeldPorts(self.shape.ports).clash(ports) is not None
            cap.each, cap.fresh = (np.zeros_like(cap.each), 0) if taken else (cap.each, min(cap.fresh, 1))
        if simulated.volumes.concerns(cls):
            self._volumes(cls, cap)
        return cap

    def _volumes(self, cls: int, cap: Cap) -> None:
        """Apply disk conflicts, ReadWriteOncePod claims, and the attach limits of the template's drivers."""
        volumes, pods = self.simulated.volumes, self.bins.pods
        mine, held = pods[self.at[cls]], self.simulated.attached.held
        if held and volumes.waits(cls) and not volumes.bindable(cls, self.shape.template.node, held):
            cap.total = 0
        elif volumes.one_by_one(cls, held):
            cap.total, cap.again = min(cap.total, 1), True
        per_node, most = volumes.per_node(cls), volumes.most(cls)
        if per_node is not None:
            np.minimum(cap.each, np.maximum(per_node - mine, 0), out=cap.each)
            cap.fresh = min(cap.fresh, per_node)
        if most is not None:
            claims = set(volumes.exclusive(cls))
            taken = bool(self.simulated.claimed(cls)) or any(
                pods[at].any() and claims.intersection(volumes.exclusive(other))
                for other, at in self.at.items()
                if volumes.concerns(other)
            )
            cap.total = min(cap.total, 0 if taken else most)
        for other, at in self.at.items():
            if other != cls and volumes.clash(cls, other):
                cap.each[pods[at] > 0] = 0
        self._attach(cls, cap)

    def _attach(self, cls: int, cap: Cap) -> None:
        """Apply the attach limits of the template's drivers. A volume counts once per node, however many pods use
        it."""
        pods, volumes = self.bins.pods, self.simulated.volumes
        for driver, (each, shared) in volumes.attaches(cls).items():
            limit = self.shape.template.volume_limits.get(driver)
            if limit is None:
                continue
            common = self._common(driver)
            used: Ints = np.zeros(len(self.bins.mult), dtype=np.int64)
            for there in common.values():
                used = used + there
            for other, at in self.at.items():
                if volumes.concerns(other):
                    used = used + pods[at] * volumes.attaches(other).get(driver, (0, 0))[0]
            for volume in volumes.shared(cls):
                if volume[0] == driver:
                    used = used + (~common[volume] if volume in common else 1)
            left = limit - used
            np.minimum(cap.each, np.where(left < 0, 0, left // each if each else UNLIMITED), out=cap.each)
            alone = limit - shared
            cap.fresh = min(cap.fresh, 0 if alone < 0 else alone // each if each else UNLIMITED)

    def _common(self, driver: str) -> dict[Attachment, Bools]:
        """Return volumes that several pods may use -> the planned nodes that already attach them."""
        found: dict[Attachment, Bools] = {}
        for other, at in self.at.items():
            shared = (
                self.simulated.volumes.shared(other)
                if self.simulated.volumes.concerns(other)
                else frozenset[Attachment]()
            )
            for volume in shared:
                if volume[0] == driver:
                    there = self.bins.pods[at] > 0
                    found[volume] = found[volume] | there if volume in found else there
        return found

    def _wanted(self, cls: int, constraints: PodConstraints | None, count: int, each: int, alone: int) -> int:
        """Return how many new nodes to add for these pods. With a spread over host names, a node can take more pods
        once other nodes have more: the first step adds the fewest nodes that could suffice in the end, later steps
        add one at a time."""
        even = _by_host(constraints)
        if even is None or constraints is None:
            return -(-count // each)
        if self.made:
            return 1
        return -(-count // max(1, min(alone, self._ceiling(cls, even, constraints))))

    def _ceiling(self, cls: int, constraint: SpreadConstraint, constraints: PodConstraints) -> int:
        """Return how many pods of a class one host name may have in the end, given that rows that take no pod of the
        class keep the lowest count."""
        simulated = self.simulated
        codes, _ = simulated.table.label(constraint.key)
        level = simulated.rows.level(cls, constraint, constraints.spread_keys)
        counting = (codes >= 0) & level.counted[codes]
        stuck = counting & (simulated.capacity(cls) == 0)
        return int(level.counts[codes[stuck]].min()) + constraint.max_skew if stuck.any() else UNLIMITED

    def _lend(self, cls: int, constraints: PodConstraints | None, count: int) -> int:
        """Place pods that spread over host names on existing nodes, because new nodes have raised the lowest count."""
        even = _by_host(constraints)
        if even is None or constraints is None or not self.made:
            return 0
        if len(constraints.evenness) > 1 or constraints.attraction is not None or constraints.repulsions:
            # its other rules would need to know the new nodes too; the next check of the simulated cluster does
            return 0
        each, _ = self.fresh.counts(even.counter, self.bins.pods)
        least, _ = self.fresh.host_level(cls, even, constraints, each, self.bins.mult)
        codes, _ = self.simulated.table.label(even.key)
        level = self.simulated.rows.level(cls, even, constraints.spread_keys)
        allowed = np.append(np.maximum(least + even.max_skew - level.counts, 0), 0)[codes]
        quota = np.minimum(self.simulated.capacity(cls), allowed)
        rows = quota.nonzero()[0]
        if not len(rows):
            return 0
        total = np.cumsum(quota[rows])
        here = np.clip(count - (total - quota[rows]), 0, quota[rows])
        rows, here = rows[here > 0], here[here > 0]
        here = self.simulated.attached.one_of(cls, here)
        self.simulated.place(cls, rows, here)
        return int(here.sum())


def _by_host(constraints: PodConstraints | None) -> SpreadConstraint | None:
    """Return the constraint that spreads a class itself over host names, if there is one."""
    return (
        next((even for even in constraints.evenness if even.key == HOSTNAME_LABEL and even.own), None)
        if constraints
        else None
    )


# DOC chalicelib/plan/simulation/bins.py: Simulated new nodes of one template, with equal nodes stored as one bin and a multiplicity.
# DOC
# DOC Placing n pods of a class where k fit per node is arithmetic over all bins at once and splits at most one bin.
# DOC
class Bins:
    """free: (bins, columns) room on each node of a bin; mult: nodes per bin; pods: (tracked classes, bins) pods on each
    node. Earlier bins are earlier nodes."""

    def __init__(self, columns: int, tracked: int) -> None:
        self.free: Ints = np.zeros((0, columns), dtype=np.int64)
        self.mult: Ints = np.zeros(0, dtype=np.int64)
        self.pods: Ints = np.zeros((tracked, 0), dtype=np.int64)

    def room(self, asked: Ints, need: Ints) -> Ints:
        """Return how many more pods with these requests each node of every bin takes."""
        return np.maximum(least_fit(self.free, asked, need), 0)

    def add(self, empty: Ints, count: int) -> None:
        """Append `count` empty nodes."""
        self.free = np.concatenate([self.free, empty[None, :]])
        self.mult = np.append(self.mult, count)
        self.pods = np.concatenate([self.pods, np.zeros((len(self.pods), 1), dtype=np.int64)], axis=1)

    def fill(self, track: int, need: Ints, quota: Ints, count: int) -> int:
        """Place up to `count` pods, at most `quota` on each node of a bin, first fit. Returns how many were placed.

        track: the row of the class in `pods`, -1 for a class that is not counted.
        """
        holds = quota * self.mult
        total = np.cumsum(holds)
        if not len(total) or not total[-1]:
            return 0
        whole = len(quota)
        if total[-1] > count:
            whole = int(np.searchsorted(total, count, side="right"))
        full = quota[:whole]
        if full.any():
            self.free[:whole] -= full[:, None] * need
            if track >= 0:
                self.pods[track, :whole] += full
        done = int(total[whole - 1]) if whole else 0
        if whole < len(quota) and count > done:
            self._split(whole, track, need, int(quota[whole]), count - done)
            done = count
        return done

    def _split(self, at: int, track: int, need: Ints, each: int, count: int) -> None:
        """Put `each` pods on some nodes of a bin and possibly fewer on one node; the remaining nodes get none. The bin
        becomes up to three bins."""
        full, part = divmod(count, each)
        pieces = [(full, each), (1 if part else 0, part), (int(self.mult[at]) - full - (1 if part else 0), 0)]
        pieces = [piece for piece in pieces if piece[0]]
        where = np.concatenate([np.arange(at), np.full(len(pieces), at), np.arange(at + 1, len(self.mult))])
        self.free, self.mult, self.pods = self.free[where], self.mult[where], self.pods[:, where]
        for offset, (nodes, pods) in enumerate(pieces):
            self.mult[at + offset] = nodes
            self.free[at + offset] -= pods * need
            if track >= 0:
                self.pods[track, at + offset] += pods
