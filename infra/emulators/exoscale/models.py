"""Records of an emulated zone: instance types, pools and their instances, SKS clusters, operations.

They are mutable; only the zone (account.py) and the setup of tests change them. serializers.py
converts them to responses. Times are epoch seconds of the given clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

#: States of an instance that is being deleted.
LEAVING = frozenset({"stopping", "destroying", "destroyed", "expunging"})
#: States of a pool in which it accepts no requests.
BUSY = frozenset({"creating", "scaling-up", "scaling-down", "updating", "suspended", "destroying"})
RUNNING, STARTING, DESTROYING = "running", "starting", "destroying"


class ExoscaleDurations(msgspec.Struct, frozen=True):
    """Durations in seconds: of an operation (0: it is final in the response that names it), until
    an instance is `running`, of an instance's deletion, of a pool's deletion."""

    operation: float = 60.0
    create: float = 45.0
    destroy: float = 20.0
    delete_pool: float = 60.0


class ExoscaleProvisioningFate(msgspec.Struct, frozen=True):
    """The fate of a requested instance that does not run. reason: of the operation, "" if it
    succeeds nevertheless. made: the instance is created and ends in state `error`."""

    reason: str = "unavailable"
    message: str = "the instance cannot be created"
    made: bool = False


UNAVAILABLE = ExoscaleProvisioningFate("unavailable", "No capacity is left for this instance type.")
NOT_STARTING = ExoscaleProvisioningFate("", "", made=True)


class Ending(msgspec.Struct, frozen=True):
    """An injected end of an operation. done: the requested change happens nevertheless."""

    state: str = "failure"
    reason: str = ""
    message: str = "The operation did not end well."
    done: bool = False


class Kind(msgspec.Struct, frozen=True):
    """An instance type. memory: bytes. authorized: this organisation may use it."""

    id: str
    family: str
    size: str
    cpus: int
    memory: int
    gpus: int = 0
    authorized: bool = True
    price: float = 0.0
    """CHF an hour, 0.0 if the list of prices does not name it."""

    @property
    def name(self) -> str:
        """Return `standard.medium` for example."""
        return f"{self.family}.{self.size}"


@dataclass(slots=True)
class Vm:
    """An instance. pool: its pool's id, "" without a pool. served: time since when it has been
    running, infinity before. reboots: times of its restarts."""

    id: str
    name: str
    pool: str
    kind: Kind
    disk: int
    state: str
    created: float
    number: int
    served: float = float("inf")
    fate: ExoscaleProvisioningFate | None = None
    template: str = ""
    reboots: list[float] = field(default_factory=list)

    @property
    def leaves(self) -> bool:
        return self.state in LEAVING


@dataclass(slots=True)
class Work:
    """An asynchronous operation. pool: "" for one of an instance alone. command, subject, link:
    what it refers to. size: of the pool when it is done. creates: it makes the pool itself."""

    id: str
    pool: str
    command: str
    subject: str
    link: str
    started: float
    size: int
    grows: bool
    state: str = "pending"
    reason: str = ""
    message: str = ""
    problems: list[ExoscaleProvisioningFate] = field(default_factory=list)
    made: int = 0
    ending: Ending | None = None
    creates: bool = False


@dataclass(slots=True)
class ExoscalePool:
    """An Instance Pool. nodepool, cluster: its owners, "" for a standalone pool. state: set
    by a test, "" if computed from its activity. prefix: of the names of new instances.
    security_groups, private_networks, anti_affinity_groups: ids, which need not exist here.
    fates: of the next requested instances. endings: of the next operations."""

    id: str
    name: str
    kind: Kind
    size: int
    disk: int = 50
    template: str = ""
    nodepool: str = ""
    cluster: str = ""
    state: str = ""
    prefix: str = "pool"
    public_ip_assignment: str = "inet4"
    security_groups: tuple[str, ...] = ()
    private_networks: tuple[str, ...] = ()
    anti_affinity_groups: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    members: dict[str, Vm] = field(default_factory=dict)
    work: Work | None = None
    fates: list[ExoscaleProvisioningFate] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)

    @property
    def staying(self) -> list[Vm]:
        return [vm for vm in self.members.values() if not vm.leaves]

    @property
    def state_now(self) -> str:
        pending = self.work is not None and self.work.state == "pending"
        if self.state:
            return self.state
        if self.work is not None and pending:
            if self.work.creates:
                return "creating"
            return "scaling-up" if self.work.grows else "scaling-down"
        if any(vm.state == STARTING for vm in self.members.values()):
            return "scaling-up"
        return (
            "scaling-down"
            if any(vm.state == DESTROYING for vm in self.members.values())
            else RUNNING
        )


@dataclass(slots=True)
class Nodepool:
    """A Nodepool of an SKS cluster. taints: key -> (value, effect). max_pods: 0
    for the kubelet's default. listed: lists show it, and its pool, already."""

    id: str
    name: str
    pool: ExoscalePool
    created: float
    labels: dict[str, str] = field(default_factory=dict)
    taints: dict[str, tuple[str, str]] = field(default_factory=dict)
    max_pods: int = 0
    description: str = ""
    listed: bool = True

    @property
    def state_now(self) -> str:
        """Return the state that the API shows: the pool's state in the terms of a Nodepool."""
        told = {
            "scaling-up": "scaling",
            "scaling-down": "scaling",
            "destroying": "deleting",
            "suspended": "error",
        }
        state = self.pool.state_now
        missing = state == RUNNING and len(self.pool.staying) < self.pool.size
        return "degraded" if missing else told.get(state, state)


@dataclass(slots=True)
class ExoscaleCluster:
    """A managed cluster."""

    id: str
    name: str
    created: float
    nodepools: dict[str, Nodepool] = field(default_factory=dict)
    addons: set[str] = field(default_factory=set)
