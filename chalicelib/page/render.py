"""Renders the templates, with the headers that keep foreign text from becoming more than text.

Jinja2 escapes every expression, and `finalized` (text.py) bounds it before. The one style sheet is part of each page
and permitted by its hash: no script, no style attribute and no other source is.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chalicelib.model.quantity import format_duration
from chalicelib.model.timestamps import format_time
from chalicelib.page.links import Links
from chalicelib.page.text import finalized

HERE = Path(__file__).parent / "templates"


def render(template: str, links: Links, now: float, values: dict[str, Any]) -> str:
    """Return the page. values: of the template; `links`, `now`, `style` are added."""
    return environment().get_template(template).render(**values, links=links, now=now, style=Markup(style()))  # noqa: S704


@functools.cache
def environment() -> Environment:
    """Return the environment of the templates; the same for all pages."""
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(instant=_instant, ago=ago)
    return made


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


def _instant(at: float) -> str:
    return format_time(at) if at > 0 else ""


def ago(at: float, now: float) -> str:
    """Return `22s ago`, `in 3m` or `never`."""
    if at <= 0:
        return "never"
    away = format_duration(float(round(abs(now - at))))
    return f"{away} ago" if at <= now else f"in {away}"
