"""Limits of the declarations of spec.managedPools: their nodes, cores, memory, GPUs and price
together, and how many groups each may have.

Nodes that exist or are on their way count. The limits are constraints of the least-cost search
(`shared`), and of each option of the other expanders (`rooms`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.resources import CPU, GPU_RESOURCES, MEMORY
from chalicelib.plan.prices import MICRO
from chalicelib.plan.state import backoff
from chalicelib.plan.state.cluster_state import ClusterState, NodeGroupState
from chalicelib.plan.state.empty_groups import closable
from chalicelib.plan.state.managed_groups import (
    MOST_IN_VAIN,
    declaration_of,
    is_candidate,
    open_groups,
)
from chalicelib.plan.state.scale_up_requests import failures_to_join
from chalicelib.policy.settings.managed_pools import ManagedPool

_GIB = 2**30
COST = "costPerHour"
_UNITS = {"memory": _GIB, COST: MICRO}
"""What a limit's amount is multiplied by; of other resources: 1."""
_OF_QUOTA = "QuotaExceeded"
"""Error class of providers/kit/errors.py for the account's limits."""


class DeclarationLimits:
    """The remaining room of each declaration. Reduced as nodes are bought."""

    def __init__(self, state: ClusterState) -> None:
        self.pools = {pool.name: pool for pool in state.policy.managed_pools}
        self._prices = state.prices
        self._most = {name: _most(pool) for name, pool in self.pools.items()}
        self._used = {name: dict.fromkeys(most, 0) for name, most in self._most.items()}
        self.closed: set[str] = set()
        """Declarations that get no further nodes in this pass, because of `strict`."""
        self._existing = open_groups(group.group for group in state.groups.values())
        self._closable = {name: len(closable(state, name)) for name in self.pools}
        self._planned: dict[str, dict[str, int]] = {}  # declaration -> group to open -> nodes
        self._stops = _stops(state)
        # group -> one of its nodes, and what that counts; the same for all copies
        self._amounts_of: dict[str, tuple[Node, dict[str, int]]] = {}
        self._quota_left: dict[str, dict[str, int]] = {}  # provider -> resource -> amount
        for group in state.groups.values():
            if group.template is not None and group.target > 0:
                self.take(group.template.node, group.group, group.target)
            elif group.target > 0 and group.nodes:
                self.take(group.nodes[0], group.group, group.target)
        self._refused = _refused_sizes(state)
        self._quotas = {
            selection.provider: dict(selection.quota)
            for selection in state.snapshot.selections
            if selection.quota
        }
        self._quota_left = {name: dict(quota) for name, quota in self._quotas.items()}
        for group in state.groups.values() if self._quotas else ():
            uncreated = group.target - len(group.group.instances)
            if group.template is not None and uncreated > 0:
                self._take_quota(group.template.node, group.group, uncreated)

    def copy(self) -> DeclarationLimits:
        """Return a copy for trial calculations."""
        other = copy(self)
        other._used = {name: dict(used) for name, used in self._used.items()}
        other.closed = set(self.closed)
        other._planned = {name: dict(planned) for name, planned in self._planned.items()}
        other._quota_left = {name: dict(left) for name, left in self._quota_left.items()}
        return other

    def take(self, node: Node, group: NodeGroup, nodes: int) -> None:
        """Use room for nodes like this one, or give it back for a negative number."""
        self._take_quota(node, group, nodes)
        declaration = declaration_of(group)
        used = self._used.get(declaration)
        if used is None:
            return
        for resource, amount in self._amounts(node, group).items():
            if resource in used:
                used[resource] += amount * nodes
        if is_candidate(group):
            planned = self._planned.setdefault(declaration, {})
            planned[group.id] = planned.get(group.id, 0) + nodes

    def _take_quota(self, node: Node, group: NodeGroup, nodes: int) -> None:
        left = self._quota_left.get(group.provider, {})
        for resource in left:
            left[resource] -= self._amounts(node, group).get(resource, 0) * nodes

    def may_open(self, declaration: str) -> int:
        """Return how many more groups a declaration may have."""
        existing = len(self._existing.get(declaration, ())) - self._closable.get(declaration, 0)
        planned = self._planned.get(declaration, {}).values()
        return max(0, self.pools[declaration].max_pools - existing - sum(map(bool, planned)))

    def against_opening(self, declaration: str) -> Reason | None:
        """Return why a declaration gets no further group, None if it may."""
        if not self.may_open(declaration):
            most = self.pools[declaration].max_pools
            return Reason.of(ReasonCode.POOL_BUDGET, pool=declaration, max=most)
        return self._stops.get(declaration)

    def is_new(self, group: NodeGroup) -> bool:
        """Return whether a group would have to be opened."""
        planned = self._planned.get(declaration_of(group), {})
        return is_candidate(group) and not planned.get(group.id)

    def rooms(self, group: NodeGroup, node: Node) -> Iterator[tuple[int, Reason]]:
        """Yield how many nodes of a group each limit leaves room for, with the reason why not
        more."""
        yield from self._quota_rooms(group, node)
        declaration = declaration_of(group)
        if declaration not in self.pools:
            return
        refused = self._refused.get((group.provider, group.spot))
        if refused is not None and _cores(node) >= int(refused.params["limit"]):
            yield 0, refused
        closed = self.against_opening(declaration) if self.is_new(group) else None
        if closed is not None:
            yield 0, closed
        if declaration in self.closed:
            detail = "a further node would not be spread as asked"
            stop = Reason.of(ReasonCode.SPREAD_NOT_REACHED, pool=declaration, detail=detail)
            yield 0, stop
        used = self._used[declaration]
        amounts = self._amounts(node, group)
        for resource, most in self._most[declaration].items():
            amount = amounts.get(resource, 0)
            if amount > 0:
                room = max(0, most - used[resource]) // amount
                yield room, self._reason(declaration, resource)

    def _quota_rooms(self, group: NodeGroup, node: Node) -> Iterator[tuple[int, Reason]]:
        """Yield the same of the quotas of the vendor, which also hold for groups that somebody
        else has made."""
        for resource, left in self._quota_left.get(group.provider, {}).items():
            amount = self._amounts(node, group).get(resource, 0)
            if amount > 0:
                limit = _in_units(self._quotas[group.provider][resource], _UNITS.get(resource, 1))
                detail = f"{group.provider}: {resource} {limit} left before this plan"
                reason = Reason.of(ReasonCode.CANDIDATE_QUOTA, limit=limit, detail=detail)
                yield max(0, left) // amount, reason

    def shared(self, groups: Sequence[NodeGroupState]) -> list[tuple[tuple[int, ...], int]]:
        """Return the limits as of ResourceLimiter.shared. groups: each with a template."""
        limits: list[tuple[tuple[int, ...], int]] = []
        names = [declaration_of(group.group) for group in groups]
        amounts = [
            self._amounts(group.template.node, group.group)
            if name and group.template is not None
            else {}
            for name, group in zip(names, groups, strict=True)
        ]
        for declaration, most_of in sorted(self._most.items()):
            if declaration not in names:
                continue
            for resource, most in sorted(most_of.items()):
                counts = tuple(
                    of_node.get(resource, 0) if name == declaration else 0
                    for name, of_node in zip(names, amounts, strict=True)
                )
                limits.append((counts, max(0, most - self._used[declaration][resource])))
        return limits + self._shared_quotas(groups)

    def _shared_quotas(self, groups: Sequence[NodeGroupState]) -> list[tuple[tuple[int, ...], int]]:
        limits = []
        for provider, quota in sorted(self._quota_left.items()):
            for resource, left in sorted(quota.items()):
                counts = tuple(
                    self._amounts(group.template.node, group.group).get(resource, 0)
                    if group.group.provider == provider and group.template is not None
                    else 0
                    for group in groups
                )
                limits.append((counts, max(0, left)))
        return limits

    def weights(self, groups: Iterable[NodeGroupState]) -> list[int]:
        """Return the weights of groups, each once, the highest first."""
        return sorted({self.weight(group.group) for group in groups}, reverse=True)

    def weight(self, group: NodeGroup) -> int:
        """Return the weight of a group's declaration, 0 for a group that somebody else has made."""
        pool = self.pools.get(declaration_of(group))
        return pool.weight if pool is not None else 0

    def opening_factor(self, group: NodeGroup) -> float:
        """Return by what the price of a group's nodes is multiplied, because it would have to be
        opened."""
        pool = self.pools.get(declaration_of(group))
        return 1.0 + pool.opening_factor if pool is not None and self.is_new(group) else 1.0

    def place_of(self, group: NodeGroup) -> str:
        """Return the zone of a declaration in which a group is, "" for a group that somebody else
        has made."""
        if group.managed is None:
            return ""
        return f"{declaration_of(group)}/{group.managed.choice.zone}"

    def _amounts(self, node: Node, group: NodeGroup) -> Mapping[str, int]:
        """Return per limited resource what a node of a group counts. Computed once for the same
        node: it is asked for hundreds of groups at every step of a search."""
        known = self._amounts_of.get(group.id)
        if known is None or known[0] is not node:
            known = node, self._counted(node, group)
            self._amounts_of[group.id] = known
        return known[1]

    def _counted(self, node: Node, group: NodeGroup) -> dict[str, int]:
        source = node.capacity or node.allocatable
        price = self._prices.hourly(node, group) or 0.0
        return {
            "nodes": 1,
            "cpu": _cores(node),
            "memory": source.get(MEMORY, 0),
            "gpus": next((source[name] for name in GPU_RESOURCES if source.get(name)), 0),
            COST: math.ceil(round(price * MICRO, 3)),
        }

    def _reason(self, declaration: str, resource: str) -> Reason:
        unit = _UNITS.get(resource, 1)
        return Reason.of(
            ReasonCode.DECLARATION_LIMIT,
            pool=declaration,
            resource=resource,
            used=_in_units(self._used[declaration][resource], unit),
            max=_in_units(self._most[declaration][resource], unit),
        )


