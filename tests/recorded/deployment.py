"""The table of a deployment about which every surface is asked: clusters that show every reason,
verdict, metric and kind of journal line.

    prod, shop, staging, edge, lab    the example of the page, with a history of every kind
                                      and a comparison of edge
    reasons                           a decision that gives every reason, in every place
                                      in which a reason stands
    filled                            a decision and an overview in which every field is set

`python -m tests.recorded.surfaces --deployment` makes it again. Otherwise the recorded rows are
read, so that no answer depends on how this module makes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from chalicelib.journal import carry_over, journal
from chalicelib.journal.metrics import BUCKETS, HISTOGRAM, METRICS, key
from chalicelib.model.cluster_bill import Bill, CostParts, MachineCost, SpotCost, WorkloadCost
from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import (
    GroupMemory,
    InterruptionNotice,
    InterruptionRisk,
    Memory,
    NodeMemory,
)
from chalicelib.model.operation import OperationState
from chalicelib.model.operation_document import OperationDocument, from_document
from chalicelib.model.overview import ClusterOverview
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import Plan
from chalicelib.model.policy_permissions import STRICT
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.policy.load import digest
from chalicelib.reasons.text import sentence
from chalicelib.shadow.records import (
    GROWTH,
    REMOVAL,
    Ledger,
    Match,
    Observation,
    ShadowVerdict,
    add,
)
from chalicelib.store import JournalEntry, Store
from chalicelib.store.gauge_ring import GaugePoint
from infra.emulators import example_clusters
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.memory_table import MemoryAccount
from tests.recorded import state
from tests.recorded.filling import Filler, converted

TABLE, NOW = "example", example_clusters.NOW
"""Names of the example's tables, and the instant at which it is asked about."""
KIM = "arn:aws:sts::123456789012:assumed-role/platform/kim"
UNTIL = "2026-11-18T13:00:00Z"
POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {{name: {name}}}
spec:
  mode: active
  kubernetes: {{kubeconfigSecret: outscaler/{name}/kubeconfig}}
  providers:
    clusterapi: {{clusterName: {name}}}
    exoscale: {{zone: ch-gva-2, credentialsSecret: outscaler/{name}/exoscale}}
  prices: {{cpu: 0.03, memory: 0.004, node: 0.01}}
  nodeGroups:
    - {{provider: clusterapi, id: workers, min: 2, max: 30, priority: 7}}
  options: {{expander: [priority, least-waste], scaleDownUnneededTime: 10m}}
  webhook: {{secret: outscaler/{name}/webhook}}
"""
PARAMETERS: dict[str, str | int | float] = {
    **{
        name: f"some {name}"
        for name in ("bound", "detail", "error", "what", "where", "which", "window", "differences")
    },
    **{
        name: f"a-{name}"
        for name in ("budget", "by", "chosen", "claim", "driver", "expander", "group", "headroom")
    },
    **{
        name: f"a-{name}"
        for name in ("id", "instance", "key", "name", "node", "nodes", "object", "option", "order")
    },
    **{
        name: f"a-{name}"
        for name in ("pool", "provider", "signal", "storage", "volume", "who", "zone", "zones")
    },
    "condition": "Ready=False",
    "gates": "example.org/gate",
    "metric": "cpu",
    "move": "w-1, w-2",
    "owner": "shop/Deployment/web",
    "pod": "shop/web-0",
    "port": 8443,
    "renewed": "expired",
    "resource": "cpu",
    "resources": "cpu,memory",
    "rule": "evening",
    "scheduler": "default-scheduler",
    "taint": "dedicated=gpu:NoSchedule",
    "term": "zone in (a, b)",
    "value": "soon",
    "needs": 600,
    "offers": 300,
    "max": 12,
    "min": 2,
    "limit": 3,
    "of": 20,
    "target": 4,
    "used": 9,
    "skew": 2,
    "priority": -20,
    "cutoff": -10,
    "refused": 5,
    "unseen": 6,
    "longest": 8.0,
    "unready": 7,
    "registered": 11,
    "unhealthy": 3,
    "base": 2,
    "cheaper": 4,
    "above": 70,
    "rate": 61.5,
    "share": 0.25,
    "gap": 0.07,
    "score": 0.4,
    "saves": 0.12,
    "best": 0.31,
    "price": 0.41,
    "gain": 0.22,
    "disruption": 0.17,
    "utilization": 0.62,
    "threshold": 0.5,
    "age": 40.0,
    "delay": 120.0,
    "wait": 15.0,
    "left": 4.5,
    "seconds": 33.0,
    "ready": 240.0,
    "since": NOW - 900.0,
    "until": NOW + 1800.0,
    "due": NOW - 2400.0,
}
"""A value for each name that a reason may have among its parameters."""
RULES_OF_PODS = tuple(ReasonCode)[
    tuple(ReasonCode).index(ReasonCode.CONTROLLER_NOT_FOUND) : tuple(ReasonCode).index(
        ReasonCode.LONG_UNREGISTERED
    )
]


def rows() -> dict[str, list[dict[str, Any]]]:
    """Both tables' items, as state.items has them."""
    account = MemoryAccount()
    store = example_clusters.example(account=account)
    store.deployment_settings().publish(STRICT)
    _history(store, account)
    _bill(store)
    _comparison(store)
    _reasons(store)
    _filled(store)
    return state.items(account, (TABLE, f"{TABLE}-policies"))


