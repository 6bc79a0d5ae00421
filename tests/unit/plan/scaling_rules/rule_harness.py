"""A cluster of node groups and pools that is planned pass after pass, with
scaling rules and a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from chalicelib.model.group import GroupOptions, NodeGroup
from chalicelib.model.group import Pool as VendorPool
from chalicelib.model.memory import Backoff, GroupMemory, Memory
from chalicelib.model.node import Node
from chalicelib.model.plan import Plan, RuleVerdict
from chalicelib.model.reason import ReasonCode
from chalicelib.model.scaling_rules import Metric, Rule, RuleObject
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.builders import cluster, node

MINUTE = 60.0
LONG_AGO = 1_500_000_000.0


def at(text: str) -> float:
    """Parses `2026-03-09 20:47`, optionally with seconds, as UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def cron(
    name: str = "evening",
    when: str = "47 20 * * *",
    add: int = 1,
    groups: tuple[str, ...] = ("g",),
    **more: Any,
) -> Rule:
    """Builds a cron rule."""
    return Rule(name, groups, cron=when, add=add, **more)


def cpu(
    name: str = "cpu", above: int = 60, add: int = 1, groups: tuple[str, ...] = ("g",), **more: Any
) -> Rule:
    """Builds a rule for the cpu rate; add 0: automatic."""
    return Rule(name, groups, metric=Metric.CPU, above=above, add=add, **more)


def memory_rule(
    name: str = "memory",
    above: int = 60,
    add: int = 1,
    groups: tuple[str, ...] = ("g",),
    **more: Any,
) -> Rule:
    """Builds a rule for the memory rate."""
    return Rule(name, groups, metric=Metric.MEMORY, above=above, add=add, **more)


def horizontal(name: str, *rules: Rule, created: float = 0.0, **more: Any) -> RuleObject:
    """Builds a HorizontalNodeAutoscaler with these rules."""
    key = f"kube-system/{name}"
    return RuleObject(
        "kube-system",
        name,
        created=created,
        rules=tuple(msgspec.structs.replace(rule, source=key) for rule in rules),
        **more,
    )


class _RuleHarnessCached(msgspec.Struct):
    """A group in its current state. pods: (cpu, memory) of a pod on each of its first nodes;
    more: fields of NodeGroup."""

    count: int
    model: dict[str, Any]
    pods: list[tuple[str, str]]
    more: dict[str, Any]
    bare: bool


