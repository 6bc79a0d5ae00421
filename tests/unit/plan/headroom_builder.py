"""Clusters with headroom, and the headroom figures of their plans."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.mode import Mode
from tests.builders import NOW, ClusterBuilder, cluster

GIB = 2**30
SPARE = Headroom("spare", pods=3, cpu=1000, memory=GIB)
TENTH = Headroom("tenth", percent=10)


def decided(
    build: ClusterBuilder,
    *headroom: Headroom,
    memory: Memory | None = None,
    now: float = NOW,
    unneeded: float | None = 3600.0,
    **options: Any,
) -> tuple[Plan, Memory]:
    policy = Policy(
        name="test",
        mode=Mode.ACTIVE,
        headroom=headroom,
        options=msgspec.structs.replace(Options(), **options),
    )
    return plan_cluster(
        build.snapshot(), policy, memory or Memory(), now, 0, assume_unneeded_for=unneeded
    )


def plan(build: ClusterBuilder, *headroom: Headroom, **more: Any) -> Plan:
    return decided(build, *headroom, **more)[0]


def said(found: Plan, name: str = "spare") -> tuple[int, int, int]:
    """Wanted, held and added virtual pods."""
    one = next(each for each in found.headroom if each.name == name)
    return one.wanted, one.held, one.added


def why(found: Plan, name: str = "spare") -> dict[str, ReasonCode]:
    one = next(each for each in found.headroom if each.name == name)
    return {group: reason.code for group, reason in one.reasons.items()}


def gone(found: Plan) -> list[str]:
    return sorted(each.node for each in found.removals)


def busy(*used: int, cpu: str = "4", **fields: Any) -> ClusterBuilder:
    """A group `g` of four-core nodes with that many one-core pods on each."""
    build = cluster()
    for at in range(len(used)):
        build.node(f"g-{at}", cpu, "16Gi", group="g")
    for at, count in enumerate(used):
        if count:
            build.running(f"g-{at}", count, "1", "1Gi")
    return build.group("g", **fields)
