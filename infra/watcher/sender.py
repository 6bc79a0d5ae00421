"""Sends posts of the watcher to the webhook, signed as Kubernetes events are."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from chalicelib.kube.errors import clean
from chalicelib.model.errors import MALFORMED, OutscalerError
from chalicelib.model.watcher_post import WatcherPost
from chalicelib.net.http_exchange import ExchangeBounds, NoReply, Reply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession
from chalicelib.providers.http import retry_after
from chalicelib.runtime.webhook_signature import SIGNATURE, TIMESTAMP, sign
from infra.watcher.settings import WatcherSettings

_BOUNDS = ExchangeBounds(connect=5.0, read=20.0, total=30.0, bytes=2**14)
_LONGEST = 300  # characters of a problem


class _Refusal(msgspec.Struct, frozen=True):
    error: str


class NotPosted(OutscalerError):
    """The webhook did not accept a post. retry_after: seconds that it asks to wait, 0.0 where it does not."""

    def __init__(self, text: str, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


def sender(settings: WatcherSettings, clock: Callable[[], float] = time.time) -> Callable[[WatcherPost], None]:
    """Return what sends a post. It raises NotPosted, and BadInput for the webhook's secret. clock: epoch seconds."""
    session = BoundedSession()
    session.mount("https://", BoundedAdapter(settings.trusted))

    def post(made: WatcherPost) -> None:
        now, body = str(int(clock())), made.body()
        signature = sign(settings.webhook_key(), settings.cluster, now, body)
        headers = {"Content-Type": "text/plain", TIMESTAMP: now, SIGNATURE: signature}
        try:
            reply = exchange(session, Request("POST", settings.url, headers, {}, body), _BOUNDS)
        except NoReply as error:
            raise NotPosted(f"{settings.url} gives no answer ({error.kind})") from None
        if reply.status != 202:
            asked = retry_after(reply.headers.get("retry-after", ""), clock())
            raise NotPosted(f"{settings.url} answers {reply.described()}{_problem(reply)}", asked)

    return post


def _problem(reply: Reply) -> str:
    """Return what the webhook says about the post, if it says so in its own form."""
    try:
        return f": {clean(msgspec.json.decode(reply.body, type=_Refusal).error)[:_LONGEST]}"
    except MALFORMED:
        return ""
