"""Renders the templates, with the headers that keep foreign text from becoming more than text.

Names of pods, labels, errors of vendors and policies come from others. `finalized` is their only
way onto a page: visible and bounded. Control characters and those that change the direction of
writing are shown as their numbers, because they could hide or reorder what an operator reads. Then
Jinja2 escapes every expression. Scripts and the style sheet come from the page's own origin
(assets.py): no script or style inside a page runs, and no other source is asked.

Times are printed in UTC as <time> elements, which the script rewrites in the reader's time zone.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from chalicelib import DOCS
from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import format_time, parse_time
from chalicelib.page.assets import assets
from chalicelib.reasons import words as in_words
from chalicelib.reasons.text import sentence as reason_sentence
from chalicelib.views.cluster_view import exact
from chalicelib.views.journal_lines import spoken

_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": _CONTENT_POLICY,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
)
"""Of every answer."""
HERE = Path(__file__).parent / "templates"
RUNBOOK = f"{DOCS}/runbook.md"
"""The page that explains every reason and every status."""
LONGEST, BRIEF = 500, 120
"""Characters of one text, and of one in a row of a table; pages of a group have all of it."""

_SAFE = re.compile(r"[\x20-\x7e]*\Z")


class Links(msgspec.Struct, frozen=True):
    """Addresses of the pages and of the runbook. Every name is percent-encoded
    as one segment of a path.

    base: the path before every page. The name of a group is in the query: it may have slashes, and
    API Gateway does not keep an encoded one in a segment of a path.
    """

    base: str = ""

    def start(self) -> str:
        """Return the list of clusters."""
        return self.base or "/"

    def asset(self, name: str) -> str:
        """Return a file of assets.py."""
        return f"{self.base}/static/{assets()[name].name}"

    def cluster(self, name: str, page: str = "", **query: str) -> str:
        """Return a page of a cluster. query: empty values are left out."""
        path = f"{self.base}/clusters/{segment(name)}" + (f"/{page}" if page else "")
        parameters = {key: value for key, value in query.items() if value}
        return f"{path}?{urlencode(parameters)}" if parameters else path

    def group(self, name: str, group: str) -> str:
        """Return the page of a node group."""
        return self.cluster(name, "groups", group=group)

    def runbook(self, anchor: str = "reasons") -> str:
        """Return a heading of the runbook."""
        return f"{RUNBOOK}#{segment(anchor.lower())}"


def segment(name: str) -> str:
    """Return a name as one segment of a path: no character of it can end the segment."""
    return quote(name, safe="") if name not in (".", "..") else quote(name).replace(".", "%2E")


def render(template: str, links: Links, now: float, values: dict[str, Any]) -> str:
    """Return the page. values: of the template; `links` and `now` are added."""
    return environment().get_template(template).render(**values, links=links, now=now)


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
    templates.filters.update(
        age=age,
        ago=ago,
        at=time_of,
        brief=lambda text: shown(text, BRIEF),
        clock=clock,
        counted=in_words.counted,
        duration=duration,
        exact=exact,
        money=money,
        numbers=numbers,
        prose=prose,
        reason=reason_sentence,
        symbol=lambda currency: _SYMBOLS.get(currency, ""),
        typed=typed,
    )
    return templates


def finalized(value: Any) -> Any:
    """Return what a template prints for an expression: markup of the templates themselves stays,
    everything else is shown as text."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else shown(value)


def shown(value: object, longest: int = LONGEST) -> str:
    r"""Return the text as it may be shown: at most `longest` characters, then an ellipsis; control,
    format, surrogate and unassigned characters as \uXXXX."""
    text = str(value)
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    if _SAFE.match(short):
        return short
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character) in hidden else character
        for character in short
    )


_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_CALLER = re.compile(r"\barn:aws[\w-]*:(?:sts|iam)::\d+:(?:[\w+=,.@-]+/)*([\w+=,.@-]+)")
_AMOUNT = re.compile(r"\b\d+ (?:h|min|s)\b(?: \d+ (?:min|s)\b)?")
_TOGETHER = "\u00a0"  # a space at which no line ends: a number stays with its unit
_NUMBERS = re.compile(r"[0-9.,e+-]*\Z")
_SYMBOLS = {"EUR": "€", "GBP": "£", "USD": "$"}


def time_of(instant: float, now: float) -> Markup:
    """Return an instant (epoch seconds) as a time of day, with the day where it is
    not today; `never` for 0.0."""
    if instant <= 0:
        return Markup("never")
    moment, today = (datetime.fromtimestamp(seconds, UTC) for seconds in (instant, now))
    day = {0: "", 1: "Yesterday "}.get(
        (today.date() - moment.date()).days, f"{moment.day} {moment:%b} "
    )
    return _time(instant, f"{day}{moment:%H:%M}", "at")


def ago(instant: float, now: float) -> Markup:
    """Return an instant as `13 s ago`, `in 7 s` or `never`."""
    if instant <= 0:
        return Markup("never")
    return _time(instant, in_words.ago(instant, now, duration), "ago")


def duration(seconds: float) -> str:
    """Return `41 s`, `4 min 25 s`, `3 h 12 min`, `2 d 5 h` or `40 d`."""
    days, rest = divmod(round(seconds), 86400)
    text = spoken(seconds)
    if days:
        text = f"{days} d {rest // 3600} h" if rest >= 3600 and days < 10 else f"{days} d"
    return text.replace(" ", _TOGETHER)


def age(seconds: float) -> str:
    """Return the largest unit of a duration: `5 min`, `16 h` or `3 d`."""
    return _TOGETHER.join(duration(seconds).split(_TOGETHER)[:2])


def prose(text: object, now: float) -> Markup:
    """Return a sentence as it may be shown, with its RFC 3339 instants as times, and the names of
    callers in place of their ARNs."""
    short = _CALLER.sub(lambda match: match[1], shown(text))
    words = _AMOUNT.sub(lambda match: match[0].replace(" ", _TOGETHER), str(escape(short)))
    return Markup(_INSTANT.sub(lambda match: time_of(_epoch(match[0], now), now), words))  # noqa: S704 - escaped above


def clock(now: float) -> Markup:
    """Return the instant of the page (epoch seconds), with seconds."""
    return _time(now, f"{datetime.fromtimestamp(now, UTC):%H:%M:%S} UTC", "clock")


def typed(command: str) -> Markup:
    """Return a command, or a name, with a button that copies it; the button needs the script."""
    text = shown(command)
    words = Markup(" ").join(Markup("<span>{}</span>").format(word) for word in text.split(" "))
    button = Markup(
        '<button type="button" class="copy" aria-label="copy: {}" hidden>copy</button>'
    ).format(text)
    return Markup('<span class="typed"><code>{}</code>{}</span>').format(words, button)


def numbers(values: str) -> Markup:
    """Return numbers with commas, which may be longer than a foreign text."""
    return Markup(values) if _NUMBERS.match(values) else Markup("")  # noqa: S704 - nothing but numbers


def money(amount: float, currency: str) -> str:
    """Return an amount with its currency; cents, or two digits of a smaller amount."""
    symbol = _SYMBOLS.get(currency, "")
    return f"{symbol}{in_words.amount(amount)}" if symbol else in_words.money(amount, currency)


def _time(instant: float, text: str, form: str) -> Markup:
    written = format_time(instant)
    return Markup('<time datetime="{}" data-form="{}" title="{}">{}</time>').format(
        written, form, written, text
    )


def _epoch(written: str, now: float) -> float:
    try:
        return parse_time(written)
    except BadInput:  # a foreign text with a month 13
        return now
