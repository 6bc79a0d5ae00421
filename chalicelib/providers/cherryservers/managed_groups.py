"""Groups of Outscaler's own at a vendor that has none: pool definitions made from a candidate, and
servers that bear its name and mark in their tags. Opening and deleting such a group is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.catalogue import CatalogueEntry
from chalicelib.model.errors import BadInput
from chalicelib.model.managed_group import NAME_TAKEN, PREFIX, MachineChoice, Managed, ManagedGroup
from chalicelib.policy.settings.managed_pools import ManagedPool, Market
from chalicelib.policy.vendors.cherryservers import DEFAULT
from chalicelib.providers.cherryservers.decoding import (
    MANAGED_TAG,
    POOL_TAG,
    CherryPlan,
    CherryServer,
    Cpus,
    Memory,
    Specs,
    Storage,
)
from chalicelib.providers.cherryservers.definition_reader import Definitions
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.managed_pools import CopySource, ManagedPools, OwnSize

_NOTHING = MachineChoice("", "none", "none")
_NO_CLUSTER_NAME = "the policy has no clusterName, by which servers of own groups are found"
_MIB = 2**20


def source_of(definitions: Definitions, pool: ManagedPool) -> CopySource:
    """Return what a declaration copies from a definition. Raises BadInput, which affects all
    definitions."""
    try:
        section = definitions.section(pool.copy_from or DEFAULT)
        # what is wrong with the definition is wrong with each group that copies it, whose name is
        # as long as this one
        example = definitions.of_choice(_example(pool), section, _NOTHING)
        if example.cluster_name != definitions.cluster_name:
            return CopySource(problem=_NO_CLUSTER_NAME)
    except BadInput as mistake:
        return CopySource(problem=str(mistake).splitlines()[0])
    region = definitions.region(section)
    disk = example.os_partition_size
    return CopySource({"diskSize": disk} if disk else {}, (region,) if region else ())


def _example(pool: ManagedPool) -> str:
    """Return a name as groups of a declaration have it."""
    return ManagedGroup("", MachineChoice(pool.name, "", "")).name


def managed_definition(
    definitions: Definitions, pools: ManagedPools, group: str, choice: MachineChoice | None
) -> Definition:
    """Return the definition of an own group. One that no declaration describes any more has its
    tags and machines only. choice: its machines, None if they do not matter. Raises BadInput, which
    affects this group only, and ProviderError."""
    declared = pools.declared(group, choice) if choice is not None else None
    if declared is None:
        section = definitions.section(DEFAULT)
        return definitions.of_choice(group, section, choice or _NOTHING)
    section = definitions.section(declared.pool.copy_from or DEFAULT)
    definition = definitions.of_choice(group, section, declared.group.choice)
    return msgspec.structs.replace(definition, mark=declared.group.mark)


class OwnGroup(msgspec.Struct, frozen=True):
    """A group of which servers exist. taken: its name is in use without its mark."""

    name: str
    managed: Managed
    taken: bool = False


def own_groups(servers: Iterable[CherryServer], pools: ManagedPools) -> tuple[OwnGroup, ...]:
    """Return the groups whose servers bear names of own groups, by name. servers: of the cluster.
    Raises ProviderError."""
    named: dict[str, list[CherryServer]] = {}
    for server in servers:
        name = server.tags.get(POOL_TAG, "")
        if name.startswith(PREFIX):
            named.setdefault(name, []).append(server)
    groups = []
    for name, members in sorted(named.items()):
        own = [server for server in members if pools.is_own(name, mark_of(server))]
        first = min(own or members, key=lambda server: server.id)
        managed = pools.managed(name, mark_of(first), choice_of_server(first))
        groups.append(OwnGroup(name, managed, taken=not own))
    return tuple(groups)


def own_sizes(
    servers: Iterable[CherryServer], except_group: str, pools: ManagedPools
) -> tuple[OwnSize, ...]:
    """Return the sizes of all own groups but one, one for each server. servers: those that are
    counted. Raises ProviderError."""
    sizes = []
    for server in servers:
        name, mark = server.tags.get(POOL_TAG, ""), mark_of(server)
        if name != except_group and mark and pools.is_own(name, mark):
            sizes.append(OwnSize(pools.choice_in(name, mark, choice_of_server(server)), 1))
    return tuple(sizes)


def mark_of(server: CherryServer) -> str:
    """Return the mark of a server, "" if it has none."""
    return server.tags.get(MANAGED_TAG, "")


def choice_of_server(server: CherryServer) -> MachineChoice:
    """Return what a server is; its declaration is not known."""
    market = Market.SPOT if server.spot_instance else Market.ON_DEMAND
    region = server.region.slug or server.region.name
    return MachineChoice("", server.plan.slug or server.plan.name, region, market.value)


def plan_of(entry: CatalogueEntry) -> CherryPlan:
    """Return as much of a plan as the catalogue has."""
    memory = Memory(total=entry.memory // _MIB, unit="MB")
    storage = (Storage(1, size=entry.disk / _MIB, unit="MB"),) if entry.disk else ()
    return CherryPlan(slug=entry.name, specs=Specs(Cpus(cores=entry.cores), memory, storage))


def refuse_taken(group: str, servers: Iterable[CherryServer], pools: ManagedPools) -> None:
    """Raise InvalidRequest if servers of an own group exist, none of them with its mark."""
    marks = [mark_of(server) for server in servers]
    if marks and not any(pools.is_own(group, mark) for mark in marks):
        problem = f"servers of pool {group} exist that Outscaler has not ordered"
        raise InvalidRequest(problem, code=NAME_TAKEN)