# -- prod and edge


def _history(store: Store, account: MemoryAccount) -> None:
    """A line of every kind, operations of every kind and end, claims, pauses, and a node
    that its vendor takes back."""
    for at, (kind, group, facts) in enumerate(_lines()):
        operation = f"op-{at:02}" if kind == "operation" else ""
        line = JournalEntry(NOW - 7000.0 + 37.0 * at, kind, f"plan-{at}", operation, group, facts)
        store.journal.append("prod", line)
    store.group_ownership.claim_groups(
        "prod", [("clusterapi", "web"), ("exoscale", example_clusters.GPU)]
    )
    store.group_ownership.claim_groups("shop", [("clusterapi", "group-0")])
    store.journal.count("prod", {"scaled_up_nodes_total": 4.0})
    growth = Pause(
        NOW + 900.0, NOW - 60.0, PausedPart.GROWTH, example_clusters.ARM, "a new image", KIM
    )
    store.pauses.change("prod", lambda _: (growth,))
    removals = Pause(NOW + 7200.0, NOW - 90.0, PausedPart.REMOVALS, reason="sale", by=KIM)
    store.pauses.change(
        "shop", lambda _: (removals, msgspec.structs.replace(growth, group="group-0"))
    )
    before = store.memory.load("prod")
    notices = {"batch-4": InterruptionNotice(NOW - 20.0, NOW + 100.0, by_vendor=True)}
    batch = GroupMemory(
        target=5, risk=InterruptionRisk(1.5, 900.0, NOW - 60.0, 5, NOW - 20.0, notices)
    )
    noticed = msgspec.structs.replace(
        before,
        nodes={
            "arm-0": NodeMemory(unneeded_since=NOW - 240.0),
            "web-2": NodeMemory(unremovable_until=NOW + 60.0),
        },
        groups=before.groups | {example_clusters.BATCH: batch},
    )
    ended = [_removal(at) for at in range(3)]
    lease = store.leases.acquire("prod", "golden", 60.0)
    store.memory.save("prod", before, noticed, ended, lease)
    store.leases.release(lease, passed_at=NOW - 22.0, succeeded=True)
    for operation in ended:
        then = account.store(TABLE, clock=ManualClock(operation.spec.created_at + 90.0)).operations
        claimed = then.claim("prod", operation.spec.id, "act", 60.0)
        then.advance(
            claimed, claimed.with_status(state=OperationState.SUCCEEDED, outcome="done"), "act"
        )


def _removal(at: int) -> Any:
    fields = {
        "id": f"remove-{at}",
        "cluster": "prod",
        "provider": "clusterapi",
        "group": "web",
        "kind": "remove",
        "plan": "plan-a3",
        "created_at": NOW - 80_000.0 * (at + 1),
        "price": 96_000,
        "currency": "USD",
    }
    targets = [{"node": f"web-{30 + at}", "instance": f"web-{30 + at}"}]
    return from_document(converted(fields | {"targets": targets}, OperationDocument))


