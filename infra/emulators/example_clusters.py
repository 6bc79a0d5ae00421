"""A deployment with clusters in every status, in memory and the same every time: for pictures and tests of the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from chalicelib.model.gauge_ring import EVERY, POINTS, GaugePoint
from chalicelib.model.memory import Backoff, BreakerState, GroupMemory, Memory, ScaleUpRequest
from chalicelib.model.operation import (
    Operation,
    OperationKind,
    OperationSpec,
    OperationState,
    OperationStatus,
    RemovalTarget,
)
from chalicelib.model.pause import Pause
from chalicelib.model.plan import GroupVerdict, Health, NodeVerdict, Plan, Removal, ScaleUp, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.load import digest
from chalicelib.record import carry_over, journal
from chalicelib.record.carry_over import CarryOver
from chalicelib.record.metrics import key
from chalicelib.store import JournalEntry, Store
from chalicelib.store.leases import PassFailure
from infra.emulators.memory_table import MemoryAccount

NOW = 1_795_000_000.0
"""The instant of the example: epoch seconds."""

_POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  mode: {mode}
  kubernetes: {{kubeconfigSecret: outscaler/{name}/kubeconfig}}
  providers:
    clusterapi: {{clusterName: {name}}}
  nodeGroups:
    - {{provider: clusterapi, id: web, min: 2, max: {most}}}
"""


def example(clock: Callable[[], float] = lambda: NOW, account: MemoryAccount | None = None) -> Store:
    """Return the store of the example, whose clusters are `prod` (busy), `shop` (late and failing), `staging` (paused),
    `edge` (shadow) and `lab` (off)."""
    store = (account or MemoryAccount()).store("example", clock=clock)
    for name, mode in (
        ("prod", "active"),
        ("shop", "active"),
        ("staging", "active"),
        ("edge", "shadow"),
        ("lab", '"off"'),
    ):
        for version, most in enumerate((20, 30), 1):
            text = _POLICY.format(name=name, mode=mode, most=most)
            store.policies.put(name, text, digest(text), version - 1 or None)
    _busy(store)
    failure = PassFailure("Unauthorized", "the cluster refuses the token", NOW - 420, NOW - 360, 6)
    decided(store, "shop", quiet_plan("shop", NOW - 500), NOW - 400, failure=failure)
    decided(store, "staging", quiet_plan("staging", NOW - 900), NOW - 12)
    decided(store, "edge", quiet_plan("edge", NOW - 3000), NOW - 40)
    by = "arn:aws:sts::123456789012:assumed-role/platform/kim"
    store.pauses.change("staging", lambda _: (Pause(NOW + 4800, NOW - 60, reason="release test", by=by),))
    return store


def decided(
    store: Store,
    name: str,
    plan: Plan,
    passed_at: float,
    *,
    failure: PassFailure | None = None,
    gauges: Mapping[str, float] | None = None,
) -> None:
    """Store a decision and the pass that confirmed it, as a pass does. gauges: more of them, by metrics.key."""
    store.journal.append(name, journal.plan_entry(plan))
    lease = store.leases.acquire(name, "example", 60.0)
    health, waiting = plan.health, sum(len(each.pods) for each in plan.unschedulable)
    measured = {
        key("nodes_count", state="ready"): float(health.ready),
        key("nodes_count", state="unready"): float(health.unready),
        key("max_nodes_count"): float(sum(each.max for each in plan.groups)),
        key("unschedulable_pods_count", type="unschedulable"): float(waiting),
        key("pending_node_deletions"): float(health.removing),
        **(gauges or {}),
    }
    left = carry_over.write(CarryOver(gauges=measured, decided=plan.at, ring_at=plan.at))
    store.leases.release(
        lease,
        passed_at=passed_at,
        decision=journal.decision(plan),
        carry_over=left,
        succeeded=failure is None,
        failure=failure,
    )


