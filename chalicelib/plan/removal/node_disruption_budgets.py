"""How many nodes of a pool may be on their way out at once (Policy.disruption_budgets).

A budget limits a number at one time, not a rate: the circuit breaker (removal_limits.py) has the
limits per hour. It applies to each pool by itself, or to a single group where its name means one
group of a pool. What counts is every node that is out or on its way, for whatever reason:

- nodes that an operation removes or that have the taint of a removal, and
  nodes whose machine is gone;
- old nodes of replacements that are under way, because they are promised to go;
- nodes that are not ready, but not those that are still starting;
- nodes that were drawn earlier in this pass.

Of several budgets that are open, the one with the least room decides. A node that is not ready
itself takes no room when it goes; otherwise dead nodes could fill a budget and never leave. A
budget of 0 forbids that, too. A zero-or-max group that alone exceeds the limit goes when nothing
else of its pool is out. See docs/reference/consolidation.md "Disruption budgets".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.removal.replacement_rows import on_their_way_out
from chalicelib.plan.state.cluster_state import ClusterState
from chalicelib.plan.state.pools import PoolNames, pools
from chalicelib.plan.state.readiness import Bucket
from chalicelib.policy.settings.consolidation import ConsolidationMode
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.node_limit import NodeLimit
from chalicelib.schedules.maintenance_windows import closes

DEFAULT = DisruptionBudget("default", NodeLimit(share=0.1))
"""The budget of a policy that names none."""
_NOT_READY = frozenset({Bucket.UNREADY, Bucket.SUSPENDED})
_OUT = _NOT_READY | {Bucket.DELETED}


class _OpenBudget(msgspec.Struct, frozen=True):
    """A budget that holds now, on one pool or group. nodes: names of the registered ones. until:
    None if it always holds."""

    name: str
    limit: int
    groups: frozenset[str]
    nodes: frozenset[str]
    until: float | None


class DisruptionBudgets:
    """The disruption budgets of one pass."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._open: dict[DisruptionReason, list[_OpenBudget]] = {}

    def refuse(self, group: str, nodes: Collection[str], reason: DisruptionReason) -> Reason | None:
        """Return why these nodes of a group, which go together, may not go
        now. reason: why they would."""
        own = {*nodes}
        refusing = [
            budget for budget in self._holding(group, reason) if not self._has_room(budget, own)
        ]
        if not refusing:
            return None
        return _reason(min(refusing, key=self._left))

    def take(self, nodes: Iterable[str]) -> None:
        """Count nodes that go."""
        self._out.update(nodes)

    def rooms(self, groups: Collection[str], reason: DisruptionReason) -> list[tuple[int, Reason]]:
        """Return how many nodes may still go by each budget on any of these groups, and
        the reason of the next one."""
        budgets = {
            id(budget): budget for group in groups for budget in self._holding(group, reason)
        }
        return [(max(0, self._left(budget)), _reason(budget)) for budget in budgets.values()]

    def counted(self, nodes: Iterable[str]) -> list[bool]:
        """Return which of these nodes count as out or on their way already, so
        that they take no more room."""
        return [name in self._out for name in nodes]

    @cached_property
    def _not_ready(self) -> frozenset[str]:
        return frozenset(
            name for name, bucket in self._state.buckets.items() if bucket in _NOT_READY
        )

    @cached_property
    def _out(self) -> set[str]:
        """Names of all nodes that are out or on their way, those that this pass takes included."""
        out = {name for name, bucket in self._state.buckets.items() if bucket in _OUT}
        return (
            out | self._state.leaving | on_their_way_out(self._state.memory.replacements.values())
        )

    def _left(self, budget: _OpenBudget) -> int:
        return budget.limit - len(self._out & budget.nodes)

    def _has_room(self, budget: _OpenBudget, own: set[str]) -> bool:
        if budget.limit == 0:
            return False
        if own <= self._not_ready:
            return True
        others = (self._out & budget.nodes) - own
        return not others or len(others) + len(own) <= budget.limit

    def _holding(self, group: str, reason: DisruptionReason) -> list[_OpenBudget]:
        if reason not in self._open:
            self._open[reason] = self._evaluated(reason)
        return [budget for budget in self._open[reason] if group in budget.groups]

    def _evaluated(self, reason: DisruptionReason) -> list[_OpenBudget]:
        """Return the budgets for a reason that are open now, on every pool that they apply to."""
        budgets: list[_OpenBudget] = []
        for budget in self._state.policy.disruption_budgets or (DEFAULT,):
            if (
                reason not in budget.reasons
                if budget.reasons
                else reason is DisruptionReason.UNNEEDED
            ):
                continue
            until = None
            if budget.cron:
                until = closes(budget, self._state.now)
                if until is None:
                    continue
            for groups in sorted(self._scopes(budget)):
                nodes = frozenset(
                    node.name for group in groups for node in self._state.groups[group].nodes
                )
                limit = budget.nodes.of(len(nodes))
                budgets.append(_OpenBudget(budget.name, limit, frozenset(groups), nodes, until))
        return budgets

    def _scopes(self, budget: DisruptionBudget) -> set[tuple[str, ...]]:
        """Return the groups of each pool, or the single group, that a budget applies to."""
        if not budget.groups:
            return {pool.groups for pool in pools(self._state).values()}
        names = PoolNames(self._state)
        return {pool.groups for name in budget.groups if (pool := names.find(name)) is not None}


def unknown_pools(state: ClusterState) -> Iterator[Reason]:
    """Return POOL_UNKNOWN for every name in the policy's budgets, consolidation,
    nodeLifecycle and spot that no single pool has; none if a provider could not be read,
    because the pool may exist."""
    policy = state.policy
    lists = [
        (f"disruption budget {budget.name}", budget.groups) for budget in policy.disruption_budgets
    ]
    if policy.consolidation.mode is not ConsolidationMode.OFF:
        lists.append(("consolidation.groups", policy.consolidation.groups))
    if (lifecycle := policy.node_lifecycle) is not None:
        lists.append(("nodeLifecycle.groups", lifecycle.groups))
        lists += [
            (f"nodeLifecycle.repair of {rule.condition}", rule.groups) for rule in lifecycle.repair
        ]
    if policy.spot is not None:
        lists.append(("spot.groups", policy.spot.groups))
    if state.unread_provider is not None or not any(groups for _, groups in lists):
        return
    names = PoolNames(state)
    for where, groups in lists:
        yield from (
            Reason.of(ReasonCode.POOL_UNKNOWN, where=where, name=name)
            for name in groups
            if names.find(name) is None
        )


def _reason(budget: _OpenBudget) -> Reason:
    until = {} if budget.until is None else {"until": budget.until}
    return Reason.of(ReasonCode.DISRUPTION_BUDGET, budget=budget.name, limit=budget.limit, **until)
