"""Check of the deployment's webhook: a signed event that wakes nothing must be answered as accepted.

The event has the reason OutscalerDoctor, which no policy lists, so the webhook counts it and requests no pass.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

import msgspec

from chalicelib.command.doctor.context import DoctorContext
from chalicelib.command.doctor.finding import Finding, Severity
from chalicelib.model.errors import MALFORMED, BadInput, OutscalerError
from chalicelib.model.policy_permissions import DEFAULT_PREFIX
from chalicelib.net.http_exchange import ExchangeBounds, NoReply, Request, exchange
from chalicelib.net.http_session import BoundedAdapter, BoundedSession
from chalicelib.runtime.webhook_signature import SIGNATURE, TIMESTAMP, read_keys, sign

REASON = "OutscalerDoctor"
_BOUNDS = ExchangeBounds(connect=5.0, read=10.0, total=15.0, bytes=2**16)


class _WebhookAnswer(msgspec.Struct, frozen=True):
    accepted: int = -1
    matched: int = -1
    woken: bool = True


def check_webhook(context: DoctorContext) -> Sequence[Finding]:
    """DR28: the webhook at context.webhook_url does not accept a signed event."""
    name, secret = context.policy.name, context.policy.webhook.secret
    if not context.webhook_url:
        if not secret:
            return ()
        return (_finding(Severity.UNASKED, "the webhook was not asked", "give its address with --webhook URL"),)
    if not secret:
        text = f"the policy of {name} has no webhook secret, so the webhook accepts no events"
        prefix = context.policy.kubernetes.kubeconfig_secret.rpartition(f"{name}/")[0] or DEFAULT_PREFIX
        return (_finding(Severity.ERROR, text, f"spec.webhook: {{secret: {prefix}{name}/webhook}}"),)
    try:
        keys = read_keys(context.read_secret(secret), secret)
    except OutscalerError as error:
        return (_finding(Severity.UNASKED, f"the webhook's secret was not read: {error}", "--secret NAME=FILE"),)
    if not keys.hmac:
        return (_finding(Severity.UNASKED, "the webhook's secret has no key for signatures", "add one as hmac"),)
    return _asked(context, keys.hmac[0])


def _asked(context: DoctorContext, key: bytes) -> Sequence[Finding]:
    name, now = context.policy.name, str(int(context.clock()))
    event = {"kind": "Event", "reason": REASON, "type": "Normal", "message": "sent by outscaler doctor"}
    body = json.dumps(event).encode()
    headers = {"Content-Type": "application/json", TIMESTAMP: now, SIGNATURE: sign(key, name, now, body)}
    url = f"{context.webhook_url.rstrip('/')}/clusters/{quote(name, safe='')}/events"
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # a bracket that is not closed
        scheme = ""
    if scheme not in ("https", "http"):
        raise BadInput(
            "--webhook", "is not an address", "write it like https://ID.execute-api.REGION.amazonaws.com/api"
        )
    session = BoundedSession()
    session.mount(f"{scheme}://", BoundedAdapter(ssl.create_default_context))
    try:
        answer = exchange(session, Request("POST", url, headers, {}, body), _BOUNDS)
    except NoReply as error:
        text = f"{url} gives no answer ({error.kind})"
        return (_finding(Severity.ERROR, text, "correct the address, and look at the function's log"),)
    finally:
        session.close()
    if answer.status != 202:
        return (_finding(Severity.ERROR, f"{url} answers {answer.status}", _FIXES.get(answer.status, _LOG)),)
    try:
        found = msgspec.json.decode(answer.body, type=_WebhookAnswer)
    except MALFORMED:
        found = _WebhookAnswer()
    if found != _WebhookAnswer(accepted=1, matched=0, woken=False):
        return (_finding(Severity.ERROR, f"{url} is not the webhook of Outscaler", "correct the address"),)
    return ()


_LOG = "look at the log of the function behind the API"
_FIXES = {
    401: "store the same secret for the sender and in the policy's webhook secret, and compare the clocks",
    403: "remove the authoriser, or the resource policy, from the webhook's route",
    404: "apply the policy first, and compare the address with the deployment's",
    429: _LOG,
}


def _finding(severity: Severity, message: str, fix: str) -> Finding:
    return Finding(id="DR28", severity=severity, subject="webhook", message=message, fix=fix)
