"""Metrics: names, labels and the CloudWatch format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_lambda_powertools.metrics import EphemeralMetrics
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.cluster.errors import Forbidden
from chalicelib.journal import carry_over, metrics
from chalicelib.journal.carry_over import CarryOver
from chalicelib.journal.metric_values import pass_gauges
from chalicelib.journal.metrics import METRICS, key, lines, parts
from chalicelib.journal.recorder import record_failure
from chalicelib.model.errors import BadInput
from chalicelib.model.memory import GroupMemory, JoinStatistics
from chalicelib.model.node import Condition, Node
from chalicelib.model.operation import OperationKind, RemovalTarget
from chalicelib.model.plan import (
    GroupVerdict,
    Health,
    IgnoredPods,
    NodeVerdict,
    Plan,
    Removal,
    ScaleUp,
)
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import ALL_CAPI_GROUPS, MissingData, Snapshot
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Metrics
from chalicelib.providers.kit.errors import OutOfStock
from chalicelib.store.errors import StoreUnavailable
from tests.cases import each_row
from tests.unit.journal.support import NOW, RecordFixture, ended, plan, refused

BACKOFF = Reason(
    ReasonCode.GROUP_BACKOFF, {"until": NOW, "error": "none left", "code": "OutOfStock"}
)


def crowded() -> Plan:
    """A pass with at least one value for each metric."""
    full = Reason.of(ReasonCode.RESOURCE_LIMIT, resources="cpu, memory")
    return plan(
        health=Health(
            registered=9,
            ready=5,
            unready=1,
            not_started=1,
            suspended=1,
            unregistered=2,
            long_unregistered=3,
            removing=2,
            cpu=36500,
            memory=2**36,
        ),
        groups=(
            GroupVerdict("g", "clusterapi", 1, 9, 4, backoff=BACKOFF),
            GroupVerdict("h", "clusterapi", 0, 5, 0, skipped=full, healthy=False),
        ),
        unschedulable=(refused("a/p", "a/q"),),
        scale_ups=(ScaleUp("g", "clusterapi", 4, 5, 9, ("a/r",)),),
        fits_existing=("a/s",),
        ignored=(IgnoredPods(("a/t",), Reason.of(ReasonCode.NOT_YET_SEEN)),),
        unneeded=("n1",),
        unremovable=(
            NodeVerdict("n2", Reason.of(ReasonCode.NOT_UNDERUTILIZED)),
            NodeVerdict("n3", Reason.of(ReasonCode.MINIMAL_RESOURCE_LIMIT, resources="memory")),
        ),
        paused=Reason.of(ReasonCode.IN_COOLDOWN, which="x", until=NOW),
        gaps=(MissingData("provider/clusterapi", "down", affected_decisions=(ALL_CAPI_GROUPS,)),),
    )


def test_metrics_gauges_have_upstreams_names_and_labels() -> None:
    scene = RecordFixture(max_nodes_total=12, cores_total=(1, 64))
    scene.passes(crowded(), seconds={"main": 2.0, "autoscaling": 0.3})
    shown = {
        metric.name: scene.values(metric.name) for metric in METRICS if scene.values(metric.name)
    }
    assert shown == {
        "cluster_safe_to_autoscale": {"": 1},
        "nodes_count": {
            "ready": 5,
            "unready": 1,
            "notStarted": 1,
            "suspended": 1,
            "unregistered": 2,
            "longUnregistered": 3,
        },
        "unschedulable_pods_count": {"unschedulable": 4, "scheduler_unprocessed": 1},
        "cluster_cpu_current_cores": {"": 36.5},
        "cluster_memory_current_bytes": {"": 2**36},
        "cpu_limits_cores": {"minimum": 1, "maximum": 64},
        "memory_limits_bytes": {"minimum": 0, "maximum": 6400000 * 2**30},
        "last_activity": {"main": NOW, "autoscaling": NOW, "scaleUp": NOW},
        "unneeded_nodes_count": {"": 1},
        "unremovable_nodes_count": {"NotUnderutilized": 1, "MinimalResourceLimitExceeded": 1},
        "scale_down_in_cooldown": {"": 1},
        "pending_node_deletions": {"": 2},
        "function_duration_seconds": {"main": 2.0, "autoscaling": 0.3},
        "errors_total": {"cloudProviderError": 1},
        "skipped_scale_events_count": {
            "up,CpuResourceLimit": 1,
            "up,MemoryResourceLimit": 1,
            "down,MemoryResourceLimit": 1,
        },
    }


def test_brake_gauge_follows_the_circuit_breaker_and_is_on_the_page_only() -> None:
    braked = Reason.of(ReasonCode.DISRUPTION_BRAKE, nodes=7, of=8, share=0.25)
    cooldown = Reason.of(ReasonCode.IN_COOLDOWN, which="x", until=NOW)
    seen, gauges = [], dict[str, float]()
    for paused in (None, braked, cooldown, braked, None, cooldown):
        gauges = pass_gauges(plan(paused=paused), Options(), gauges)
        seen.append(gauges["brake"])
    assert seen == [0, 1, 1, 1, 0, 0]
    assert "brake" in gauges
    assert ["brake" in metrics.for_cloudwatch(gauges, choice) for choice in Metrics] == [
        False
    ] * len(Metrics)


def test_metrics_per_group_are_emitted_only_with_the_option() -> None:
    without = pass_gauges(crowded(), Options(), {})
    assert not [series for series in without if "node_group=" in series]
    gauges = pass_gauges(crowded(), Options(emit_per_nodegroup_metrics=True), {})
    assert {series: value for series, value in gauges.items() if "node_group=g" in series} == {
        "node_group_min_count;node_group=g": 1,
        "node_group_max_count;node_group=g": 9,
        "node_group_target_count;node_group=g": 4,
        "node_group_healthiness;node_group=g": 1,
        "node_group_backoff_status;node_group=g;reason=OutOfStock": 1,
    }
    assert gauges["node_group_healthiness;node_group=h"] == 0


def test_metrics_of_what_groups_teach_are_per_group_and_on_the_page_only() -> None:
    taught = JoinStatistics(ready=(100, 200, 300), joined=98, failed=2, counted_at=NOW)
    groups = {"g": GroupMemory(joins=taught), "h": GroupMemory(joins=JoinStatistics())}
    assert not [
        series
        for series in pass_gauges(crowded(), Options(), {}, groups)
        if "node_group=" in series
    ]
    gauges = pass_gauges(crowded(), Options(emit_per_nodegroup_metrics=True), {}, groups)
    learnt = {
        series: value
        for series, value in gauges.items()
        if series.startswith(("node_ready", "node_failure"))
    }
    assert learnt == {
        "node_ready_seconds;node_group=g;quantile=0.5": 200,
        "node_ready_seconds;node_group=g;quantile=0.95": 300,
        "node_ready_seconds;node_group=g;quantile=0.99": 300,
        "node_failure_rate;node_group=g": 0.019608,
    }
    assert not learnt.keys() & metrics.for_cloudwatch(gauges, Metrics.FULL).keys()


def test_metrics_last_scaling_time_survives_passes_without_scaling() -> None:
    scene = RecordFixture()
    scene.passes(plan(scale_ups=(ScaleUp("g", "clusterapi", 1, 2, 5),)))
    scene.passes(plan(NOW + 10, removals=(Removal("n1", "g", "empty"),)))
    scene.passes(plan(NOW + 20))
    assert [
        scene.left.gauges[f"last_activity;activity={name}"] - NOW
        for name in ("main", "scaleUp", "scaleDown")
    ] == [
        20,
        0,
        10,
    ]


def test_metrics_counters_only_grow_across_processes() -> None:
    scene = RecordFixture()
    before: dict[str, float] = {}
    for at in range(5):
        scene.passes(crowded() if at % 2 else plan(NOW + at))
        assert (at > 0) is bool(before)
        assert [
            series for series, value in before.items() if scene.left.counts[series] < value
        ] == []
        scene.left = carry_over.read(carry_over.write(scene.left))
        before = dict(scene.left.counts)
    assert before["errors_total;type=cloudProviderError"] == 2
    assert before["function_duration_seconds_count;function=main"] == 5
    assert before["function_duration_seconds_bucket;function=main;le=0.1"] == 5
    assert "function_duration_seconds_bucket;function=main;le=0.05" not in before


@each_row(
    ("error", "kind"),
    [
        (Forbidden("nodes is forbidden"), "apiCallError"),
        (OutOfStock("none"), "cloudProviderError"),
        (BadInput("p", "q", "r"), "configurationError"),
        (StoreUnavailable("down"), "transientError"),
        (ZeroDivisionError(), "internalError"),
    ],
)
def test_metrics_failed_pass_is_counted_by_error_type(error: Exception, kind: str) -> None:
    scene = RecordFixture()
    after = record_failure(
        "c",
        error,
        scene.recorder,
        CarryOver(counts={f"errors_total;type={kind}": 2.0}),
        {"main": 3.0},
    )
    assert after.counts[f"errors_total;type={kind}"] == 3
    assert scene.values("errors_total") == {kind: 1}


def test_metrics_unready_node_is_remembered_for_its_removal() -> None:
    scene = RecordFixture()
    removals = tuple(Removal(name, "g", "empty") for name in ("n1", "n2"))
    operations = tuple(
        ended(OperationKind.DELETE_NODES, targets=(RemovalTarget(name, "i"),))
        for name in ("n1", "n2")
    )
    sick = Node("n1", {}, {}, conditions=(Condition("Ready", "False"),))
    well = Node("n2", {}, {}, conditions=(Condition("Ready", "True"),))
    scene.passes(
        plan(removals=removals, operations=operations),
        snapshot=Snapshot("c", NOW, nodes=(sick, well)),
    )
    assert set(scene.left.unready) == {"n1"}
    scene.passes(plan(NOW + 3600))
    assert set(scene.left.unready) == {"n1"}
    scene.passes(plan(NOW + 7 * 3600))
    assert scene.left.unready == {}


# -- CloudWatch's format


def test_metrics_line_equals_the_output_of_powertools(capsys: Any) -> None:
    [line] = lines("c", {key("nodes_count", state="ready"): 5.0}, NOW, fields={"plan": "p"})
    front = EphemeralMetrics(namespace=metrics.NAMESPACE)
    front.add_dimension("cluster", "c")
    front.add_dimension("state", "ready")
    front.add_metadata("plan", "p")
    front.add_metric("cluster_autoscaler_nodes_count", "Count", 5.0)
    theirs, ours = dict(front.serialize_metric_set()), json.loads(line)
    assert ours.pop("_aws") | {"Timestamp": 0} == dict(theirs.pop("_aws")) | {"Timestamp": 0}  # type: ignore[call-overload]
    assert theirs.pop("cluster_autoscaler_nodes_count") == [
        ours.pop("cluster_autoscaler_nodes_count")
    ]
    assert {name: text for name, text in theirs.items() if name != "service"} == ours
    assert capsys.readouterr().out == ""


def test_metrics_service_name_of_the_environment_is_not_a_dimension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "outscaler")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Other")
    [line] = map(json.loads, lines("c", {"max_nodes_count": 1.0}, NOW))
    assert line["_aws"] == {
        "Timestamp": int(NOW * 1000),
        "CloudWatchMetrics": [
            {
                "Namespace": "Outscaler",
                "Dimensions": [["cluster"]],
                "Metrics": [{"Name": "cluster_autoscaler_max_nodes_count", "Unit": "Count"}],
            }
        ],
    }


def test_metrics_line_has_at_most_the_metrics_that_cloudwatch_reads() -> None:
    values = {f"made_up_{number}": 1.0 for number in range(250)}
    sizes = [
        len(json.loads(line)["_aws"]["CloudWatchMetrics"][0]["Metrics"])
        for line in lines("c", values, NOW)
    ]
    assert sizes == [100, 100, 50]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # slow on busy machines
@given(st.text(min_size=1), st.text())
def test_metrics_labels_round_trip_through_keys(one: str, other: str) -> None:
    assert parts(key("m", node_group=one, reason=other)) == (
        "m",
        {"node_group": one, "reason": other},
    )


# -- number of series


def test_metrics_series_count_is_independent_of_nodes_pods_and_groups() -> None:
    """Series that grow with the cluster cost more than the machines they monitor (Karpenter issue
    2622, Karpenter AWS provider issue 8798)."""
    reasons = list(ReasonCode)
    scene = RecordFixture()
    for size in (10, 1000):
        unremovable = tuple(
            NodeVerdict(f"n{n}", Reason.of(reasons[n % len(reasons)])) for n in range(size)
        )
        groups = tuple(GroupVerdict(f"g{n}", "clusterapi", 0, 9, 1) for n in range(size))
        many = tuple(refused(*(f"a/p-{n}-{m}" for m in range(3))) for n in range(size))
        scene.passes(plan(unremovable=unremovable, groups=groups, unschedulable=many))
    names = [parts(series)[0] for series in scene.left.gauges]
    assert len([name for name in names if name != "unremovable_nodes_count"]) < 40
    assert names.count("unremovable_nodes_count") <= len(reasons)
    labels = {
        label for series in (*scene.left.gauges, *scene.left.counts) for label in parts(series)[1]
    }
    assert labels <= {label for metric in METRICS for label in metric.labels} | {"le"}


def test_metrics_every_stored_series_is_in_the_metric_table_with_its_labels() -> None:
    scene = RecordFixture(emit_per_nodegroup_metrics=True)
    declared = {metric.name: metric for metric in METRICS}
    scene.passes(crowded(), seconds={"main": 2.0})
    assert len(scene.left.gauges) >= 20
    assert len(scene.left.counts) >= 10
    for series in (*scene.left.gauges, *scene.left.counts):
        name, labels = parts(series)
        base = next(
            name.removesuffix(end)
            for end in ("_bucket", "_sum", "_count", "")
            if name.removesuffix(end) in declared
        )
        assert tuple(label for label in labels if label != "le") == declared[base].labels, series


# -- state for the next pass


@each_row("rubbish", [b"", b"x", b"\x00" * 50, carry_over.write(CarryOver())[:-3]])
def test_metrics_unreadable_state_counts_as_a_first_pass(rubbish: bytes) -> None:
    assert carry_over.read(rubbish) == CarryOver()


def test_metrics_state_is_small_and_drops_single_groups_when_too_large() -> None:
    scene = RecordFixture()
    scene.passes(crowded())
    assert len(carry_over.write(scene.left)) < 2500
    wide = {
        f"node_group_max_count;node_group={hash((n, 'x')):x}": float(hash(n * 7.3))
        for n in range(60_000)
    }
    kept = carry_over.read(carry_over.write(CarryOver(gauges={"max_nodes_count": 5.0, **wide})))
    assert kept.gauges == {"max_nodes_count": 5.0}
