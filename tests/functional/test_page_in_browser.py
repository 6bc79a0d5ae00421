"""The status page in a real Chromium, driven by Playwright: clicks, keys, charts, copying,
reloading, accessibility.

axe-core 4.14.1 of the npm registry (axe/, with its licence) looks for violations. Without
Chromium the tests are skipped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.model.plan import GroupVerdict, NodeVerdict, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.store import JournalEntry, Store
from infra.emulators.controllers.clock import ManualClock
from infra.emulators.example_clusters import NOW, busy_plan, decided, example
from infra.tools.screenshots import ARGUMENTS, ZONE, chromium, served

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

AXE = Path(__file__).parent / "axe" / "axe.min.js"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
PATIENCE = 60_000.0  # milliseconds that nothing takes, on a machine however busy
PAGES = (
    "/",
    "/clusters/prod",
    "/clusters/shop",
    "/clusters/staging",
    "/clusters/prod/groups?group=web",
    "/clusters/prod/nodes",
    "/clusters/prod/pods",
    "/clusters/prod/history",
    "/clusters/prod/decision?plan=plan-5be1f0a2d4c6",
    "/clusters/prod/policy",
    "/x",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for the tests of a worker."""
    program = chromium()
    if not program:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield running
        running.close()


@pytest.fixture(scope="module")
def store() -> Store:
    return example(hours=336)


@pytest.fixture(scope="module")
def address(store: Store) -> Iterator[str]:
    with served(store) as at:
        yield at


