"""No metric rule buys again in the next pass what a pass removed
(docs/reference/scaling-rules.md "Removals and rules")."""

from __future__ import annotations

from random import Random

import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.plan import Plan
from chalicelib.model.scaling_rules import Rule
from tests.builders import ClusterBuilder, cluster
from tests.unit.plan.scaling_rules.rule_harness import VendorPool, cpu, memory_rule
from tests.unit.plan.scaling_rules.test_removal_guard import decided

PODS = (("100m", "64Mi"), ("500m", "1Gi"), ("1", "6Gi"), ("1900m", "2Gi"), ("3", "9Gi"))


class NeedsRandomLocation:
    """A cluster in its current state. nodes: name -> (group, cores); pods: name
    -> (node, cores, memory)."""

    def __init__(self, dice: Random) -> None:
        pool = VendorPool("p") if dice.random() < 0.6 else None
        self.groups = {
            name: (pool if name[0] == "p" else None, GroupOptions(zero_or_max=dice.random() < 0.2))
            for name in ("p/a", "p/b", "q")
        }
        self.nodes: dict[str, tuple[str, str]] = {}
        self.pods: dict[str, tuple[str, str, str]] = {}
        self.agents = dice.random() < 0.5
        for name in self.groups:
            cores = dice.choice(("4", "8"))
            for number in range(dice.randrange(7)):
                node = f"{name.replace('/', '-')}-{number}"
                self.nodes[node] = name, cores
                for at in range(dice.choice((0, 0, 1, 1, 2))):
                    self.pods[f"{node}.{at}"] = (node, *dice.choice(PODS[:4] if at else PODS))
        targets = ("p",) if pool is not None and dice.random() < 0.7 else ("p/a",)
        self.rules: tuple[Rule, ...] = tuple(
            make(above=dice.randrange(51, 96), add=dice.choice((0, 1)), groups=(*targets, "q"))
            for make in (cpu, memory_rule)
            if dice.random() < 0.8
        )

    def build(self) -> ClusterBuilder:
        """The snapshot of one pass."""
        made = cluster()
        for node, (group, cores) in self.nodes.items():
            made.node(node, cores, "16Gi", group=group)
            if self.agents:
                made.running(
                    node,
                    1,
                    "300m",
                    "256Mi",
                    owner="agent",
                    kind="DaemonSet",
                    namespace="kube-system",
                )
        for name, (node, cores, size) in self.pods.items():
            made.running(node, 1, cores, size, name=name)
        for name, (pool, options) in self.groups.items():
            made.group(name, pool=pool, options=options)
        return made

    def measured(self, group: str) -> str:
        """The pool in which rules measure a group."""
        return "p" if group[0] == "p" and any("p" in rule.groups for rule in self.rules) else group

    def carry_out(self, plan: Plan, read: ClusterBuilder) -> set[str]:
        """Applies the plan's removals: pods go to the destinations in the plan. Returns the pools
        that received pods of other pools."""
        keys = [pod.key for pod in read.pods if pod.namespace == "default"]
        called = dict(zip(keys, self.pods, strict=True))
        home = {node: self.measured(group) for node, (group, _) in self.nodes.items()}
        for removal in plan.removals:
            for pod, node in removal.destinations.items():
                self.pods[called[pod]] = (node, *self.pods[called[pod]][1:])
            del self.nodes[removal.node]
        moved = (
            (home[removal.node], home[node])
            for removal in plan.removals
            for node in removal.destinations.values()
        )
        return {to for origin, to in moved if origin != to}


@pytest.mark.parametrize("seed", range(50))
def test_CCE_A3_2_no_metric_rule_buys_back_removed_nodes(seed: int) -> None:
    place = NeedsRandomLocation(Random(seed))
    for _ in range(6):
        read = place.build()
        plan, _ = decided(read, *place.rules)
        if plan.scale_ups or not plan.removals:
            break
        crowded = place.carry_out(plan, read)
        after, _ = decided(place.build(), *place.rules)
        assert {place.measured(up.group) for up in after.scale_ups} <= crowded
