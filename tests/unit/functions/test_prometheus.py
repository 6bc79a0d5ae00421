"""Prometheus' own parser reads the metrics page, whatever the table contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from chalicelib.functions.prometheus import page
from chalicelib.journal.metric_values import duration_counts
from chalicelib.journal.metrics import METRICS, PREFIX, key

Sample = tuple[str, tuple[tuple[str, str], ...]]


def parsed(text: str) -> dict[Sample, float]:
    """Returns samples by name and labels, as Prometheus has them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_page_of_two_clusters() -> None:
    values = {
        "b": {"max_nodes_count": 5.0},
        "a": {"max_nodes_count": 7.0, "cluster_cpu_current_cores": 1.5},
    }
    assert page(values) == (
        "# HELP cluster_autoscaler_max_nodes_count The most nodes that policy and groups allow.\n"
        "# TYPE cluster_autoscaler_max_nodes_count gauge\n"
        'cluster_autoscaler_max_nodes_count{cluster="a"} 7\n'
        'cluster_autoscaler_max_nodes_count{cluster="b"} 5\n'
        "# HELP cluster_autoscaler_cluster_cpu_current_cores Cores of all nodes.\n"
        "# TYPE cluster_autoscaler_cluster_cpu_current_cores gauge\n"
        'cluster_autoscaler_cluster_cpu_current_cores{cluster="a"} 1.5\n'
    )


def test_prometheus_types_equal_those_of_the_metric_table() -> None:
    values: dict[str, float] = {}
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        values |= (
            duration_counts({"main": 1.0})
            if metric.type == "histogram"
            else {key(metric.name, **labels): 1.0}
        )
    families = {
        family.name: family.type for family in text_string_to_metric_families(page({"c": values}))
    }
    # The parser names a counter without _total.
    assert families == {metric.full_name.removesuffix("_total"): metric.type for metric in METRICS}


def test_prometheus_histogram_buckets_are_cumulative_and_ordered() -> None:
    counts = Counter[str]()
    for took in (0.04, 0.3, 3.0, 400.0):
        counts.update(duration_counts({"main": took}))  # fractions are added as well
    values = {series: float(count) for series, count in counts.items()}
    [family] = text_string_to_metric_families(page({"c": values}))
    buckets = [
        (sample.labels["le"], sample.value)
        for sample in family.samples
        if sample.name.endswith("_bucket")
    ]
    assert [bound for bound, _ in buckets] == [
        "0.05",
        "0.1",
        "0.25",
        "0.5",
        "1",
        "2.5",
        "5",
        "10",
        "30",
        "60",
        "120",
        "+Inf",
    ]
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    assert (
        buckets[-1][1]
        == 4
        == next(sample.value for sample in family.samples if sample.name.endswith("_count"))
    )


def test_prometheus_omits_metrics_missing_from_the_metric_table() -> None:
    assert page({"c": {"of_an_older_release": 1.0}}) == ""


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # slow on busy machines
@given(
    st.dictionaries(
        st.text("abc-09", min_size=1, max_size=5),
        st.dictionaries(st.text(min_size=1, max_size=20), st.floats(allow_nan=False), max_size=5),
        max_size=3,
    )
)
def test_prometheus_group_names_and_numbers_round_trip(
    groups: Mapping[str, Mapping[str, float]],
) -> None:
    values = {
        cluster: {
            key("node_group_target_count", node_group=group): value for group, value in some.items()
        }
        for cluster, some in groups.items()
    }
    expected = {
        (f"{PREFIX}node_group_target_count", (("cluster", cluster), ("node_group", group))): value
        for cluster, some in groups.items()
        for group, value in some.items()
    }
    assert parsed(page(values)) == expected
