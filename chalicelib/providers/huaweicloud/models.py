"""The used types of CCE, ECS and IAM, created by decoding.py; their hosts; and what
the vendor's states mean.

An item of a list that cannot be decoded stays in it with an `error`, so it is reported and
does not affect the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from chalicelib.model.group import InstanceState
from chalicelib.model.node import SCALE_DOWN_DISABLED
from chalicelib.net.vendor_hosts import CCE_REGIONS
from chalicelib.providers.kit.errors import (
    InstallFailed,
    InvalidRequest,
    OutOfStock,
    ProviderError,
    QuotaExceeded,
    Unknown,
)

DEFAULT_GROUP = "default"
"""The scale group that a pool's own template is."""
DEFAULT_POOL = "DefaultPool"
"""Name and uid of the virtual pool of nodes that belong to none; it cannot be scaled."""
PREPAID = 1
"""The billingMode of what was paid for a month or a year in advance; 0 is pay-per-use."""

_GONE = ("abandon", "sellout")


class CceCondition(msgspec.Struct, frozen=True):
    """A condition of a pool or a scale group. type: Scalable, QuotaInsufficient …;
    status: True or False, as text."""

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
    """One flavour in one AZ of a pool. min, max None: not set, the pool's apply. desired,
    existing, upcoming: nodes. held: nodes under scale-in protection. error: why its numbers are
    unknown; they are 0 then."""

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
    """A pool's own settings for scaling. None: not set (the vendor also writes
    -1). utilization: 0 to 1."""

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


def is_spot(extend: Mapping[str, Any]) -> bool:
    """Whether an extendParam, of a pool's template or of a node, orders spot instances."""
    return str(extend.get("marketType", "")).strip().lower() == "spot"


class NodeTemplate(msgspec.Struct, frozen=True):
    """The properties of new nodes of the default scale group. az may be `random`.
    extend: extendParam unchanged (maxPods, kubeReservedMem …). runtime: containerd or
    docker, empty if unknown."""

    flavor: str = ""
    az: str = ""
    taints: tuple[CceTaint, ...] = ()
    k8s_tags: dict[str, str] = {}
    extend: dict[str, Any] = {}
    runtime: str = ""
    os: str = ""
    billing: int = 0

    @property
    def spot(self) -> bool:
        """Whether new nodes are spot instances."""
        return is_spot(self.extend)


class NodePool(msgspec.Struct, frozen=True):
    """A node pool. desired: of all groups together (spec.initialNodeCount). groups: the default one
    first. current: existing nodes, without those being deleted. error: why it could not be decoded;
    id may be "" then, and every other field has its default."""

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

    def group(self, name: str) -> ScaleGroup | None:
        """Return the scale group of that name."""
        return next((group for group in self.groups if group.name == name), None)


class CceNode(msgspec.Struct, frozen=True):
    """A node in CCE. pool: the uid of its pool, "" for a node outside any. server: the ECS server's
    id. created: epoch seconds, 0.0 if it cannot be read. os, runtime: "" if CCE does not state
    them. spot: it is known to be a spot instance. error: why it cannot be decoded; id is ""
    then."""

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
    os: str = ""
    runtime: str = ""
    spot: bool = False
    error: str = ""


class CceJob(msgspec.Struct, frozen=True):
    """phase: Initializing, Running, Failed, Success; of a job of ECS: INIT, RUNNING, FAIL,
    SUCCESS."""

    id: str
    phase: str = ""
    reason: str = ""
    type: str = ""


class Addon(msgspec.Struct, frozen=True):
    """An add-on of the cluster. template: `autoscaler` is the vendor's own autoscaler.
    custom: its settings unchanged."""

    template: str
    status: str = ""
    custom: dict[str, Any] = {}


class Flavor(msgspec.Struct, frozen=True, array_like=True):
    """A flavour of ECS. arch: amd64 or arm64. gpu: model and count. accelerators: the others,
    including Ascend. state: of the whole region; states: AZ -> state."""

    name: str
    vcpus: int
    memory_mib: int
    arch: str = "amd64"
    gpu: tuple[str, int] | None = None
    accelerators: tuple[tuple[str, int], ...] = ()
    state: str = ""
    states: dict[str, str] = {}

    def sold_out(self, az: str) -> bool:
        """Whether the flavour is unavailable in that AZ now, according to the vendor; the AZ's
        state overrides the region's. This is only a hint."""
        return self.states.get(az, self.state).lower().endswith(_GONE)


