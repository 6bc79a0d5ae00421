"""TODO"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.model.operation import Operation
from chalicelib.model.policy import Policy
from chalicelib.model.snapshot import Snapshot

Key = tuple[str, str]  # (provider, the group's key there), as in store/group_ownership.py


def keys(policy: Policy, snapshot: Snapshot, operations: Iterable[Operation]) -> dict[Key, str]:
    """Return key -> group id for the groups of these operations."""
    known = _claims(snapshot)
    return {
        (each.spec.provider, known.get(each.spec.group) or by_place(policy, each)): each.spec.group
        for each in operations
    }


def former(policy: Policy, snapshot: Snapshot, operations: Iterable[Operation]) -> dict[Key, str]:
    """Return former key -> group id for groups that have a different key now."""
    known = _claims(snapshot)
    return {
        (each.spec.provider, by_place(policy, each)): each.spec.group
        for each in operations
        if known.get(each.spec.group)
    }


def by_place(policy: Policy, operation: Operation) -> str:
    """Return a group's name within the place that the provider's settings name."""
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
    """Return group id -> key for the groups whose provider supplies it."""
    return {group.id: f"{group.claim}#{group.id}" for group in snapshot.groups if group.claim}