class Site:
    """A simulated cluster: `arrive` brings groups to their planned size, and memory is
    carried from pass to pass."""

    def __init__(
        self,
        *rules: Rule,
        now: float = at("2026-03-09 20:46:30"),
        scale_up: ScaleUp | None = None,
        **options: Any,
    ) -> None:
        self.rules, self.now = rules, now
        self.scale_up = scale_up or ScaleUp()
        self.options: dict[str, Any] = {"scale_down_enabled": False, **options}
        self.objects: tuple[RuleObject, ...] | None = None
        self.groups: dict[str, _RuleHarnessCached] = {}
        self.pending: list[tuple[int, str]] = []
        self.gaps: tuple[MissingData, ...] = ()
        self.unready = 0
        self.memory = Memory()

    def group(
        self,
        name: str = "g",
        count: int = 1,
        each: str = "4",
        memory: str = "16Gi",
        *,
        pool: VendorPool | None = None,
        utilization: float | None = None,
        bare: bool = False,
        node: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Site:
        """Adds a group of that many ready nodes. each: cores; bare: its
        provider has no node template."""
        given = more.pop("options", GroupOptions(scale_down_utilization_threshold=utilization))
        model = {
            "cpu": each,
            "memory": memory,
            "created": LONG_AGO,
            "ready_since": LONG_AGO,
            **(node or {}),
        }
        self.groups[name] = _RuleHarnessCached(
            count, model, [], {"pool": pool, "options": given, **more}, bare
        )
        return self

    def ask(self, name: str, *pods: tuple[str, str]) -> Site:
        """Adds a running pod with (cpu, memory) requests to the first node, the second …;
        one node may have several."""
        self.groups[name].pods = list(pods)
        return self

    def wait(self, count: int, each: str) -> Site:
        """Adds pending pods."""
        self.pending = [(count, each)] if count else []
        return self

    def snapshot(self) -> Snapshot:
        """The snapshot of one pass."""
        build = cluster()
        for name, kept in self.groups.items():
            for number in range(kept.count):
                ready = not (name == "g" and number < self.unready)
                build.node(f"{name}-{number:03d}", group=name, ready=ready, **kept.model)
            for number, (cores, size) in enumerate(kept.pods):
                build.running(
                    f"{name}-{number % max(1, kept.count):03d}",
                    1,
                    cores,
                    size,
                    owner=f"{name}-{number}",
                )
            model: Node | None = None if kept.bare else node("t", **kept.model)
            build.group(name, **{"max": 100, "template": model, **kept.more})
        for count, each in self.pending:
            build.pending(count, each, created=LONG_AGO)
        made = build.snapshot()
        return msgspec.structs.replace(
            made,
            rule_objects=self.objects,
            gaps=self.gaps,
            groups=tuple(sorted(made.groups, key=lambda group: group.id)),
        )

    def policy(self) -> Policy:
        """The policy with the rules in force."""
        return Policy(
            name="test",
            mode=Mode.ACTIVE,
            rules=self.rules,
            scale_up=self.scale_up,
            options=msgspec.structs.replace(Options(), **self.options),
        )

    def plan(self, now: float | None = None, *, changed: Sequence[NodeGroup] = ()) -> Plan:
        """Runs one pass at that instant (default: the current clock). changed: groups with
        different values in this pass."""
        self.now = self.now if now is None else now
        read, others = self.snapshot(), {each.id: each for each in changed}
        read = msgspec.structs.replace(
            read, groups=tuple(others.get(each.id, each) for each in read.groups)
        )
        plan, self.memory = plan_cluster(read, self.policy(), self.memory, self.now, 0)
        return plan

    def read(self, name: str = "g") -> NodeGroup:
        """The group as its provider reports it."""
        return next(group for group in self.snapshot().groups if group.id == name)

    def arrive(self, plan: Plan) -> Site:
        """Registers all requested instances."""
        for up in plan.scale_ups:
            self.groups[up.group].count = up.to_size
        return self

    def under_way(self, plan: Plan) -> Site:
        """Opens the operations of a plan."""
        self.memory = msgspec.structs.replace(self.memory, operations=plan.operations)
        return self

    def over(self) -> Site:
        """Closes all operations."""
        self.memory = msgspec.structs.replace(self.memory, operations=())
        return self

    def sold_out(self, name: str, until: float | None = None) -> Site:
        """Records a scale-up failure of the group at the current instant."""
        end = self.now + 300.0 if until is None else until
        known = self.memory.groups.get(name, GroupMemory())
        failed = msgspec.structs.replace(known, backoff=Backoff(300.0, end, self.now, "OutOfStock"))
        self.memory = msgspec.structs.replace(
            self.memory, groups={**self.memory.groups, name: failed}
        )
        return self


def grown(plan: Plan) -> dict[str, int]:
    """New nodes by group: group -> count."""
    return {up.group: up.to_size - up.from_size for up in plan.scale_ups}


def said(plan: Plan, rule: str, pool: str = "") -> RuleVerdict:
    """The verdict of a rule."""
    return next(each for each in plan.rules if each.rule == rule and pool in ("", each.pool))


def why(plan: Plan, rule: str, pool: str = "") -> ReasonCode | None:
    """The reason code why a rule adds no nodes, or no more nodes."""
    reason = said(plan, rule, pool).reason
    return reason.code if reason is not None else None


def noted(plan: Plan) -> set[ReasonCode]:
    """Reason codes of the notes."""
    return {note.code for note in plan.notes}


__all__ = [
    "LONG_AGO",
    "MINUTE",
    "Site",
    "VendorPool",
    "at",
    "cpu",
    "cron",
    "grown",
    "horizontal",
    "memory_rule",
    "noted",
    "said",
    "why",
]
