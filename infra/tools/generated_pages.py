"""Writes what the pages of docs/ have from declarations in the code:
`python -m infra.tools.generated_pages docs`.

Some pages are whole; the others are written by hand but for regions between two comments,

    <!-- generated: NAME --> … <!-- end -->

Not here: pages that are made by running something (infra/aws/cost.py, tests/functional).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from chalicelib.cluster import input_limits
from chalicelib.functions.webhook_events import AUDIT_REASONS, EVENT_REASONS
from chalicelib.journal.events import EventRow
from chalicelib.journal.metrics import METRICS, PREFIX, SERIES
from chalicelib.journal.operation_events import ENDS, STEPS
from chalicelib.journal.pass_events import FACTS
from chalicelib.model.health import CLUSTER, POD, HealthState
from chalicelib.policy.options import ROWS, default_text
from chalicelib.policy.schema import fields_of
from chalicelib.policy.settings.consolidation import Consolidation
from infra.aws.alarms import ALARMS, DEAD_LETTERS, MachineryAlarm
from infra.tools import cce_rules_page, command_reference, policy_reference, reason_tables
from infra.tools.prometheus_rules import ALERTS

PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": command_reference.reference,
    "policy.md": policy_reference.reference,
    "rules.md": lambda: cce_rules_page.page(cce_rules_page.held_by()),
}
_REGION = re.compile(r"(?<=<!-- generated: )([\w-]+) -->\n.*?(?=\n<!-- end -->)", re.DOTALL)
_SETTING = re.compile(r"^\| `(\w+)`([^|]*)\| [^|]* \|", re.MULTILINE)


def current(page: Path) -> str:
    """Return the text of a page as it should be."""
    whole = PAGES.get(page.name) if page.parent.name == "docs" else None
    return whole() if whole is not None else _REGION.sub(_region, page.read_text("utf-8"))


def _region(match: re.Match[str]) -> str:
    name = match[1]
    if name == "defaults":
        return _SETTING.sub(_with_default, match[0])
    return f"{name} -->\n{chr(10).join(TABLES[name]())}"


# -- tables


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    titles = tuple(head)
    yield _line(titles)
    yield "|" + "---|" * len(titles)
    yield from map(_line, rows)


def _line(cells: Iterable[str]) -> str:
    return " ".join(f"| {cell}" if cell else "|" for cell in cells) + " |"


def _metrics() -> Iterator[str]:
    rows = (
        (
            f"`{metric.full_name.removeprefix(PREFIX)}`",
            metric.type,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.help,
        )
        for metric in METRICS
    )
    yield from _table(("Name", "Type", "Labels", "Meaning"), rows)


_NOUN = {
    HealthState.VENDORS_NOT_READ: "vendors",
    HealthState.GROUPS_NOT_READ: "groups",
    HealthState.GROUPS_UNHEALTHY: "groups",
    HealthState.GROUPS_CANNOT_GROW: "groups",
    HealthState.GROUPS_BACKING_OFF: "groups",
    HealthState.PODS_WITHOUT_NODE: "pods",
    HealthState.PODS_COMING: "pods",
}
_KEYS = {CLUSTER: "health", POD: "decision"}


def _health() -> Iterator[str]:
    head = ("Of a", "Word", "Meaning", "A person", "Tone", "In JSON", "Notification")
    yield from _table(head, map(_health_row, HealthState))


def _health_row(state: HealthState) -> tuple[str, ...]:
    row = state.row
    word = row.word.replace("{}", "*n* " + _NOUN.get(state, ""))
    meaning = row.meaning
    if row.anchor:
        meaning += f" ([what to do](runbook.md#{row.anchor}))"
    notices = ", ".join(f"[{kind}](runbook.md#{_anchor_of_notice(kind)})" for kind in row.notices)
    stable = f"`{_KEYS[row.subject]}: {row.stable}`" if row.stable else "`status.word`"
    return (
        row.subject,
        word,
        meaning,
        "yes" if row.person else "",
        row.tone.value,
        stable,
        notices,
    )


def _anchor_of_notice(kind: str) -> str:
    return f"notification-{kind.replace('.', '')}"


def _summary_metrics() -> Iterator[str]:
    alarms = {metric.name: metric.alarm for metric in METRICS}
    rows = ((f"`{name}`", alarms[name]) for name in SERIES)
    yield from _table(("Name", "Meaning of an alarm"), rows)


def _events(*tables: Iterable[EventRow]) -> Iterator[str]:
    rows = ((row.fact, row.on, row.reason, row.message) for table in tables for row in table)
    yield from _table(("Fact", "On", "Reason", "Message"), rows)


def _waking_events() -> Iterator[str]:
    meanings = {**EVENT_REASONS, **{name: row.meaning for name, row in AUDIT_REASONS.items()}}
    rows = ((f"`{name}`", meaning) for name, meaning in meanings.items())
    yield from _table(("Reason", "Meaning"), rows)


_COMPARISONS = {"GreaterThanThreshold": "more than", "LessThanThreshold": "less than"}


def _alarms() -> Iterator[str]:
    rows = [_alarm(alarm) for alarm in ALARMS]
    dead_letters = (
        "[DeadLetters](runbook.md#deadletters), one per queue",
        "Messages of the queue failed for good",
        "more than 0 in 1 of 1 periods of 5 min",
        "notBreaching",
        str(len(DEAD_LETTERS)),
    )
    head = ("Name", "Meaning", "Goes off with", "Missing values", "Metrics")
    yield from _table(head, (*rows, dead_letters))


def _alarm(alarm: MachineryAlarm) -> tuple[str, ...]:
    periods = f"{alarm.breaching} of {alarm.periods} periods of {alarm.period // 60} min"
    return (
        f"[{alarm.name}](runbook.md#{alarm.anchor})",
        alarm.summary,
        f"{_COMPARISONS[alarm.comparison]} {alarm.threshold:g} in {periods}",
        alarm.missing,
        str(len(alarm.sources)),
    )


def _alerts() -> Iterator[str]:
    rows = (
        (f"[{alert.name}](runbook.md#{alert.anchor})", alert.severity, alert.lasting)
        for alert in ALERTS
    )
    yield from _table(("Alert", "Severity", "After"), rows)


def _pod_limits() -> Iterator[str]:
    rows = [(cap.what, cap.most) for cap in input_limits.PER_POD]
    rows.append(("containers", input_limits.CONTAINERS))
    yield from _table(("Of one pod", "At most"), ((what, f"{most:,}") for what, most in rows))


def _cluster_limits() -> Iterator[str]:
    rows = ((total.what, f"{total.most:,}") for total in input_limits.PER_CLUSTER)
    yield from _table(("Of all pods", "At most"), rows)


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "alarms": _alarms,
    "alerts": _alerts,
    "cluster-limits": _cluster_limits,
    "health": _health,
    "metrics": _metrics,
    "operation-events": lambda: _events(ENDS, STEPS),
    "pass-events": lambda: _events(FACTS),
    "pod-limits": _pod_limits,
    "reasons": reason_tables.section,
    "summary-metrics": _summary_metrics,
    "waking-events": _waking_events,
}

# -- defaults, in the second column of tables of settings that are otherwise written by hand


def _defaults() -> Mapping[str, str]:
    settings = {field.key: field.default_text for field in fields_of(Consolidation)}
    return {**settings, **{name: default_text(row) for name, row in ROWS.items()}}


def _with_default(match: re.Match[str]) -> str:
    key, more = match[1], match[2]
    return f"| `{key}`{more}| `{_defaults()[key]}` |"


def main() -> None:
    for page in sorted(Path(sys.argv[1]).rglob("*.md")):
        page.write_text(current(page), "utf-8")


if __name__ == "__main__":
    main()
