"""The look of the page: contrast of every colour in both schemes, charts, cells, and
the files that are served.
"""

from __future__ import annotations

import hashlib
import re

import msgspec
import pytest

from chalicelib.page import charts
from chalicelib.page.assets import FOLDER, asset, assets
from chalicelib.store import JournalEntry
from chalicelib.store.gauge_ring import EVERY, HOUR, Extremes, GaugePoint
from infra.emulators.example_clusters import NOW


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


PAIRS = (
    *(("text", ground, 10.0) for ground in ("bg", "card")),
    *(
        (name, ground, 4.5)
        for name in ("muted", "info", "ok", "warn", "bad", "orange")
        for ground in ("bg", "card")
    ),
    *((tone, f"{tone}bg", 4.5) for tone in ("ok", "warn", "bad", "info")),
    *((name, "card", 3.0) for name in ("blue", "ready")),
)


@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_have_the_contrast_that_reading_needs(scheme: int) -> None:
    block = re.findall(r":root\{([^}]*)\}", assets()["page.css"].content.decode())[scheme]
    colours = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})\b", block))
    too_little = {
        (name, ground): round(_contrast(colours[name], colours[ground]), 2)
        for name, ground, least in PAIRS
        if _contrast(colours[name], colours[ground]) < least
    }
    assert too_little == {}


