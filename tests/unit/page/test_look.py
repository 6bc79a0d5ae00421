"""The look of the page: contrast of every colour in both schemes, charts, and rendering in a browser where there is
one."""

from __future__ import annotations

import re

import pytest

from chalicelib.model.gauge_ring import EVERY, GaugePoint
from chalicelib.page import charts
from chalicelib.page.render import style
from chalicelib.store import JournalEntry
from infra.emulators.example_clusters import NOW
from infra.tools.screenshots import browser, chromium, served


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_have_the_contrast_that_reading_needs(scheme: int) -> None:
    block = re.findall(r":root\{([^}]*)\}", style())[scheme]
    colours = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", block))
    for ground in ("bg", "panel"):
        for name, least in {
            "text": 7.0,
            "ok": 7.0,
            "warn": 6.6,
            "bad": 7.0,
            "muted": 4.5,
            "info": 4.5,
            "nodes": 3.0,
            "pods": 3.0,
        }.items():
            found = _contrast(colours[name], colours[ground])
            assert found >= (least if ground == "bg" else min(least, 6.5)), (name, ground, round(found, 2))


def test_line_has_a_gap_where_no_pass_was_made() -> None:
    points = [GaugePoint((NOW // EVERY - ago) * EVERY, 3, 0) for ago in (500, 100, 99, 20, 0)]
    line = charts.sparkline(points, [each.nodes for each in points], NOW)
    assert [len(run.split()) for run in line.runs] == [2, 1, 1]
    assert (line.most, line.last) == (3, 3)


def test_bar_of_a_group_stays_inside_for_any_size() -> None:
    for ready, target, least, most in ((0, 0, 0, 0), (5, 3, 1, 4), (0, 9, 0, 3), (3, 5, 9, 8)):
        bar = charts.size_bar(ready, target, least, most)
        assert 0 <= bar.ready <= bar.ready + bar.coming <= charts.BAR + 0.2
        assert 0 <= bar.target <= charts.BAR


def test_strip_has_only_changes_that_ended_well() -> None:
    facts = (
        {"kind": "grow", "state": "succeeded"},
        {"kind": "remove", "state": "succeeded"},
        {"kind": "grow", "state": "failed"},
    )
    entries = [JournalEntry(at=NOW - 10, kind="operation", group="g", facts=dict(each)) for each in facts]
    entries.append(JournalEntry(at=NOW - 90_000, kind="operation", facts=dict(facts[0])))
    assert [each.up for each in charts.strip(entries, NOW)] == [True, False]


def test_page_fits_every_window_and_breaks_no_content_security_policy() -> None:
    program = chromium()
    if not program:
        pytest.skip("Chromium is not installed")
    with served() as address, browser(program) as tab:
        for path in ("/", "/clusters/prod", "/clusters/prod/nodes", "/clusters/prod/pods", "/clusters/prod/policy"):
            for width in (320, 360, 1200):
                tab.open(f"{address}{path}?refresh=off", width, 800, dark=width == 360)
                assert tab.width_of_content() <= width, (path, width)
        assert tab.picture().startswith(b"\x89PNG")
        assert tab.console == []