def _lines() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, group and facts of lines of the journal."""
    for kind, sizes in (
        ("grow", (2, 5)),
        ("shrink", (5, 4)),
        ("remove", ()),
        ("discard", ()),
        ("restart", ()),
    ):
        facts: dict[str, Any] = {"kind": kind, "provider": "clusterapi", "seconds": 83.5, "pods": 4}
        facts |= {"from": sizes[0], "to": sizes[1]} if sizes else {"targets": "web-3,web-4"}
        for end in (
            {"state": "succeeded"},
            {
                "state": "failed",
                "class": "QuotaExceeded",
                "code": "Limit",
                "message": "10 of 10 vCPU",
            },
            {"state": "abandoned", "message": "a person has changed the group"},
        ):
            yield "operation", "web", {**facts, **end}
    removal: dict[str, Any] = {
        "kind": "remove",
        "state": "succeeded",
        "targets": "web-5,web-6",
        "seconds": 40.0,
    }
    ends: tuple[dict[str, Any], ...] = (
        *({"reason": reason.value, "pods": 1} for reason in DisruptionReason),
        {"reason": "consolidation", "replacedBy": "arm-7", "saves": 0.2, "currency": "USD"},
        {"kept web-6": "a pod came", "note": "once more"},
        {"gone": "web-5"},
    )
    for more in ends:
        yield "operation", "web", {**removal, **more}
    yield (
        "operation",
        "web",
        {
            "kind": "grow",
            "state": "succeeded",
            "to": 3,
            "rules": "evening,busy",
            "replaces": "web-1",
        },
    )
    yield (
        "plan",
        "",
        {
            "nodes": 20,
            "scaleUps": 1,
            "removals": 2,
            "repairs": 1,
            "restarts": 1,
            "unneeded": 3,
            "gaps": 2,
        },
    )
    yield (
        "plan",
        "",
        {"nodes": 1, "healthy": False, "unschedulable": 1, "rules": "evening", "scaleUps": 2},
    )
    yield (
        "pass",
        "",
        {"state": "failing", "class": "Throttled", "message": "GET /nodes: HTTP 429: slow down"},
    )
    yield "pass", "", {"state": "recovered", "class": "Throttled", "failures": 3, "seconds": 190.0}
    yield "policy", "", {"version": 2, "accepted": "doctor.rights", "reason": "known", "by": KIM}
    yield "pause", "web", {"until": UNTIL, "part": "growth", "reason": "release", "by": KIM}
    yield "resume", "", {"was until": UNTIL, "part": "all", "reason": "done", "by": KIM}
    yield "retry", "", {"kind": "group", "name": "gpu", "was": "8m", "by": KIM}
    yield "release", "", {"until": UNTIL, "was_on": True, "by": KIM}
    yield "claim-released", "", {"claim": "clusterapi#web", "provider": "clusterapi", "by": KIM}
    yield "uninstalled", "", {"objects": 1, "by": KIM}
    yield "accept", "", {"accepted": "web-17", "by": KIM}
    for kind in (
        "plan",
        "operation",
        "pass",
        "policy",
        "pause",
        "resume",
        "retry",
        "release",
        "wake",
        "accept",
    ):
        yield kind, "web", {}  # of an earlier release, or not readable
    yield "of-a-later-release", "", {"by": KIM}


def _bill(store: Store) -> None:
    """What shop has: groups, pools, workloads, spot and a second currency in its bill."""
    overview = example_clusters.overview()
    assert overview.bill is not None
    parts = CostParts(1_248_000, 900_000, 50_000, 40_000, 100_000, 128_000, 30_000)
    others = WorkloadCost("", 110_000, 8_000, 12)
    bill = msgspec.structs.replace(
        overview.bill.bills[0],
        groups=(
            MachineCost("group-0", 13, parts),
            MachineCost("group-1", 5, parts),
            MachineCost("", 1, parts),
        ),
        pools=(MachineCost("general", 18, parts),),
        namespaces=(
            WorkloadCost("shop", 1_500_000, 300_000),
            WorkloadCost("ml", 700_000, 90_000),
            others,
        ),
        owners=(WorkloadCost("shop/Deployment/cart", 1_400_000, 200_000), others),
        overcommitted=2,
        spot=SpotCost(3, 2, 280_000, 1, 140_000),
    )
    yuan = Bill("CNY", CostParts(410_000, 300_000, 10_000, 20_000, 0, 80_000, 0))
    groups = tuple(
        msgspec.structs.replace(
            group, group=f"group-{at}", ready=2, min=1, max=9, aliases=(f"alias-{at}",)
        )
        for at, group in enumerate(overview.groups)
    )
    whole = msgspec.structs.replace(overview.bill, bills=(bill, yuan), unpriced=2)
    changed = msgspec.structs.replace(overview, groups=groups, bill=whole)
    store.gauge_rings.add("shop", GaugePoint(NOW, 20, 2, 25, 79, 57, 3.3), changed, seen=0.0)


def _comparison(store: Store) -> None:
    """Results of every verdict, of which one is accepted."""
    removals = (
        ShadowVerdict.EARLIER,
        ShadowVerdict.LATER,
        ShadowVerdict.REFUSED,
        ShadowVerdict.ONLY_OURS,
    )
    matches = []
    for at, verdict in enumerate(ShadowVerdict):
        when, name = NOW - 50_000.0 * at, f"{at:08x}"
        if verdict in removals:
            matches.append(
                Match(
                    name,
                    REMOVAL,
                    when,
                    verdict,
                    f"web-{at}",
                    detail="no soft taint",
                    cause="threshold",
                    lead=40.0,
                )
            )
        else:
            costs = (0.4, 0.3)
            matches.append(
                Match(
                    name,
                    GROWTH,
                    when,
                    verdict,
                    "",
                    {"web": 2},
                    {"web": 1, "gpu": 1},
                    lead=4.0,
                    costs=costs,
                )
            )
    same = [
        Match(f"f{at:07x}", GROWTH, NOW - 3000.0 * at, ShadowVerdict.SAME, lead=5.0)
        for at in range(30)
    ]
    ledger = add(
        Ledger(NOW - 9 * 86400.0, Observation(NOW - 30.0, alive=NOW - 35.0)), *matches, *same
    )
    store.shadow().save("edge", ledger, 7)
    store.shadow().accept("edge", matches[-2].id, NOW - 500.0)


# -- reasons


class _Noting(dict[str, str | int | float]):
    """Parameters that note which of them are read."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)


