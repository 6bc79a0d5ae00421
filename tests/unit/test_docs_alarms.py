"""The documentation describes every alarm, alert and notification, and every anchor
of the runbook is unique.
"""

from __future__ import annotations

import re

import pytest

from chalicelib.model.notification import NOTICE_TYPES
from chalicelib.notify.delivery import runbook_url
from infra.aws.alarms import ALARMS, FILTERS
from infra.tools.prometheus_rules import ALERTS
from tests.unit.test_docs import ROOT, RUNBOOK, rows

PAGE = ROOT / "docs" / "alarms.md"
COMPARISONS = {"GreaterThanThreshold": "more than", "LessThanThreshold": "less than"}


def test_docs_alarms_name_every_metric_of_the_log() -> None:
    text = PAGE.read_text("utf-8")
    assert [each.metric for each in FILTERS if f"`{each.metric}`" not in text] == []


@pytest.mark.parametrize(
    ("chapter", "names", "prefix"),
    [
        ("Alarms", [*(alarm.name for alarm in ALARMS), "DeadLetters"], ""),
        ("Prometheus alerts", [alert.name for alert in ALERTS], ""),
        ("Notifications", [*NOTICE_TYPES], "notification-"),
    ],
)
def test_docs_runbook_says_what_to_do_about_each(
    chapter: str, names: list[str], prefix: str
) -> None:
    listed = {row[0]: row[-1] for row in rows(RUNBOOK, chapter)}
    anchored = {
        name: f'<a id="{prefix}{name.lower().replace(".", "")}"></a>{name}' for name in names
    }
    assert sorted(listed) == sorted(anchored.values())
    assert [name for name, action in listed.items() if not action] == []


def test_docs_notifications_are_listed_with_links_to_the_runbook() -> None:
    listed = [row[0] for row in rows(ROOT / "docs" / "notifications.md", "Types")]
    assert listed == [
        f"[{name}](runbook.md#{runbook_url(name).partition('#')[2]})" for name in NOTICE_TYPES
    ]


def test_docs_runbook_anchors_are_unique() -> None:
    text = RUNBOOK.read_text("utf-8")
    headings = [
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    own = re.findall(r'<a id="([^"]+)"', text)
    assert len(own) == len(set(own))
    assert set(own) & set(headings) == set()
