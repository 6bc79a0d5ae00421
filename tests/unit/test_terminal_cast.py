"""The README's picture of a terminal shows the commands of docs/start.md, and contains no
script.
"""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

from infra.tools.terminal_cast import PAGE, WIDEST, screens, steps, svg
from tests.source_trees import ROOT


def test_picture_of_the_terminal_is_the_one_of_the_start_page() -> None:
    made = svg(PAGE.read_text("utf-8"))
    assert made == (ROOT / "docs" / "images" / "plan.svg").read_text("utf-8"), "run make docs"
    assert {each.tag.partition("}")[2] for each in ET.fromstring(made).iter()} == {
        "svg",
        "title",
        "style",
        "rect",
        "g",
        "text",
    }


def test_picture_of_the_terminal_shows_plan_and_explain_in_twenty_seconds() -> None:
    found = steps(PAGE.read_text("utf-8"))
    assert [command.split()[1] for command, _ in found] == ["plan", "explain"]
    shown = list(screens(found))
    assert 10 < shown[-1][1] <= 25
    assert max(len(line.text) for _, _, lines in shown for line in lines) <= WIDEST
    assert all(one[1] == other[0] for one, other in pairwise(shown))


def test_picture_of_the_terminal_begins_with_the_whole_answer() -> None:
    page = PAGE.read_text("utf-8")
    [(_, end, lines), *_] = screens(steps(page))
    starts = {float(text) for text in re.findall(r"step-end -([\d.]+)s infinite", svg(page))}
    assert len(starts) == 1
    assert max(line.at for line in lines) - 0.01 <= min(starts) < end
    assert "g:not(.s0) text{visibility:hidden}" in svg(page)


def test_picture_of_the_terminal_escapes_its_text() -> None:
    page = "```sh\noutscaler plan <x>\n```\n\n```\n</text><script>alert(1)</script>\n```\n"
    assert "<script>" not in svg(page)
