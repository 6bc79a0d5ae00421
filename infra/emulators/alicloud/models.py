"""Records of an emulated account: groups, machines, activities, and the configurations of machines.

They are mutable; only the simulation (simulation.py) and the setup of tests change them.
serializers.py converts them to responses. Times are epoch seconds of the given clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

GONE_SOON = frozenset({"Removing", "Removing:Wait"})
RUNNING = frozenset({"InService", "Protected", "Standby"})


class AlicloudDurations(msgspec.Struct, frozen=True):
    """Durations in seconds: creation and removal of a machine, time until a creation fails,
    interval at which ESS compares a group with its desired capacity, time until a deleted group is
    gone; time from the notice until a preemptible machine is released, time until a health check
    finds a machine that does not run, duration of a restart."""

    create: float = 40.0
    remove: float = 20.0
    fail: float = 10.0
    check: float = 300.0
    delete_group: float = 60.0
    notice: float = 300.0
    health: float = 60.0
    reboot: float = 45.0


class AlicloudProvisioningFate(msgspec.Struct, frozen=True):
    """An injected failure of a requested machine: error code and message of the activity. late: the
    machine exists for a while and then disappears, like one that does not start."""

    code: str
    message: str = "the machine cannot be created"
    late: bool = False


NO_STOCK = AlicloudProvisioningFate(
    "OperationDenied.NoStock", "The requested resource is sold out in the specified zone."
)
QUOTA = AlicloudProvisioningFate(
    "QuotaExceed.ElasticQuota", "The number of vCPUs exceeds the quota of the account."
)
NOT_STARTING = AlicloudProvisioningFate(
    "InvalidImageId.NotFound", "The image of the scaling configuration does not exist.", late=True
)


@dataclass(slots=True)
class AlicloudMachine:
    """An ECS instance in a scaling group. creation: AutoCreated, Attached or Managed. served: time
    at which it came into service, infinity before. template_version: of the launch template it was
    made of, 0 for a configuration. released_at: when ECS takes it back, infinity if that is not
    announced; released: ECS has taken it back, and ESS still lists it. running_at: when its last
    restart ends. reboots: how many it had."""

    id: str
    group: str
    zone: str
    type: str
    state: str
    created: float
    activity: str = ""
    creation: str = "AutoCreated"
    configuration: str = ""
    spot: str = "NoSpot"
    health: str = "Healthy"
    fate: AlicloudProvisioningFate | None = None
    served: float = float("inf")
    template_version: int = 0
    released_at: float = float("inf")
    released: bool = False
    running_at: float = float("-inf")
    reboots: int = 0

    @property
    def announced(self) -> bool:
        """Return whether ECS has said that it takes the machine back."""
        return self.released_at != float("inf")


@dataclass(slots=True)
class Activity:
    """A scaling activity. machines: the machines it creates or removes. waiting: a lifecycle hook
    blocks its machines. trigger: APIs or Ess."""

    id: str
    group: str
    grows: bool
    wanted: int
    started: float
    due: float
    trigger: str
    cause: str
    metadata: str = ""
    status: str = "InProgress"
    machines: list[str] = field(default_factory=list)
    problems: list[AlicloudProvisioningFate] = field(default_factory=list)
    ignored: int = 0
    ended: float | None = None
    total_after: int = 0
    waiting: bool = False
    keeps: bool = False  # machines are stopped instead of deleted (RemovePolicy recycle)
    replaces: bool = False  # a health check removes machines, for which ESS makes others at once

    @property
    def running(self) -> bool:
        """Return whether it has not ended."""
        return self.status == "InProgress"


@dataclass(slots=True)
class Configuration:
    """A scaling configuration. tags: key -> value, for its machines."""

    id: str
    group: str
    types: tuple[str, ...]
    disk: int = 40
    spot: str = "NoSpot"
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class AlicloudTemplate:
    """A version of a launch template."""

    id: str
    version: int
    type: str
    disk: int = 40
    spot: str = "NoSpot"
    tags: dict[str, str] = field(default_factory=dict)
    default: bool = True


@dataclass(slots=True)
class MachineType:
    """An ECS instance type. memory: GiB; architecture: X86 or ARM."""

    id: str
    cpu: int
    memory: float
    architecture: str = "X86"
    gpus: int = 0
    gpu: str = ""

    @property
    def family(self) -> str:
        """Return the family: `ecs.g7` for `ecs.g7.xlarge`."""
        return self.id.rpartition(".")[0]


@dataclass(slots=True)
class AlicloudGroup:
    """A scaling group. desired: None for a group without desired capacity. hook_in, hook_out:
    seconds for which lifecycle hooks block machines that are added or removed. fates: of the next
    requested machines. check_at: time of ESS's next check. remedy: ESS makes another machine when
    ECS announces that it takes one back. health_check: NONE or ECS. health_at: time of the next
    health check that finds something."""

    id: str
    name: str
    region: str
    min: int
    max: int
    desired: int | None
    zones: tuple[str, ...]
    configuration: str = ""
    template: str = ""
    template_version: str = ""
    overrides: tuple[str, ...] = ()
    state: str = "Active"
    kind: str = "ECS"
    system_suspended: bool = False
    suspended: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    multi_zone: str = "PRIORITY"
    hook_in: float = 0.0
    hook_out: float = 0.0
    machines: dict[str, AlicloudMachine] = field(default_factory=dict)
    activities: list[Activity] = field(default_factory=list)
    fates: list[AlicloudProvisioningFate] = field(default_factory=list)
    check_at: float | None = None
    gone_at: float | None = None
    remedy: bool = False
    max_lifetime: int = 0
    health_check: str = "ECS"
    health_at: float | None = None

    @property
    def running(self) -> Activity | None:
        """Return the activity in progress; a group has at most one."""
        return next((each for each in reversed(self.activities) if each.running), None)

    def count(self, *states: str) -> int:
        """Return the number of machines in these states."""
        return sum(machine.state in states for machine in self.machines.values())

    @property
    def total(self) -> int:
        """Return TotalCapacity: all machines except those in economical mode."""
        return len(self.machines) - self.count("Stopped")

    @property
    def staying(self) -> int:
        """Return TotalCapacity without the machines for which ESS makes
        others before they are gone."""
        return self.total - sum(
            machine.announced for machine in self.machines.values() if self.remedy
        )


@dataclass(frozen=True, slots=True)
class Released:
    """A machine that has left its group. kept: it was detached, and still runs and is billed."""

    machine: AlicloudMachine
    at: float
    kept: bool
