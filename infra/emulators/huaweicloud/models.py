"""Records of an emulated project: flavours, clusters with node pools, scale groups
and nodes, jobs, add-ons.

They are mutable; only the simulation (simulation.py), change requests (mutations.py) and the
setup of tests change them. serializers.py converts them to responses. Times are epoch
seconds of the given clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

DEFAULT = "default"  # the scale group of a pool's default flavour and zone
DEFAULT_POOL = "DefaultPool"
OS = "Huawei Cloud EulerOS 2.0"
BUILD, INSTALLING, ACTIVE, DELETING, ERROR = "Build", "Installing", "Active", "Deleting", "Error"
REPAIRING = "Repairing"
#: Node phases before a node has joined.
COMING = frozenset({BUILD, INSTALLING})
#: Cluster phases in which its pools accept requests.
OPEN = frozenset({"Available", "ScalingUp", "ScalingDown"})


class CceDurations(msgspec.Struct, frozen=True):
    """Durations in seconds. order: until CCE knows that a machine is unavailable. build, install:
    the two stages of a node's creation. delete: of a node. retry: until CCE retries missing nodes.
    job: how long a job is known after its end. reclaim: from the notice until a spot instance is
    gone. reboot: of a server."""

    order: float = 15.0
    build: float = 40.0
    install: float = 40.0
    delete: float = 30.0
    retry: float = 120.0
    job: float = 3600.0
    reclaim: float = 300.0
    reboot: float = 60.0


class CceProvisioningFate(msgspec.Struct, frozen=True):
    """The fate of a requested machine that does not run. condition: shown by its scale group. made:
    the node is created and ends in phase Error."""

    condition: str
    reason: str
    message: str
    made: bool = False


SOLD_OUT = CceProvisioningFate(
    "ResourceInsufficient", "SoldOut", "The flavor is sold out in this availability zone."
)
NO_QUOTA = CceProvisioningFate(
    "QuotaInsufficient", "QuotaInsufficient", "The quota of servers is used up."
)
NOT_INSTALLED = CceProvisioningFate(
    "UnexpectedError", "InstallFailed", "Failed to install the node.", made=True
)


class Flavor(msgspec.Struct, frozen=True):
    """A flavour. memory: MiB. specs: further fields of `os_extra_specs`."""

    name: str
    cpus: int
    memory: int
    specs: Mapping[str, str] = {}


class CceCondition(msgspec.Struct, frozen=True):
    """A condition of a scale group."""

    type: str
    status: str
    reason: str
    message: str
    since: float


@dataclass(slots=True)
class Node:
    """A node of CCE. pool: the pool's uid, DEFAULT_POOL for a node without a pool. since: time when
    it became Active, infinity before. protected: from resizing of its pool. billing: 1 is prepaid.
    os, runtime, spot: as its pool's template said when it was ordered. noticed: since when the
    vendor takes it back, infinity if it does not. reboots: times that its server was restarted."""

    uid: str
    name: str
    cluster: str
    pool: str
    group: str
    flavor: str
    az: str
    server: str
    ip: str
    phase: str
    created: float
    number: int
    since: float = float("inf")
    fate: CceProvisioningFate | None = None
    job: str = ""
    protected: bool = False
    billing: int = 0
    os: str = OS
    runtime: str = "containerd"
    spot: bool = False
    noticed: float = float("inf")
    reboots: int = 0

    @property
    def reclaimed(self) -> bool:
        """Return whether the vendor takes it back."""
        return self.noticed != float("inf")

    @property
    def leaves(self) -> bool:
        """Return whether it is being deleted."""
        return self.phase == DELETING


@dataclass(slots=True)
class ScaleGroup:
    """A flavour in a zone of a pool. desired: number of nodes. trying: requested machines whose
    availability is not known yet. enabled, least, most, priority: its `autoscaling` (in the default
    group, the pool's). fates: of the next requested machines. told: the size that its status still
    shows."""

    name: str
    uid: str
    flavor: str
    az: str
    desired: int = 0
    enabled: bool = True
    least: int | None = None
    most: int | None = None
    priority: int = 0
    trying: int = 0
    retries: bool = False
    nodes: dict[str, Node] = field(default_factory=dict)
    conditions: dict[str, CceCondition] = field(default_factory=dict)
    fates: list[CceProvisioningFate] = field(default_factory=list)
    told: int | None = None

    @property
    def shown(self) -> int:
        """Return the size that its status shows."""
        return self.desired if self.told is None else self.told

    @property
    def staying(self) -> list[Node]:
        """Return its nodes that are not being deleted, oldest first."""
        return [node for node in self.nodes.values() if not node.leaves]

    def count(self, *phases: str) -> int:
        """Return the number of nodes in one of these phases."""
        return sum(node.phase in phases for node in self.nodes.values())


@dataclass(slots=True)
class CcePool:
    """A node pool. groups: by name, the default one first. phase: set by a test, "" if computed
    from its activity. taken: until when another request blocks it. cooldown: minutes. unneeded:
    minutes, -1 for unset. utilization: -1 for unset."""

    uid: str
    name: str
    cluster: str
    created: float
    groups: dict[str, ScaleGroup] = field(default_factory=dict)
    enabled: bool = True
    least: int = 0
    most: int = 10
    priority: int = 0
    cooldown: int = 0
    unneeded: int = -1
    utilization: float = -1.0
    billing: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    extend: dict[str, Any] = field(default_factory=dict)
    runtime: str = "containerd"
    os: str = OS
    phase: str = ""
    taken: float = float("-inf")

    @property
    def desired(self) -> int:
        """Return the desired number of all groups."""
        return sum(group.desired for group in self.groups.values())

    @property
    def spot(self) -> bool:
        """Return whether its new nodes are spot instances."""
        return self.extend.get("marketType") == "spot"

    def all_nodes(self) -> Iterator[Node]:
        """Return the nodes of all groups."""
        for group in self.groups.values():
            yield from group.nodes.values()


@dataclass(slots=True)
class CceJob:
    """A background job of CCE."""

    uid: str
    type: str
    cluster: str
    resource: str
    name: str
    started: float
    phase: str = "Running"
    reason: str = ""
    ended: float = float("inf")


@dataclass(slots=True)
class Addon:
    """A component that CCE installed in a cluster. custom: its `spec.values.custom`."""

    uid: str
    template: str
    cluster: str
    status: str = "running"
    custom: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class CceCluster:
    """A CCE cluster."""

    uid: str
    name: str
    created: float
    phase: str = "Available"
    pools: dict[str, CcePool] = field(default_factory=dict)
    lonely: dict[str, Node] = field(default_factory=dict)
    addons: list[Addon] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        """Return all its nodes."""
        for pool in self.pools.values():
            yield from pool.all_nodes()
        yield from self.lonely.values()

    def node(self, uid: str) -> Node | None:
        """Return one of its nodes."""
        for pool in self.pools.values():
            for group in pool.groups.values():
                if uid in group.nodes:
                    return group.nodes[uid]
        return self.lonely.get(uid)
