"""CloudWatch output for each setting of the policy."""

from __future__ import annotations

import pytest

from chalicelib.cluster.errors import Forbidden
from chalicelib.journal.metrics import METRICS, SERIES
from chalicelib.journal.recorder import record_failure
from chalicelib.model.errors import InputErrors
from chalicelib.model.operation import OperationKind, OperationState, RemovalTarget
from chalicelib.model.outcome import Failed, Succeeded
from chalicelib.model.plan import GroupVerdict, Health
from chalicelib.policy.load import load
from chalicelib.policy.settings.cluster_policy import Metrics
from tests.cases import each_row
from tests.unit.journal.support import NOW, RecordFixture, ended, plan, refused
from tests.unit.journal.test_metrics import crowded

POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  kubernetes: {kubeconfigSecret: outscaler/shop/kubeconfig}
  providers: {clusterapi: {}}
"""


def busy(scene: RecordFixture) -> None:
    """A pass with a value for each metric, a pass that fails, and an end of each kind of
    operation."""
    scene.passes(crowded())
    record_failure("c", Forbidden("nodes is forbidden"), scene.recorder, scene.left, {"main": 1.0})
    scene.ends(ended(OperationKind.SCALE_UP, from_size=1, to_size=3), Succeeded())
    targets = (RemovalTarget(node="n1", instance="i1"),)
    scene.ends(ended(OperationKind.DELETE_NODES, targets=targets), Succeeded())
    for kind in OperationKind:
        scene.ends(ended(kind, OperationState.FAILED), Failed("DeadlineExceeded", "late"))


def series(scene: RecordFixture) -> dict[tuple[str, ...], list[float]]:
    """Returns (name, dimensions) -> the written values."""
    found: dict[tuple[str, ...], list[float]] = {}
    for line in scene.lines:
        [metrics] = line["_aws"]["CloudWatchMetrics"]
        [dimensions] = metrics["Dimensions"]
        for each in metrics["Metrics"]:
            labels = [f"{name}={line[name]}" for name in dimensions]
            found.setdefault((each["Name"], *labels), []).append(line[each["Name"]])
    return found


def test_metrics_summary_of_a_quiet_cluster_writes_no_series() -> None:
    scene = RecordFixture(metrics=Metrics.SUMMARY)
    for minute in range(5):
        scene.passes(
            plan(
                NOW + 60 * minute,
                health=Health(registered=100, ready=100, cpu=400_000, memory=2**38),
                groups=(GroupVerdict("g", "clusterapi", 1, 200, 100),),
                unneeded=("n1",),
            )
        )
    assert scene.lines == []
    assert scene.left.gauges["nodes_count;state=ready"] == 100, "GET /metrics has all of them"


def test_metrics_summary_always_has_six_series_without_labels() -> None:
    scene = RecordFixture(metrics=Metrics.SUMMARY)
    busy(scene)
    prefix, cluster = "cluster_autoscaler_", "cluster=c"
    assert series(scene) == {
        (f"{prefix}errors_total", cluster): [1, 1],
        (f"{prefix}failed_operations_total", cluster): [1] * len(OperationKind),
        (f"{prefix}failed_scale_ups_total", cluster): [1],
        (f"{prefix}scaled_down_nodes_total", cluster): [1],
        (f"{prefix}scaled_up_nodes_total", cluster): [2],
        (f"{prefix}unschedulable_pods_count", cluster): [4],
    }
    assert len(SERIES) <= 6
    assert set(SERIES) <= {metric.name for metric in METRICS}


def test_metrics_summary_of_a_counter_is_the_sum_over_its_labels() -> None:
    scene, whole = RecordFixture(metrics=Metrics.SUMMARY), RecordFixture()
    targets = tuple(
        RemovalTarget(node=f"n{n}", instance=f"i{n}", evict=("p",) * (n % 2)) for n in range(4)
    )
    for each in (scene, whole):
        each.ends(ended(OperationKind.DELETE_NODES, targets=targets), Succeeded())
    assert len(whole.values("scaled_down_nodes_total")) > 1
    assert scene.values("scaled_down_nodes_total") == {
        "": sum(whole.values("scaled_down_nodes_total").values())
    }


def test_metrics_off_writes_nothing_and_page_state_is_the_same_in_all_modes() -> None:
    scenes = {metrics: RecordFixture(metrics=metrics) for metrics in Metrics}
    for scene in scenes.values():
        busy(scene)
    assert scenes[Metrics.OFF].lines == []
    assert len(series(scenes[Metrics.FULL])) > 30
    kept = [(scene.left.gauges, scene.left.counts) for scene in scenes.values()]
    assert kept[0] == kept[1] == kept[2]


def test_metrics_summary_excludes_pods_not_yet_seen_by_the_scheduler() -> None:
    scene = RecordFixture(metrics=Metrics.SUMMARY)
    scene.passes(plan(ignored=crowded().ignored))
    assert scene.lines == []
    scene.passes(plan(NOW + 60, unschedulable=(refused("a/p"),)))
    assert scene.values("unschedulable_pods_count") == {"": 1}


@each_row(
    ("written", "meant"),
    [
        ("", Metrics.SUMMARY),
        ("  metrics: off\n", Metrics.OFF),
        ("  metrics: summary\n", Metrics.SUMMARY),
        ("  metrics: full\n", Metrics.FULL),
    ],
)
def test_metrics_policy_setting_has_three_values_and_defaults_to_summary(
    written: str, meant: Metrics
) -> None:
    assert load(POLICY + written, place="p")[0].metrics is meant


@each_row("written", ["some", "true", "[full]", "FULL", "none"])
def test_metrics_policy_setting_with_another_value_is_refused_in_its_line(written: str) -> None:
    with pytest.raises(
        InputErrors, match=r"p:7: spec.metrics.*(off, summary or full|did you mean)"
    ):
        load(f"{POLICY}  metrics: {written}\n", place="p")
