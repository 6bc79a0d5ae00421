"""The used types of CCE, ECS and IAM, created by decoding.py.

An item of a list that cannot be decoded stays in it with an `error`, so it is reported and does not affect the others.
"""

from __future__ import annotations

from typing import Any

import msgspec

DEFAULT_GROUP = "default"
"""The scale group that a pool's own template is."""
DEFAULT_POOL = "DefaultPool"
"""Name and uid of the virtual pool of nodes that belong to none; it cannot be scaled."""
PREPAID = 1
"""The billingMode of what was paid for a month or a year in advance; 0 is pay-per-use."""

_GONE = ("abandon", "sellout")


class CceCondition(msgspec.Struct, frozen=True):
    """A condition of a pool or a scale group. type: Scalable, QuotaInsufficient …; status: True or False, as text."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""

    @property
    def true(self) -> bool:
        """Whether the status is True."""
        return self.status.lower() == "true"

    @property
    def false(self) -> bool:
        """Whether the status is False; an unknown status is neither true nor false."""
        return self.status.lower() == "false"


class ScaleGroup(msgspec.Struct, frozen=True):
    """One flavour in one AZ of a pool. min, max None: not set, the pool's apply. desired, existing, upcoming: nodes.
    held: nodes under scale-in protection. error: why its numbers are unknown; they are 0 then."""

    name: str
    uid: str = ""
    flavor: str = ""
    az: str = ""
    enabled: bool = False
    min: int | None = None
    max: int | None = None
    priority: int = 0
    desired: int = 0
    existing: int = 0
    upcoming: int = 0
    held: int = 0
    conditions: tuple[CceCondition, ...] = ()
    error: str = ""


class Autoscaling(msgspec.Struct, frozen=True):
    """A pool's own settings for scaling. None: not set (the vendor also writes -1). utilization: 0 to 1."""

    enable: bool = False
    min: int | None = None
    max: int | None = None
    cooldown_minutes: int = 0
    priority: int = 0
    unneeded_minutes: int | None = None
    utilization: float | None = None


class CceTaint(msgspec.Struct, frozen=True):
    """A taint of a pool's template."""

    key: str
    value: str = ""
    effect: str = ""


class NodeTemplate(msgspec.Struct, frozen=True):
    """The properties of new nodes of the default scale group. az may be `random`. extend: extendParam unchanged
    (maxPods, kubeReservedMem …). runtime: containerd or docker, empty if unknown."""

    flavor: str = ""
    az: str = ""
    taints: tuple[CceTaint, ...] = ()
    k8s_tags: dict[str, str] = {}
    extend: dict[str, Any] = {}
    runtime: str = ""
    os: str = ""
    billing: int = 0


class NodePool(msgspec.Struct, frozen=True):
    """A node pool. desired: of all groups together (spec.initialNodeCount). groups: the default one first. current:
    existing nodes, without those being deleted. error: why it could not be decoded; id may be "" then, and every
    other field has its default."""

    id: str
    name: str = ""
    type: str = ""
    desired: int = 0
    autoscaling: Autoscaling = Autoscaling()
    template: NodeTemplate = NodeTemplate()
    groups: tuple[ScaleGroup, ...] = ()
    current: int = 0
    creating: int = 0
    deleting: int = 0
    active: int = 0
    phase: str = ""
    conditions: tuple[CceCondition, ...] = ()
    error: str = ""

    @property
    def billing(self) -> int:
        """0: pay-per-use; 1: prepaid, not changed."""
        return self.template.billing

    def group(self, name: str) -> ScaleGroup | None:
        """Return the scale group of that name."""
        return next((each for each in self.groups if each.name == name), None)


class CceNode(msgspec.Struct, frozen=True):
    """A node in CCE. pool: the uid of its pool, "" for a node outside any. server: the ECS server's id. created: epoch
    seconds, 0.0 if it cannot be read. error: why it cannot be decoded; id is "" then."""

    id: str
    name: str = ""
    pool: str = ""
    pool_name: str = ""
    flavor: str = ""
    az: str = ""
    phase: str = ""
    server: str = ""
    private_ip: str = ""
    billing: int = 0
    annotations: dict[str, str] = {}
    created: float = 0.0
    error: str = ""


class CceJob(msgspec.Struct, frozen=True):
    """phase: Initializing, Running, Failed, Success."""

    id: str
    phase: str = ""
    reason: str = ""
    type: str = ""


class Addon(msgspec.Struct, frozen=True):
    """An add-on of the cluster. template: `autoscaler` is the vendor's own autoscaler. custom: its settings
    unchanged."""

    template: str
    status: str = ""
    custom: dict[str, Any] = {}


class Flavor(msgspec.Struct, frozen=True, array_like=True):
    """A flavour of ECS. arch: amd64 or arm64. gpu: model and count. accelerators: the others, including Ascend. state:
    of the whole region; states: AZ -> state."""

    name: str
    vcpus: int
    memory_mib: int
    arch: str = "amd64"
    gpu: tuple[str, int] | None = None
    accelerators: tuple[tuple[str, int], ...] = ()
    state: str = ""
    states: dict[str, str] = {}

    def sold_out(self, az: str) -> bool:
        """Whether the flavour is unavailable in that AZ now, according to the vendor; the AZ's state overrides the
        region's.

        This is only a hint."""
        return self.states.get(az, self.state).lower().endswith(_GONE)