def _cores(node: Node) -> int:
    return math.ceil((node.capacity or node.allocatable).get(CPU, 0) / 1000)


def _in_units(amount: int, unit: int) -> float:
    """Return an amount as people see it; a whole number without decimals."""
    value = round(amount / unit, 4)
    return int(value) if value.is_integer() else value


def _most(pool: ManagedPool) -> dict[str, int]:
    """Return the limits that a declaration has, in units of a node's amounts."""
    limits = pool.limits
    stated = {
        "nodes": limits.nodes,
        "cpu": limits.cpu,
        "memory": limits.memory,
        "gpus": limits.gpus,
        COST: limits.cost_per_hour,
    }
    return {
        resource: round(most * _UNITS.get(resource, 1))
        for resource, most in stated.items()
        if most is not None
    }


def _refused_sizes(state: ClusterState) -> dict[tuple[str, bool], Reason]:
    """Return by provider and market, True for spot, why managed groups do not grow whose machines
    have at least as many cores as `limit`: the vendor has refused such machines for a quota."""
    refused: dict[tuple[str, bool], Reason] = {}
    for group in state.groups.values():
        failed, managed = group.memory.backoff, group.group.managed
        if failed is None or failed.cls != _OF_QUOTA or not group.backed_off:
            continue
        if managed is None or group.template is None:
            continue
        cores = _cores(group.template.node)
        market = group.group.provider, group.group.spot
        if market not in refused or cores < int(refused[market].params["limit"]):
            error = " ".join(filter(None, (failed.code, failed.message)))
            detail = f"{managed.choice.machine} with {cores} cores was refused: {error}"
            refused[market] = Reason.of(
                ReasonCode.CANDIDATE_QUOTA, limit=cores, until=failed.until, detail=detail
            )
    return refused