#: uPlot 1.6.32 of the npm registry: dist/uPlot.iife.min.js, dist/uPlot.min.css, LICENSE.
UPLOT = {
    "uPlot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


def test_library_of_the_charts_is_the_published_one_with_its_licence() -> None:
    assert {
        name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in UPLOT
    } == UPLOT
    assert "The MIT License" in (FOLDER / "uPlot.LICENSE").read_text("utf-8")
    assert (
        "https://github.com/leeoniya/uPlot (v1.6.32)"
        in (FOLDER / "uPlot.js").read_text("utf-8")[:200]
    )


def test_address_of_a_file_has_a_hash_of_its_content() -> None:
    assert sorted(assets()) == ["page.css", "page.js", "uPlot.js"]
    for file in assets().values():
        assert (
            hashlib.sha256(file.content)
            .hexdigest()
            .startswith(file.name.rpartition(".")[0].rpartition("-")[2])
        )
        assert asset(file.name) == file
    assert [asset(name) for name in ("page.js", "../page.js", "page-0000000000000000.js", "")] == [
        None
    ] * 4


def point(ago: float, nodes: int = 3, pending: int = 0, every: float = EVERY) -> GaugePoint:
    """A point that many steps before NOW."""
    return GaugePoint((NOW // every - ago) * every, nodes, pending, nodes + 1, 50, -1, -1.0)


def test_chart_has_a_gap_where_no_pass_was_made() -> None:
    drawn = charts.charts(
        charts.span_of("1h"), [point(at) for at in (500, 11, 10, 2, 0)], (), (), NOW
    )
    assert drawn.columns["nodes"] == "3,3,,,,,,,,3,,3"
    assert drawn.columns["wanted"].replace(",", "") == "4444"
    assert drawn.columns["cost"] == "," * 11
    assert (drawn.begin, drawn.every) == ((NOW // EVERY - 11) * EVERY, EVERY)


@pytest.mark.parametrize(
    ("key", "every", "count"), [("1h", EVERY, 12), ("24h", EVERY, 288), ("7d", HOUR, 168)]
)
def test_chart_has_the_points_of_its_span(key: str, every: float, count: int) -> None:
    points, hours = ([point(at, every=step) for at in range(400, -1, -1)] for step in (EVERY, HOUR))
    drawn = charts.charts(charts.span_of(key), points, hours, (), NOW)
    assert (drawn.every, drawn.columns["nodes"]) == (every, ",".join(["3"] * count))
    assert charts.span_of("x") is charts.USUAL


@pytest.mark.parametrize(("minutes", "key"), [(0, "1h"), (50, "1h"), (70, "24h"), (1400, "24h")])
def test_charts_of_a_new_cluster_begin_with_an_hour(minutes: int, key: str) -> None:
    points = [point(ago / 5) for ago in range(minutes, -1, -5)]
    assert charts.first_span(points, (), NOW) == key
    assert charts.first_span((), (), NOW) == "24h"
    assert charts.first_span(points, [point(2, every=HOUR)], NOW) == "24h"


BURST = Extremes(least_nodes=1, nodes=9, pending=20, wanted=9, cpu=97)


def test_chart_shows_what_was_between_two_points() -> None:
    points = [point(at) for at in range(11, -1, -1)]
    points[4] = msgspec.structs.replace(points[4], extremes=BURST)
    drawn = charts.charts(charts.span_of("1h"), points, (), (), NOW)

    def values(name: str) -> set[str]:
        return set(drawn.columns[name].split(","))

    assert drawn.columns["nodes-least"] == "3,3,3,3,1,3,3,3,3,3,3,3"
    assert drawn.columns["nodes-most"] == "3,3,3,3,9,3,3,3,3,3,3,3"
    assert drawn.columns["pending"] == "0,0,0,0,20,0,0,0,0,0,0,0"
    assert (values("wanted"), values("cpu"), values("cpu-most")) == (
        {"4", "9"},
        {"50"},
        {"50", "97"},
    )
    assert not {"memory-most", "cost-most"} & drawn.columns.keys(), "these are the lines"
    assert max(row.pending for row in drawn.rows) == 20
    assert min(row.least_nodes for row in drawn.rows) == 1


@pytest.mark.parametrize("key", ["7d", "14d"])
def test_peak_of_the_hour_that_is_not_over_is_in_the_chart_of_weeks(key: str) -> None:
    last = msgspec.structs.replace(point(0), extremes=BURST)
    drawn = charts.charts(charts.span_of(key), [last], [point(2, every=HOUR)], (), NOW)
    assert drawn.columns["pending"].endswith("0,,20")
    assert (drawn.rows[0].pending, drawn.rows[0].least_nodes, drawn.rows[0].nodes) == (20, 1, 9)


def test_table_of_a_chart_has_the_most_waiting_pods_of_a_row() -> None:
    points = [point(at, nodes=5, pending=at % 7) for at in range(287, -1, -1)]
    rows = charts.charts(charts.span_of("24h"), points, (), (), NOW).rows
    assert len(rows) in (24, 25)
    assert max(row.pending for row in rows) == 6
    assert [row.at for row in rows] == sorted((row.at for row in rows), reverse=True)
    assert rows[0].memory is rows[0].cost is None


@pytest.mark.parametrize(
    ("ready", "coming", "least", "most"),
    [(0, 0, 0, 0), (5, 0, 1, 4), (0, 9, 0, 3), (3, 2, 9, 8), (40, 5, 1, 90)],
)
def test_cells_of_a_group_stay_inside_for_any_size(
    ready: int, coming: int, least: int, most: int
) -> None:
    cells = charts.cells(ready, coming, least, most)
    assert cells.rectangles
    assert all(0 <= x <= x + width <= charts.CELLS + 0.2 for x, width, _ in cells.rectangles)
    assert cells.least is None or 0 < cells.least <= charts.CELLS
    drawn = {kind for _, _, kind in cells.rectangles}
    assert ("ready" in drawn, "coming" in drawn) == (ready > 0, coming > 0)


def test_small_group_has_a_cell_for_each_node_that_it_may_have() -> None:
    assert [kind for _, _, kind in charts.cells(2, 1, 0, 5).rectangles] == ["ready"] * 2 + [
        "coming"
    ] + ["free"] * 2


def test_marks_are_changes_that_ended_well() -> None:
    facts = (
        {"kind": "grow", "state": "succeeded"},
        {"kind": "remove", "state": "succeeded"},
        {"kind": "grow", "state": "failed"},
    )
    entries = [
        JournalEntry(at=NOW - 10, kind="operation", group="g", facts=dict(fact)) for fact in facts
    ]
    assert [mark.up for mark in charts.marks_of(entries)] == [True, False]
    drawn = charts.charts(charts.span_of("1h"), (), (), charts.marks_of(entries), NOW + HOUR)
    assert drawn.marks == ()
