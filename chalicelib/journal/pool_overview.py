"""What a pass saw of the declarations of spec.managedPools, for people: `outscaler get pools`, the
page and metrics."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.managed_group import PoolSelection
from chalicelib.model.overview import PoolOverview
from chalicelib.model.reason import Reason
from chalicelib.plan.scale_up.candidate_groups import why_skipped
from chalicelib.plan.scale_up.scale_up_limits import ResourceLimiter
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.managed_groups import declaration_of, is_candidate
from chalicelib.policy.settings.managed_pools import ManagedPool
from chalicelib.reasons.text import sentence

_NOT_READ = "the provider was not read"


def pool_overviews(state: ClusterState) -> tuple[PoolOverview, ...]:
    """Return a row for each declaration, in the policy's order."""
    if not state.policy.managed_pools:
        return ()
    selections, groups = _selections(state), _groups(state)
    limiter = ResourceLimiter(state)
    return tuple(
        _row(pool, selections.get(pool.name), groups.get(pool.name, []), state, limiter)
        for pool in state.policy.managed_pools
    )


def pool_counts(state: ClusterState) -> tuple[PoolOverview, ...]:
    """Return the same without what a declaration could buy and what holds it. Those whose provider
    was not read are left out."""
    selections, groups = _selections(state), _groups(state)
    return tuple(
        _counts(pool, selections[pool.name], groups.get(pool.name, []), state)
        for pool in state.policy.managed_pools
        if pool.name in selections
    )


def _selections(state: ClusterState) -> dict[str, PoolSelection]:
    return {selection.declaration: selection for selection in state.snapshot.selections}


def _groups(state: ClusterState) -> dict[str, list[NodeGroupState]]:
    """Return the groups of each declaration, also those that could be opened."""
    groups: dict[str, list[NodeGroupState]] = {}
    for group in state.groups.values():
        groups.setdefault(declaration_of(group.group), []).append(group)
    return groups


def _counts(
    pool: ManagedPool,
    selection: PoolSelection | None,
    groups: Iterable[NodeGroupState],
    state: ClusterState,
) -> PoolOverview:
    opened = [group for group in groups if not is_candidate(group.group)]
    return PoolOverview(
        pool.name,
        pool.provider,
        candidates=selection.candidates if selection is not None else 0,
        open_groups=len(opened),
        live_groups=sum(bool(group.nodes or group.target) for group in opened),
        nodes=sum(len(group.nodes) for group in opened),
        price=_price_of_nodes(opened, state),
        currency=selection.currency if selection is not None else "",
    )


def _row(
    pool: ManagedPool,
    selection: PoolSelection | None,
    groups: list[NodeGroupState],
    state: ClusterState,
    limiter: ResourceLimiter,
) -> PoolOverview:
    next_group, stop = _next(groups, state, limiter)
    row = msgspec.structs.replace(
        _counts(pool, selection, groups, state), held=_held(pool, selection, stop, limiter)
    )
    if next_group is None or next_group.group.managed is None:
        return row
    machine = next_group.group.managed.choice.machine
    price = round(_hourly(next_group, state), 6)
    return msgspec.structs.replace(row, next_machine=machine, next_price=price)


def _next(
    groups: Iterable[NodeGroupState], state: ClusterState, limiter: ResourceLimiter
) -> tuple[NodeGroupState | None, Reason | None]:
    """Return the group with the cheapest machine that could be bought now; where there is none, why
    not the cheapest of all."""
    first_stop: Reason | None = None
    priced = [(_hourly(group, state), group.id, group) for group in groups]
    for price, _, group in sorted(priced, key=lambda item: item[:2]):
        is_retiring = group.group.managed is not None and bool(group.group.managed.retiring)
        if not price or is_retiring:
            continue
        stop = why_skipped(group, limiter, state.lacking)
        if stop is None:
            return group, None
        first_stop = first_stop or stop
    return None, first_stop


def _hourly(group: NodeGroupState, state: ClusterState) -> float:
    """Return the price of a new node an hour, 0.0 where it is unknown."""
    if group.template is None:
        return 0.0
    price = state.prices.paid(group.template.node, group.group)
    return price.hourly if price is not None else 0.0


def _price_of_nodes(groups: Iterable[NodeGroupState], state: ClusterState) -> float:
    prices = [state.prices.paid(node, group.group) for group in groups for node in group.nodes]
    return round(sum(price.hourly for price in prices if price is not None), 6)


def _held(
    pool: ManagedPool,
    selection: PoolSelection | None,
    reason: Reason | None,
    limiter: ResourceLimiter,
) -> str:
    """Return what keeps a declaration from buying or opening more, "" for nothing. reason: why not
    the cheapest machine, where none could be bought."""
    if selection is None:
        return _NOT_READ
    if selection.problem:
        return selection.problem
    if reason is not None:
        return sentence(reason)
    declared = limiter.declared
    closed = declared.against_opening(pool.name) if declared is not None else None
    return sentence(closed) if closed is not None else selection.warning