def _stops(state: ClusterState) -> dict[str, Reason]:
    """Return why a declaration gets no new group: MOST_IN_VAIN of its groups have nodes that did
    not join, or the vendor has refused so many of its machine types with the same code."""
    stops: dict[str, Reason] = {}
    for (declaration, code), ends in sorted(_refused_types(state).items()):
        end = _end_of_stop(ends.values(), state.now)
        if end:
            error = f"the vendor refuses {len(ends)} machine types of {declaration}: {code}"
            stops[declaration] = Reason.of(ReasonCode.GROUP_BACKOFF, until=end, error=error)
    for declaration, failures in sorted(failures_to_join(state).items()):
        end = _end_of_stop((failed.until for failed in failures.values()), state.now)
        if end:
            error = f"nodes of {len(failures)} groups of {declaration} did not join in time"
            stops[declaration] = Reason.of(ReasonCode.GROUP_BACKOFF, until=end, error=error)
    return stops


def _refused_types(state: ClusterState) -> dict[tuple[str, str], dict[str, float]]:
    """Return (declaration, code) -> machine type that the vendor refuses with it -> until when that
    counts."""
    ends: dict[tuple[str, str], dict[str, float]] = {}
    for group in state.groups.values():
        failed, managed = group.memory.backoff, group.group.managed
        if (
            failed is None
            or managed is None
            or not backoff.refuses_machine(failed.cls, failed.code)
        ):
            continue
        end = failed.last_failed + state.options.node_group_backoff_reset_timeout
        of_type = ends.setdefault((managed.choice.declaration, failed.code), {})
        kind = managed.choice.instance_type
        of_type[kind] = max(end, of_type.get(kind, 0.0))
    return ends


def _end_of_stop(ends: Iterable[float], now: float) -> float:
    """Return until when MOST_IN_VAIN failures count, 0.0 if so many do not count now."""
    until = sorted(end for end in ends if end >= now)
    return until[-MOST_IN_VAIN] if len(until) >= MOST_IN_VAIN else 0.0
