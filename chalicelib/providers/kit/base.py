"""The protocol that every cloud implements: complete reads, absolute sizes, removal by
instance, never a call per node.

The contract of each method applies to all providers, and one suite tests it for all of them
(tests/contract). A provider object holds no state between passes; it is built for one pass from the
policy's settings and a credential. No method sleeps or waits for machines: a change that takes time
returns Pending and is polled by a later message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from chalicelib.model.catalogue import Catalogue
from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.managed_group import PoolSelection, is_own_name
from chalicelib.model.node import Node
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.outcome import Failed, Outcome
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.providers.kit.errors import (
    Conflict,
    InvalidRequest,
    ProviderError,
    Throttled,
    Transient,
)
from chalicelib.providers.kit.node_identity import PermanentConflict, Seen, nodes
from chalicelib.providers.kit.services import KubeLists, ProviderServices


class Observation(msgspec.Struct, frozen=True):
    """All groups of one provider for one cluster. gaps: what could not be read; one
    unreadable group is only a gap. candidates, selections: of spec.managedPools, see
    ObservedGroups."""

    groups: tuple[NodeGroup, ...]
    gaps: tuple[MissingData, ...] = ()
    candidates: tuple[NodeGroup, ...] = ()
    selections: tuple[PoolSelection, ...] = ()


class Provider(Protocol):
    """One cloud, for one cluster, for one pass."""

    @property
    def name(self) -> str:
        """The provider's name in the policy: `clusterapi`, `exoscale` …"""

    def observe(self, nodes: Sequence[Node]) -> Observation:
        """Read every group: target, bounds, instances with state and error, template.

        nodes: the cluster's Nodes as just listed, so that a provider can match instances without
        another request. Raises ProviderError only if nothing can be read; one unreadable group
        has `error` set instead."""

    def scale_up(self, operation: Operation) -> Outcome:
        """Set the group's target to operation.to_size if it is still operation.from_size;
        idempotent per operation.

        A repeated call (crash, duplicate message) reads the target first; a target that is already
        to_size is Done. A target that is neither from_size nor to_size is Failed with cls Conflict,
        and nothing is changed. A to_size above the group's maximum is refused before any write
        (Failed, InvalidRequest).

        If the vendor cannot distinguish a request from its repetition, the first call may return
        Pending with step `announce`: nothing was requested, and data records what the next call of
        this method will request.
        """

    def has_requested(self, operation: Operation) -> bool:
        """Return whether the vendor has received a request of this scale-up, or may have: then
        `scale_up` only follows it until that is known. False: a scale-up that ends now has bought
        nothing. Changes nothing. Raises ProviderError."""

    def delete_nodes(self, operation: Operation) -> Outcome:
        """Remove exactly the instances of operation.targets (by handle) and lower the target by the
        same number; idempotent.

        An instance that is already gone or leaving counts as removed. Refused before any write
        (Failed) if a target belongs to another group or the group would fall below its minimum.
        Refused (Conflict) if the cluster's current Nodes show that a target is no longer the
        planned node, or if more than one Node claims it. When unregistered instances are deleted
        (kind "discard") the minimum does not apply, and the call is refused (Conflict) before any
        write if a target has become a node.
        """

    def cancel_delete(self, operation: Operation) -> bool:
        """Undo what `delete_nodes` has prepared at the vendor for operation.targets and not
        carried out; idempotent.

        Examples are a mark or a lifted protection, because of which the vendor might choose these
        instances later. Returns False if the vendor has started to remove all of them, so that
        nothing can be undone. Raises ProviderError."""

    def decrease_target(self, operation: Operation) -> Outcome:
        """Lower the target to operation.to_size without deleting a running instance;
        Failed if that is impossible."""

    def poll(self, operation: Operation) -> Outcome:
        """Report the progress of a change that returned Pending."""


