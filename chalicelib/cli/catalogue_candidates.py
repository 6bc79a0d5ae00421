"""Groups that managed pools could open, from saved catalogues: `plan --catalogue` and `cost
--catalogue` weigh a vendor's machines without the vendor.

A vendor's template has what its machines and the group of copyFrom are like. Here the template is
made of the catalogue's entry alone, so its memory is an estimate, and groups have other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.cli.catalogue_files import SavedCatalogue, read_catalogue
from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.managed_group import ManagedGroup, PoolSelection
from chalicelib.model.resources import CPU, MEMORY, PODS
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.providers.kit.machine_types import Machine, select_machines
from chalicelib.providers.kit.managed_pools import (
    MARKET_LABEL,
    POOL_LABEL,
    GroupCandidate,
    candidate_group,
    choice_of,
    with_kernel,
)
from chalicelib.providers.kit.node_template import (
    ARCH,
    INSTANCE_TYPE,
    OS,
    ZONE,
    GroupTemplate,
    template_node,
)

_PODS = 110
"""Pods of a node, the kubelet's usual number."""
_GPU = "nvidia.com/gpu"


def with_catalogues(snapshot: Snapshot, policy: Policy, files: Sequence[Path]) -> Snapshot:
    """Return the snapshot with the groups that the declarations of the policy could open by saved
    catalogues, in place of those that the providers offer. Raises BadInput, OSError."""
    for file in files:
        saved = read_catalogue(file)
        pools = [pool for pool in policy.managed_pools if pool.provider == saved.provider]
        if not pools:
            raise BadInput(
                str(file),
                f"is of {saved.provider[:60]}, and no managed pool of the policy is",
                "give --policy FILE with spec.managedPools of that provider",
            )
        offers = [_offer(snapshot, policy, pool, saved) for pool in pools]
        snapshot = _replaced(snapshot, saved.provider, offers)
    return snapshot


_Offer = tuple[PoolSelection, list[NodeGroup]]
"""What is left of a catalogue for a declaration, and the groups that it could open."""


def _replaced(snapshot: Snapshot, provider: str, offers: Sequence[_Offer]) -> Snapshot:
    existing = {group.managed.choice for group in snapshot.groups if group.managed is not None}
    candidates = [group for group in snapshot.candidates if group.provider != provider]
    selections = [selection for selection in snapshot.selections if selection.provider != provider]
    for selection, groups in offers:
        selections.append(selection)
        candidates += [
            group
            for group in groups
            if group.managed is not None and group.managed.choice not in existing
        ]
    return msgspec.structs.replace(
        snapshot, candidates=tuple(candidates), selections=tuple(selections)
    )


def _offer(snapshot: Snapshot, policy: Policy, pool: ManagedPool, saved: SavedCatalogue) -> _Offer:
    """Return what a declaration has by a catalogue."""
    zones = pool.requirements.zones or _zones(policy, pool)
    requirements = msgspec.structs.replace(pool.requirements, zones=zones)
    located = msgspec.structs.replace(pool, requirements=requirements)
    selection = select_machines(located, saved.catalogue, pool.disk)
    groups = [_group(snapshot, pool, machine, saved) for machine in selection.machines]
    view = PoolSelection(
        pool.name,
        pool.provider,
        selection.offered,
        selection.failed,
        len(groups),
        saved.currency,
        saved.at,
    )
    return view, groups


def _zones(policy: Policy, pool: ManagedPool) -> tuple[str, ...]:
    """Return where a declaration without zones has its machines, () where that is not known."""
    settings = policy.providers.get(pool.provider, {})
    if "zone" in settings:
        return (settings["zone"],)
    definitions: dict[str, Any] = {}
    if "nodeGroupDefs" in settings:
        definitions = msgspec.json.decode(settings["nodeGroupDefs"])
    default = definitions.get("default", {})
    region = definitions.get(pool.copy_from or "default", {}).get("region") or default.get("region")
    return (str(region),) if region else ()


def _group(
    snapshot: Snapshot, pool: ManagedPool, machine: Machine, saved: SavedCatalogue
) -> NodeGroup:
    entry = machine.entry
    group = ManagedGroup(snapshot.cluster, choice_of(pool, machine))
    labels = {
        ARCH: "amd64",
        OS: "linux",
        INSTANCE_TYPE: entry.name,
        ZONE: entry.zone,
        MARKET_LABEL: machine.market.value,
        **pool.labels,
        POOL_LABEL: pool.name,
    }
    capacity = {CPU: 1000 * entry.cores, MEMORY: entry.memory, PODS: _PODS}
    if entry.gpus:
        capacity[_GPU] = entry.gpus
    reserve = with_kernel({}, entry.memory)
    node = template_node(group.name, labels, capacity, reserve, pool.taints)
    candidate = GroupCandidate(pool, machine, group)
    return candidate_group(candidate, GroupTemplate(node), saved.currency, saved.at)
