"""The CloudWatch dashboard shows metrics that exist, of functions and queues that
exist, and only on request.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from chalicelib.journal.metrics import METRICS, PAGE_ONLY, PREFIX
from infra.aws.dashboard import CLUSTER, ROWS
from infra.aws.deploy import foundation
from infra.aws.deploy.stage import Options, load
from tests.functional.artifact import artifact
from tests.functional.resolved_template import resolve

SEARCH = re.compile(
    r"SEARCH\('\{Outscaler,cluster([^}]*)\} MetricName=\"(\w+)\" cluster=\"(\w+)\"', '(\w+)', 300\)"
)


def _stage_body() -> dict[str, Any]:
    stage = msgspec.structs.replace(load("dev"), options=Options(dashboard=True))
    properties = foundation.template(stage, "rule")["Resources"]["ClusterDashboard"]["Properties"]
    assert properties["DashboardName"] == "outscaler-dev"
    return dict(json.loads(properties["DashboardBody"]["Fn::Sub"]))


def _stack_body() -> dict[str, Any]:
    made = artifact().translated("dev")
    body = made["Resources"]["ClusterDashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    for name in set(re.findall(r"\$\{(\w+)", body)) - {"AWS"}:
        assert name in made["Resources"], name
    return dict(json.loads(body))


def test_dashboard_exists_only_on_request() -> None:
    assert "ClusterDashboard" not in foundation.template(load("dev"), "rule")["Resources"]
    assert "ClusterDashboard" not in resolve(artifact().translated("dev"))["Resources"]
    assert "ClusterDashboard" in resolve(artifact().translated("dev"), Dashboard="on")["Resources"]


def test_dashboards_of_both_deployments_have_the_same_panels() -> None:
    stack, stage = _stack_body(), _stage_body()
    titles = [
        [
            widget["properties"].get("title") or widget["properties"]["markdown"]
            for widget in body["widgets"]
        ]
        for body in (stack, stage)
    ]
    assert titles[0] == titles[1]
    assert len([widget for widget in stack["widgets"] if widget["type"] == "metric"]) == sum(
        len(row) for _, row in ROWS
    )


def test_dashboard_searches_for_metrics_with_their_labels() -> None:
    known = {PREFIX + metric.name: metric for metric in METRICS if metric.name not in PAGE_ONLY}
    seen = set()
    for widget in _stage_body()["widgets"]:
        for row in widget["properties"].get("metrics", ()):
            if not isinstance(row[0], dict):
                continue
            search = SEARCH.fullmatch(row[0]["expression"])
            assert search is not None, row
            labels, name, cluster, stat = search.groups()
            metric = known[name]
            assert tuple(labels.split(",")[1:]) in (metric.labels, ())
            assert (cluster, stat) == (CLUSTER, "Sum" if metric.type == "counter" else "Maximum")
            seen.add(metric.name)
    assert len(seen) > 20


def test_dashboard_chooses_the_cluster_by_a_variable() -> None:
    [variable] = _stage_body()["variables"]
    assert (variable["pattern"], variable["search"], variable["populateFrom"]) == (
        CLUSTER,
        "{Outscaler,cluster}",
        "cluster",
    )


def test_dashboard_widgets_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for widget in _stage_body()["widgets"]:
        cells = {
            (x, y)
            for x in range(widget["x"], widget["x"] + widget["width"])
            for y in range(widget["y"], widget["y"] + widget["height"])
        }
        assert not cells & taken
        assert all(x < 24 for x, _ in cells)
        taken |= cells
    assert taken