def _given(code: ReasonCode, **more: Any) -> dict[str, Any]:
    """A reason as JSON, with those parameters that its sentence has."""
    parameters = PARAMETERS | {"was": ReasonCode.NOT_UNDERUTILIZED.value}
    if code is ReasonCode.BLOCKED_BY_POD:
        parameters |= {"rule": ReasonCode.NOT_REPLICATED.value, **more}
    noting = _Noting(parameters)
    sentence(Reason(code, noting))
    return {
        "code": code.value,
        "params": {name: noting[name] for name in sorted(noting.read & set(parameters))},
    }


def _bare(code: ReasonCode) -> dict[str, Any]:
    parameters = (
        {"rule": ReasonCode.MIN_REPLICAS.value} if code is ReasonCode.BLOCKED_BY_POD else {}
    )
    return {"code": code.value, "params": parameters}


def _reasons(store: Store) -> None:
    """Every reason of a node with and without its numbers; of pods, groups, rules,
    headroom, repairs and notes."""
    codes = tuple(ReasonCode)
    nodes = [
        {"node": f"n-{code.value}", "reason": _given(code), "pod": "shop/web-0"} for code in codes
    ]
    nodes += [{"node": f"bare-{code.value}", "reason": _bare(code)} for code in codes]
    nodes += [
        {"node": f"rule-{code.value}", "reason": _given(ReasonCode.BLOCKED_BY_POD, rule=code.value)}
        for code in RULES_OF_PODS
    ]
    group = {"provider": "clusterapi", "min": 1, "max": 9, "target": 3, "ready": 2}
    by_group = [{"group": f"g-{code.value}", **group, "skipped": _given(code)} for code in codes]
    by_group += [
        {
            "group": "workers",
            **group,
            "backoff": _given(ReasonCode.GROUP_BACKOFF),
            "waste": 0.3,
            "upcoming": 1,
        },
        {
            "group": "sick",
            **group,
            "healthy": False,
            "unregistered": 1,
            "long_unregistered": 2,
            "in_progress": True,
        },
    ]
    plan = {
        "id": "plan-reasons",
        "cluster": "reasons",
        "at": NOW - 300.0,
        "unremovable": nodes,
        "unschedulable": [
            {
                "pods": [f"fit/{code.value}"],
                "reasons": {"workers": [_given(code)], "sick": [_bare(code), _given(codes[0])]},
                "nodes": 9,
                "against": [[_given(code), 9]],
            }
            for code in codes
        ],
        "ignored": [{"pods": [f"ignored/{code.value}"], "reason": _given(code)} for code in codes],
        "groups": by_group,
        "notes": [_given(code) for code in codes],
        "rules": [{"rule": "evening", "pool": "workers", "reason": _given(code)} for code in codes],
        "headroom": [
            {"name": "spare", "wanted": 3, "reasons": {code.value: _given(code) for code in codes}}
        ],
        "repairs": [
            {
                "group": "sick",
                "kind": "discard",
                "from": 3,
                "to": 2,
                "reason": _given(code),
                "instances": ["i-1"],
            }
            for code in (*codes[-6:],)
        ],
        "paused": _given(ReasonCode.IN_COOLDOWN),
        "lifecycle": [
            {"node": f"n-{code.value}", "why": why, "since": NOW - 3600.0, "held": _given(code)}
            for code, why in zip(
                codes, ("expired", "drifted", "repair", "interrupted") * len(codes), strict=False
            )
        ],
        "consolidation": {
            "mode": "active",
            "verdicts": [{"node": f"bare-{code.value}", "reason": _given(code)} for code in codes],
            "pools": [
                {"pool": "general", "price": 3.1, "disruption": 0.4, "rate": 0.1, "unpriced": 1}
            ],
            "gap": 0.04,
        },
        "health": {"registered": 20, "ready": 18, "unready": 2, "sick_zones": ["zone-a"]},
    }
    _put_policy(store, "reasons")
    series = dict(_series())
    example_clusters.decided(store, "reasons", converted(plan, Plan), NOW - 15.0, gauges=series)


