"""The context that the rules of one pass share: the cluster state and the results so far."""

from __future__ import annotations

from functools import cached_property

from chalicelib.model.memory import RuleMemory
from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.scale_up.preconditions import blocking_reason
from chalicelib.plan.scale_up.scaling_rules.allocation import Allocation, NodeDemand, give
from chalicelib.plan.scale_up.scaling_rules.allocation_rate import Rates
from chalicelib.plan.scale_up.scaling_rules.pool_state import members, scaling, unreadable
from chalicelib.plan.scale_up.scaling_rules.sources import SourceBound
from chalicelib.plan.scale_up.search import ScaleUpSearch
from chalicelib.plan.state.pools import PoolFacts
from chalicelib.schedules.cron import LocalClock


class RuleContext:
    """memory: of rules, for the next pass. by_group: group -> keys of the rules that want nodes of it. taken: pool ->
    the cron rule that acts on it in this pass, or waits to."""

    def __init__(self, search: ScaleUpSearch) -> None:
        self.search, self.state = search, search.state
        self.clock = LocalClock(search.state.now)
        self.memory: dict[str, RuleMemory] = {}
        self.by_group: dict[str, list[str]] = {}
        self.taken: dict[str, str] = {}
        self.notes: list[Reason] = []
        self._scaling: dict[str, str] = {}
        self._unreadable: dict[str, Reason | None] = {}
        self._busy = {name: "pending pods or its minimum" for name, nodes in search.grown.items() if nodes > 0}

    @cached_property
    def rates(self) -> Rates:
        """The allocation rates, computed when the first metric rule needs them."""
        return Rates(self.state)

    @cached_property
    def unhealthy(self) -> Reason | None:
        """Why no group in the whole cluster may scale up."""
        return blocking_reason(self.state)

    def unreadable(self, pool: PoolFacts) -> Reason | None:
        """Return why the size of a pool is unknown."""
        if pool.id not in self._unreadable:
            self._unreadable[pool.id] = unreadable(pool, self.state)
        return self._unreadable[pool.id]

    def scaling(self, pool: PoolFacts) -> Reason | None:
        """Return why a pool counts as scaling, including scale-ups of this pass."""
        if pool.id not in self._scaling:
            self._scaling[pool.id] = scaling(pool, self.state)
        detail = self._scaling[pool.id] or next(
            (
                f"{facts.id} is grown in this pass for {self._busy[facts.id]}"
                for facts in members(pool, self.state)
                if facts.id in self._busy
            ),
            "",
        )
        return Reason.of(ReasonCode.RULE_SCALING, pool=pool.name or pool.id, detail=detail) if detail else None

    def give(self, bound: SourceBound, demand: NodeDemand) -> Allocation:
        """Add nodes for a rule, and record them as the rule's."""
        given = give(self.search, bound.pool, demand)
        for name in given.nodes:
            self.by_group.setdefault(name, []).append(bound.rule.key)
            self._busy[name] = f"rule {bound.rule.key}"
        return given


def verdict(
    bound: SourceBound, reason: Reason | None = None, *, nodes: int = 0, due: float = 0.0, rate: float | None = None
) -> RuleVerdict:
    """Return the report on a rule on a pool."""
    return RuleVerdict(bound.rule.name, bound.pool.id, bound.rule.source, nodes, due, rate, reason)
