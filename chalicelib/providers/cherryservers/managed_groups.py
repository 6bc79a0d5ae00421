"""Groups of Outscaler's own at a vendor that has none: pool definitions made from a candidate, and
servers that bear its name and mark in their tags. Opening and deleting such a group is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.catalogue import CatalogueEntry
from chalicelib.model.errors import BadInput
from chalicelib.model.managed_group import PREFIX, MachineChoice, Managed
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
from chalicelib.providers.kit.managed_pools import CopySource, ManagedPools

NAME_TAKEN = "NameTaken"
"""Code of an error: what has the name of an own group does not bear its mark."""
_NOTHING = MachineChoice("", "none", "none", Market.ON_DEMAND.value)
_MIB = 2**20


def source_of(definitions: Definitions, pool: ManagedPool) -> CopySource:
    """Return what a declaration copies from a definition. Raises BadInput, which affects all
    definitions."""
    try:
        section = definitions.section(pool.copy_from or DEFAULT)
        # what is wrong with the definition is wrong with each group that copies it
        example = definitions.of_choice(f"{PREFIX}example", section, _NOTHING)
    except BadInput as mistake:
        return CopySource(problem=str(mistake).splitlines()[0])
    region = definitions.region(section)
    disk = example.os_partition_size
    return CopySource({"diskSize": disk} if disk else {}, (region,) if region else ())


def managed_definition(definitions: Definitions, pools: ManagedPools, group: str) -> Definition:
    """Return the definition of an own group. One that is no candidate any more has its tags only.
    Raises BadInput, which affects this group only, and ProviderError."""
    candidate = pools.candidates.get(group)
    if candidate is None:
        return definitions.of_choice(group, definitions.section(DEFAULT), _NOTHING)
    section = definitions.section(candidate.pool.copy_from or DEFAULT)
    definition = definitions.of_choice(group, section, candidate.group.choice)
    return msgspec.structs.replace(definition, mark=candidate.group.mark)


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
        marks = [server.tags.get(MANAGED_TAG, "") for server in members]
        mark = next((mark for mark in marks if pools.is_own(name, mark)), "")
        managed = pools.managed(name, mark, choice_of_server(members[0]))
        groups.append(OwnGroup(name, managed, taken=not mark))
    return tuple(groups)


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
    marks = [server.tags.get(MANAGED_TAG, "") for server in servers]
    if marks and not any(pools.is_own(group, mark) for mark in marks):
        problem = f"servers of pool {group} exist that Outscaler has not ordered"
        raise InvalidRequest(problem, code=NAME_TAKEN)