@runtime_checkable
class OneChangeAtATime(Protocol):
    """A provider whose vendor takes one change of a group at a time, which
    may remove many instances.

    Removals of one group then share a request instead of waiting for a change each
    (operations/sibling_removals.py)."""

    def delete_together(
        self, operation: Operation, others: Iterable[Operation]
    ) -> tuple[Outcome, Mapping[str, Outcome]]:
        """`delete_nodes`, with other removals of the same group in the same request.

        others: read once, and only if the vendor takes the request now; reading them may take
        seconds. Each is judged by itself, as `delete_nodes` would judge it after those before it:
        one that would be refused is left out, and the others are removed nevertheless. Returns the
        outcome of `operation`, and by operation id the outcomes of the others in the request, each
        of which is then polled by itself. What is raised or Failed is said of `operation` alone;
        whether the others were removed is then read by their own next call of `delete_nodes`."""


@runtime_checkable
class NodeRestarter(Protocol):
    """A provider whose vendor restarts an instance; its groups say so (NodeGroup.restarts)."""

    def restart(self, operation: Operation) -> Outcome:
        """Restart the one instance of operation.targets (by handle), hard where the vendor
        distinguishes; idempotent.

        Pending while the vendor works, with what a repeated call needs in data; Done when the
        vendor says that the instance runs again, or that it has taken the request where it says no
        more. Refused before any write (Failed) if the target belongs to another group, or its Node
        shows that it is no longer the planned machine (Conflict). Raises ProviderError."""


@runtime_checkable
class CatalogueReader(Protocol):
    """A provider that lists the machine types that its vendor sells."""

    def catalogue(self, currency: str) -> Catalogue:
        """Return all types of the provider's zone, or of all regions. currency: of the prices, an
        ISO 4217 code. Raises ProviderError."""


@runtime_checkable
class PoolMaker(Protocol):
    """A provider that makes groups for spec.managedPools."""

    def refresh_catalogue(self, *, buying: bool) -> bool:
        """Read the stored catalogue again if it is due; return whether there was none before.
        buying: machines of it are bought now. Raises ProviderError."""

    def remove_group(self, operation: Operation) -> Outcome:
        """Delete the group of the operation at the vendor if it has no machine and none is
        requested; idempotent. Done where the vendor has no such group. Failed with Conflict, and
        nothing is deleted, for a group that has machines. Raises ProviderError."""

    def own_marks(self) -> Mapping[str, Callable[[], None]]:
        """Return what bears the mark of a group of this cluster, and for each a function that takes
        the mark off and leaves all else as it is; idempotent. Both raise ProviderError."""


@runtime_checkable
class QuotaReader(Protocol):
    """A provider that knows how many instances its account may still create."""

    @property
    def name(self) -> str:
        """See Provider."""

    def remaining(self) -> int | None:
        """Return the number; None without a limit. Raises ProviderError."""


@runtime_checkable
class AddonReader(Protocol):
    """A provider whose vendor runs programs in managed clusters, at the wish of their users."""

    def addons(self, groups: Sequence[NodeGroup]) -> frozenset[str]:
        """Return the names of the add-ons of the managed clusters that own these groups; none where
        no managed cluster does. Raises ProviderError."""


class Connection(msgspec.Struct, frozen=True):
    """The inputs of a provider: the cluster, its group bounds and its own settings as validated by
    the policy. read_secret: secret name -> text, raises OutscalerError. kube: the workload
    cluster's client, for providers that live in a Kubernetes API themselves (Cluster API); typed
    there. access: how that client reaches the cluster. pools: the declarations of managed pools.
    currency: of the policy's prices, "" if it names none."""

    cluster: str
    settings: Mapping[str, str]
    groups: tuple[GroupPolicy, ...]
    read_secret: Callable[[str], str]
    kube: object | None
    now: Callable[[], float]
    access: KubernetesAccess = KubernetesAccess()
    means: ProviderServices = ProviderServices()
    pools: tuple[ManagedPool, ...] = ()
    currency: str = ""

    @property
    def joined(self) -> Callable[[], tuple[Seen, ...]] | None:
        """Lists the cluster's current nodes, which a change asks for again before it removes a
        machine; None without a connection to the cluster."""
        if self.kube is None:
            return None
        kube = cast(KubeLists, self.kube)
        return lambda: nodes(kube)


C = TypeVar("C")