def _series() -> Iterator[tuple[str, float]]:
    """A value of every metric."""
    for at, metric in enumerate(METRICS):
        labels = {label: f"{label} of a" for label in metric.labels}
        if metric.type != HISTOGRAM:
            yield key(metric.name, **labels), at + 0.5
            continue
        for count, bound in enumerate([*(f"{bound:g}" for bound in BUCKETS), "+Inf"]):
            yield key(f"{metric.name}_bucket", **labels, le=bound), float(count)
        yield key(f"{metric.name}_sum", **labels), 12.25
        yield key(f"{metric.name}_count", **labels), float(len(BUCKETS))


# -- filled


def _filled(store: Store) -> None:
    """A decision, an overview and a memory with every field; and operations in every state."""
    _put_policy(store, "filled")
    filler = Filler()
    plan = json.loads(json.dumps(filler.value(Plan)), object_hook=_readable)
    plan |= {"cluster": "filled", "at": NOW - 200.0, "operations": []}
    overview = filler.value(ClusterOverview)
    given = state.recorded()["given"]
    decided = converted(plan, Plan)
    for entry in given["journal"]:
        facts = {**entry["facts"], "by": KIM}
        line = JournalEntry(NOW - entry["at"], entry["kind"], group=entry["group"], facts=facts)
        store.journal.append("filled", line)
    lease = store.leases.acquire("filled", "golden", 60.0)
    documents = [each | {"cluster": "filled"} for each in given["operations"]]
    operations = [from_document(converted(each, OperationDocument)) for each in documents]
    store.memory.save("filled", Memory(), converted(given["memory"], Memory), operations, lease)
    store.leases.release(lease, passed_at=NOW - 70.0, succeeded=True)
    example_clusters.decided(store, "filled", decided, NOW - 11.0)
    whole = msgspec.structs.replace(converted(overview, ClusterOverview), at=NOW - 11.0)
    nodes = tuple(msgspec.structs.replace(node, group=0, cpu=41, memory=17) for node in whole.nodes)
    point = GaugePoint(NOW, 3, 1, 4, 50, 40, 1.5)
    store.gauge_rings.add("filled", point, msgspec.structs.replace(whole, nodes=nodes), seen=0.0)


def _readable(value: dict[str, Any]) -> dict[str, Any]:
    """A reason that names another one names one that exists."""
    return (
        _bare(ReasonCode.BLOCKED_BY_POD)
        if value.get("code") == ReasonCode.BLOCKED_BY_POD.value
        else value
    )


def _put_policy(store: Store, name: str) -> None:
    text = POLICY.format(name=name)
    store.policies.put(name, text, digest(text), None, webhook=f"outscaler/{name}/webhook")


def lacks(items: dict[str, list[dict[str, Any]]]) -> set[str]:
    """Codes of reasons and names of metrics that recorded items do not have."""
    account = MemoryAccount()
    store = account.store(TABLE, clock=lambda: NOW)
    state.load(account, items)
    passed = store.scan_states.last("reasons")
    assert passed is not None
    decision = journal.last_decision("reasons", passed, store.journal)
    assert decision is not None
    words = {str(verdict.reason.code.value) for verdict in decision.plan.unremovable}
    series = {name.partition(";")[0] for name in carry_over.read(passed.carry_over).gauges}
    wanted = {code.value for code in ReasonCode} | {
        each.name for each in METRICS if each.type != HISTOGRAM
    }
    return wanted - words - series
