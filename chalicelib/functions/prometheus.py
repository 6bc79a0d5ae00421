"""GET /metrics: the metrics of every cluster of the deployment, in Prometheus's text format 0.0.4.

It reads no cluster and computes nothing anew: gauges are those of each cluster's last pass, and
counters are the sums that passes and executors have stored. Only the mode, the pauses and whether a
pass is overdue are those of the present. A scrape therefore costs four reads for a hundred
clusters, and its numbers survive any process. `last_activity` says how old a gauge is; a cluster
that is switched off has none but mode and pauses, and one that no pass has seen has no gauge of its
nodes and pods: unknown is not 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chalicelib.functions.http_response import HttpResponse, refuse_newer_schema
from chalicelib.journal import carry_over
from chalicelib.journal.metrics import (
    BUCKETS,
    CLUSTER,
    HISTOGRAM,
    METRICS,
    Metric,
    Values,
    key,
    parts,
)
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.active_policy import in_force_or_problem
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.mode_guard import permitted
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.errors import StoreError
from chalicelib.store.journal import CounterTotals
from chalicelib.store.leases import LastPass, ScanState
from chalicelib.views.cluster_view import is_late

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PAGE = "page"
_SUFFIXES = ("_bucket", "_sum", "_count")
_BOUND, _BOUNDS = "le", (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
_LABELS = {metric.name: frozenset(metric.labels) for metric in METRICS} | {
    metric.name + suffix: frozenset(metric.labels) | ({_BOUND} if suffix == _SUFFIXES[0] else set())
    for metric in METRICS
    if metric.type == HISTOGRAM
    for suffix in _SUFFIXES
}

Labels = tuple[tuple[str, str], ...]


def metrics(runtime: Runtime) -> HttpResponse:
    """Handle GET /metrics: 200, with the page as PAGE of the body; empty where
    no cluster has had a pass."""
    refuse_newer_schema(runtime)
    documents = runtime.store.policies.all_current()
    names = [stored.name for stored in documents]
    paused = _paused(runtime)
    passed, ledgers = (
        runtime.store.scan_states.passed_by(names),
        runtime.store.journal.ledgers(names),
    )
    values: dict[str, dict[str, float]] = {}
    for stored in documents:
        name = stored.name
        policy, unreadable = in_force_or_problem(stored, runtime.clock(), runtime.deployment)
        permission = permitted(policy) if policy is not None else None
        last, ledger, pauses = passed.get(name), ledgers.get(name), (paused or {}).get(name)
        problems = [
            unreadable,
            *(str(one) for one in (last, ledger, pauses) if isinstance(one, StoreError)),
        ]
        before = (
            carry_over.read(last.carry_over)
            if isinstance(last, LastPass)
            else carry_over.CarryOver()
        )
        counts = dict(before.counts)
        for series, count in (ledger.counts if isinstance(ledger, CounterTotals) else {}).items():
            counts[series] = counts.get(series, 0.0) + count
        looked_at = permission is None or permission.plan
        values[name] = (
            counts
            | (before.gauges if looked_at else {})
            | (
                {}
                if paused is None or isinstance(pauses, StoreError)
                else {key("paused"): float(name in paused)}
            )
            | ({key("mode", mode=permission.word): 1.0} if permission else {})
            | _late(policy, last, stored.stored_at, runtime.clock())
            | ({key("unreadable"): 1.0} if any(problems) else {})
        )
    return HttpResponse(200, {PAGE: page(values)})


def _late(
    policy: Policy | None, last: LastPass | StoreError | None, applied_at: float, now: float
) -> dict[str, float]:
    """Return whether a pass is overdue, nothing where none is expected or it is not known."""
    if policy is None or isinstance(last, StoreError) or not permitted(policy).plan:
        return {}
    scan = last.state if last is not None else ScanState()
    return {key("pass_late"): float(is_late(policy.scan_interval, scan, applied_at, now))}


def page(values: Mapping[str, Values]) -> str:
    """Return the text for these values by cluster and series (journal/metrics.key). Series that are
    not in the table of metrics, or have other labels, are omitted: an older release may have
    counted them, and a label that Prometheus refuses would cost it the whole page."""
    samples: dict[str, list[tuple[Labels, float]]] = {}
    for cluster in sorted(values):
        for series, value in values[cluster].items():
            name, labels = parts(series)
            if _LABELS.get(name) != labels.keys() or labels.get(_BOUND, _BOUNDS[0]) not in _BOUNDS:
                continue
            samples.setdefault(name, []).append((((CLUSTER, cluster), *labels.items()), value))
    return "".join(line + "\n" for metric in METRICS for line in _family(metric, samples))


def _family(metric: Metric, samples: Mapping[str, list[tuple[Labels, float]]]) -> Iterator[str]:
    names = (
        [metric.name + suffix for suffix in _SUFFIXES]
        if metric.type == HISTOGRAM
        else [metric.name]
    )
    if not any(name in samples for name in names):
        return
    yield f"# HELP {metric.full_name} {_escaped(metric.help)}"
    yield f"# TYPE {metric.full_name} {metric.type}"
    for name in names:
        for labels, value in sorted(samples.get(name, ()), key=_in_order):
            shown = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels)
            yield f"{metric.prefix}{name}{{{shown}}} {_number(value)}"


def _in_order(sample: tuple[Labels, float]) -> tuple[Labels, float]:
    """Sort by labels, and the buckets of a histogram by their bounds."""
    labels, _ = sample
    bound = next((float(text) for label, text in labels if label == _BOUND), 0.0)
    return tuple(pair for pair in labels if pair[0] != "le"), bound


def _paused(runtime: Runtime) -> Mapping[str, object] | None:
    """Return the clusters with a pause in force, with a StoreError for one whose pauses cannot be
    read; None where none can be read, which hides no other metric."""
    try:
        return runtime.store.pauses.all_current()
    except StoreError as error:
        logger.error("pauses not read", **failure(error))
        return None


def _number(value: float) -> str:
    """Return the shortest text that reads back to the same number."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
