"""Converts the machines of a pool to instances, with a defined result for every state.

A failed scale-up leaves no machine, only a size. Placeholders stand for the missing machines, so the planner sees the
failure in the same pass, backs the group off, and lowers the target by deleting them.
"""

from __future__ import annotations

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.timestamps import instant
from chalicelib.providers.exoscale import models
from chalicelib.providers.exoscale.instance_states import ERROR, INSTANCE_STATES
from chalicelib.providers.exoscale.pools import ExoscalePool
from chalicelib.providers.exoscale.provider_ids import ExoscaleGroupNames, placeholder, placeholder_id
from chalicelib.providers.exoscale.zone_state import Zone

MOST_PLACEHOLDERS = 1000
_BROKEN = InstanceError("Unknown", "instance-error", "the machine is in the state error at Exoscale")


def classify(pool: ExoscalePool, zone: Zone, names: ExoscaleGroupNames, held: str = "") -> tuple[Instance, ...]:
    """Return all machines of the pool by id: those that name the pool, and those that it lists and that are in no
    other.

    held: why machines that are not nodes must not be deleted, unless the vendor itself reports them as broken."""
    states = {each.id.lower(): each.state for each in zone.listed.get(pool.id, ())}
    for name in pool.members - states.keys():
        listed = zone.instances.get(name)
        if listed is None or listed.manager is None:
            states[name] = "" if listed is None else listed.state
    known = {name: zone.instances.get(name, models.ExoscaleInstance(name)) for name in states}
    return tuple(
        _one(known[name], name, state, names, _nameless(known[name].name, names) or (held if state != ERROR else ""))
        for name, state in sorted(states.items())
    )


def _nameless(name: str, names: ExoscaleGroupNames) -> str:
    if not name or not names.may_be(name):
        return ""
    return (
        f"the node {name} has no providerID and the name of a machine of this group, so it may be that machine; "
        "let the vendor's cloud controller write it"
    )


def _one(machine: models.ExoscaleInstance, name: str, said: str, names: ExoscaleGroupNames, held: str) -> Instance:
    """Build one instance. In an unknown state it is running if it is a node, otherwise it is being created.

    A node has been created, whatever the vendor's state; its readiness is judged by the planner."""
    node = names.node_of(name)
    state = INSTANCE_STATES.get(said, InstanceState.CREATING)
    if node is not None and state is InstanceState.CREATING:
        state = InstanceState.RUNNING
    error = _BROKEN if said == ERROR and node is None else None
    return Instance(
        names.spell(name),
        state,
        error,
        handle=name,
        node=node.name if node is not None else "",
        held="" if node is not None else held,
        created=instant(machine.created_at),
        claimants=names.claimants(name),
    )


def placeholders(pool: ExoscalePool, count: int, *, quota: bool) -> tuple[Instance, ...]:
    """Return one placeholder per missing machine. quota: the account has reached its limit."""
    of = f"{pool.title} has the size {pool.target}, and {count} of its machines are not being made"
    error = (
        InstanceError("QuotaExceeded", "quota", f"{of}: the account's quota of instances is used up")
        if quota
        else InstanceError("OutOfStock", "unavailable", of)
    )
    handles = [placeholder(pool.id, number) for number in range(min(count, MOST_PLACEHOLDERS))]
    return tuple(Instance(placeholder_id(each), InstanceState.CREATING, error, handle=each) for each in handles)