@contextmanager
def opened(
    browser: Any, address: str, width: int = 1440, *, dark: bool = False, **options: Any
) -> Iterator[Any]:
    """A page in a context of its own. It must stay on its server and report no error."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        timezone_id=options.pop("timezone_id", ZONE),
        **options,
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    elsewhere: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    server = re.match(r"https?://[^/]+", address)
    assert server is not None
    page.on(
        "request",
        lambda request: elsewhere.append(request.url) if server[0] not in request.url else None,
    )
    answer = page.goto(address)
    yield page
    expected = [
        (
            f"Failed to load resource: the server responded with a status of {answer.status} (Not "
            "Found)"
        )
    ]
    assert problems == ([] if answer.ok else expected)
    assert [url for url in elsewhere if not url.startswith("data:")] == []
    context.close()


def texts(page: Any, selector: str) -> list[str]:
    """What a person reads in these elements, with single spaces."""
    return [" ".join(text.split()) for text in page.locator(selector).all_inner_texts()]


def expect_text(page: Any, selector: str, text: str) -> None:
    """Wait until the element says this."""
    playwright.expect(page.locator(selector)).to_have_text(text, timeout=PATIENCE)


def expect_count(page: Any, selector: str, count: int) -> None:
    """Wait until there are so many of these elements."""
    playwright.expect(page.locator(selector)).to_have_count(count, timeout=PATIENCE)


# -- what everybody sees

BROKEN_WORDS = """
() => {
  const broken = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!parent.checkVisibility() || parent.closest("pre, .hide, .uplot")) continue;
    for (const match of node.data.matchAll(/[\\p{L}\\p{N}_]{2,}/gu)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      // Headings of a table that is a list on a narrow window are outside of it, for screen \
readers.
      const rects = [...range.getClientRects()].filter((one) => one.right > 0);
      const rows = new Set(rects.map((one) => Math.round(one.top)));
      // An id that is longer than its cell may be broken, and nothing else.
      const isId = match[0].length >= 30 || (match[0].length >= 16 && /\\d/.test(match[0]));
      if (rows.size > 1 && !isId) broken.push(match[0] + " in " + parent.outerHTML.slice(0, 120));
    }
  }
  return broken;
}
"""


@pytest.mark.parametrize("path", PAGES)
def test_no_word_is_broken_and_no_page_is_wider_than_its_window(
    path: str, browser: Any, address: str
) -> None:
    with opened(browser, f"{address}{path}") as page:
        for width in (1440, 1024, 768, 390, 320):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(BROKEN_WORDS) == [], width
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_broken_word_is_noticed(browser: Any, address: str) -> None:
    with opened(browser, f"{address}/clusters/prod") as page:
        page.evaluate(
            "document.querySelector('h1').style.cssText = "
            "'display:block;width:2ch;overflow-wrap:anywhere'"
        )
        assert any(word.startswith("prod in") for word in page.evaluate(BROKEN_WORDS))


#: Every page in one width and scheme each, and those with all kinds of elements in the others.
AXE_RUNS = (
    (1440, False, PAGES[:-1]),
    (390, True, PAGES[:-1]),
    (1440, True, PAGES[:4]),
    (390, False, PAGES[:4]),
)


@pytest.mark.parametrize(("width", "dark", "paths"), AXE_RUNS)
def test_axe_has_nothing_to_say(
    width: int, dark: bool, paths: tuple[str, ...], browser: Any, address: str
) -> None:
    with opened(browser, f"{address}/", width, dark=dark, bypass_csp=True) as page:
        seen = 0
        for path in paths:
            page.goto(f"{address}{path}")
            page.evaluate(
                "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
            )
            assert axe_violations(page) == [], path
            seen += 1
        assert seen == len(paths) >= 4


def test_axe_has_nothing_to_say_without_script(browser: Any, address: str) -> None:
    # Playwright evaluates axe in the page although the page's own scripts do not run.
    with opened(browser, f"{address}/clusters/prod", java_script_enabled=False) as page:
        assert page.locator("figure").first.is_hidden()
        assert page.locator(".copy").first.is_hidden()
        assert texts(page, "#clock") == ["11:06:40 UTC"]
        page.locator("summary", has_text="The same as a table").click()
        assert texts(page, ".numbers thead th") == [
            "From",
            "Ready",
            "Wanted",
            "Waiting",
            "cpu",
            "Memory",
            "Cost",
        ]
        assert len(texts(page, ".numbers tbody tr")) in (24, 25)
        assert len(texts(page, ".marks li")) == 5
        page.locator(".seg a", has_text="14 d").click()
        expect_text(page, "#charts", "Last 14 days")
        page.goto(f"{address}/clusters/prod/nodes")
        page.select_option("#reason", "BlockedByPod")
        page.locator("button", has_text="Show").click()
        expect_count(page, ".nodes tbody tr", 4)


def axe_violations(page: Any) -> list[str]:
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE.read_text("utf-8"))
    results = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in results["violations"]]


def test_axe_is_the_published_one_with_its_licence() -> None:
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == AXE_SHA256
    assert "Mozilla Public License" in (AXE.parent / "LICENSE").read_text("utf-8")


# -- charts


def test_charts_have_axes_units_and_marks(browser: Any, address: str) -> None:
    with opened(browser, f"{address}/clusters/prod") as page:
        assert [
            figure.get_attribute("data-chart") for figure in page.locator("figure:visible").all()
        ] == [
            *("nodes", "shares", "pods", "cost"),
        ]
        assert texts(page, "figcaption")[0] == "Nodes ready wanted ▲ grew ▼ removed"
        drawn = page.evaluate(
            "[...document.querySelectorAll('canvas')].map((one) => one.width > 200)"
        )
        assert drawn == [True] * 4
        assert page.locator(".mark.up").count() == 3
        assert page.locator(".mark.down").count() == 2
        title = page.locator(".mark.up").first.get_attribute("title")
        assert (
            title.replace("\u00a0", " ")
            == "11:00: web grew from 10 to 12 for 9 pods, in 1 min 28 s"
        )


def test_chart_says_its_value_on_hover_and_on_focus_in_local_time(
    browser: Any, address: str
) -> None:
    with opened(browser, f"{address}/clusters/prod") as page:
        plot = page.locator("[data-chart=nodes] .plot")
        plot.scroll_into_view_if_needed()
        box = plot.locator(".u-over").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
        value = page.locator("[data-chart=nodes] .value")
        assert re.fullmatch(r"0\d:\d\d CET · ready 12 · wanted 12.*", value.inner_text())
        assert re.fullmatch(
            r"0\d:\d\d CET · cpu \d+% · memory \d+%",
            page.locator("[data-chart=shares] .value").inner_text(),
        )
        page.reload()
        plot.focus()
        assert value.inner_text() == "12:05 CET · ready 19 · wanted 22"
        page.keyboard.press("ArrowLeft")
        assert value.inner_text() == "12:00 CET · ready 19 · wanted 19"
        assert plot.get_attribute("aria-valuetext") == value.inner_text()
        page.keyboard.press("Home")
        assert value.inner_text().startswith("Yesterday 12:10 CET · ready")
        page.keyboard.press("Tab")
        assert value.inner_text() == ""


def test_chart_of_costs_has_the_currency(browser: Any, address: str) -> None:
    with opened(browser, f"{address}/clusters/prod") as page:
        page.locator("[data-chart=cost] .plot").focus()
        assert page.locator("[data-chart=cost] .value").inner_text() == "12:05 CET · an hour $3.13"


@pytest.mark.parametrize(
    ("zone", "says"), [("America/New_York", "06:06:40 EST"), ("Asia/Kolkata", "16:36:40 GMT+5:30")]
)
def test_times_are_those_of_the_reader(zone: str, says: str, browser: Any, address: str) -> None:
    with opened(browser, f"{address}/clusters/prod", timezone_id=zone) as page:
        assert texts(page, "#clock") == [says]


# -- choices and filters, in place


def in_place(page: Any) -> bool:
    """Whether the document is still the one that was marked by `mark`."""
    return bool(page.evaluate("window.marked === true"))


@pytest.mark.parametrize(
    ("choice", "heading"), [("1 h", "Last hour"), ("7 d", "Last 7 days"), ("14 d", "Last 14 days")]
)
def test_span_of_the_charts_is_chosen_in_place(
    choice: str, heading: str, browser: Any, address: str
) -> None:
    with opened(browser, f"{address}/clusters/prod") as page:
        page.evaluate("window.marked = true")
        page.get_by_role("link", name=choice, exact=True).press("Enter")
        page.locator("#charts", has_text=heading).wait_for()
        assert in_place(page)
        assert (
            page.locator("[aria-label='Span of the charts'] [aria-current]").inner_text() == choice
        )
        # the keyboard stays where it was
        assert page.evaluate("document.activeElement.textContent") == choice
        assert page.locator("canvas").count() == 4
        page.reload()
        assert texts(page, "#charts") == [heading]


def test_groups_and_events_are_filtered_in_place(browser: Any, address: str) -> None:
    with opened(browser, f"{address}/clusters/prod") as page:
        page.evaluate("window.marked = true")
        assert len(texts(page, ".groups tbody tr")) == 4
        page.get_by_role("link", name="with a problem (1)").click()
        expect_count(page, ".groups tbody tr", 1)
        page.get_by_role("link", name="people").click()
        expect_count(page, ".events li", 3)
        assert len(texts(page, ".groups tbody tr")) == 1  # the other choice stays
        assert in_place(page)


def test_clusters_are_searched_while_typing(browser: Any, address: str) -> None:
    with opened(browser, f"{address}/") as page:
        page.locator("#q").press_sequentially("sta")
        expect_count(page, ".clusters tbody tr", 1)
        assert texts(page, ".clusters tbody th") == ["staging"]
        assert page.evaluate("document.activeElement.id") == "q"
        assert page.locator("#q").input_value() == "sta"
        assert page.url.endswith("/?q=sta")
        page.locator("#q").fill("")
        expect_count(page, ".clusters tbody tr", 5)


def test_nodes_are_filtered_by_a_choice_without_a_button(browser: Any, address: str) -> None:
    with opened(browser, f"{address}/clusters/prod/nodes") as page:
        page.evaluate("window.marked = true")
        page.select_option("#reason", "BlockedByPod")
        expect_count(page, ".nodes tbody tr", 4)
        assert in_place(page)


def test_pages_are_reached_by_links_and_keys(browser: Any, address: str) -> None:
    with opened(browser, f"{address}/") as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the content"
        page.get_by_role("link", name="prod").click()
        page.get_by_role("link", name="every group's reason").click()
        expect_text(page, "h1", "Waiting pods of prod")
        page.get_by_role("link", name="History").click()
        page.get_by_role(
            "link", name="why: web grew from 10 to 12 for 9 pods, in 1 min 28 s"
        ).click()
        expect_text(page, "h1", "Decision of 10:58")
        assert "outscaler replay plan-a5 --cluster prod" in texts(page, "code")


# -- copying and reloading


def test_command_is_copied_by_its_button(browser: Any, address: str) -> None:
    with opened(
        browser, f"{address}/clusters/prod", permissions=["clipboard-read", "clipboard-write"]
    ) as page:
        button = page.get_by_role("button", name="copy: outscaler retry prod group gpu")
        button.click()
        page.locator(".copy", has_text="copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == "outscaler retry prod group gpu"


def test_page_reloads_itself_until_it_is_told_to_stop(browser: Any, store: Store) -> None:
    clock = ManualClock(NOW)
    with served(store, clock) as address, opened(browser, f"{address}/") as page:
        page.clock.install()
        page.goto(f"{address}/clusters/prod")
        page.locator("summary", has_text="The same as a table").click()
        clock.advance(30.0)
        page.clock.fast_forward(30_000)
        page.locator("#clock", has_text="12:07:10 CET").wait_for()
        # what was opened stays open
        assert page.locator("#numbers").get_attribute("open") is not None
        page.get_by_role("button", name="stop").click()
        clock.advance(30.0)
        page.clock.fast_forward(90_000)
        page.get_by_role("button", name="reload").wait_for()
        assert texts(page, "#clock") == ["12:07:10 CET"]
        page.get_by_role("button", name="reload").click()
        page.locator("#clock", has_text="12:07:40 CET").wait_for()


# -- names of any length


def test_names_of_any_length_widen_no_page(browser: Any) -> None:
    store, name = example(), "x" * 200
    reason = Reason.of(ReasonCode.UNEXPECTED, detail=name)
    plan = msgspec.structs.replace(
        busy_plan(),
        at=NOW - 50,
        groups=(GroupVerdict(name, "clusterapi", 0, 5, 1, skipped=reason),),
        unremovable=(NodeVerdict(f"ip-10-0-0-1.{name}", reason, name),),
        unschedulable=(UnschedulablePods((f"ns/{name}",), {name: (reason,)}, 1),),
    )
    decided(store, "prod", plan, NOW - 5)
    store.journal.append(
        "prod", JournalEntry(at=NOW - 1, kind="operation", group=name, facts={"message": name})
    )
    with served(store) as address, opened(browser, f"{address}/") as page:
        for path in ("", "/nodes", "/pods", "/history", f"/groups?group={name}"):
            page.goto(f"{address}/clusters/prod{path}")
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, path
                assert page.evaluate(BROKEN_WORDS) == [], path
