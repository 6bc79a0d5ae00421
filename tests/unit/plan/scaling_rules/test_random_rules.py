"""Random rules, pools and limits over many passes: no maximum or limit is exceeded, every
occurrence is handled once, and equal input gives an equal plan."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.group import NodeGroup
from chalicelib.model.plan import Plan
from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.unit.plan.scaling_rules.rule_harness import MINUTE, Site, VendorPool, grown

_WHEN = ("* * * * *", "*/7 * * * *", "47 20 * * *", "50 20 * * *", "0 21 * * *")


class _Trial:
    """One random cluster. The sizes below are computed from what was built,
    independently of the planner."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        chance = self.chance
        self.caps = {
            "max_nodes_total": chance.choice([0, 12, 25]),
            "cores": chance.choice([10**6, 40, 90]),
        }
        self.site = Site(
            scale_up=ScaleUp(metric_min_interval=chance.choice([0.0, 300.0])),
            max_nodes_total=self.caps["max_nodes_total"],
            cores_total=(0, self.caps["cores"]),
        )
        self.cores: dict[str, int] = {}
        self.site.now += chance.randrange(60)
        targets = []
        for number in range(chance.randrange(1, 4)):
            targets += (
                self._pool(f"p{number}")
                if chance.random() < 0.6
                else [self._group(f"g{number}", None)]
            )
        self.site.rules = tuple(
            self._rule(f"r{number}", targets) for number in range(chance.randrange(1, 7))
        )

    def _group(self, name: str, pool: VendorPool | None) -> str:
        chance = self.chance
        self.cores[name] = chance.choice([2, 4, 8])
        count = chance.randrange(4)
        self.site.group(
            name,
            count,
            str(self.cores[name]),
            pool=pool,
            rank=chance.randrange(3),
            max=count + chance.randrange(9),
        )
        if count:
            self.site.ask(
                name, *[(f"{self.cores[name] * chance.choice([20, 60, 95]) * 10}m", "1Gi")] * count
            )
        return name

    def _pool(self, name: str) -> list[str]:
        pool = VendorPool(
            name, max=self.chance.choice([-1, 9, 14]), elsewhere=self.chance.randrange(2)
        )
        return [name, *(self._group(f"{name}/{zone}", pool) for zone in "ab")]

    def _rule(self, name: str, targets: list[str]) -> Rule:
        chance = self.chance
        groups = tuple(chance.sample([*targets, "nowhere"], chance.randrange(1, len(targets) + 1)))
        if chance.random() < 0.6:
            return Rule(name, groups, cron=chance.choice(_WHEN), add=chance.randrange(1, 6))
        return Rule(
            name,
            groups,
            metric=chance.choice(list(Metric)),
            above=chance.choice([55, 70, 90]),
            add=chance.randrange(3),
        )

    def step(self) -> Plan:
        """Runs one pass; requested nodes come at once, or the group is sold out. Returns the
        errors found in the plan."""
        site, chance = self.site, self.chance
        site.now += chance.choice([20.0, MINUTE, 3 * MINUTE])
        before, memory = {name: kept.count for name, kept in site.groups.items()}, site.memory
        plan = site.plan()
        assert plan_cluster(site.snapshot(), site.policy(), memory, site.now, 0) == (
            plan,
            site.memory,
        )
        self._bounded(plan, before)
        for name, nodes in grown(plan).items():
            if chance.random() < 0.3:
                site.sold_out(name)
                nodes = chance.randrange(nodes)  # noqa: PLW2901 - the rest never comes
            site.groups[name].count += nodes
        return plan

    def _bounded(self, plan: Plan, before: dict[str, int]) -> None:
        more = Counter(grown(plan))
        if not more:
            return
        groups = {group.id: group for group in self.site.snapshot().groups}
        assert all(before[name] + nodes <= groups[name].max for name, nodes in more.items())
        for pool, here in _pools(groups).items():
            most = here[0].pool.max if here[0].pool is not None else -1
            size = sum(before[group.id] + more[group.id] for group in here)
            assert (
                most < 0
                or size + (here[0].pool.elsewhere if here[0].pool else 0) <= most
                or not any(more[group.id] for group in here)
            ), pool
        if self.caps["max_nodes_total"]:
            assert sum(before.values()) + sum(more.values()) <= self.caps["max_nodes_total"]
        assert (
            sum(
                math.ceil(self.cores[name]) * (count + more[name]) for name, count in before.items()
            )
            <= self.caps["cores"]
        )


def _pools(groups: dict[str, NodeGroup]) -> dict[str, list[NodeGroup]]:
    found: dict[str, list[NodeGroup]] = {}
    for group in groups.values():
        if group.pool is not None:
            found.setdefault(group.pool.id, []).append(group)
    return found


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 10**9))
def test_scaling_rules_never_exceed_limits_and_handle_each_occurrence_once(seed: int) -> None:
    trial = _Trial(seed)
    dealt: Counter[tuple[Any, ...]] = Counter()
    for _ in range(14):
        known = trial.site.memory.rules
        plan = trial.step()
        sources = {name for up in plan.scale_ups for name in up.rules}
        assert all(up.rules for up in plan.scale_ups)
        for each in plan.rules:
            key = f"{each.rule}@{each.pool}"
            assert not each.nodes or each.rule in sources
            after = trial.site.memory.rules.get(key)
            if (
                each.due
                and after is not None
                and after.last_occurrence == each.due
                and (key not in known or known[key].last_occurrence != each.due)
            ):
                dealt[key, each.due] += 1
            if after is not None and key in known and after.cron:
                assert after.last_occurrence >= known[key].last_occurrence
    assert all(times == 1 for times in dealt.values())
