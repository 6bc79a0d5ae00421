"""The hosted status page: sessions, and the pages behind them. It exists where the deployment names a key for it.

Without a session every path gets the same answer, whether its cluster exists or not. The package of the pages is
imported when it is first needed, because it is of no use to the webhook.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from chalicelib.dispatch.messages import cluster_name_ok
from chalicelib.handlers.http_response import HttpError, HttpResponse, refuse_newer_schema
from chalicelib.handlers.page_session import (
    COOKIE,
    LINK,
    LINK_FOR,
    SESSION,
    SESSION_FOR,
    PageGrant,
    checked,
    keys_of,
    new_grant,
    written,
)
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime

if TYPE_CHECKING:
    from chalicelib.page.pages import PageAnswer

ROOT = "/ui"
_REPLACE = "yes"
_BASE = re.compile(r"(/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9$_.+!*'()-]+)*\Z")
"""A stage, or the base path of a custom domain, with the characters that API Gateway permits in both."""
_OPENED = "page link"  # stands for a cluster's name among the things that are used once
_LONGEST_COOKIES = 8000


class LinkRequest(msgspec.Struct, frozen=True):
    """What the browser sends when it opens a link. cookies, site: the headers Cookie and Sec-Fetch-Site. replace: the
    parameter of the query."""

    cookies: str = ""
    site: str = ""
    replace: str = ""


def base_of(path: str, route: str) -> str:
    """Return the path of the page as the browser sees it: ROOT, after the stage or the base path of the domain. path:
    of the request. route: its resource, whose segments end the path. Callers write the path, so one of another shape
    counts for nothing."""
    parts = path.rstrip("/").split("/")
    segments = len(route.strip("/").split("/"))
    before = "/".join(parts[: max(len(parts) - segments, 1)])
    return (before if _BASE.match(before) else "") + ROOT


def session(name: str, runtime: Runtime) -> HttpResponse:
    """Handle POST /ui/session and POST /clusters/{name}/session, whose callers IAM has checked: {"link": the path that
    opens the page, "validFor": seconds}. name: the only cluster that the session shows, "" for all."""
    keys = keys_of(runtime.read_secret(runtime.page_key)) if runtime.page_key else ()
    if not keys:
        raise HttpError(404, "the hosted page is not enabled in this deployment")
    if name and not cluster_name_ok(name):
        raise HttpError(404, f"clusters/{name[:64]}: not known; GET /clusters lists those that are")
    grant = new_grant(runtime.clock(), LINK_FOR, (name,) if name else None)
    code = written(grant, LINK, runtime.store.table.name, keys[0])
    return HttpResponse(200, {"link": f"{ROOT}/open/{code}", "validFor": LINK_FOR})


def open_link(code: str, request: LinkRequest, base: str, runtime: Runtime) -> PageAnswer:
    """Handle GET /ui/open/{code}: set the cookie, and go to the page. A link works once. It replaces a session that
    shows other clusters only if the person chose so on the page that this request returns otherwise, because somebody
    else may have sent the link. base: the path of the page as the browser sees it."""
    return _as_page(lambda: _opened(code, request, base, runtime), base, runtime)


def _opened(code: str, request: LinkRequest, base: str, runtime: Runtime) -> PageAnswer:
    keys = _keys(runtime)
    link = checked(code, LINK, runtime.store.table.name, keys, runtime.clock())
    if link is None:
        return _refused(base, runtime)
    current = _grant(request.cookies, runtime)
    chosen = request.replace == _REPLACE and request.site == "same-origin"
    if current is not None and current.clusters != link.clusters and not chosen:
        return _choice(current, link, base, runtime)
    if not runtime.store.debounce.first_use(_OPENED, link.id, 2 * LINK_FOR):
        return _refused(base, runtime)
    grant = new_grant(runtime.clock(), SESSION_FOR, link.clusters)
    cookie = written(grant, SESSION, runtime.store.table.name, keys[0])
    attributes = f"Secure; HttpOnly; SameSite=Lax; Path=/; Max-Age={SESSION_FOR:.0f}"
    return _plain(303, {"Location": _start(link, base), "Set-Cookie": f"{COOKIE}={cookie}; {attributes}"})


def _choice(current_grant: PageGrant, link_grant: PageGrant, base: str, runtime: Runtime) -> PageAnswer:
    """Return the page that asks whether a link replaces the session. The link is not used yet."""
    from chalicelib.page.pages import page_of
    from chalicelib.page.render import Links

    values = {
        "title": "Another session is open",
        "current": _extent(current_grant),
        "offered": _extent(link_grant),
        "stay": _start(current_grant, base),
        "replace": f"?replace={_REPLACE}",
    }
    return page_of("replace.html", Links(base), runtime.clock(), 409, values)


def _start(grant: PageGrant, base: str) -> str:
    return base if grant.clusters is None else f"{base}/clusters/{grant.clusters[0]}"


def _extent(grant: PageGrant) -> str:
    return "all clusters" if grant.clusters is None else f"cluster {', '.join(grant.clusters)}"


def show(path: str, query: Mapping[str, str], cookies: str, base: str, runtime: Runtime) -> PageAnswer:
    """Handle GET /ui and the pages below. path: of the page, without the base. cookies: the header Cookie."""
    return _as_page(lambda: _shown(path, query, cookies, base, runtime), base, runtime)


def _shown(path: str, query: Mapping[str, str], cookies: str, base: str, runtime: Runtime) -> PageAnswer:
    grant = _grant(cookies, runtime)
    if grant is None:
        return _refused(base, runtime)
    from chalicelib.page.pages import PageRequest, respond
    from chalicelib.page.render import Links

    refuse_newer_schema(runtime)
    permitted = None if grant.clusters is None else frozenset(grant.clusters)
    return respond(runtime.store, PageRequest(path, query, permitted), runtime.clock(), Links(base), runtime.deployment)


def _grant(cookies: str, runtime: Runtime) -> PageGrant | None:
    if len(cookies) > _LONGEST_COOKIES:
        return None
    # http.cookies drops every cookie where one of another page is malformed.
    pairs = (part.strip().partition("=") for part in cookies.split(";"))
    text = next((value for name, _, value in pairs if name == COOKIE), "")
    return checked(text, SESSION, runtime.store.table.name, _keys(runtime), runtime.clock()) if text else None


def _keys(runtime: Runtime) -> tuple[bytes, ...]:
    """Return the keys for callers without credentials: none where the secret cannot be read, because the error names
    the account."""
    try:
        return keys_of(runtime.read_secret(runtime.page_key)) if runtime.page_key else ()
    except BadInput as bad:
        logger.error("the key of the hosted page cannot be read", **failure(bad))
        return ()


def _as_page(work: Callable[[], PageAnswer], base: str, runtime: Runtime) -> PageAnswer:
    """Return the page; status 503 where AWS does not respond."""
    try:
        return work()
    except OutscalerError as error:
        from chalicelib.page.pages import failed
        from chalicelib.page.render import Links

        logger.error("page failed", **failure(error))
        line = error.line if isinstance(error, HttpError) else "The page is temporarily unavailable. Reload it."
        return failed(Links(base), runtime.clock(), 503, line)


def _refused(base: str, runtime: Runtime) -> PageAnswer:
    from chalicelib.page.pages import failed
    from chalicelib.page.render import Links

    if not runtime.page_key:
        return failed(Links(base), runtime.clock(), 404, "There is no such page.")
    line = "This page needs a session: outscaler ui --hosted opens one."
    return failed(Links(base), runtime.clock(), 401, line)


def _plain(status: int, headers: Mapping[str, str]) -> PageAnswer:
    from chalicelib.page.pages import PageAnswer
    from chalicelib.page.render import security_headers

    return PageAnswer(status, b"", security_headers() | dict(headers))
