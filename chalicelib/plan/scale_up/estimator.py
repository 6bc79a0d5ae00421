"""The estimator: how many new nodes of one template a set of pods needs, by arithmetic on bins.

The order is Cluster Autoscaler's: classes by the share of the template that one pod takes, largest
first; earlier nodes before later ones; a new node only when no earlier one has room. A class with
rules about other pods is tried again after others were placed. A class that spreads over host names
may return to existing nodes, as in Cluster Autoscaler, but those do not count as new. See
docs/reference/scale-up.md "Estimator".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import numpy as np

from chalicelib.model.pod import HostPort
from chalicelib.model.resources import CPU, MEMORY
from chalicelib.plan.simulation.pod_constraints import PodConstraints, SpreadConstraint
from chalicelib.plan.simulation.pod_topology import UNLIMITED, Cap, NewNodeTopology
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.node_labels import own_keys
from chalicelib.plan.state.node_templates import Template
from chalicelib.plan.tables import LARGEST, Bools, HeldPorts, Ints, least_fit
from chalicelib.plan.volumes.requirements import Attachment

_PACKED = -1  # the row of all packed pods, as long as they only take free volumes
# maximum number of retries of classes without room because others were placed meanwhile
_ROUNDS = 4


class PodRequest(msgspec.Struct, frozen=True):
    """A number of pods of a class; first: the sort key of the first pod,
    for the order among equals."""

    cls: int
    count: int
    first: str = ""


class NodeShape(msgspec.Struct, frozen=True):
    """An empty new node. free: its room with the DaemonSet pods on it;
    ports: the ports these use."""

    template: Template
    free: Ints
    ports: tuple[HostPort, ...]


class Estimate(msgspec.Struct, frozen=True):
    """nodes: number of new nodes; placed: class -> pods on them; refused: classes of which some
    pods found no room because of the node limit; order: the classes in packing order; out_of_time:
    some classes were not checked."""

    nodes: int
    placed: dict[int, int]
    refused: frozenset[int]
    order: tuple[int, ...]
    out_of_time: bool = False

    @property
    def count(self) -> int:
        """Return the total number of placed pods."""
        return sum(self.placed.values())


def remaining(requests: Sequence[PodRequest], placed: Mapping[int, int]) -> list[PodRequest]:
    """Return the requests without the placed pods. placed: class -> pods."""
    return [
        PodRequest(request.cls, request.count - placed.get(request.cls, 0), request.first)
        for request in requests
        if placed.get(request.cls, 0) < request.count
    ]


def shape_of(template: Template, simulated: SimulatedCluster) -> NodeShape:
    """Return a template as an empty new node."""
    columns = simulated.table.columns
    free = columns.vector(template.node.allocatable)
    ports: tuple[HostPort, ...] = ()
    for cls in template.daemons:
        free = np.maximum(free - columns.need(cls), -LARGEST)
        ports += simulated.classes[cls].ports
    return NodeShape(template, free, ports)


def orders(
    requests: Sequence[PodRequest], template: Template, simulated: SimulatedCluster
) -> list[list[PodRequest]]:
    """Return the orders to try: Cluster Autoscaler's, by the share of the template that one pod
    takes, largest first; and, if some classes allow only one pod per node, an order with these
    first, since other pods fit next to them.

    Equal shares: classes with rules about other pods first, then by namespace
    and name of the first pod.
    """
    cpu, memory = (max(1, template.node.allocatable.get(name, 0)) for name in (CPU, MEMORY))
    constraints_of = {request.cls: simulated.needs(request.cls) for request in requests}
    own = own_keys(template.node.labels)

    def key(request: PodRequest) -> tuple[float, bool, str]:
        amounts = simulated.classes[request.cls].requests
        share = amounts.get(CPU, 0) / cpu + amounts.get(MEMORY, 0) / memory
        return -share, constraints_of[request.cls] is None, request.first

    def one_per_node(request: PodRequest) -> bool:
        constraints = constraints_of[request.cls]
        return constraints is not None and any(
            r.own and r.key in own for r in constraints.repulsions
        )

    largest = sorted(requests, key=key)
    apart = [request for request in largest if one_per_node(request)]
    if not apart:
        return [largest]
    return [largest, apart + [request for request in largest if not one_per_node(request)]]


def estimate(
    shape: NodeShape,
    requests: Sequence[PodRequest],
    simulated: SimulatedCluster,
    most_nodes: int,
    stop: Callable[[], bool] = lambda: False,
) -> Estimate:
    """Pack the classes that pass the template's constant predicates onto at most `most_nodes`
    new nodes: prefers the order that places most pods, then the one that needs fewest nodes. The
    simulated cluster is left unchanged. stop: called before every class."""
    best: Estimate | None = None
    for order in orders(requests, shape.template, simulated):
        mark = simulated.checkpoint()
        packing = _Packer(shape, order, simulated, most_nodes, stop).run()
        if simulated.checkpoint() > mark:
            simulated.rollback(mark)
        if best is None or (-packing.count, packing.nodes) < (-best.count, best.nodes):
            best = packing
    assert best is not None
    return best


class Bins:
    """Simulated new nodes of one template, with equal nodes stored as one bin and
    a multiplicity: placing n pods of a class where k fit per node is arithmetic over all bins at
    once and splits at most one bin.

    free: (bins, columns) room on each node of a bin; mult: nodes per bin; pods: (tracked classes,
    bins) pods on each node. Earlier bins are earlier nodes.
    """

    def __init__(self, columns: int, tracked: int) -> None:
        self.free: Ints = np.zeros((0, columns), dtype=np.int64)
        self.mult: Ints = np.zeros(0, dtype=np.int64)
        self.pods: Ints = np.zeros((tracked, 0), dtype=np.int64)

    def room(self, columns: Ints, need: Ints) -> Ints:
        """Return how many more pods with these requests each node of every bin takes."""
        return np.maximum(least_fit(self.free, columns, need), 0)

    def add(self, empty: Ints, count: int) -> None:
        """Append `count` empty nodes."""
        self.free = np.concatenate([self.free, empty[None, :]])
        self.mult = np.append(self.mult, count)
        self.pods = np.concatenate(
            [self.pods, np.zeros((len(self.pods), 1), dtype=np.int64)], axis=1
        )

    def fill(self, track: int, need: Ints, quota: Ints, count: int) -> int:
        """Place up to `count` pods, at most `quota` on each node of a bin, first fit.
        Returns how many were placed.

        track: the row of the class in `pods`, -1 for a class that is not counted.
        """
        total = np.cumsum(quota * self.mult)
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
        placed = int(total[whole - 1]) if whole else 0
        if whole < len(quota) and count > placed:
            self._split(whole, track, need, int(quota[whole]), count - placed)
            placed = count
        return placed

    def _split(self, at: int, track: int, need: Ints, per_node: int, count: int) -> None:
        """Put `per_node` pods on some nodes of a bin and possibly fewer on one node; the remaining
        nodes get none. The bin becomes up to three bins."""
        full, part = divmod(count, per_node)
        pieces = [
            (full, per_node),
            (1 if part else 0, part),
            (int(self.mult[at]) - full - (1 if part else 0), 0),
        ]
        pieces = [piece for piece in pieces if piece[0]]
        where = np.concatenate(
            [np.arange(at), np.full(len(pieces), at), np.arange(at + 1, len(self.mult))]
        )
        self.free, self.mult, self.pods = self.free[where], self.mult[where], self.pods[:, where]
        for offset, (nodes, pods) in enumerate(pieces):
            self.mult[at + offset] = nodes
            self.free[at + offset] -= pods * need
            if track >= 0:
                self.pods[track, at + offset] += pods


class _Packer:
    def __init__(
        self,
        shape: NodeShape,
        requests: Sequence[PodRequest],
        simulated: SimulatedCluster,
        most_nodes: int,
        stop: Callable[[], bool],
    ) -> None:
        self.shape, self.requests, self.simulated, self.most_nodes = (
            shape,
            requests,
            simulated,
            most_nodes,
        )
        self.stop, self.out_of_time = stop, False
        classes = [request.cls for request in requests]
        self.needs = {cls: simulated.needs(cls) for cls in classes}
        coupled = any(needs is not None for needs in self.needs.values()) or any(
            simulated.classes[cls].ports or simulated.volumes.concerns(cls) for cls in classes
        )
        tracked = tuple(classes) if coupled else ()
        self.row_of = {cls: row for row, cls in enumerate(tracked)}
        self.bins = Bins(len(shape.free), len(tracked))
        self.own = own_keys(shape.template.node.labels)
        self.topology = NewNodeTopology(
            simulated.rows, shape.template.node.labels, tracked, shape.template.daemons
        )
        self.nodes = 0
        self.refused: set[int] = set()
        self.bound: dict[int, int] = {}  # class -> pods that have taken free volumes

    def run(self) -> Estimate:
        placed: dict[int, int] = {}
        waiting = list(self.requests)
        for _ in range(_ROUNDS):
            placed_now: dict[int, int] = {}
            for request in waiting:
                self.out_of_time = self.out_of_time or self.stop()
                placed_now[request.cls] = 0 if self.out_of_time else self._place(request)
            for cls, count in placed_now.items():
                if count:
                    placed[cls] = placed.get(cls, 0) + count
            waiting = [
                rest for rest in remaining(waiting, placed_now) if self.needs[rest.cls] is not None
            ]
            if not any(placed_now.values()) or not waiting:
                break
        for cls, count in self.bound.items():
            self._bind(cls, -count)
        order = tuple(request.cls for request in self.requests)
        return Estimate(self.nodes, placed, frozenset(self.refused), order, self.out_of_time)

    def _place(self, request: PodRequest) -> int:
        """Place pods of one class; returns how many were placed on new nodes."""
        cls, needs = request.cls, self.needs[request.cls]
        columns, need = self.simulated.table.columns.asked(cls)
        on_empty_node = int(least_fit(self.shape.free[None, :], columns, need)[0])
        rest, elsewhere = request.count, 0
        while rest > 0 and not self.out_of_time:
            cap = self._cap(cls, needs)
            room = min(rest, cap.total)
            placed = self._fill(cls, np.minimum(self.bins.room(columns, need), cap.each), room)
            rest, room = rest - placed, room - placed
            if placed and cap.again:
                self.out_of_time = self.stop()
                continue
            if rest and (lent := self._place_on_existing_nodes(cls, needs, rest)):
                rest, elsewhere = rest - lent, elsewhere + lent
                continue
            per_node = min(on_empty_node, cap.fresh)
            if room <= 0 or per_node <= 0:
                break
            new = min(
                self._new_nodes(cls, needs, room, per_node, on_empty_node),
                self.most_nodes - self.nodes,
            )
            if new <= 0:
                self.refused.add(cls)
                break
            self.bins.add(self.shape.free, new)
            self.nodes += new
            quota = np.zeros(len(self.bins.mult), dtype=np.int64)
            quota[-1] = per_node
            placed = self._fill(cls, quota, room)
            rest -= placed
            if rest and not cap.again:
                if room > placed:
                    self.refused.add(cls)
                break
        return request.count - rest - elsewhere

    def _fill(self, cls: int, quota: Ints, count: int) -> int:
        """Place up to `count` pods of a class into the bins; returns how many were placed."""
        placed = self.bins.fill(
            self.row_of.get(cls, -1), self.simulated.table.columns.need(cls), quota, count
        )
        if placed and self.simulated.volumes.concerns(cls) and self.simulated.volumes.counting(cls):
            self._bind(cls, placed)
            self.bound[cls] = self.bound.get(cls, 0) + placed
        return placed

    def _bind(self, cls: int, count: int) -> None:
        """Let pods take free volumes, as on a node like the template, or release them."""
        node, counting = self.shape.template.node, self.simulated.volumes.counting(cls)
        self.simulated.attached.held.add(cls, counting, (_PACKED, node), count)

    def _cap(self, cls: int, constraints: PodConstraints | None) -> Cap:
        """Return what rules, ports and volumes allow on the bins and on one more node."""
        bins, simulated = self.bins, self.simulated
        cap = (
            self.topology.cap(constraints, bins.pods, bins.mult)
            if constraints is not None
            else Cap(np.full(len(bins.mult), UNLIMITED, dtype=np.int64))
        )
        ports = simulated.classes[cls].ports
        if ports:
            rivals = sorted(
                self.row_of[other] for other in simulated.rivals.of(cls) if other in self.row_of
            )
            np.minimum(cap.each, np.where(bins.pods[rivals].any(axis=0), 0, 1), out=cap.each)
            in_use = HeldPorts(self.shape.ports).clash(ports) is not None
            cap.each, cap.fresh = (
                (np.zeros_like(cap.each), 0) if in_use else (cap.each, min(cap.fresh, 1))
            )
        if simulated.volumes.concerns(cls):
            self._limit_by_volumes(cls, cap)
        return cap

    def _limit_by_volumes(self, cls: int, cap: Cap) -> None:
        """Apply disk conflicts, ReadWriteOncePod claims, and the attach limits
        of the template's drivers."""
        volumes, pods, claimed = (
            self.simulated.volumes,
            self.bins.pods,
            self.simulated.attached.held,
        )
        if (
            claimed
            and volumes.waits(cls)
            and not volumes.bindable(cls, self.shape.template.node, claimed)
        ):
            cap.total = 0
        elif volumes.one_by_one(cls, claimed):
            cap.total, cap.again = min(cap.total, 1), True
        per_node, most = volumes.per_node(cls), volumes.most(cls)
        if per_node is not None:
            np.minimum(cap.each, np.maximum(per_node - pods[self.row_of[cls]], 0), out=cap.each)
            cap.fresh = min(cap.fresh, per_node)
        if most is not None:
            claims = set(volumes.exclusive(cls))
            in_use = bool(self.simulated.claimed(cls)) or any(
                pods[row].any() and claims.intersection(volumes.exclusive(other))
                for other, row in self.row_of.items()
                if volumes.concerns(other)
            )
            cap.total = min(cap.total, 0 if in_use else most)
        for other, row in self.row_of.items():
            if other != cls and volumes.clash(cls, other):
                cap.each[pods[row] > 0] = 0
        for driver, (own, shared) in volumes.attaches(cls).items():
            limit = self.shape.template.volume_limits.get(driver)
            if limit is not None:
                free = limit - self._attached(cls, driver)
                np.minimum(
                    cap.each, np.where(free < 0, 0, free // own if own else UNLIMITED), out=cap.each
                )
                on_empty = limit - shared
                cap.fresh = min(
                    cap.fresh, 0 if on_empty < 0 else on_empty // own if own else UNLIMITED
                )

    def _attached(self, cls: int, driver: str) -> Ints:
        """Return how many volumes of a driver each planned node attaches, with the shared volumes
        of one more class. A volume counts once per node, however many pods use it."""
        pods, volumes = self.bins.pods, self.simulated.volumes
        with_volumes = [
            (other, row) for other, row in self.row_of.items() if volumes.concerns(other)
        ]
        # volumes that several pods may use -> the nodes that attach them
        users: dict[Attachment, Bools] = {}
        used: Ints = np.zeros(len(self.bins.mult), dtype=np.int64)
        for other, row in with_volumes:
            used = used + pods[row] * volumes.attaches(other).get(driver, (0, 0))[0]
            for volume in volumes.shared(other):
                if volume[0] == driver:
                    users[volume] = (
                        users[volume] | (pods[row] > 0) if volume in users else pods[row] > 0
                    )
        for nodes in users.values():
            used = used + nodes
        for volume in volumes.shared(cls):
            if volume[0] == driver:
                used = used + (~users[volume] if volume in users else 1)
        return used

    def _new_nodes(
        self,
        cls: int,
        constraints: PodConstraints | None,
        count: int,
        per_node: int,
        on_empty_node: int,
    ) -> int:
        """Return how many new nodes to add for these pods. With a spread over host names, a node
        can take more pods once other nodes have more: the first step adds the fewest nodes that
        could suffice in the end, later steps add one at a time."""
        spread = _spread_over_hosts(constraints, self.own)
        if spread is None or constraints is None:
            return -(-count // per_node)
        if self.nodes:
            return 1
        # How many pods one host name may have in the end: rows that take no pod of the
        # class keep the lowest count.
        simulated, ceiling = self.simulated, UNLIMITED
        codes, _ = simulated.table.label(spread.key)
        level = simulated.rows.level(spread)
        stuck = (codes >= 0) & level.counted[codes] & (simulated.capacity(cls) == 0)
        if stuck.any():
            ceiling = int(level.counts[codes[stuck]].min()) + spread.max_skew
        return -(-count // max(1, min(on_empty_node, ceiling)))

    def _place_on_existing_nodes(
        self, cls: int, constraints: PodConstraints | None, count: int
    ) -> int:
        """Place pods that spread over host names on existing nodes, because new nodes have raised
        the lowest count. Returns how many were placed."""
        spread = _spread_over_hosts(constraints, self.own)
        if spread is None or constraints is None or not self.nodes:
            return 0
        if (
            len(constraints.evenness) > 1
            or constraints.attraction is not None
            or constraints.repulsions
        ):
            # its other rules would need to know the new nodes too; the next check of
            # the simulated cluster does
            return 0
        on_new, _ = self.topology.counts(spread.counter, self.bins.pods)
        least, _ = self.topology.host_level(spread, on_new, self.bins.mult)
        codes, _ = self.simulated.table.label(spread.key)
        level = self.simulated.rows.level(spread)
        allowed = np.append(np.maximum(least + spread.max_skew - level.counts, 0), 0)[codes]
        quota = np.minimum(self.simulated.capacity(cls), allowed)
        rows = quota.nonzero()[0]
        if not len(rows):
            return 0
        total = np.cumsum(quota[rows])
        counts = np.clip(count - (total - quota[rows]), 0, quota[rows])
        rows, counts = rows[counts > 0], counts[counts > 0]
        counts = self.simulated.attached.one_of(cls, counts)
        self.simulated.place(cls, rows, counts)
        return int(counts.sum())


def _spread_over_hosts(
    constraints: PodConstraints | None, own: Collection[str]
) -> SpreadConstraint | None:
    """Return the constraint that spreads a class itself over nodes, if there is one. own: keys of
    labels of one node, as host names."""
    evenness = constraints.evenness if constraints is not None else ()
    return next((spread for spread in evenness if spread.key in own and spread.own), None)
