"""What there is in an emulated zone: instance types, pools and their instances, SKS clusters, operations.

These are the mutable records of the emulation; only the engine (engine.py) and tests that set a scene change them. How
they look over the wire is told elsewhere (shapes.py). Times are epoch seconds of the given clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

#: States of an instance that is on its way out.
LEAVING = frozenset({"stopping", "destroying", "destroyed", "expunging"})
#: States of a pool in which it takes no order.
BUSY = frozenset({"creating", "scaling-up", "scaling-down", "updating", "suspended", "destroying"})
RUNNING, STARTING, DESTROYING = "running", "starting", "destroying"


class ExoscaleDurations(msgspec.Struct, frozen=True):
    """How long things take, seconds: an operation (0: it is final in the answer that names it), an instance's way to
    `running`, its way out, a pool's way out."""

    operation: float = 60.0
    create: float = 45.0
    destroy: float = 20.0
    delete_pool: float = 60.0


class ExoscaleProvisioningFate(msgspec.Struct, frozen=True):
    """What becomes of an instance that is asked for instead of running. reason: the operation's, "" for one that
    succeeds all the same; made: there is an instance, and it ends in state `error`."""

    reason: str = "unavailable"
    message: str = "the instance cannot be created"
    made: bool = False


UNAVAILABLE = ExoscaleProvisioningFate("unavailable", "No capacity is left for this instance type.")
NOT_STARTING = ExoscaleProvisioningFate("", "", made=True)


class Ending(msgspec.Struct, frozen=True):
    """How an operation ends, by order of a test. done: what was asked for happens nevertheless."""

    state: str = "failure"
    reason: str = ""
    message: str = "The operation did not end well."
    done: bool = False


class Kind(msgspec.Struct, frozen=True):
    """An instance type. memory: bytes; authorized: this organisation may use it."""

    id: str
    family: str
    size: str
    cpus: int
    memory: int
    gpus: int = 0
    authorized: bool = True

    @property
    def name(self) -> str:
        """`standard.medium`."""
        return f"{self.family}.{self.size}"


@dataclass(slots=True)
class Vm:
    """An instance. pool: its pool's id, "" for one of nobody's. served: since when it runs; never yet is infinity."""

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

    @property
    def leaves(self) -> bool:
        """On its way out."""
        return self.state in LEAVING


@dataclass(slots=True)
class Work:
    """An asynchronous operation. command, subject, link: what it is about. size: of the pool when it is done."""

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


@dataclass(slots=True)
class ExoscalePool:
    """An Instance Pool. nodepool, cluster: whose it is, "" for a standalone one. state: as a test has set it, "" for
    what follows from what goes on. fates: of the next instances asked for; endings: of the next operations."""

    id: str
    name: str
    kind: Kind
    size: int
    disk: int = 50
    template: str = ""
    nodepool: str = ""
    cluster: str = ""
    state: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    members: dict[str, Vm] = field(default_factory=dict)
    work: Work | None = None
    fates: list[ExoscaleProvisioningFate] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)

    @property
    def staying(self) -> list[Vm]:
        """Its instances that are not on their way out, oldest first."""
        return [vm for vm in self.members.values() if not vm.leaves]

    @property
    def state_now(self) -> str:
        """As the API tells it."""
        pending = self.work is not None and self.work.state == "pending"
        if self.state:
            return self.state
        if self.work is not None and pending:
            return "scaling-up" if self.work.grows else "scaling-down"
        if any(vm.state == STARTING for vm in self.members.values()):
            return "scaling-up"
        return "scaling-down" if any(vm.state == DESTROYING for vm in self.members.values()) else RUNNING


@dataclass(slots=True)
class Nodepool:
    """Of an SKS cluster. taints: key -> (value, effect); max_pods 0: the kubelet's default."""

    id: str
    name: str
    pool: ExoscalePool
    created: float
    labels: dict[str, str] = field(default_factory=dict)
    taints: dict[str, tuple[str, str]] = field(default_factory=dict)
    max_pods: int = 0

    @property
    def state_now(self) -> str:
        """As the API tells it: the pool's, in the words of a Nodepool."""
        told = {"scaling-up": "scaling", "scaling-down": "scaling", "destroying": "deleting", "suspended": "error"}
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
