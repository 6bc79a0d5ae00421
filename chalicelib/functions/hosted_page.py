"""The hosted status page: sessions, and the pages behind them. It exists where the
deployment names a key for it.

A browser can sign no request for IAM, so a signed request gets a link that works once, within a
minute. Opening it sets a cookie. Nothing is stored for a session: its end and its clusters are in
the cookie. Both texts are signed, and bound to the deployment and to their own purpose, so one
never stands for the other.

Without a session every path gets the same answer, whether its cluster exists or not; but the
scripts and the style sheet are the same for everybody. The package of the pages is imported when it
is first needed, because it is of no use to the webhook.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from chalicelib.functions.http_response import HttpError, HttpResponse, refuse_newer_schema
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import cluster_name_ok
from chalicelib.runtime.runtime import Runtime

if TYPE_CHECKING:
    from chalicelib.page.routes import PageAnswer

ROOT = "/ui"
_REPLACE = "yes"
_BASE = re.compile(r"(/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9$_.+!*'()-]+)*\Z")
"""A stage, or the base path of a custom domain, with the characters that API
Gateway permits in both."""
_OPENED = "page link"  # stands for a cluster's name among the things that are used once
_LONGEST_COOKIES = 8000
COOKIE = "__Host-outscaler"
LINK_FOR, SESSION_FOR = 60.0, 8 * 3600.0
"""Seconds that a link and a session are valid."""
LONGEST = 3500
"""Characters of a link or a cookie; browsers keep cookies of 4,096 bytes."""
LINK, SESSION = "link", "session"
_LEAST_KEY = 32  # characters
_KEYS = 2  # the one that signs, and the one before it


class PageGrant(msgspec.Struct, frozen=True):
    """What a link or a cookie permits. id: of this one. until: epoch seconds. clusters: that
    may be seen, None for all."""

    id: str
    until: float
    clusters: tuple[str, ...] | None = None


class LinkRequest(msgspec.Struct, frozen=True):
    """What the browser sends when it opens a link. cookies, site: the headers Cookie and
    Sec-Fetch-Site. replace: the parameter of the query."""

    cookies: str = ""
    site: str = ""
    replace: str = ""


def base_of(path: str, route: str) -> str:
    """Return the path of the page as the browser sees it: ROOT, after the stage or the base path of
    the domain. path: of the request. route: its resource, whose segments end the path. Callers
    write the path, so one of another shape counts for nothing."""
    parts = path.rstrip("/").split("/")
    segments = len(route.strip("/").split("/"))
    before = "/".join(parts[: max(len(parts) - segments, 1)])
    return (before if _BASE.match(before) else "") + ROOT


def session(name: str, runtime: Runtime) -> HttpResponse:
    """Handle POST /ui/session and POST /clusters/{name}/session, whose callers IAM has checked:
    {"link": the path that opens the page, "validFor": seconds}. name: the only cluster that the
    session shows, "" for all."""
    keys = keys_of(runtime.read_secret(runtime.page_key)) if runtime.page_key else ()
    if not keys:
        raise HttpError(404, "the hosted page is not enabled in this deployment")
    if name and not cluster_name_ok(name):
        raise HttpError(404, f"clusters/{name[:64]}: not known; GET /clusters lists those that are")
    grant = new_grant(runtime.clock(), LINK_FOR, (name,) if name else None)
    code = written(grant, LINK, runtime.store.table.name, keys[0])
    return HttpResponse(200, {"link": f"{ROOT}/open/{code}", "validFor": LINK_FOR})


def open_link(code: str, request: LinkRequest, base: str, runtime: Runtime) -> PageAnswer:
    """Handle GET /ui/open/{code}: set the cookie, and go to the page. A link works once. It
    replaces a session that shows other clusters only if the person chose so on the page that this
    request returns otherwise, because somebody else may have sent the link. base: the path of the
    page as the browser sees it."""
    return _as_page(lambda: _opened(code, request, base, runtime), base, runtime)


def _opened(code: str, request: LinkRequest, base: str, runtime: Runtime) -> PageAnswer:
    keys = _keys(runtime)
    link = checked(code, LINK, runtime.store.table.name, keys, runtime.clock())
    if link is None:
        raise _used(runtime)
    current = _grant(request.cookies, runtime)
    chosen = request.replace == _REPLACE and request.site == "same-origin"
    if current is not None and current.clusters != link.clusters and not chosen:
        # Ask whether the link replaces the session; it is not used yet.
        from chalicelib.page.render import Links
        from chalicelib.page.routes import page_of

        values = {
            "title": "Another session is open",
            "current": _extent(current),
            "offered": _extent(link),
            "stay": _start(current, base),
            "replace": f"?replace={_REPLACE}",
        }
        return page_of("replace.html", Links(base), runtime.clock(), 409, values)
    # As long as any clock that accepts the link: its use is compared with
    # the same clock as its end.
    counts_for = link.until - runtime.clock() + 2 * LINK_FOR
    from chalicelib.page.render import SECURITY_HEADERS
    from chalicelib.page.routes import PageAnswer

    if not runtime.store.debounce.first_use(_OPENED, link.id, counts_for):
        if current is None or current.clusters != link.clusters:
            raise _used(runtime)
        # The browser that has used it loads it again: its session shows what the link opens.
        return PageAnswer(303, b"", SECURITY_HEADERS | {"Location": _start(link, base)})
    grant = new_grant(runtime.clock(), SESSION_FOR, link.clusters)
    cookie = written(grant, SESSION, runtime.store.table.name, keys[0])
    attributes = f"Secure; HttpOnly; SameSite=Lax; Path=/; Max-Age={SESSION_FOR:.0f}"
    headers = {"Location": _start(link, base), "Set-Cookie": f"{COOKIE}={cookie}; {attributes}"}
    return PageAnswer(303, b"", SECURITY_HEADERS | headers)


def _start(grant: PageGrant, base: str) -> str:
    return base if grant.clusters is None else f"{base}/clusters/{grant.clusters[0]}"


def _extent(grant: PageGrant) -> str:
    return "all clusters" if grant.clusters is None else f"cluster {', '.join(grant.clusters)}"


def show(
    path: str, query: Mapping[str, str], cookies: str, base: str, runtime: Runtime
) -> PageAnswer:
    """Handle GET /ui and the pages below. path: of the page, without the base.
    cookies: the header Cookie."""
    return _as_page(lambda: _shown(path, query, cookies, base, runtime), base, runtime)


def _shown(
    path: str, query: Mapping[str, str], cookies: str, base: str, runtime: Runtime
) -> PageAnswer:
    grant = _grant(cookies, runtime)
    if grant is None:
        raise _refused(runtime)
    from chalicelib.page.render import Links
    from chalicelib.page.routes import PageRequest, respond

    refuse_newer_schema(runtime)
    permitted = None if grant.clusters is None else frozenset(grant.clusters)
    return respond(
        runtime.store,
        PageRequest(path, query, permitted),
        runtime.clock(),
        Links(base),
        runtime.deployment,
    )


def asset(file: str, base: str, runtime: Runtime) -> PageAnswer:
    """Handle GET /ui/static/{file}, which needs no session: it is the same for everybody."""
    return _as_page(lambda: _asset(file, base, runtime), base, runtime)


def _asset(file: str, base: str, runtime: Runtime) -> PageAnswer:
    if not runtime.page_key:
        raise _refused(runtime)
    from chalicelib.page.render import Links
    from chalicelib.page.routes import STATIC, static

    return static(f"{STATIC}{file}", Links(base), runtime.clock())


def _grant(cookies: str, runtime: Runtime) -> PageGrant | None:
    if len(cookies) > _LONGEST_COOKIES:
        return None
    # http.cookies drops every cookie where one of another page is malformed.
    pairs = (part.strip().partition("=") for part in cookies.split(";"))
    text = next((value for name, _, value in pairs if name == COOKIE), "")
    return (
        checked(text, SESSION, runtime.store.table.name, _keys(runtime), runtime.clock())
        if text
        else None
    )


def _keys(runtime: Runtime) -> tuple[bytes, ...]:
    """Return the keys for callers without credentials: none where the secret cannot be read,
    because the error names the account."""
    try:
        return keys_of(runtime.read_secret(runtime.page_key)) if runtime.page_key else ()
    except BadInput as bad:
        logger.error("the key of the hosted page cannot be read", **failure(bad))
        return ()


def _as_page(work: Callable[[], PageAnswer], base: str, runtime: Runtime) -> PageAnswer:
    """Return the page; status 503 where AWS does not respond."""
    try:
        return work()
    except HttpError as refused:
        status, line = refused.status, refused.line
        if status >= 500:
            logger.error("page failed", **failure(refused))
    except OutscalerError as error:
        status, line = 503, "The page is temporarily unavailable. Reload it."
        logger.error("page failed", **failure(error))
    from chalicelib.page.render import Links
    from chalicelib.page.routes import failed

    return failed(Links(base), runtime.clock(), status, line)


def _refused(runtime: Runtime) -> HttpError:
    """Return the error to raise for every path without a session."""
    if not runtime.page_key:
        return HttpError(404, "There is no such page.")
    return HttpError(401, "This page needs a session: outscaler ui --hosted opens one.")


def _used(runtime: Runtime) -> HttpError:
    """Return the error to raise for a link that opens nothing."""
    if not runtime.page_key:
        return _refused(runtime)
    return HttpError(
        401,
        "This link opens nothing any more: it works once, within a minute. Run outscaler ui "
        "--hosted for a new one; on a machine without a login, outscaler login STACK before it.",
    )


def keys_of(secret: str) -> tuple[bytes, ...]:
    """Return the keys in a secret's text: at most two lines, the first of which signs.
    Short lines are no keys."""
    lines = [line.strip() for line in secret.splitlines()]
    return tuple(line.encode() for line in lines if len(line) >= _LEAST_KEY)[:_KEYS]


def new_grant(now: float, lasts: float, clusters: Sequence[str] | None) -> PageGrant:
    """Return a grant with a random id of 128 bits."""
    return PageGrant(
        secrets.token_urlsafe(16), now + lasts, None if clusters is None else tuple(clusters)
    )


def written(grant: PageGrant, purpose: str, deployment: str, key: bytes) -> str:
    """Return the signed text. purpose: LINK or SESSION. deployment: the name of its table."""
    payload = base64.urlsafe_b64encode(msgspec.json.encode(grant)).rstrip(b"=")
    return f"{payload.decode()}.{_signature(payload, purpose, deployment, key)}"


def checked(
    text: str, purpose: str, deployment: str, keys: Sequence[bytes], now: float
) -> PageGrant | None:
    """Return the grant in a text that one of the keys has signed for this purpose and deployment
    and that is still valid; None for any other text."""
    if len(text) > LONGEST or not text.isascii():
        return None
    payload, _, signature = text.partition(".")
    valid = False
    for key in keys:  # all are compared, so that the time does not say which one it was
        valid |= hmac.compare_digest(
            _signature(payload.encode(), purpose, deployment, key), signature
        )
    if not valid:
        return None
    try:
        data = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        grant = msgspec.json.decode(data, type=PageGrant)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return None
    lasts = LINK_FOR if purpose == LINK else SESSION_FOR
    return grant if now < grant.until <= now + lasts + 60.0 else None


def _signature(payload: bytes, purpose: str, deployment: str, key: bytes) -> str:
    signed = b"\n".join((b"outscaler-page", purpose.encode(), deployment.encode(), payload))
    return (
        base64.urlsafe_b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        .rstrip(b"=")
        .decode()
    )
