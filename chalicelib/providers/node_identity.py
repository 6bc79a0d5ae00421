"""Matches machines to Nodes when only the Node itself states its identity.

A providerID, a host name and an address are all claims of the kubelet. A machine has a Node only if exactly one Node
claims it and that Node claims no other machine. In all other cases the machine is contested: it exists, and neither it
nor the Nodes that claim it are changed (docs/reference/node-groups.md "Node identity").

The check is repeated immediately before a vendor is asked to delete a machine, because a Node may have been registered
or replaced since the plan was made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.cluster_nodes import Seen

M = TypeVar("M", bound=Hashable)


class Known(Protocol):
    """A Node, as listed by a pass (model/node.py) or read during a change (cluster_nodes.py)."""

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
    """claimed: the machines that each Node claims to be, by any of its fields; more than one if its fields contradict
    each other. hinted: machines that it may mean by a field that proves nothing (another form of an id, the name of
    another machine); these give no machine a Node, and make the machine contested. M: the provider's key of a
    machine."""

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
            machine: found[0] for machine, found in bearers.items() if len(found) == 1 and machine not in doubtful
        }

    def node_of(self, machine: M) -> N | None:
        """Return the Node of a machine; None if it has not joined or is contested."""
        return self._nodes.get(machine)

    def claimants(self, machine: M) -> tuple[str, ...]:
        """Return the names of the Nodes that claim a contested machine, sorted; empty if it is not contested."""
        return () if machine in self._nodes else tuple(sorted(self._claimants.get(machine, ())))

    def machines(self) -> tuple[M, ...]:
        """Return the machines that have a Node, in the order of the Nodes."""
        return tuple(self._nodes)


def changed(target: RemovalTarget, machine: M, identity: Identity[M, Seen], nodes: Iterable[Seen]) -> str:
    """Return why a machine must not be deleted for a target's Node, given the current Nodes; "" if it may be.

    A Node that is gone is not a reason: its machine is still to be deleted."""
    if names := identity.claimants(machine):
        return f"which node the machine {machine} is can no longer be determined: {', '.join(names[:5])} claim it"
    bearer = identity.node_of(machine)
    if bearer is not None and target.node and bearer.name != target.node:
        return f"the machine {machine} is node {bearer.name} now, and node {target.node} was planned"
    planned = next((node for node in nodes if node.name == target.node), None) if target.node else None
    if planned is None:
        return ""
    if bearer is None:
        return f"node {target.node} no longer identifies itself as the machine {machine}"
    if target.uid and planned.uid and planned.uid != target.uid:
        return f"node {target.node} was registered anew since its removal was planned"
    return ""