def quiet_plan(name: str, at: float, groups: int = 2, nodes: int = 6) -> Plan:
    """Return a decision to change nothing, with that many groups and nodes."""
    verdicts = tuple(
        GroupVerdict(f"group-{at}", "clusterapi", 1, 10, max(1, nodes // groups), ready=max(1, nodes // groups))
        for at in range(groups)
    )
    stays = tuple(
        NodeVerdict(
            f"node-{number:05d}",
            Reason.of(ReasonCode.NOT_UNDERUTILIZED, resource="cpu", utilization=0.71, threshold=0.5),
        )
        for number in range(nodes)
    )
    return Plan(
        id=f"plan-{name}",
        cluster=name,
        at=at,
        groups=verdicts,
        unremovable=stays,
        health=Health(registered=nodes, ready=nodes),
    )


def _busy(store: Store) -> None:
    plan = busy_plan()
    for at, kind, group, facts in _STORY:
        store.journal.append("prod", JournalEntry(at=NOW - at, kind=kind, group=group, facts=facts))
    decided(store, "prod", plan, NOW - 22)
    for slot in range(POINTS, 0, -1):
        wave = math.sin(slot / 40.0)
        at, nodes, pending = NOW - slot * EVERY, int(20 + 6 * wave), max(0, int(9 * wave) - 5)
        point = GaugePoint(at, nodes, pending, nodes + pending // 2, 60 + pending, 50 + pending, 0.25 * nodes)
        store.gauge_rings.add("prod", point, seen=at - EVERY)
    operations = (
        _operation("grow-5be1f0a2", OperationKind.SCALE_UP, "web", "request", (14, 17)),
        _operation("remove-77aa01c3", OperationKind.DELETE_NODES, "batch", "evict"),
    )
    memory = Memory(
        groups={
            "web": GroupMemory(target=14, request=ScaleUpRequest(3, NOW - 60, NOW + 840)),
            "gpu": GroupMemory(backoff=Backoff(600.0, NOW + 480, NOW - 120, "OutOfStock", "SoldOut", "no capacity", 2)),
        },
        breaker=BreakerState(((NOW - 1200, 2, 14),)),
    )
    lease = store.leases.acquire("prod", "example", 60.0)
    store.memory.save("prod", store.memory.load("prod"), memory, operations, lease)
    store.leases.release(lease, passed_at=NOW - 22)


def busy_plan() -> Plan:
    """Return the last decision of `prod`: a scale-up, a removal, waiting pods, and nodes that stay for several
    reasons."""
    cpu = Reason.of(ReasonCode.INSUFFICIENT, resource="cpu", needs=40_000, offers=7_750)
    backoff = Reason.of(ReasonCode.GROUP_BACKOFF, until=NOW + 480, error="OutOfStock SoldOut no capacity")
    groups = (
        GroupVerdict("web", "clusterapi", 2, 30, 14, ready=14, option_nodes=3, option_pods=27),
        GroupVerdict("batch", "clusterapi", 0, 12, 5, ready=5, skipped=None),
        GroupVerdict("gpu", "clusterapi", 0, 4, 0, skipped=backoff, backoff=backoff),
        GroupVerdict("arm", "clusterapi", 1, 8, 2, ready=1, healthy=False),
    )
    stays = [
        *(
            NodeVerdict(
                f"web-{at}", Reason.of(ReasonCode.NOT_UNDERUTILIZED, resource="cpu", utilization=0.82, threshold=0.5)
            )
            for at in range(13)
        ),
        *(
            NodeVerdict(
                f"batch-{at}",
                Reason.of(ReasonCode.BLOCKED_BY_POD, pod="jobs/report-0", rule="NotEnoughPdb"),
                "jobs/report-0",
            )
            for at in range(4)
        ),
        NodeVerdict("arm-0", Reason.of(ReasonCode.NOT_UNNEEDED_LONG_ENOUGH, since=NOW - 240, needs=600)),
    ]
    return Plan(
        id="plan-5be1f0a2d4c6",
        cluster="prod",
        at=NOW - 82,
        scale_ups=(ScaleUp("web", "clusterapi", 14, 17, 30, tuple(f"shop/cart-{at}" for at in range(27))),),
        unschedulable=(
            UnschedulablePods(
                ("ml/train-huge-0", "ml/train-huge-1"), {"web": (cpu,), "gpu": (backoff, cpu), "arm": (cpu,)}, 20
            ),
        ),
        removals=(Removal("batch-4", "batch", "drain", ("jobs/report-1", "jobs/report-2")),),
        unneeded=("arm-0",),
        unremovable=tuple(stays),
        groups=groups,
        health=Health(registered=20, ready=20, removing=1),
    )


def _operation(name: str, kind: OperationKind, group: str, step: str, sizes: tuple[int, int] = (0, 0)) -> Operation:
    targets = () if any(sizes) else (RemovalTarget("batch-4", "batch-4"),)
    spec = OperationSpec(
        id=name,
        cluster="prod",
        provider="clusterapi",
        group=group,
        kind=kind,
        plan="plan-5be1f0a2d4c6",
        created_at=NOW - 61,
        targets=targets,
        from_size=sizes[0],
        to_size=sizes[1],
    )
    return Operation(spec, OperationStatus(state=OperationState.WAITING, step=step, attempt=2, due_at=NOW + 5))


_STORY: tuple[tuple[float, str, str, dict[str, str | int | float | bool]], ...] = (
    (62000.0, "operation", "web", {"kind": "grow", "state": "succeeded", "from": 11, "to": 15, "seconds": 94.0}),
    (41000.0, "operation", "batch", {"kind": "remove", "state": "succeeded", "targets": "batch-9"}),
    (21000.0, "operation", "web", {"kind": "remove", "state": "succeeded", "targets": "web-19"}),
    (9000.0, "policy", "", {"version": 2, "by": "arn:aws:sts::123456789012:assumed-role/platform/kim"}),
    (4000.0, "operation", "web", {"kind": "grow", "state": "succeeded", "from": 14, "to": 17, "seconds": 88.0}),
    (600.0, "operation", "gpu", {"kind": "grow", "state": "failed", "class": "OutOfStock", "code": "SoldOut"}),
)


def as_many(groups: int, nodes: int) -> Store:
    """Return a store with one cluster `large` of that many groups and nodes that stay."""
    store = MemoryAccount().store("example", clock=lambda: NOW)
    text = _POLICY.format(name="large", mode="active", most=9)
    store.policies.put("large", text, digest(text), None)
    decided(store, "large", msgspec.structs.replace(quiet_plan("large", NOW - 60, groups, nodes)), NOW - 10)
    return store