# -- services and their hosts, taken from the vendor's own client. A region that is not in the table
# uses the common pattern, because the vendor opens new ones; the policy warns about it.


class Service(StrEnum):
    """The services that are called, named by the first label of their hosts."""

    CCE = "cce"
    ECS = "ecs"
    IAM = "iam"
    BSS = "bss"


# Regions without their own IAM in the vendor's client (3.1.219), which use the
# global one. eu-west-101 is missing there too, but it is a separate partition with
# its IAM under its own domain.
_GLOBAL_IAM = frozenset(
    {"cn-north-11", "cn-south-4", "ap-southeast-5", "af-north-1", "ru-northwest-2"}
)


CHINESE_BSS, INTERNATIONAL_BSS = (
    "https://bss.myhuaweicloud.com",
    "https://bss-intl.myhuaweicloud.com",
)
"""Where prices are asked. An account belongs to one site, whatever the region of its clusters; by
default the site of the region is assumed."""


def url_of(service: Service, region: str) -> str:
    """Return the service's root, such as `https://cce.cn-north-4.myhuaweicloud.com`."""
    domain = "myhuaweicloud.eu" if region == "eu-west-101" else "myhuaweicloud.com"
    if service is Service.BSS:
        return (
            f"https://bss.{domain}"
            if domain.endswith("eu") or region.startswith("cn-")
            else INTERNATIONAL_BSS
        )
    if service is Service.IAM and (region in _GLOBAL_IAM or region not in CCE_REGIONS):
        return f"https://iam.{domain}"
    return f"https://{service}.{region}.{domain}"


# -- states. All phases of pools are deprecated, so counters and conditions describe a pool. An
# unknown state blocks nothing.

ERROR, DELETING, SOLD_OUT = "Error", "Deleting", "SoldOut"
SCALABLE = "Scalable"
NODE_STATES: Mapping[str, InstanceState] = MappingProxyType(
    {
        "Build": InstanceState.CREATING,
        "Installing": InstanceState.CREATING,
        "Active": InstanceState.RUNNING,
        "Upgrading": InstanceState.RUNNING,
        "Abnormal": InstanceState.RUNNING,
        "Repairing": InstanceState.RUNNING,
        "RepairFailed": InstanceState.RUNNING,
        DELETING: InstanceState.DELETING,
        ERROR: InstanceState.CREATING,
    }
)
# Phases in which CCE works on a node that has joined. Abnormal, Error and
# RepairFailed are results, not work.
_BUSY_NODES = frozenset({"Installing", "Upgrading", "Repairing"})
# Synchronized means that the work of a pool waits, for instance for stock, which may take for ever.
_BUSY_POOLS = frozenset({"Synchronizing"})
# Condition -> error class and text; the first that is true decides.
_CAUSES: tuple[tuple[str, type[ProviderError], str], ...] = (
    ("QuotaInsufficient", QuotaExceeded, "the account's quota is used up"),
    ("ResourceInsufficient", OutOfStock, "the flavour is sold out"),
    ("UnexpectedError", InstallFailed, "a node could not be made"),
    ("LockedByOrder", Unknown, "an order waits to be paid"),
    ("InstanceAboveServerGroup", QuotaExceeded, "the server group is full"),
    ("MaxNodeCountReached", QuotaExceeded, "the most nodes are reached"),
    ("ConfigurationInvalid", InvalidRequest, "the pool's configuration is not valid"),
)
_READY = frozenset({"Available", "ScalingUp", "ScalingDown"})
_OVER = frozenset({"Deleting", "Hibernation", "Hibernating", "Empty"})


def is_leaving(node: CceNode) -> bool:
    """Whether CCE is deleting the node."""
    return node.phase == DELETING


def work_on(node: CceNode) -> str:
    """Return what CCE does with a node now, empty if nothing; only sensible
    for a node that has joined."""
    return f"CCE: node phase {node.phase}" if node.phase in _BUSY_NODES else ""


