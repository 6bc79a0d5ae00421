"""The one protocol every cloud fulfils: whole sets, absolute sizes, removal by instance, never a call per node.

The contract of each method holds for all providers and is tested for all of them by the same suite (tests/contract).
A provider object holds no state between passes; it is built for one pass from the policy's settings and a credential.
No method sleeps or waits for machines: what takes time returns Pending and is polled by a later message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Outcome
from chalicelib.model.policy import GroupPolicy, KubernetesAccess
from chalicelib.model.snapshot import MissingData
from chalicelib.providers.services import ProviderServices


class Observation(msgspec.Struct, frozen=True):
    """All groups of one provider for one cluster; gaps: what could not be read (one bad group is a gap, not an end)."""

    groups: tuple[NodeGroup, ...]
    gaps: tuple[MissingData, ...] = ()


class Provider(Protocol):
    """One cloud, for one cluster, for one pass."""

    @property
    def name(self) -> str:
        """The provider's name in the policy: `clusterapi`, `exoscale` …"""

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read every group: target, bounds, instances with state and error, template. nodes: the cluster's Nodes as
        just listed, so that a provider can match instances without asking again.

        Raises ProviderError only if nothing at all can be read; one unreadable group carries `error` instead.
        """

    def grow(self, operation: Operation) -> Outcome:
        """Make the group's target operation.to_size, if it still is operation.from_size; idempotent per operation.

        Sequence for a repeated call (crash, duplicate message): ask first; a target that is already to_size is Done.
        A target that is neither from_size nor to_size is Failed with cls Conflict and nothing is changed. Refused
        before any write if to_size is above the group's maximum (Failed, InvalidRequest).

        Where the vendor's requests cannot be told from their repetition, the first call may return Pending with step
        `announce`: nothing was asked for, and data says what the next call will ask for. That is a call of grow again.
        """

    def remove(self, operation: Operation) -> Outcome:
        """Remove exactly the instances of operation.targets (by handle) and lower the target by as many; idempotent.

        An instance that is already gone or leaving counts as removed. Refused before any write (Failed) if a target
        belongs to another group or the group would fall below its minimum; refused (Conflict) if by the cluster's
        Nodes as of now a target is not the planned node any more, or more than one Node claims it. For Kind.DISCARD the
        minimum is not asked; refused (Conflict), before any write, if a target has become a node.
        """

    def release(self, operation: Operation) -> bool:
        """Take back what `remove` has prepared at the vendor for operation.targets and not carried out (a mark, a
        protection taken off), so that nothing of it makes the vendor choose them later; idempotent. False: the vendor
        has taken the removal of all of them up, so that nothing can be taken back. Raises ProviderError.
        """

    def shrink_target(self, operation: Operation) -> Outcome:
        """Lower the target to operation.to_size without deleting a running instance; Failed if that cannot be."""

    def poll(self, operation: Operation) -> Outcome:
        """Where a change that returned Pending stands now."""


class Connection(msgspec.Struct, frozen=True):
    """What a provider is built from: the cluster, its group bounds and its own settings as checked by the policy.

    read_secret: secret name -> text, raises OutscalerError. kube: the workload cluster's client, for providers that
    live in a Kubernetes API themselves (Cluster API); typed there. access: how that client was told to get there.
    """

    cluster: str
    settings: Mapping[str, str]
    groups: tuple[GroupPolicy, ...]
    read_secret: Callable[[str], str]
    kube: object | None
    now: Callable[[], float]
    access: KubernetesAccess = KubernetesAccess()
    means: ProviderServices = ProviderServices()
