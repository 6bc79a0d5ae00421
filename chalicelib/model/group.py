"""Node groups and their instances as a provider reports them. Provider's words stop at its own package."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.model.node import Node


class InstanceState(StrEnum):
    """What the vendor says of one machine."""

    CREATING = "creating"
    RUNNING = "running"
    DELETING = "deleting"


class InstanceError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a machine is not coming. cls is the name of a provider error class (OutOfStock, QuotaExceeded, Unknown …)."""

    cls: str
    code: str = ""
    message: str = ""


class Instance(msgspec.Struct, frozen=True, omit_defaults=True):
    """One machine. id equals Node.provider_id once it has joined; handle is what the provider removes it by. held: why
    the provider will not remove it just now (a person protects it there), empty where it would. created: when the
    vendor made it, epoch seconds, 0.0: not said. claimants: the names of the Nodes that say that they are this machine,
    where it cannot be known which of them is; `node` is empty then."""

    id: str
    state: InstanceState = InstanceState.RUNNING
    error: InstanceError | None = None
    handle: str = ""
    node: str = ""
    held: str = ""
    created: float = 0.0
    claimants: tuple[str, ...] = ()


class GroupOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Per-group overrides (options.md §1); None means "as the cluster". Times in seconds."""

    scale_down_utilization_threshold: float | None = None
    scale_down_gpu_utilization_threshold: float | None = None
    scale_down_unneeded_time: float | None = None
    scale_down_unready_time: float | None = None
    max_node_provision_time: float | None = None
    max_node_startup_time: float | None = None
    ignore_daemonsets_utilization: bool | None = None
    scale_down_cooldown: float | None = None  # a node younger than this stays (huaweicloud-cce.md A8.8)
    zero_or_max: bool = False
    enforce_min: bool = False  # raised to its minimum whatever enforceNodeGroupMinSize says (a schedule's)
    unpromised_labels: tuple[str, ...] = ()  # no new node is bought for a pod that asks for one (A1.2)
    allow_non_atomic_scale_up_to_max: bool = False


class Pool(msgspec.Struct, frozen=True, omit_defaults=True):
    """What several node groups of a vendor's pool share (huaweicloud-cce.md B5): bounds of all their sizes together.

    max: -1 where there is none. elsewhere: machines of the pool that are in none of its node groups, and count too.
    """

    id: str
    name: str = ""
    min: int = 0
    max: int = -1
    elsewhere: int = 0


class NodeGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A set of alike machines with one size. Read whole or carried with `error`: a group that cannot be read
    stops nothing else (demands.md 3). discovered: only what Nodes say of themselves makes it this cluster's; neither
    the policy nor the vendor's own list of the cluster's groups names it."""

    id: str
    provider: str
    min: int = 0
    max: int = 0
    target: int = 0
    instances: tuple[Instance, ...] = ()
    template: Node | None = None
    template_error: str = ""
    template_volumes: dict[str, int] = {}  # CSI driver -> most volumes a new node attaches; 0: as many as one likes
    template_devices: dict[str, int] = {}  # DRA driver -> devices a new node publishes
    error: str = ""
    options: GroupOptions = GroupOptions()
    priority: int = 0
    rank: int = 0  # among groups of equal priority the higher is preferred (A6.5 c)
    pool: Pool | None = None  # None: it is a pool of its own
    aliases: tuple[str, ...] = ()  # further names that people know it by; a policy and a priority list may use them
    price: float = 0.0  # what one node costs per hour as the provider says; 0: it does not say
    claim: str = ""  # what the group is in the world, whatever a policy calls the way to it; empty: not known
    scale_down_held: str = ""  # why the provider forbids removals just now (a rollout), empty where it does not
    discovered: bool = False
