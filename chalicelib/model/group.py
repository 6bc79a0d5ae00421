"""Node groups and their instances as a provider reports them, in terms that do
not depend on the vendor.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from chalicelib.model.managed_group import Managed
from chalicelib.model.node import Node


class InstanceState(StrEnum):
    """The state of an instance as the vendor reports it."""

    CREATING = "creating"
    RUNNING = "running"
    DELETING = "deleting"


class InstanceError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an instance was not created. cls is the name of a provider error class (OutOfStock,
    QuotaExceeded, Unknown …)."""

    cls: str
    code: str = ""
    message: str = ""


class Instance(msgspec.Struct, frozen=True, omit_defaults=True):
    """One instance. id equals Node.provider_id once it has joined; handle identifies it when the
    provider removes it. held: why the provider currently refuses to remove it (a user protects it
    there), empty if it does not. created: creation time at the vendor, epoch seconds, 0.0: unknown.
    claimants: the names of the Nodes that claim this instance if its Node cannot be determined;
    `node` is empty then. leaves_at: when the vendor takes it back, as it has announced, epoch
    seconds; 0.0: it has announced nothing. outdated: in what it differs from an instance that the
    group would create now, "" in nothing that is known. busy: what the vendor changes on it now,
    for instance a repair; repaired_by: who repairs it if it is sick; "" for nobody.
    left_mark: a removal that is over has left a mark there, because of which it would be the first
    to go. born: when it was requested, epoch seconds, 0.0: unknown. Its node's age counts from it;
    it does not show that the vendor has created anything."""

    id: str
    state: InstanceState = InstanceState.RUNNING
    error: InstanceError | None = None
    handle: str = ""
    node: str = ""
    held: str = ""
    created: float = 0.0
    claimants: tuple[str, ...] = ()
    leaves_at: float = 0.0
    outdated: str = ""
    busy: str = ""
    repaired_by: str = ""
    left_mark: bool = False
    born: float = 0.0


class GroupOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Per-group overrides; None means "as the cluster". Times in seconds."""

    scale_down_utilization_threshold: float | None = None
    scale_down_gpu_utilization_threshold: float | None = None
    scale_down_unneeded_time: float | None = None
    scale_down_unready_time: float | None = None
    max_node_provision_time: float | None = None
    max_node_startup_time: float | None = None
    ignore_daemonsets_utilization: bool | None = None
    scale_down_cooldown: float | None = None  # a node younger than this is not removed
    zero_or_max: bool = False
    # raised to its minimum regardless of enforceNodeGroupMinSize: a schedule, CCE
    enforce_min: bool = False
    # no new node is bought for a pod that requires one of these
    unpromised_labels: tuple[str, ...] = ()
    allow_non_atomic_scale_up_to_max: bool = False


class Pool(msgspec.Struct, frozen=True, omit_defaults=True):
    """Properties that several node groups of a vendor's pool share: bounds of their total size.

    max: -1 if there is none. elsewhere: instances of the pool that are in none of its
    node groups, and count too.
    """

    id: str
    name: str = ""
    min: int = 0
    max: int = -1
    elsewhere: int = 0


class SizeWriter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who wrote the size of a group last, and when, epoch seconds."""

    name: str
    at: float = 0.0


DEAREST = 1_000_000.0
"""An hourly price above this is an error of the vendor's answer."""


class NodeGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A set of equal instances with one size. A group that cannot be read has `error` set and does
    not affect other groups. discovered: only claims of Nodes assign it to this cluster; neither the
    policy nor the vendor's own list of the cluster's groups names it."""

    id: str
    provider: str
    min: int = 0
    max: int = 0
    target: int = 0
    instances: tuple[Instance, ...] = ()
    template: Node | None = None
    template_error: str = ""
    # the template names all taints that the vendor gives a new node: no other one is there
    states_taints: bool = False
    # CSI driver -> most volumes a new node attaches; 0: no limit
    template_volumes: dict[str, int] = {}
    template_devices: dict[str, int] = {}  # DRA driver -> devices a new node publishes
    error: str = ""
    options: GroupOptions = GroupOptions()
    priority: int = 0
    rank: int = 0  # among groups of equal priority the higher is preferred
    pool: Pool | None = None  # None: it is its own pool
    # further names of the group; a policy and a priority list may use them
    aliases: tuple[str, ...] = ()
    price: float = 0.0  # hourly price of one node according to the provider; 0: unknown
    currency: str = ""  # ISO 4217 code of `price`; "": unknown
    priced_at: float = 0.0  # epoch seconds at which the provider read `price`; 0.0: in this pass
    # seconds of the vendor's billing unit: a started unit is paid as a whole
    billed_per: float = 1.0
    price_error: str = ""  # why its provider names no price, empty if it does or never does
    spot: bool = False  # its instances may be taken back by the vendor
    # share of its instances that the vendor says it takes back in a month; 0: unknown
    interruption_rate: float = 0.0
    # the vendor buys another instance when it announces an interruption
    replaces_interrupted: bool = False
    restarts: bool = False  # its provider can restart an instance (NodeRestarter)
    busy: str = ""  # the vendor's activity that changes its instances now, empty if none does
    # globally unique identity of the group, independent of policy names; empty: unknown
    claim: str = ""
    # why the provider currently forbids removals (a rollout), empty if it does not
    scale_down_held: str = ""
    discovered: bool = False
    name: str = ""  # what a person calls it, for display only; empty: its id
    # Where a new node may be, if that may be in one of several zones; "" for a zone that
    # its provider cannot name.
    zones: tuple[str, ...] = ()
    size_writer: SizeWriter | None = None  # None: its provider does not say
    managed: Managed | None = None  # None: somebody else has made it
