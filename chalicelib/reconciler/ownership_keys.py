"""What node groups are called in the world, so that two policies that mean the same group claim the same key.

A provider that knows it says so (NodeGroup.claim): Cluster API by the management cluster's CA and the object's uid.
Else it is the place that the policy names, with the group's id. What Cluster API's groups were called before, by the
name of a secret, is still looked up: a claim that was made under it is obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.operation import Operation
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot

Key = tuple[str, str]  # (provider, the group's key there), as in store/claims.py


def keys(policy: Policy, snapshot: Snapshot, operations: Iterable[Operation]) -> dict[Key, str]:
    """Key -> group id, of the groups that operations are about."""
    known = _claims(snapshot)
    return {
        (each.spec.provider, known.get(each.spec.group) or by_place(policy, each)): each.spec.group
        for each in operations
    }


def former(policy: Policy, snapshot: Snapshot, operations: Iterable[Operation]) -> dict[Key, str]:
    """Key -> group id, of those that have another key by now."""
    known = _claims(snapshot)
    return {
        (each.spec.provider, by_place(policy, each)): each.spec.group
        for each in operations
        if known.get(each.spec.group)
    }


def by_place(policy: Policy, operation: Operation) -> str:
    """A group's name within the place that the provider's settings point at."""
    settings = policy.providers.get(operation.spec.provider, {})
    access = policy.kubernetes
    inside = access.in_cluster_kubeconfig_secret
    management = inside if settings.get("cloudConfigAuthoritative") == "true" else ""
    places = (
        *map(settings.get, ("kubeconfigSecret", "kubeconfigFile", "zone", "region")),
        management,
        access.kubeconfig_secret,
        access.kubeconfig_file,
        access.eks_cluster,
        inside,
    )
    return f"{next(filter(None, places), '')}#{operation.spec.group}"


def _claims(snapshot: Snapshot) -> dict[str, str]:
    """Group id -> its key by what the provider says, of those whose provider says it."""
    return {group.id: f"{group.claim}#{group.id}" for group in snapshot.groups if group.claim}
