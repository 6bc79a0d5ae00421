"""The alerts and the Grafana dashboard for GET /metrics use metrics and labels that
exist, in valid expressions.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from chalicelib.journal.metrics import BUCKETS, CLUSTER, METRICS
from infra.emulators.controllers import objects
from infra.emulators.local_world import LocalWorld
from infra.tools import grafana_dashboard
from infra.tools.grafana_dashboard import ROWS
from infra.tools.prometheus_rules import ALERTS, resource, rules, text
from tests.cases import each_row
from tests.promql import NotPromQL, Selector, read
from tests.scenario.policies import document

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS, GRAFANA = ROOT / "infra" / "prometheus", ROOT / "infra" / "grafana" / "outscaler.json"
PROMTOOL = shutil.which("promtool")
AFTER_A_FAILURE = {
    f"cluster_autoscaler_{name}"
    for name in (
        "errors_total",
        "evicted_pods_total",
        "failed_node_creations_total",
        "failed_operations_total",
        "failed_scale_ups_total",
        "node_group_backoff_status",
        "skipped_scale_events_count",
    )
} | {"outscaler_unreadable"}
GROUP = "MachineDeployment/default/workers"

Json = dict[str, Any]


class Place(NamedTuple):
    """Where an expression is used."""

    where: str
    expression: str


def _places() -> Iterator[Place]:
    for alert in ALERTS:
        yield Place(alert.name, alert.expression)
    for panel in json.loads(GRAFANA.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield Place(panel["title"], target["expr"].replace("$__rate_interval", "5m"))


PLACES = list(_places())


def _published() -> dict[str, set[str]]:
    """Labels by the name of each series of the page."""
    found = {}
    for metric in METRICS:
        labels = {CLUSTER, *metric.labels}
        suffixes = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
        for suffix in suffixes:
            found[metric.full_name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


@pytest.fixture(scope="module")
def page() -> str:
    """GET /metrics of an emulated cluster that grew and shrank."""
    with LocalWorld(quick=True, grain=20.0) as world:
        world.seed(objects.machine_deployment("workers", 1, 1, 4))
        options = {
            "emitPerNodegroupMetrics": True,
            "scaleDownUnneededTime": "1m",
            "scaleDownDelayAfterAdd": "1m",
        }
        world.apply_policy(document(options=options))
        world.step(120.0)
        world.seed(objects.deployment("web", replicas=3, cpu="2500m"))
        world.step(400.0)
        world.kube.delete("deployments", "web", "default", "apps")
        world.step(900.0)
        return str(world.get("/metrics")["body"])


def _samples(page: str) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]


def test_generated_files_are_up_to_date() -> None:
    assert (PROMETHEUS / "rules.yaml").read_text("utf-8") == text(rules()), "run make docs"
    assert (PROMETHEUS / "prometheusrule.yaml").read_text("utf-8") == text(resource()), (
        "run make docs"
    )
    assert GRAFANA.read_text("utf-8") == grafana_dashboard.text(), "run make docs"


def test_prometheus_rule_resource_has_the_same_rules_as_the_file() -> None:
    made = yaml.safe_load((PROMETHEUS / "prometheusrule.yaml").read_text("utf-8"))
    assert (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert made["spec"] == yaml.safe_load((PROMETHEUS / "rules.yaml").read_text("utf-8"))


def test_ops_10_every_expression_uses_metrics_and_labels_that_exist() -> None:
    published = _published()
    for where, expression in PLACES:
        found = read(expression)
        assert found.selectors, (where, expression)
        for selector in found.selectors:
            assert selector.metric in published, (where, selector)
            assert selector.labels.keys() <= published[selector.metric], (where, selector)
        known = set().union(*(published[selector.metric] for selector in found.selectors))
        assert found.grouped <= known, (where, expression)


def _selected(
    selector: Selector, samples: list[tuple[str, dict[str, str], float]], cluster: str
) -> bool:
    wanted = {
        label: value.replace("$cluster", cluster) for label, (_, value) in selector.labels.items()
    }
    return any(
        name == selector.metric and wanted.items() <= labels.items() for name, labels, _ in samples
    )


def test_ops_10_expressions_select_series_of_an_emulated_page(page: str) -> None:
    """Counters of failures do not exist before the first failure."""
    samples = _samples(page)
    missing = {
        selector.metric
        for _, expression in PLACES
        for selector in read(expression).selectors
        if not _selected(selector, samples, "shop")
    }
    assert missing <= AFTER_A_FAILURE | WITH_PRICES


def test_alerts_and_dashboard_cover_every_metric_of_the_table() -> None:
    used = {selector.metric for _, expression in PLACES for selector in read(expression).selectors}
    names = {
        metric.full_name + ("_bucket" if metric.type == "histogram" else "") for metric in METRICS
    }
    assert names - used == {"cluster_autoscaler_old_unregistered_nodes_removed_count"}


def test_grafana_panels_have_the_mixins_first_row_and_do_not_overlap() -> None:
    first = [panel.title for panel in ROWS[0][1]]
    assert first == [
        "Total nodes",
        "Max nodes",
        "Node groups",
        "Healthy nodes",
        "Safe to autoscale",
        "Unscheduled pods",
        "Last scale-down",
        "Last scale-up",
    ]
    panels = json.loads(GRAFANA.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_every_alert_keeps_the_cluster_and_names_its_place_in_the_runbook() -> None:
    alerts = rules()["groups"][0]["rules"]
    assert alerts
    for rule in alerts:
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        if rule["alert"] != "OutscalerAbsent":
            assert "cluster" in read(rule["expr"]).grouped


@each_row(
    "expression",
    [
        "",
        "1 + 2",
        "sum(a",
        "sum a)",
        'a{b="c"',
        "a{b}",
        'a{b:"c"}',
        "total(a)",
        "sum by (b (a)",
        "a # b",
    ],
)
def test_broken_expression_is_noticed(expression: str) -> None:
    with pytest.raises((NotPromQL, IndexError)):
        read(expression)


# -- promtool

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian's package prometheus)"
)


def _promtool(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROMTOOL), *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


@needs_promtool
def test_promtool_accepts_the_rules_and_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    records = [
        {"record": f"panel:{number}", "expr": expression.replace("$cluster", "shop")}
        for number, (_, expression) in enumerate(PLACES)
    ]
    (tmp_path / "panels.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]})
    )
    for file in (str(PROMETHEUS / "rules.yaml"), "panels.yaml"):
        done = _promtool("check", "rules", file, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


CHANGES: Mapping[str, tuple[str, str]] = {
    "OutscalerPassLate": ('outscaler_pass_late{cluster="shop"}', "1x120"),
    "OutscalerUnreadable": ('outscaler_unreadable{cluster="shop"}', "1x120"),
    "OutscalerNotSafe": ('cluster_autoscaler_cluster_safe_to_autoscale{cluster="shop"}', "0x120"),
    "OutscalerPodsUnhelped": (
        'outscaler_pods_without_node_count{cluster="shop"}',
        "3x120",
    ),
    "OutscalerGrowthFails": (
        'cluster_autoscaler_failed_scale_ups_total{cluster="shop",reason="Quota"}',
        "0+1x120",
    ),
    "OutscalerEvictionsFail": (
        'cluster_autoscaler_evicted_pods_total{cluster="shop",eviction_result="failed"}',
        "0+1x120",
    ),
    "OutscalerLimit": (
        (
            'cluster_autoscaler_skipped_scale_events_count{cluster="shop",direction="up",reason='
            '"CpuResourceLimit"}'
        ),
        "0+1x120",
    ),
    "OutscalerGroupAtMax": (
        f'cluster_autoscaler_node_group_target_count{{cluster="shop",node_group="{GROUP}"}}',
        "4x120",
    ),
    "OutscalerRemovalsStuck": (
        'cluster_autoscaler_pending_node_deletions{cluster="shop"}',
        "1x120",
    ),
    "OutscalerNodesSick": ('outscaler_lifecycle_nodes_count{cluster="shop",state="sick"}', "2x120"),
    "OutscalerBrake": ('outscaler_brake{cluster="shop"}', "1x120"),
}
#: Series of clusters with prices or managed pools, of those whose nodes are consolidated, taken
#: back, replaced or restarted, and of those with groups, providers or budgets that are not well.
WITH_PRICES = {
    "outscaler_cost_per_hour",
    "outscaler_node_group_cost_per_hour",
    "outscaler_savings_total",
    "outscaler_consolidation_moves_count",
    "outscaler_consolidation_leaving_nodes_count",
    "outscaler_consolidation_end_cost_per_hour",
    "outscaler_pods_on_leaving_nodes_count",
    "outscaler_replacements_total",
    "outscaler_disrupted_nodes_total",
    "outscaler_node_restarts_total",
    "outscaler_lifecycle_nodes_count",
    "outscaler_pods_without_node_count",
    "outscaler_unread_providers_count",
    "outscaler_unwell_node_groups_count",
    "outscaler_nodes_behind_budgets_count",
    "outscaler_managed_pool_candidates_count",
    "outscaler_managed_pool_groups_count",
    "outscaler_managed_pool_nodes_count",
    "outscaler_managed_pool_cost_per_hour",
}


@needs_promtool
def test_ops_10_each_alert_fires_on_the_emulated_page_with_its_change_only(
    page: str, tmp_path: Path
) -> None:
    """promtool runs all rules on the page's series, every minute for two hours, unchanged
    and with one change each."""
    healthy = {_series(name, labels): f"{value:g}x120" for name, labels, value in _samples(page)}
    for series in healthy:
        if series.startswith("cluster_autoscaler_last_activity"):
            healthy[series] = "0+60x120"
    cases: list[tuple[str, dict[str, str]]] = [("", healthy), ("OutscalerAbsent", {"up": "1x120"})]
    for alert, (series, values) in CHANGES.items():
        [key] = [each for each in [*healthy, series] if _same(each, series)][:1]
        cases.append((alert, healthy | {key: values}))
    tests = [_unit_test(alert, series) for alert, series in cases]
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(PROMETHEUS / "rules.yaml")],
                "evaluation_interval": "1m",
                "tests": tests,
            }
        )
    )
    done = _promtool("test", "rules", "tests.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {alert for alert, _ in cases} - {""} == {alert.name for alert in ALERTS}


def _series(name: str, labels: Mapping[str, str]) -> str:
    return (
        f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels.items())}}}"
    )


def _same(one: str, other: str) -> bool:
    def parts(series: str) -> tuple[str, frozenset[str]]:
        name, _, labels = series.rstrip("}").partition("{")
        return name, frozenset(re.findall(r'\w+="[^"]*"', labels))

    return parts(one) == parts(other)


def _unit_test(wanted: str, series: Mapping[str, str]) -> Json:
    """Every alert must be silent after 110 minutes except the wanted one."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": (
                    f'count by (alertname) (ALERTS{{alertstate="firing",alertname!="{wanted}"}})'
                ),
                "eval_time": "110m",
                "exp_samples": [],
            },
            *(
                [
                    {
                        "expr": (
                            f'count by (alertname) (ALERTS{{alertstate="firing",alertname='
                            f'"{wanted}"}})'
                        ),
                        "eval_time": "110m",
                        "exp_samples": [{"labels": f'{{alertname="{wanted}"}}', "value": 1}],
                    }
                ]
                if wanted
                else []
            ),
        ],
    }


def test_buckets_of_the_histogram_are_on_the_page(page: str) -> None:
    bounds = {
        labels["le"]
        for name, labels, _ in _samples(page)
        if name.endswith("duration_seconds_bucket")
    }
    assert len(bounds) == len(BUCKETS) + 1
