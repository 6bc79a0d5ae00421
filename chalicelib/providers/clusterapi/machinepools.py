"""MachinePools as node groups.

Some infrastructure providers create a Machine for every instance of a pool; those are read and removed like any other.
Without Machines there is only a list of provider ids: the Nodes show which of them have joined, and it is impossible to
select the one to be deleted (docs/providers/clusterapi.md "MachinePools").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.model.group import Instance, InstanceState
from chalicelib.providers.clusterapi.models import CapiMachine, CapiResource
from chalicelib.providers.clusterapi.provider_ids import Nodes, normalise
from chalicelib.providers.clusterapi.settings import CapiSettings

_MANAGED_BY = "cluster.x-k8s.io/replicas-managed-by"
_LISTED = "listed:"  # prefix of a handle that is a provider id; a Machine's is namespace/name, without a colon


def managed_by(resource: CapiResource) -> str:
    """Return the other scaler that sets the pool's size, empty if there is none. Such a pool is not a node group."""
    name = resource.annotations.get(_MANAGED_BY, "false")
    return "" if name.lower() == "false" else name or "somebody unnamed"


def listed_handle(provider_id: str) -> str:
    """Return the handle of an instance without a Machine."""
    return f"{_LISTED}{provider_id}"


def listed_id(handle: str) -> str:
    """Return the provider id in such a handle, empty for any other."""
    return handle.removeprefix(_LISTED) if handle.startswith(_LISTED) else ""


def without_machine(resource: CapiResource, machines: Iterable[CapiMachine]) -> tuple[str, ...]:
    """Return the listed provider ids that no Machine of the pool has, in the list's order."""
    exact = {each.spec.provider_id for each in machines if each.spec.provider_id}
    near = {normalise(each) for each in exact}
    return tuple(each for each in resource.listed if each not in exact and normalise(each) not in near)


def listed_instances(resource: CapiResource, machines: Sequence[CapiMachine], nodes: Nodes) -> tuple[Instance, ...]:
    """Return the instances of a pool that are listed without a Machine. No Node matches two of them."""
    found: list[Instance] = []
    taken: set[str] = set()
    elsewhere = joined_elsewhere(resource, nodes)
    for provider_id in without_machine(resource, machines):
        match = nodes.listed(provider_id, resource.metadata.name)
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


def joined_elsewhere(resource: CapiResource, nodes: Nodes) -> str:
    """Return why none of the pool's instances may count as never joined; empty if that can be decided.

    The pool's status does not say which instance each of its Nodes is."""
    name = next((each for each in resource.node_names if nodes.named(each) is None), "")
    return name and f"Cluster API has seen Node {name[:80]} of this pool join, which is not among this cluster's Nodes"


def pool_held(resource: CapiResource, machines: Sequence[CapiMachine], settings: CapiSettings) -> str:
    """Return why nothing may be removed from the pool, empty if something may.

    It is reported before a node is drained needlessly. It is not reported while fewer instances are listed than
    requested, because it would also prevent lowering the size to the existing instances, which deletes none.
    """
    listed = len(resource.listed)
    if machines or settings.allow_pool_shrink or listed < 2 or (resource.spec.replicas or 0) > listed:
        return ""
    return cannot_choose(resource)


def cannot_choose(resource: CapiResource) -> str:
    """Return the refusal, with its remedy."""
    return (
        f"MachinePool {resource.metadata.namespace}/{resource.metadata.name} has no Machines, so the instance to "
        "remove cannot be selected: set allowPoolShrink in providers.clusterapi to lower its size anyway; the "
        "infrastructure then selects the instance"
    )
