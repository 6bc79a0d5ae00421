"""A deployment with clusters in every status, in memory and the same every time: for
pictures and tests of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from chalicelib.journal import carry_over, journal
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.metric_values import pass_gauges
from chalicelib.model.cluster_bill import Bill, ClusterBill, CostParts, Savings
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import (
    Backoff,
    BreakerState,
    GroupMemory,
    JoinStatistics,
    Memory,
    ScaleUpRequest,
)
from chalicelib.model.operation import (
    Operation,
    OperationKind,
    OperationSpec,
    OperationState,
    OperationStatus,
    RemovalTarget,
)
from chalicelib.model.overview import ClusterOverview, GroupOverview, NodeOverview, SpotOverview
from chalicelib.model.pause import Pause
from chalicelib.model.plan import (
    ConsolidationReport,
    GroupVerdict,
    Health,
    LifecycleVerdict,
    Move,
    MovePurchase,
    NodeVerdict,
    Plan,
    Removal,
    ScaleUp,
    UnschedulablePods,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.load import digest
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.store import JournalEntry, Store
from chalicelib.store.gauge_ring import (
    EVERY,
    HOUR,
    NO_EXTREMES,
    POINTS,
    Extremes,
    GaugePoint,
)
from chalicelib.store.leases import PassFailure
from infra.emulators.memory_table import MemoryAccount

NOW = 1_795_000_000.0
"""The instant of the example: epoch seconds."""

WEB = "web"
BATCH = "asg-bp1e0f3c5k7q9x2m4d6v"
GPU = "5f3a9c61-7c0e-4b52-9f43-2d8a1e6b0c77"
ARM = "3b1d7f60-61ab-11ef-8c5d-0255ac100b05/arm-cn-north-4a"
"""Ids of the groups of `prod` as their vendors have them; people call the last
three batch, gpu and arm."""

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

_JOINS = JoinStatistics(
    ready=(*range(150, 240, 3), 290, 410),
    joined=38.5,
    failed=0.75,
    counted_at=NOW - 3600,
    since_timeout=32,
)
"""What the group web has taught."""


def example(
    clock: Callable[[], float] = lambda: NOW,
    account: MemoryAccount | None = None,
    *,
    hours: int = 3,
) -> Store:
    """Return the store of the example, whose clusters are `prod` (busy), `shop` (late and failing),
    `staging` (paused), `edge` (shadow) and `lab` (off). hours: of the charts of `prod`."""
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
    _busy(store, hours)
    failure = PassFailure("Unauthorized", "the cluster refuses the token", NOW - 420, NOW - 360, 6)
    decided(store, "shop", quiet_plan("shop", NOW - 500), NOW - 400, failure=failure)
    decided(store, "staging", quiet_plan("staging", NOW - 900), NOW - 12)
    decided(store, "edge", quiet_plan("edge", NOW - 3000), NOW - 40)
    store.pauses.change(
        "staging", lambda _: (Pause(NOW + 4800, NOW - 60, reason="release test", by=_BY),)
    )
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
    """Store a decision and the pass that confirmed it, as a pass does. gauges: more
    of them, by metrics.key."""
    store.journal.append(name, journal.plan_entry(plan))
    lease = store.leases.acquire(name, "example", 60.0)
    remembered = store.memory.glance(name).groups
    measured = pass_gauges(plan, Options(), {}, remembered) | dict(gauges or {})
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
        GroupVerdict(
            f"group-{at}",
            "clusterapi",
            1,
            10,
            max(1, nodes // groups),
            ready=max(1, nodes // groups),
        )
        for at in range(groups)
    )
    stays = tuple(
        NodeVerdict(
            f"node-{number:05d}",
            Reason.of(
                ReasonCode.NOT_UNDERUTILIZED, resource="cpu", utilization=0.71, threshold=0.5
            ),
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


def _busy(store: Store, hours: int) -> None:
    plan = busy_plan()
    for at, kind, group, facts, plan_id in _STORY:
        entry = JournalEntry(at=NOW - at, kind=kind, group=group, facts=facts, plan=plan_id)
        if plan_id:  # the decision that led to it
            earlier = msgspec.structs.replace(
                plan, id=plan_id, at=entry.at - float(facts["seconds"])
            )
            store.journal.append("prod", journal.plan_entry(earlier))
        store.journal.append("prod", entry)
    for at in range(3):
        store.journal.append(
            "prod", journal.plan_entry(quiet_plan("prod", NOW - 50_000 - at * 700))
        )
    decided(store, "prod", plan, NOW - 22)
    slots = range(min(hours * 12, POINTS) - 1, 0, -1)
    for ago in [*(at * HOUR for at in range(hours, 24, -1)), *(slot * EVERY for slot in slots)]:
        at = NOW - ago
        store.gauge_rings.add("prod", _point(at), seen=at - EVERY, extremes=_burst(at))
    store.gauge_rings.add("prod", _point(NOW), overview(), seen=NOW - EVERY)
    operations = (
        _operation("grow-5be1f0a2", OperationKind.SCALE_UP, WEB, "poll", (12, 17)),
        _operation("remove-77aa01c3", OperationKind.DELETE_NODES, BATCH, "evict"),
    )
    memory = Memory(
        groups={
            WEB: GroupMemory(
                target=17, request=ScaleUpRequest(5, NOW - 61, NOW + 840), joins=_JOINS
            ),
            GPU: GroupMemory(
                backoff=Backoff(
                    600.0, NOW + 480, NOW - 120, "OutOfStock", "SoldOut", "no capacity", 2
                )
            ),
        },
        breaker=BreakerState(((NOW - 1200, 2, 14),)),
    )
    lease = store.leases.acquire("prod", "example", 60.0)
    store.memory.save("prod", store.memory.load("prod"), memory, operations, lease)
    store.leases.release(lease, passed_at=NOW - 22)


def _burst(at: float) -> Extremes:
    """Return what passes before a point saw: a short burst of pods in the afternoon."""
    if not 14.5 <= at / HOUR % 24 < 14.5 + EVERY / HOUR:
        return NO_EXTREMES
    nodes = _point(at).nodes
    return Extremes(least_nodes=nodes - 2, nodes=nodes + 5, pending=24, wanted=nodes + 6)


def _point(at: float) -> GaugePoint:
    """Return the numbers of a day: quiet nights, pods that wait in the
    morning, and the same every day."""
    hour = at / HOUR % 24
    load = max(0.0, math.sin((hour - 5.5) / 15 * math.pi)) if 5.5 < hour < 20.5 else 0.0
    nodes = 12 + round(8 * load)
    waiting = (
        round(17 * math.sin((hour - 7) / 1.5 * math.pi))
        if 7 < hour < 8.5
        else 2
        if at > NOW - 1600
        else 0
    )
    wanted = nodes + (3 if 6.6 < hour < 8.6 or at > NOW - 120 else 0)
    ripple = round(3 * math.sin(at / 1100.0) + 2 * math.sin(at / 413.0))
    return GaugePoint(
        at,
        nodes,
        waiting,
        wanted,
        55 + round(24 * load) + ripple,
        46 + round(11 * load),
        nodes * 0.165,
    )


def overview() -> ClusterOverview:
    """Return what the last pass saw of `prod`: machines, prices, zones and shares."""
    gib = 2.0**30
    groups = (
        GroupOverview(
            WEB, "web", "clusterapi", "", "m5.large", 0.096, 56, 41, 224 * gib, 140 * gib
        ),
        GroupOverview(
            BATCH,
            "batch",
            "alicloud",
            "cn-hangzhou-i",
            "ecs.c7.2xlarge",
            0.41,
            40,
            36.2,
            160 * gib,
            60 * gib,
        ),
        GroupOverview(GPU, "gpu", "exoscale", "ch-gva-2", "gpu3.small", 0.92),
        GroupOverview(
            ARM,
            "arm",
            "huaweicloud",
            "cn-north-4a",
            "kc1.xlarge.2",
            0.19,
            4,
            1.7,
            16 * gib,
            6 * gib,
        ),
    )
    nodes = (
        *(
            NodeOverview(f"web-{at}", 0, "", "m5.large", NOW - 4e5 + 9e3 * at, 82, 61, 11)
            for at in range(13)
        ),
        *(
            NodeOverview(f"batch-{at}", 1, "cn-hangzhou-i", "ecs.c7.2xlarge", NOW - 9e3, 74, 38, 6)
            for at in range(5)
        ),
        NodeOverview("arm-0", 3, "cn-north-4a", "kc1.xlarge.2", NOW - 6e4, 12, 9, 2),
        NodeOverview("arm-1", 3, "cn-north-4a", "kc1.xlarge.2", NOW - 6e4, 42, 38, 4),
    )
    spot = msgspec.structs.replace(groups[1], spot=SpotOverview(price=4.2, avoided_for=1800.0))
    return ClusterOverview(
        NOW - 22, (groups[0], spot, *groups[2:]), nodes, currency="USD", bill=bill()
    )


def bill() -> ClusterBill:
    """Return what `prod` costs: a fifth is free room, and half of that is headroom."""
    parts = CostParts(3_300_000, 2_310_000, 165_000, 99_000, 330_000, 363_000, 33_000)
    savings = (
        Savings(
            "USD",
            96_000,
            1_240_000,
            9_870_000,
            31_400_000,
            given_back_today=2_130_000,
            given_back_week=14_600_000,
            given_back_month=41_250_000,
        ),
    )
    return ClusterBill(NOW - 22, (Bill("USD", parts, bound=2_640_000),), 0, savings, NOW - 1200)


def busy_plan() -> Plan:
    """Return the last decision of `prod`: a scale-up, a removal, waiting pods, and nodes that
    stay for several reasons."""
    cpu = Reason.of(ReasonCode.INSUFFICIENT, resource="cpu", needs=40_000, offers=7_750)
    budget = Reason.of(
        ReasonCode.DISRUPTION_BUDGET, budget="office hours", limit=0, until=NOW + 9000
    )
    backoff = Reason.of(
        ReasonCode.GROUP_BACKOFF, until=NOW + 480, error="OutOfStock SoldOut no capacity"
    )
    groups = (
        GroupVerdict(
            WEB, "clusterapi", 2, 30, 17, ready=13, upcoming=4, option_nodes=3, option_pods=27
        ),
        GroupVerdict(BATCH, "alicloud", 0, 12, 5, ready=5),
        GroupVerdict(GPU, "exoscale", 0, 4, 0, skipped=backoff, backoff=backoff),
        GroupVerdict(ARM, "huaweicloud", 1, 8, 2, ready=2),
    )
    stays = [
        *(
            NodeVerdict(
                f"web-{at}",
                Reason.of(
                    ReasonCode.NOT_UNDERUTILIZED, resource="cpu", utilization=0.82, threshold=0.5
                ),
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
        NodeVerdict("arm-1", Reason.of(ReasonCode.GROUP_MIN_SIZE, target=2, min=1)),
        NodeVerdict(
            "arm-0", Reason.of(ReasonCode.NOT_UNNEEDED_LONG_ENOUGH, since=NOW - 240, needs=600)
        ),
    ]
    return Plan(
        id="plan-5be1f0a2d4c6",
        cluster="prod",
        at=NOW - 82,
        scale_ups=(
            ScaleUp(WEB, "clusterapi", 12, 17, 30, tuple(f"shop/cart-{at}" for at in range(27))),
        ),
        unschedulable=(
            UnschedulablePods(
                ("ml/train-huge-0", "ml/train-huge-1"),
                {ARM: (cpu,), WEB: (cpu,), GPU: (cpu,)},
                20,
                nearest=2,
            ),
        ),
        removals=(Removal("batch-4", BATCH, "drain", ("jobs/report-1", "jobs/report-2")),),
        unneeded=("arm-0",),
        unremovable=tuple(stays),
        groups=groups,
        paused=Reason.of(ReasonCode.IN_COOLDOWN, which="scaleDownDelayAfterAdd", until=NOW + 260),
        health=Health(registered=20, ready=20, upcoming=4, removing=1),
        lifecycle=(
            LifecycleVerdict("web-0", DisruptionReason.EXPIRED, NOW - 5400, budget),
            LifecycleVerdict("arm-0", DisruptionReason.DRIFTED, NOW - 7200, budget),
        ),
        consolidation=ConsolidationReport(
            "shadow",
            (
                Move(
                    ("web-3", "web-7"), (), 0.192, 0.192, 14.0, 0.11, 1.2, "shadow", currency="USD"
                ),
                Move(
                    ("batch-2",),
                    (MovePurchase(ARM, 1, 0.19),),
                    0.41,
                    0.22,
                    7.0,
                    0.13,
                    1.6,
                    "shadow",
                    currency="USD",
                ),
            ),
        ),
    )


def _operation(
    name: str, kind: OperationKind, group: str, step: str, sizes: tuple[int, int] = (0, 0)
) -> Operation:
    targets = (
        ()
        if any(sizes)
        else (RemovalTarget("batch-4", "batch-4", evict=("jobs/report-1", "jobs/report-2")),)
    )
    spec = OperationSpec(
        id=name,
        cluster="prod",
        provider="clusterapi" if group == WEB else "alicloud",
        group=group,
        kind=kind,
        plan="plan-5be1f0a2d4c6",
        created_at=NOW - 61,
        targets=targets,
        from_size=sizes[0],
        to_size=sizes[1],
        pods=tuple(f"shop/cart-{at}" for at in range(27)) if any(sizes) else (),
    )
    return Operation(
        spec, OperationStatus(state=OperationState.WAITING, step=step, attempt=2, due_at=NOW + 5)
    )


_BY = "arn:aws:sts::123456789012:assumed-role/platform/kim"
_UNTIL = "2026-11-17T22:00:00Z"
_STORY: tuple[tuple[float, str, str, dict[str, str | int | float | bool], str], ...] = (
    (2e5, "operation", WEB,
     {"kind": "grow", "state": "succeeded", "from": 9, "to": 11, "pods": 6, "seconds": 101.0},
     "plan-a0"),
    (62e3, "operation", WEB,
     {"kind": "grow", "state": "succeeded", "from": 11, "to": 15, "pods": 31, "seconds": 94.0},
     "plan-a1"),
    (55e3, "pause", "", {"part": "removals", "until": _UNTIL, "reason": "release of the shop",
                         "by": _BY}, ""),
    (52e3, "resume", "", {"part": "removals", "was until": _UNTIL, "reason": "the release is out",
                          "by": _BY}, ""),
    (41e3, "operation", BATCH,
     {"kind": "remove", "state": "succeeded", "targets": "batch-9", "pods": 3, "seconds": 69.0},
     "plan-a2"),
    (21e3, "operation", WEB,
     {"kind": "remove", "state": "succeeded",
      "targets": ",".join(f"web-{at}" for at in range(16, 21)), "pods": 12,
      "seconds": 82.0},
     "plan-a3"),
    (14e3, "operation", BATCH,
     {"kind": "grow", "state": "succeeded", "from": 2, "to": 5, "pods": 15, "seconds": 265.0},
     "plan-a4"),
    (9e3, "policy", "", {"version": 2, "by": _BY}, ""),
    (4e3, "operation", WEB,
     {"kind": "grow", "state": "succeeded", "from": 10, "to": 12, "pods": 9, "seconds": 88.0},
     "plan-a5"),
    (600.0, "operation", GPU,
     {"kind": "grow", "state": "failed", "from": 0, "to": 1, "seconds": 6.0, "class": "OutOfStock",
      "code": "SoldOut",
      "message": "no capacity"}, "plan-a6"),
)  # fmt: skip


def as_many(groups: int, nodes: int, changes: int = 0) -> Store:
    """Return a store with one cluster `large` of that many groups and nodes that stay, with charts
    and with so many changes in its last day."""
    store = MemoryAccount().store("example", clock=lambda: NOW)
    text = _POLICY.format(name="large", mode="active", most=9)
    store.policies.put("large", text, digest(text), None)
    plan = quiet_plan("large", NOW - 60, groups, nodes)
    decided(store, "large", plan, NOW - 10)
    rows = tuple(
        GroupOverview(
            verdict.group,
            f"pool-{at}",
            "alicloud",
            f"cn-hangzhou-{at % 9}",
            "ecs.c7.2xlarge",
            0.41,
            8,
            5,
            2**35,
            2**34,
        )
        for at, verdict in enumerate(plan.groups)
    )
    members = tuple(
        NodeOverview(
            verdict.node,
            at % groups,
            "cn-hangzhou-i",
            "ecs.c7.2xlarge",
            NOW - 9e3 * at,
            at % 100,
            50,
            at % 60,
        )
        for at, verdict in enumerate(plan.unremovable)
    )
    for at in range(changes):
        facts: dict[str, str | int | float | bool] = {
            "kind": "grow",
            "state": "succeeded",
            "from": at,
            "to": at + 1,
        }
        store.journal.append(
            "large",
            JournalEntry(
                NOW - 100 - at * 80,
                "operation",
                f"plan-{at}",
                f"grow-{at}",
                f"group-{at % groups}",
                facts | {"seconds": 88.0, "pods": 9},
            ),
        )
    seen = ClusterOverview(NOW, rows, members, currency="USD")
    for slot in range(POINTS, 0, -1) if changes else ():
        store.gauge_rings.add("large", _point(NOW - slot * EVERY), seen=NOW - slot * EVERY - EVERY)
    store.gauge_rings.add("large", _point(NOW), seen, seen=NOW - EVERY)
    return store
