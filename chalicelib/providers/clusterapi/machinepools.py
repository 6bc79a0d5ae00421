"""MachinePools as node groups (clusterapi.md §3 "MP", D11).

Some infrastructure providers make a Machine for every instance of a pool; those are read and removed like any other.
Without Machines there is only a list of provider ids: which of them joined is told by the Nodes, and there is no way to
say which one is to go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.model.group import Instance, InstanceState
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource
from chalicelib.providers.clusterapi.provider_ids import Nodes, normalise
from chalicelib.providers.clusterapi.settings import CapiSettings

_MANAGED_BY = "cluster.x-k8s.io/replicas-managed-by"
_LISTED = "listed:"  # how a handle begins that is a provider id; a Machine's is namespace/name, without a colon


def managed_by(pool: CapiResource) -> str:
    """Who else sets the pool's size, empty if nobody does: then it is no node group of ours."""
    name = pool.annotations.get(_MANAGED_BY, "false")
    return "" if name.lower() == "false" else name or "somebody unnamed"


def listed_handle(provider_id: str) -> str:
    """The handle of an instance that has no Machine."""
    return f"{_LISTED}{provider_id}"


def listed_id(handle: str) -> str:
    """The provider id in such a handle, empty for any other."""
    return handle.removeprefix(_LISTED) if handle.startswith(_LISTED) else ""


def without_machine(pool: CapiResource, machines: Iterable[CapiMachine]) -> tuple[str, ...]:
    """The listed provider ids that no Machine of the pool has, in the list's order."""
    exact = {each.spec.provider_id for each in machines if each.spec.provider_id}
    near = {normalise(each) for each in exact}
    return tuple(each for each in pool.listed if each not in exact and normalise(each) not in near)


def listed_instances(pool: CapiResource, machines: Sequence[CapiMachine], nodes: Nodes) -> tuple[Instance, ...]:
    """The instances of a pool that are listed and have no Machine. No Node is two of them."""
    found: list[Instance] = []
    taken: set[str] = set()
    elsewhere = joined_elsewhere(pool, nodes)
    for provider_id in without_machine(pool, machines):
        match = nodes.listed(provider_id, pool.metadata.name)
        node, handle = match.node, listed_handle(provider_id)
        if node is None or node.name in taken:
            doubt = (
                match.doubt or elsewhere
                if node is None
                else f"Node {node.name} is another instance of the pool already"
            )
            found.append(Instance(provider_id, InstanceState.CREATING, handle=handle, held=doubt))
            continue
        taken.add(node.name)
        found.append(Instance(node.provider_id or provider_id, handle=handle, node=node.name))
    return tuple(found)


def joined_elsewhere(pool: CapiResource, nodes: Nodes) -> str:
    """Why none of the pool's instances is to be taken for one that never joined; empty where that can be told. Which
    instance a Node of the pool's status is, the status does not say."""
    name = next((each for each in pool.node_names if nodes.named(each) is None), "")
    return name and f"Cluster API has seen Node {name[:80]} of this pool join, which is not among this cluster's Nodes"


def pool_held(pool: CapiResource, machines: Sequence[CapiMachine], settings: CapiSettings) -> str:
    """Why nothing of the pool is to be removed, empty where something can be.

    Told before a node is drained for nothing. While fewer instances are listed than asked for it is not said, because
    it would also keep the size from being lowered to what is there, and that costs no instance.
    """
    listed = len(pool.listed)
    if machines or settings.allow_pool_shrink or listed < 2 or (pool.spec.replicas or 0) > listed:
        return ""
    return cannot_choose(pool)


def cannot_choose(pool: CapiResource) -> str:
    """The refusal, with its remedy."""
    return (
        f"MachinePool {pool.metadata.namespace}/{pool.metadata.name} has no Machines, so it cannot be told which of "
        "its instances is to go: set allowPoolShrink in providers.clusterapi to lower its size all the same, whichever "
        "instance then goes"
    )