def work_on_pool(pool: NodePool) -> str:
    """Return what CCE does with the nodes of a pool now, empty if nothing."""
    return f"CCE: node pool phase {pool.phase}" if pool.phase in _BUSY_POOLS else ""


def failure(pool: NodePool, group: ScaleGroup) -> ProviderError | None:
    """Return why the group's nodes do not come, according to its conditions, or the pool's if it is
    the only group. None: no condition reports a failure."""
    sole = len(pool.groups) == 1
    if error := _condition_error(group.conditions or (pool.conditions if sole else ())):
        return error
    if sole and pool.phase == SOLD_OUT:
        return OutOfStock("the pool is in the phase SoldOut: sold out, or quota", code=SOLD_OUT)
    return None


def refusal(pool: NodePool, group: ScaleGroup) -> ProviderError | None:
    """Return why CCE refuses to scale the group up (Scalable is False), with the
    class of a related condition."""
    conditions = (*group.conditions, *pool.conditions)
    refused = next(
        (condition for condition in conditions if condition.type == SCALABLE and condition.false),
        None,
    )
    if refused is None:
        return None
    unknown = Unknown(f"it cannot be scaled just now{_details(refused)}", code=SCALABLE)
    return failure(pool, group) or _condition_error(pool.conditions) or unknown


def _condition_error(conditions: Iterable[CceCondition]) -> ProviderError | None:
    true = {condition.type: condition for condition in conditions if condition.true}
    for kind, cls, text in _CAUSES:
        if kind in true:
            return cls(f"{text}{_details(true[kind])}", code=kind)
    return None


def _details(condition: CceCondition) -> str:
    text = ", ".join(part for part in (condition.reason, condition.message) if part)
    return f" ({text})" if text else ""


def has_servers(pool: NodePool) -> bool:
    """Whether the pool's nodes are servers of ECS."""
    return pool.type in {"", "vm"}


def unchangeable(pool: NodePool) -> str:
    """Return why the pool is not changed; empty if it may be."""
    rows = (
        (DEFAULT_POOL in {pool.id, pool.name}, "is the default pool, which cannot be scaled"),
        (
            pool.template.billing == PREPAID,
            "is prepaid; only pools that are paid by use can be scaled",
        ),
        (pool.phase == DELETING, "is being deleted"),
    )
    return next((text for applies, text in rows if applies), "")


def cluster_off(phase: str) -> tuple[str, bool]:
    """Return why a cluster in that phase accepts no change, and whether waiting resolves it; ("",
    True) if it accepts them. Only Available, ScalingUp and ScalingDown do."""
    if not phase or phase in _READY:
        return "", True
    return f"the cluster is in the phase {phase}", phase not in _OVER


# -- scale-in protection. CCE documents only the number of protected nodes per scale group.
# Annotations may identify them: CCE's own, or that of Kubernetes, which the planner honours anyway.
# If fewer are identified than exist, each node of the group may be protected, and none is removed
# until a user identifies them.

_PROTECTIONS = frozenset({"scaledowndisabled", "nodescaledowndisabled", "scaledownlocked"})


def is_protected(annotations: Mapping[str, str]) -> bool:
    """Whether an annotation protects the node: that of Kubernetes, or one of
    CCE's with the same words."""
    return any(
        value.strip().lower() == "true"
        and (
            key == SCALE_DOWN_DISABLED
            or key.rpartition("/")[2].replace("-", "").replace("_", "").lower() in _PROTECTIONS
        )
        for key, value in annotations.items()
    )


def undeletable(node: CceNode) -> str:
    """Return why this node must not be deleted according to CCE; empty if it may be."""
    name = node.name or node.id
    if node.billing == PREPAID:
        return f"{name} is prepaid; delete it manually"
    if is_protected(node.annotations):
        return f"{name} is protected from scale-in at CCE; unlock it so that it can be removed"
    return ""


def unidentified_protection(pool: NodePool, group: ScaleGroup, identified: int) -> str:
    """Return why no node of the group may be removed: only that many of its protected ones are
    identified. Empty if all are."""
    if group.held <= identified:
        return ""
    return (
        f"{group.held} nodes of {pool.name}/{group.name} are protected from scale-in at CCE, which "
        "does not say which; "
        f"annotate them with {SCALE_DOWN_DISABLED}=true, so that the others may go, or unlock them"
    )
