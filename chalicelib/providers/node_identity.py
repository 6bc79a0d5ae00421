"""Which machine is which Node, where only the Node itself says so.

A providerID, a host name, an address: each is the kubelet's own word. A machine has a Node only where exactly one Node
claims it and that Node claims no other machine. All else is contested: the machine exists, and nothing is done with it
or with the Nodes that claim it (plan/identity.py).

The same is asked again right before a vendor is asked to delete a machine, for a Node may have been registered or
replaced since the plan was made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.cluster_nodes import Seen

M = TypeVar("M", bound=Hashable)


class Known(Protocol):
    """A Node, as a pass lists it (model/node.py) or as a change asks for it (workload.py)."""

    @property
    def name(self) -> str:
        """Its name, which a kubelet cannot choose anew."""

    @property
    def provider_id(self) -> str:
        """Its providerID, or ""."""

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""


N = TypeVar("N", bound=Known)


class Identity(Generic[M, N]):
    """claimed: of each Node, the machines that it says it is, by whatever word of it; more than one where its words
    contradict each other. hinted: machines that it may mean, by a word that is no proof (another spelling of an id, the
    name of another machine); they give no machine a Node, and make what it means contested. M: what the provider knows
    a machine by."""

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
        """The Node that a machine has become; None while it has not joined, and where that cannot be known."""
        return self._nodes.get(machine)

    def claimants(self, machine: M) -> tuple[str, ...]:
        """The names of the Nodes that claim a contested machine, sorted; none where nothing is contested."""
        return () if machine in self._nodes else tuple(sorted(self._claimants.get(machine, ())))

    def machines(self) -> tuple[M, ...]:
        """The machines that have a Node, in the order of the Nodes."""
        return tuple(self._nodes)


def changed(target: RemovalTarget, machine: M, identity: Identity[M, Seen], nodes: Iterable[Seen]) -> str:
    """Why a machine must not be deleted in place of a target's Node, by the Nodes as of now; "" where it may. A Node
    that is gone is no reason: its machine is still to go."""
    if names := identity.claimants(machine):
        return f"which node the machine {machine} is cannot be known any more: {', '.join(names[:5])} claim it"
    bearer = identity.node_of(machine)
    if bearer is not None and target.node and bearer.name != target.node:
        return f"the machine {machine} is node {bearer.name} now, and node {target.node} was planned"
    planned = next((node for node in nodes if node.name == target.node), None) if target.node else None
    if planned is None:
        return ""
    if bearer is None:
        return f"node {target.node} does not say any more that it is the machine {machine}"
    if target.uid and planned.uid and planned.uid != target.uid:
        return f"node {target.node} was registered anew since its removal was planned"
    return ""
