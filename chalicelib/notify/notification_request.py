"""Posts CloudEvents to an HTTPS address, signed as Standard Webhooks describes it.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

The address comes from a policy. It must be HTTPS; this machine's own addresses and those that are
never reached are refused when the connection is made; redirects are not followed, and the answer is
read up to a limit only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from collections.abc import Callable

from chalicelib.model.errors import OutscalerError
from chalicelib.net.addresses import is_loopback, never
from chalicelib.net.http_exchange import ExchangeBounds, NoReply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession, public_context

CONTENT_TYPE = "application/cloudevents+json; charset=UTF-8"
_BOUNDS = ExchangeBounds(connect=3.0, read=5.0, total=6.0, bytes=2**14)
_PREFIX = "whsec_"


class NotAccepted(OutscalerError):
    """The address did not accept the event."""


Permitted = Callable[[str], bool]


def permitted(loopback: bool) -> Permitted:  # noqa: FBT001 - one fact about the deployment
    """Return which addresses may be connected to. loopback: this machine's own, too,
    for the local emulation."""
    return lambda address: not never(address) and (loopback or not is_loopback(address))


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the value of webhook-signature. secret: as in the store, with or without `whsec_`; its
    base64 form is the key where it has the prefix, otherwise its text is."""
    text = secret.strip()
    key = (
        base64.b64decode(text.removeprefix(_PREFIX)) if text.startswith(_PREFIX) else text.encode()
    )
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


class WebhookSender:
    """Posts to one address after the other. connects: which addresses may be connected to. context:
    TLS settings, the public authorities unless given."""

    def __init__(
        self, connects: Permitted, context: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self._connects, self._context = connects, context or public_context

    def post(self, url: str, secret: str, message_id: str, now: float, body: bytes) -> None:
        """Return when the address answered with 2xx. now: epoch seconds. Raises NotAccepted."""
        timestamp = str(int(now))
        try:
            headers = {
                "Content-Type": CONTENT_TYPE,
                "webhook-id": message_id,
                "webhook-timestamp": timestamp,
                "webhook-signature": signature(secret, message_id, timestamp, body),
            }
        except ValueError:
            raise NotAccepted("the secret is neither text nor whsec_ and base64") from None
        session = BoundedSession()
        session.mount("https://", BoundedAdapter(self._context, allowed=self._connects))
        try:
            answer = exchange(session, Request("POST", url, headers, {}, body), _BOUNDS)
        except NoReply as error:
            raise NotAccepted(error.words) from None
        finally:
            session.close()
        if not 200 <= answer.status < 300:
            raise NotAccepted(f"answered {answer.status}")
