"""Checks of an HTML page: structure, accessibility, and nothing but what the templates have."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "br", "input"})
PERMITTED = frozenset(
    {
        "html",
        "head",
        "meta",
        "title",
        "link",
        "script",
        "body",
        "a",
        "header",
        "span",
        "time",
        "nav",
        "ul",
        "li",
        "main",
        "h1",
        "h2",
        "p",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "svg",
        "rect",
        "line",
        "ol",
        "dl",
        "dt",
        "dd",
        "b",
        "i",
        "h3",
        "small",
        "figure",
        "figcaption",
        "progress",
        "details",
        "summary",
        "div",
        "section",
        "footer",
        "code",
        "pre",
        "form",
        "label",
        "select",
        "option",
        "input",
        "button",
    }
)
SAFE_ATTRIBUTES = frozenset(
    {
        *(
            "action",
            "aria-current",
            "aria-hidden",
            "aria-label",
            "aria-labelledby",
            "autocomplete",
            "charset",
            "class",
        ),
        *(
            "colspan",
            "content",
            "datetime",
            "defer",
            "for",
            "height",
            "hidden",
            "href",
            "id",
            "lang",
            "max",
            "method",
        ),
        *(
            "name",
            "open",
            "preserveaspectratio",
            "rel",
            "role",
            "rx",
            "scope",
            "selected",
            "src",
            "tabindex",
            "title",
        ),
        *("type", "value", "viewbox", "width", "x", "x1", "x2", "y", "y1", "y2"),
        *(
            "data-at",
            "data-begin",
            "data-chart",
            "data-every",
            "data-form",
            "data-live",
            "data-mark",
            "data-name",
        ),
        *("data-now", "data-swap", "data-times", "data-unit"),
        *("data-nodes", "data-wanted", "data-pending", "data-cpu", "data-memory", "data-cost"),
        *("data-nodes-least", "data-nodes-most"),
        *("data-cpu-most", "data-memory-most", "data-cost-most"),
    }
)


class CheckedPage(HTMLParser):
    """Parses a page. problems: what is wrong. elements: how often each element occurs."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.elements: dict[str, int] = {}
        self.links: list[str] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self._ids: set[str] = set()
        self._labels: set[str] = set()
        self._inputs: set[str] = set()
        self.feed(html)
        self.close()
        self._end()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements[tag] = self.elements.get(tag, 0) + 1
        if tag not in PERMITTED:
            self.problems.append(f"element {tag}")
        self.problems += [
            f"attribute {name} of {tag}" for name in found if name not in SAFE_ATTRIBUTES
        ]
        if len(attrs) != len(found):
            self.problems.append(f"an attribute of {tag} occurs twice")
        if tag not in VOID:
            self._open.append(tag)
        if "id" in found:
            if found["id"] in self._ids:
                self.problems.append(f"id {found['id']} occurs twice")
            self._ids.add(found["id"] or "")
        if tag == "th" and "scope" not in found:
            self.problems.append("th without scope")
        if tag == "a":
            self.links.append(found.get("href") or "")
        if tag == "label":
            self._labels.add(found.get("for") or "")
        if tag == "script" and not (found.get("src") or "").startswith(("/static/", "/ui/static/")):
            self.problems.append("a script that is not a file of the pages")
        if tag in ("input", "select") and found.get("type") != "hidden":
            self._inputs.add(found.get("id") or "")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"] and data.strip():
            self.problems.append("a script inside the page")
        self.text.append(data)

    def _end(self) -> None:
        self.problems += [f"{tag} is not closed" for tag in self._open]
        counts = self.elements
        exactly = {"h1": 1, "main": 1, "script": 2}
        self.problems += [
            f"{counts.get(tag, 0)} {tag}" for tag, n in exactly.items() if counts.get(tag, 0) != n
        ]
        if counts.get("table", 0) != counts.get("caption", 0):
            self.problems.append("a table without a caption")
        if self._inputs != self._labels:
            self.problems.append(f"inputs {self._inputs} and labels {self._labels} differ")
        bad = [
            link
            for link in self.links
            if not link.startswith(("/", "?", "#content", "https://github.com/"))
        ]
        self.problems += [f"link {link[:60]}" for link in bad]
