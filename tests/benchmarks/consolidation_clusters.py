"""Half-empty clusters whose nodes differ in price: for the benchmark of consolidation,
and small ones at random.

Everything is drawn from the seed. Nodes request 20 to 60 % of their room, in five levels. As in the
reference data's generator, 30 % of the ReplicaSets have a PodDisruptionBudget over a quarter of the
replicas (in one of a hundred over none), 4 % of the nodes have a pod that forbids a drain, 15 % of
the ReplicaSets repel themselves from a node and 15 % are spread over zones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import msgspec

from chalicelib.model.group import Instance, NodeGroup, Pool
from chalicelib.model.node import HOSTNAME_LABEL, Condition, Node
from chalicelib.model.pod import Owner, Pod, PodAffinityTerm, PodClass, SpreadConstraint, Toleration
from chalicelib.model.selector import Requirement, Selector
from chalicelib.model.snapshot import Controller, DaemonSet, PodDisruptionBudget, Snapshot

NOW = 1_790_000_000.0
BEFORE = NOW - 7 * 86_400.0
GIB = 2**30
LEVELS = (0.2, 0.3, 0.4, 0.5, 0.6)
POOL_LABEL = "bench/pool"
ZONE_LABEL = "topology.kubernetes.io/zone"
TYPE_LABEL = "node.kubernetes.io/instance-type"
CPU_SIZES = ((50, 20), (100, 35), (250, 25), (500, 13), (1000, 6), (2000, 1))  # millicores, weight
GIB_PER_CORE = ((1, 10), (2, 25), (4, 50), (8, 15))
SAME = 1e-9  # relative difference of equal prices
# millicores, MiB
DAEMONS = (("kube-proxy", 100, 64), ("node-agent", 100, 128), ("log-shipper", 50, 100))


class MachineType(msgspec.Struct, frozen=True):
    """price: an hour. zone: number of the zone of its group."""

    name: str
    cores: int
    gib: int
    price: float
    zone: int = 0


FOUR_TYPES = (
    MachineType("std-4", 4, 16, 0.20, 0),  # 0.050 a core
    MachineType("std-8", 8, 32, 0.36, 1),  # 0.045
    MachineType("old-8", 8, 32, 0.56, 0),  # 0.070
    MachineType("big-16", 16, 64, 0.64, 1),  # 0.040
)


class ClusterShape(msgspec.Struct, frozen=True):
    """What is drawn. replicas: the most of a ReplicaSet. ruled, blocked, budgeted: shares of
    ReplicaSets with each of the two rules between pods, of nodes that cannot be drained, of
    ReplicaSets with a budget. growth: nodes that every group may get beyond its size."""

    nodes: int
    pools: int = 1
    types: tuple[MachineType, ...] = FOUR_TYPES
    levels: tuple[float, ...] = LEVELS
    replicas: int = 40
    ruled: float = 0.15
    blocked: float = 0.04
    budgeted: float = 0.3
    growth: int = 5000
    seed: int = 1


def generate(shape: ClusterShape) -> Snapshot:
    """The cluster of a shape."""
    return _Generator(shape).snapshot()


def small_clusters(count: int = 500, first_seed: int = 0) -> list[Snapshot]:
    """Random clusters of 2 to 30 nodes, of two to five machine types at any price."""
    return [generate(small_shape(seed)) for seed in range(first_seed, first_seed + count)]


def small_shape(seed: int) -> ClusterShape:
    """The shape of one small cluster."""
    draw = random.Random(seed)
    types = []
    for number in range(draw.randint(2, 5)):
        cores = draw.choice((2, 4, 8, 16))
        gib = cores * draw.choice((2, 4, 8))
        price = round((cores * 0.035 + gib * 0.004) * draw.uniform(0.6, 1.5), 4)
        types.append(MachineType(f"type-{number}", cores, gib, price, draw.randrange(2)))
    return ClusterShape(
        nodes=draw.randint(2, 30),
        pools=draw.choice((1, 1, 1, 2)),
        types=tuple(types),
        levels=tuple(draw.uniform(0.05, 0.95) for _ in range(3)),
        replicas=draw.choice((3, 6, 12)),
        ruled=draw.choice((0.0, 0.1, 0.2)),
        blocked=draw.choice((0.0, 0.05)),
        budgeted=draw.choice((0.0, 0.3, 0.6)),
        growth=draw.choice((0, 2, 10)),
        seed=seed,
    )


class _OpenNode:
    """A node while it is filled. room: what its level still allows, millicores and bytes."""

    def __init__(self, name: str, zone: int, cpu: int, memory: int) -> None:
        self.name, self.zone, self.cpu, self.memory = name, zone, cpu, memory


class _Generator:
    def __init__(self, shape: ClusterShape) -> None:
        self._shape, self._draw = shape, random.Random(f"consolidation {shape.seed}")
        self._nodes: list[Node] = []
        self._groups: list[NodeGroup] = []
        self._pods: list[Pod] = []
        self._classes: list[PodClass] = []
        self._budgets: list[PodDisruptionBudget] = []
        self._controllers: list[Controller] = []
        self._daemonsets: list[DaemonSet] = []
        self._open: list[list[_OpenNode]] = [[] for _ in range(shape.pools)]

    def snapshot(self) -> Snapshot:
        self._make_daemonsets()
        for pool in range(self._shape.pools):
            self._make_nodes(pool)
            self._fill(pool)
        self._block_nodes()
        return Snapshot(
            cluster="bench",
            taken_at=NOW,
            nodes=tuple(self._nodes),
            pods=tuple(self._pods),
            classes=tuple(self._classes),
            groups=tuple(self._groups),
            budgets=tuple(self._budgets),
            controllers=tuple(self._controllers),
            controller_kinds=("DaemonSet", "ReplicaSet"),
            daemonsets=tuple(self._daemonsets),
        )

    def _make_daemonsets(self) -> None:
        for name, cpu, mib in DAEMONS:
            owner = Owner("DaemonSet", name, f"uid-{name}", "apps/v1")
            tolerations = (Toleration(operator="Exists"),)
            requests = {"cpu": cpu, "memory": mib * 2**20}
            self._classes.append(
                PodClass(
                    "kube-system",
                    {"app": name},
                    requests,
                    owner,
                    tolerations=tolerations,
                    priority=2_000_001_000,
                )
            )
            self._daemonsets.append(
                DaemonSet("kube-system", name, owner.uid, len(self._classes) - 1)
            )
            self._controllers.append(Controller("DaemonSet", "kube-system", name, owner.uid))

    def _make_nodes(self, pool: int) -> None:
        shape, types = self._shape, self._shape.types
        total = shape.nodes // shape.pools + (pool < shape.nodes % shape.pools)
        for at, machine in enumerate(types):
            size = total // len(types) + (at < total % len(types))
            group, zone = f"pool-{pool}-{machine.name}", (machine.zone + pool) % 3
            names = [f"{group}-{number:04d}" for number in range(size)]
            members = [machine_node(machine, group, name, pool, zone) for name in names]
            self._nodes += members
            template = machine_node(machine, group, f"{group}-template", pool, zone)
            self._groups.append(
                NodeGroup(
                    group,
                    "test",
                    max=size + shape.growth,
                    target=size,
                    instances=tuple(Instance(node.provider_id, node=node.name) for node in members),
                    template=template,
                    pool=Pool(f"pool-{pool}"),
                    price=machine.price,
                    currency="EUR",
                )
            )
            for node in members:
                level = self._draw.choice(shape.levels)
                self._open[pool].append(self._opened(node, zone, level))
                self._add_daemons(node.name)

    def _opened(self, node: Node, zone: int, level: float) -> _OpenNode:
        used_cpu, used_mib = sum(cpu for _, cpu, _ in DAEMONS), sum(mib for _, _, mib in DAEMONS)
        cpu = int(node.allocatable["cpu"] * level) - used_cpu
        return _OpenNode(
            node.name, zone, cpu, int(node.allocatable["memory"] * level) - used_mib * 2**20
        )

    def _add_daemons(self, node: str) -> None:
        for daemonset in self._daemonsets:
            self._pods.append(
                running_pod("kube-system", f"{daemonset.name}-{node}", daemonset.cls, node)
            )

    def _fill(self, pool: int) -> None:
        """ReplicaSets until the nodes have reached their levels, but for crumbs."""
        failed = 0
        while failed < 40:
            placed = self._add_replica_set(pool)
            failed = 0 if placed else failed + 1
            self._open[pool] = [node for node in self._open[pool] if node.cpu >= CPU_SIZES[0][0]]

    def _add_replica_set(self, pool: int) -> bool:
        draw, number = self._draw, len(self._controllers)
        cpu, ratio = _weighted(draw, CPU_SIZES), _weighted(draw, GIB_PER_CORE)
        memory = cpu * ratio * GIB // 1000
        rule = draw.random() / self._shape.ruled if self._shape.ruled else 2.0
        nodes = self._places(pool, draw.randint(1, self._shape.replicas), cpu, memory, rule)
        if not nodes:
            return False
        name, namespace = f"app-{number:05d}", f"team-{number % 20:02d}"
        cls = len(self._classes)
        self._classes.append(
            _replica_class(name, namespace, pool, {"cpu": cpu, "memory": memory}, rule)
        )
        for replica, node in enumerate(nodes):
            self._pods.append(running_pod(namespace, f"{name}-{replica:03d}", cls, node.name))
        self._controllers.append(
            Controller("ReplicaSet", namespace, name, f"uid-{name}", len(nodes))
        )
        if draw.random() < self._shape.budgeted:
            allowed = 0 if draw.random() < 0.01 else max(1, len(nodes) // 4)
            self._budgets.append(
                PodDisruptionBudget(namespace, name, _selector(name), allowed, whole=True)
            )
        return True

    def _places(
        self, pool: int, replicas: int, cpu: int, memory: int, rule: float
    ) -> list[_OpenNode]:
        """The nodes of the replicas: another one for each replica of a class that repels itself,
        the zones in turn for a spread class."""
        able = [node for node in self._open[pool] if node.cpu >= cpu and node.memory >= memory]
        self._draw.shuffle(able)
        if rule < 1:
            chosen = able[:replicas]
        elif rule < 2:
            zones = sorted({node.zone for node in self._open[pool]})
            by_zone = [[node for node in able if node.zone == zone] for zone in zones]
            turns = min([replicas // len(zones), *map(len, by_zone)]) if zones else 0
            chosen = [node for nodes in by_zone for node in nodes[:turns]]
        else:
            chosen = (
                [able[at % len(able)] for at in range(min(replicas, 2 * len(able)))] if able else []
            )
        placed = []
        for node in chosen:
            if node.cpu >= cpu and node.memory >= memory:
                node.cpu -= cpu
                node.memory -= memory
                placed.append(node)
        return placed

    def _block_nodes(self) -> None:
        """Some nodes get a pod that forbids their drain: the first one of
        theirs becomes such a pod."""
        blocked = {node.name for node in self._nodes if self._draw.random() < self._shape.blocked}
        for at, pod in enumerate(self._pods):
            if pod.node in blocked and not self._classes[pod.cls].is_daemonset:
                blocked.remove(pod.node)
                self._classes.append(
                    msgspec.structs.replace(self._classes[pod.cls], safe_to_evict="false")
                )
                self._pods[at] = msgspec.structs.replace(pod, cls=len(self._classes) - 1)


def machine_node(machine: MachineType, group: str, name: str, pool: int, zone: int) -> Node:
    """A ready node of a group, or its template."""
    labels = {
        HOSTNAME_LABEL: name,
        ZONE_LABEL: f"zone-{zone}",
        TYPE_LABEL: machine.name,
        POOL_LABEL: f"pool-{pool}",
        "kubernetes.io/os": "linux",
    }
    allocatable = {"cpu": machine.cores * 1000 - 80, "memory": (machine.gib - 1) * GIB, "pods": 110}
    return Node(
        name,
        labels,
        allocatable,
        capacity={"cpu": machine.cores * 1000, "memory": machine.gib * GIB, "pods": 110},
        uid=f"uid-{name}",
        provider_id=f"bench://{group}/{name}",
        conditions=(Condition("Ready", "True", "KubeletReady", BEFORE),),
        created=BEFORE,
    )


def running_pod(namespace: str, name: str, cls: int, node: str, created: float = BEFORE) -> Pod:
    """A pod bound to a node."""
    return Pod(
        namespace,
        name,
        f"uid-{name}",
        cls,
        node=node,
        phase="Running",
        created=created,
        scheduled="True",
    )


def _replica_class(
    name: str, namespace: str, pool: int, requests: dict[str, int], rule: float
) -> PodClass:
    own = _selector(name)
    return PodClass(
        namespace,
        {"app": name},
        requests,
        Owner("ReplicaSet", name, f"uid-{name}", "apps/v1"),
        node_selector={POOL_LABEL: f"pool-{pool}"},
        pod_anti_affinity=(PodAffinityTerm(HOSTNAME_LABEL, own),) if rule < 1 else (),
        spread=(SpreadConstraint(ZONE_LABEL, 5, own),) if 1 <= rule < 2 else (),
        priority=0,
    )


def _selector(app: str) -> Selector:
    return Selector((Requirement("app", "In", (app,)),))


def _weighted(draw: random.Random, table: Sequence[tuple[int, int]]) -> int:
    return draw.choices([row[0] for row in table], [row[1] for row in table])[0]


class MethodComparison(msgspec.Struct, frozen=True):
    """Two methods on the same clusters. better, equal, worse: clusters in which the first one's
    price is lower, equal, higher; first, second: sums of the prices; margins: (first - second) /
    second of each cluster, by its place."""

    better: int
    equal: int
    worse: int
    first: float
    second: float
    margins: tuple[float, ...]

    def __str__(self) -> str:
        clusters = self.better + self.equal + self.worse
        return (
            f"{clusters} clusters: {self.better} better, {self.equal} equal, {self.worse} worse; "
            f"{self.first:,.2f} against {self.second:,.2f} ({self.first / self.second - 1:+.2%}), "
            f"from {min(self.margins):+.1%} to {max(self.margins):+.1%}"
        )


def compare(
    first: Callable[[Snapshot], float],
    second: Callable[[Snapshot], float],
    clusters: Iterable[Snapshot],
) -> MethodComparison:
    """Compares what two methods reach: each gives the price (or any value to be
    minimised) for a cluster."""
    pairs = [(first(snapshot), second(snapshot)) for snapshot in clusters]
    margins = tuple((one - other) / other if other else 0.0 for one, other in pairs)
    return MethodComparison(
        better=sum(margin < -SAME for margin in margins),
        equal=sum(abs(margin) <= SAME for margin in margins),
        worse=sum(margin > SAME for margin in margins),
        first=sum(one for one, _ in pairs),
        second=sum(other for _, other in pairs),
        margins=margins,
    )