class BaseProvider(Generic[C]):
    """A provider whose changes are functions of a context. A vendor's class has the methods of
    Provider as `scale_up = change(scale_up)`, and implements observe.

    Each call is independent: a change first reads its own progress, so its next step is a repeated
    call. Only a scale-up has a function of its own for that, if the vendor takes long."""

    name: str
    permanent_conflict: type[Conflict] = PermanentConflict
    """A Conflict that a retry cannot resolve."""
    delete_nodes: Callable[[Operation], Outcome]
    decrease_target: Callable[[Operation], Outcome]
    poll_scale_up: Callable[[Operation], Outcome]

    def __init__(self, context: C) -> None:
        self.context = context

    def poll(self, operation: Operation) -> Outcome:
        """Execute the next step of a change."""
        match operation.spec.kind:
            case OperationKind.SCALE_UP:
                return self.poll_scale_up(operation)
            case OperationKind.DECREASE_TARGET:
                return self.decrease_target(operation)
            case OperationKind.RESTART_NODE if isinstance(self, NodeRestarter):
                return self.restart(operation)
            case OperationKind.REMOVE_GROUP if isinstance(self, PoolMaker):
                return self.remove_group(operation)
            case OperationKind.RESTART_NODE | OperationKind.REMOVE_GROUP as kind:
                # never a deletion of nodes, whatever the vendor's class has
                change = "restart a node" if kind is OperationKind.RESTART_NODE else "delete groups"
                return Failed("InvalidRequest", f"{self.name} cannot {change}")
        return self.delete_nodes(operation)

    def failure(self, error: BadInput | ProviderError) -> Failed:
        """Return the failure of an error that rules out success. Raises errors after which the
        change may have happened or may succeed soon (Transient, Throttled, other Conflicts), so
        that the caller waits and calls again: a busy group is never counted as failed."""
        if isinstance(error, BadInput):
            return Failed("InvalidRequest", str(error).splitlines()[0])
        if isinstance(error, Transient | Throttled | Conflict) and not isinstance(
            error, self.permanent_conflict
        ):
            raise error
        return Failed(error.error_class, error.message, error.code, error.retry_after)


def change(
    function: Callable[[C, Operation], Outcome],
    own: Callable[[C, Operation], Outcome] | None = None,
) -> Callable[[BaseProvider[C], Operation], Outcome]:
    """Return a method that makes a change. function: raises ProviderError, or BadInput for a
    configuration error; the method returns or raises what `failure` makes of it. own: in place of
    it for groups of spec.managedPools, None if it changes them too."""

    def method(self: BaseProvider[C], operation: Operation) -> Outcome:
        try:
            if own is not None and is_own_name(operation.spec.group):
                return own(self.context, operation)
            return function(self.context, operation)
        except (BadInput, ProviderError) as error:
            return self.failure(error)

    return method


def joint_change(
    function: Callable[[C, Operation, Iterable[Operation]], tuple[Outcome, dict[str, Outcome]]],
) -> Callable[
    [BaseProvider[C], Operation, Iterable[Operation]], tuple[Outcome, dict[str, Outcome]]
]:
    """Return a method that makes a change of several operations (OneChangeAtATime). function: as in
    `change`; what it raises is said of the first operation alone."""

    def method(
        self: BaseProvider[C], operation: Operation, others: Iterable[Operation]
    ) -> tuple[Outcome, dict[str, Outcome]]:
        try:
            return function(self.context, operation, others)
        except (BadInput, ProviderError) as error:
            return self.failure(error), {}

    return method


def question(
    function: Callable[[C, Operation], bool],
    own: Callable[[C, Operation], bool] | None = None,
) -> Callable[[BaseProvider[C], Operation], bool]:
    """Return a method that answers a question about a change, or undoes it. function: raises
    ProviderError, or BadInput for a configuration error, which is InvalidRequest. own: see
    change."""

    def method(self: BaseProvider[C], operation: Operation) -> bool:
        try:
            if own is not None and is_own_name(operation.spec.group):
                return own(self.context, operation)
            return function(self.context, operation)
        except BadInput as error:
            raise InvalidRequest(str(error)) from error

    return method
