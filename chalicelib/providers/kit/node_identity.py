"""Matches machines to Nodes when only the Node itself states its identity.

A providerID, a host name and an address are all claims of the kubelet. A machine has a Node only if
exactly one Node claims it and that Node claims no other machine. In all other cases the machine
is contested: it exists, and neither it nor the Nodes that claim it are changed
(docs/reference/node-groups.md "Node identity").

The check is repeated immediately before a vendor is asked to delete a machine, because a Node may
have been registered or replaced since the plan was made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.kit.errors import Conflict, Transient
from chalicelib.providers.kit.services import KubeLists

M = TypeVar("M", bound=Hashable)


class Known(Protocol):
    """A Node, as listed by a pass (model/node.py) or read during a change (Seen)."""

    @property
    def name(self) -> str:
        """Its name, which a kubelet cannot change."""

    @property
    def provider_id(self) -> str:
        """Its providerID, or ""."""

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""


N = TypeVar("N", bound=Known)


class Identity(Generic[M, N]):
    """claimed: the machines that each Node claims to be, by any of its fields; more than one if its
    fields contradict each other. hinted: machines that it may mean by a field that proves nothing
    (another form of an id, the name of another machine); these give no machine a Node, and make the
    machine contested. M: the provider's key of a machine."""

    def __init__(
        self,
        nodes: Iterable[N],
        claimed: Callable[[N], Iterable[M]],
        hinted: Callable[[N], Iterable[M]] | None = None,
    ) -> None:
        self._nodes: dict[M, N] = {}
        self._claimants: dict[M, set[str]] = {}
        bearers: dict[M, list[N]] = {}
        doubtful: set[M] = set()
        for node in nodes:
            machines = frozenset(claimed(node))
            hints = frozenset(hinted(node)) - machines if hinted is not None else frozenset[M]()
            doubtful |= hints | (machines if len(machines | hints) > 1 else frozenset())
            for machine in machines:
                bearers.setdefault(machine, []).append(node)
            for machine in machines | hints:
                self._claimants.setdefault(machine, set()).add(node.name)
        self._nodes = {
            machine: nodes[0]
            for machine, nodes in bearers.items()
            if len(nodes) == 1 and machine not in doubtful
        }

    def node_of(self, machine: M) -> N | None:
        """Return the Node of a machine; None if it has not joined or is contested."""
        return self._nodes.get(machine)

    def claimants(self, machine: M) -> tuple[str, ...]:
        """Return the names of the Nodes that claim a contested machine, sorted;
        empty if it is not contested."""
        return () if machine in self._nodes else tuple(sorted(self._claimants.get(machine, ())))

    def machines(self) -> tuple[M, ...]:
        """Return the machines that have a Node, in the order of the Nodes."""
        return tuple(self._nodes)


# -- during a change


class Seen(msgspec.Struct, frozen=True):
    """A current node; provider_id is empty until a cloud controller has set it."""

    name: str
    provider_id: str = ""
    labels: dict[str, str] = {}
    uid: str = ""


class _ListedMeta(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None
    uid: str = ""


class _ListedSpec(msgspec.Struct, frozen=True):
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class _ListedNode(msgspec.Struct, frozen=True):
    metadata: _ListedMeta = _ListedMeta()
    spec: _ListedSpec = _ListedSpec()


class _List(msgspec.Struct, frozen=True):
    items: list[_ListedNode] | None = None


def nodes(kube: KubeLists, selector: str = "") -> tuple[Seen, ...]:
    """Return the cluster's current nodes, all or those of a label selector. A pass has listed the
    nodes and passes them in; a change runs minutes later and reads them itself. Raises Transient if
    they cannot be read: a machine that may be a node must then not be given up."""
    current: list[Seen] = []
    try:
        for page in kube.list_pages(
            "/api/v1/nodes", query={"labelSelector": selector} if selector else None
        ):
            if page.first:
                current.clear()
            items = msgspec.json.decode(page.body, type=_List).items or ()
            current += [
                Seen(
                    node.metadata.name,
                    node.spec.provider_id or "",
                    node.metadata.labels or {},
                    node.metadata.uid,
                )
                for node in items
            ]
    except (OutscalerError, msgspec.MsgspecError, UnicodeError) as error:
        raise Transient(f"the cluster's nodes could not be read: {error}") from None
    return tuple(current)


class PermanentConflict(Conflict):
    """A Conflict that waiting does not resolve: the cluster is not the one that the operation was
    planned for. The operation ends, and the next pass decides again."""

    @property
    def error_class(self) -> str:
        """The class that is recorded: Conflict."""
        return Conflict.__name__


def refuse_joined(names: Iterable[str]) -> None:
    """names: instances of a discard that are Nodes by now. Raises
    PermanentConflict if there is any."""
    if joined := sorted(names):
        raise PermanentConflict(f"{', '.join(joined)} has joined the cluster meanwhile")


def joined_of(instances: Iterable[M], identity: Identity[M, Seen]) -> list[M]:
    """The instances that are Nodes by now, or that a Node claims."""
    return [
        machine
        for machine in instances
        if identity.node_of(machine) is not None or identity.claimants(machine)
    ]


def refuse_changed(
    targets: Iterable[RemovalTarget],
    instance_of: Callable[[RemovalTarget], M | None],
    identity: Identity[M, Seen],
    nodes: tuple[Seen, ...],
) -> None:
    """Raises PermanentConflict if a target is not, or not for certain, the Node that was planned.
    instance_of: the instance of a target that is to be deleted now, None for other targets."""
    for target in targets:
        instance = instance_of(target)
        if instance is not None and (reason := _changed(target, instance, identity, nodes)):
            raise PermanentConflict(reason)


def _changed(
    target: RemovalTarget, machine: M, identity: Identity[M, Seen], nodes: Iterable[Seen]
) -> str:
    """Return why a machine must not be deleted for a target's Node, given the current Nodes; "" if
    it may be. A Node that is gone is not a reason: its machine is still to be deleted."""
    if names := identity.claimants(machine):
        return (
            f"which node the machine {machine} is can no longer be determined: "
            f"{', '.join(names[:5])} claim it"
        )
    bearer = identity.node_of(machine)
    if bearer is not None and target.node and bearer.name != target.node:
        return (
            f"the machine {machine} is node {bearer.name} now, and node {target.node} was planned"
        )
    planned = (
        next((node for node in nodes if node.name == target.node), None) if target.node else None
    )
    if planned is None:
        return ""
    if bearer is None:
        return f"node {target.node} no longer identifies itself as the machine {machine}"
    if target.uid and planned.uid and planned.uid != target.uid:
        return f"node {target.node} was registered anew since its removal was planned"
    return ""
