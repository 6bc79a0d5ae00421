"""Renders the templates, with the headers that keep foreign text from becoming more than text.

Names of pods, labels, errors of vendors and policies come from others. `finalized` is their only way onto a page:
visible and bounded. Control characters and those that change the direction of writing are shown as their numbers,
because they could hide or reorder what an operator reads. Then Jinja2 escapes every expression. The one style sheet is
part of each page and permitted by its hash: no script, no style attribute and no other source is.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import unicodedata
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chalicelib import DOCS
from chalicelib.reasons.text import sentence as reason_sentence
from chalicelib.record.journal_lines import sentence as entry_sentence
from chalicelib.record.views import ago, instant

HERE = Path(__file__).parent / "templates"
RUNBOOK = f"{DOCS}/runbook.md"
"""The page that explains every reason and every status."""
LONGEST = 500
"""Characters of one text."""

_SAFE = re.compile(r"[\x20-\x7e]*\Z")


class Links(msgspec.Struct, frozen=True):
    """Addresses of the pages and of the runbook. Every name is percent-encoded as one segment of a path.

    base: the path before every page, "" on the loopback address. API Gateway does not keep an encoded slash in a
    segment of a path, so below a base the name of a group is in the query.
    """

    base: str = ""

    def start(self, *, live: bool = True) -> str:
        """Return the list of clusters. live: reloads itself."""
        return (self.base or "/") + ("" if live else "?refresh=off")

    def cluster(self, name: str, page: str = "", **query: str) -> str:
        """Return a page of a cluster. query: empty values are left out."""
        path = f"{self.base}/clusters/{segment(name)}" + (f"/{page}" if page else "")
        parameters = {key: value for key, value in query.items() if value}
        return f"{path}?{urlencode(parameters)}" if parameters else path

    def group(self, name: str, group: str) -> str:
        """Return the page of a node group."""
        if self.base:
            return self.cluster(name, "groups", group=group)
        return f"{self.base}/clusters/{segment(name)}/groups/{segment(group)}"

    def runbook(self, anchor: str = "reasons") -> str:
        """Return a heading of the runbook."""
        return f"{RUNBOOK}#{segment(anchor.lower())}"


def segment(name: str) -> str:
    """Return a name as one segment of a path: no character of it can end the segment."""
    return quote(name, safe="") if name not in (".", "..") else quote(name).replace(".", "%2E")


def render(template: str, links: Links, now: float, values: dict[str, Any]) -> str:
    """Return the page. values: of the template; `links`, `now`, `style` are added."""
    return environment().get_template(template).render(**values, links=links, now=now, style=Markup(style()))  # noqa: S704


@functools.cache
def environment() -> Environment:
    """Return the environment of the templates; the same for all pages."""
    templates = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(instant=instant, ago=ago, reason=reason_sentence, entry=entry_sentence)
    return templates


def finalized(value: Any) -> Any:
    """Return what a template prints for an expression: markup of the templates themselves stays, everything else is
    shown as text."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else shown(value)


def shown(value: object, longest: int = LONGEST) -> str:
    r"""Return the text as it may be shown: at most `longest` characters, then an ellipsis; control, format, surrogate
    and unassigned characters as \uXXXX."""
    text = str(value)
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    if _SAFE.match(short):
        return short
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character) in hidden else character for character in short
    )


@functools.cache
def style() -> str:
    """Return the style sheet."""
    return (HERE / "style.css").read_text("utf-8")


@functools.cache
def security_headers() -> dict[str, str]:
    """Return the headers of every answer."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
