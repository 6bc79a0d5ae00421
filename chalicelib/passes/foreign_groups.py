"""Node groups that another cluster of this deployment owns (docs/architecture.md). A pass claims
the groups that its plan has operations for, and plans again without those that it does not get.

Claims have globally unique keys, so that two policies that mean the same group claim the same key.
A provider that knows such a key supplies it (NodeGroup.claim): Cluster API uses the management
cluster's CA and the object's uid. Otherwise the key is the place that the policy names, with the
group's id. The former keys of Cluster API's groups, which contain the name of a secret, are still
looked up, and a claim made under one is respected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.operation import Operation
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import Runtime

Key = tuple[str, str]  # (provider, the group's key there), as in store/group_ownership.py


def claimed_elsewhere(
    policy: Policy, snapshot: Snapshot, operations: Sequence[Operation], runtime: Runtime
) -> dict[str, str]:
    """Claim the groups that operations are planned for. Return those that another
    cluster owns -> its name.

    A group that another cluster claimed under its former key belongs to that cluster as
    long as the claim is valid.
    """
    ownership = runtime.store.group_ownership
    former = former_keys(policy, snapshot, operations)
    claims = ownership.all() if former else ()
    owners = {(claim.provider, claim.key): claim.owner for claim in claims if not claim.ended}
    owner_of: dict[str, str] = {}
    for key, group in former.items():
        owner = owners.get(key, policy.name)
        if owner != policy.name:
            owner_of[group] = owner
    all_keys = ownership_keys(policy, snapshot, operations)
    keys = {key: group for key, group in all_keys.items() if group not in owner_of}
    discovered = {group.id for group in snapshot.groups if group.discovered}
    discovered_keys = {key for key, group in keys.items() if group in discovered}
    others = ownership.claim_groups(
        policy.name,
        keys,
        discovered=discovered_keys,
        taken=lambda key, owner: logger.warning(
            "a node group was taken over from another cluster",
            cluster=policy.name,
            group=keys[key],
            owner=owner,
        ),
    )
    owner_of.update((keys[key], owner) for key, owner in others.items())
    return owner_of


def without_groups(snapshot: Snapshot, owners: Mapping[str, str]) -> Snapshot:
    """Return the snapshot with these groups marked as owned by another cluster, so that the plan
    continues without them. owners: group -> cluster."""

    def marked(groups: Iterable[NodeGroup]) -> Iterator[NodeGroup]:
        for group in groups:
            owner = owners.get(group.id)
            error = group.error if owner is None else f"it belongs to cluster {owner}"
            yield msgspec.structs.replace(group, error=error)

    decisions = ("the plan for this group",)
    gaps = [
        MissingData("NodeGroup", f"belongs to cluster {owner}", name, affected_decisions=decisions)
        for name, owner in sorted(owners.items())
    ]
    return msgspec.structs.replace(
        snapshot,
        groups=tuple(marked(snapshot.groups)),
        candidates=tuple(marked(snapshot.candidates)),
        gaps=(*snapshot.gaps, *gaps),
    )


def ownership_keys(
    policy: Policy, snapshot: Snapshot, operations: Iterable[Operation]
) -> dict[Key, str]:
    """Return key -> group id for the groups of these operations."""
    supplied = _supplied_keys(snapshot)
    keys: dict[Key, str] = {}
    for operation in operations:
        spec = operation.spec
        key = supplied.get(spec.group) or _key_by_place(policy, spec.provider, spec.group)
        keys[spec.provider, key] = spec.group
    return keys


def former_keys(
    policy: Policy, snapshot: Snapshot, operations: Iterable[Operation]
) -> dict[Key, str]:
    """Return former key -> group id for groups that have a different key now."""
    supplied = _supplied_keys(snapshot)
    specs = [operation.spec for operation in operations if operation.spec.group in supplied]
    return {
        (spec.provider, _key_by_place(policy, spec.provider, spec.group)): spec.group
        for spec in specs
    }


def _key_by_place(policy: Policy, provider: str, group: str) -> str:
    """Return a group's name within the place that the provider's settings name."""
    settings = policy.providers.get(provider, {})
    access = policy.kubernetes
    in_cluster = access.in_cluster_kubeconfig_secret
    is_authoritative = settings.get("cloudConfigAuthoritative") == "true"
    places = (
        *map(settings.get, ("kubeconfigSecret", "kubeconfigFile", "zone", "region")),
        in_cluster if is_authoritative else "",
        access.kubeconfig_secret,
        access.kubeconfig_file,
        access.eks_cluster,
        in_cluster,
    )
    place = next(filter(None, places), "")
    return f"{place}#{group}"


def _supplied_keys(snapshot: Snapshot) -> dict[str, str]:
    """Return group id -> key for the groups whose provider supplies it."""
    return {group.id: f"{group.claim}#{group.id}" for group in snapshot.groups if group.claim}
