"""Kubernetes events -> verified, debounced wake-up.

A wake-up is one delayed message. The first event that matters opens a window (spec.webhook.debounce) in the table and
sends a message that becomes visible when the window has closed; everything else within it finds the window open and
sends nothing:

    events      x xxx  xx                x
    window      [==========)             [==========)
    message                v                        v
    pass                   |— snapshot … |          |—

So 1,000 events in a second are one pass, and no event is lost: whatever happened inside the window happened before the
snapshot of the pass at its end, and the first event after it opens the next. A pass that is running when the message
arrives is no reason to drop it (its snapshot may be older than the event): handlers/reconciling.py keeps it for later.

A signature counts once, and it is noted last: a request that ended in 503 or 400 was not served, and the sender may
repeat it byte for byte, however it ended (a function that is killed could take back nothing). A window whose message
the queue refused is closed again for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.dispatch.messages import Cause
from chalicelib.dispatch.mode_guard import permitted
from chalicelib.handlers.http_response import HttpError, HttpResponse
from chalicelib.handlers.webhook.event_filter import is_relevant
from chalicelib.handlers.webhook.event_parser import parse
from chalicelib.handlers.webhook.signature import SKEW, AuthResult, WebhookAuth, verify
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy
from chalicelib.runtime.active_policy import instant
from chalicelib.runtime.log import logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.wakeup import cancel_request, request_reconcile
from chalicelib.runtime.webhook_credentials import ClusterCredentials
from chalicelib.store.errors import StoreError

MAX_BODY = 256 * 1024
MAX_GAPS = 20

_NOT_KNOWN = "not known; store its policy first (outscaler apply)"
_USED = "signature was used before"
_NOT_ACCEPTED = (
    "Authorization: not accepted; sign the path, timestamp and body into X-Outscaler-Signature: v2=… with the "
    "cluster's webhook secret, send a fresh X-Outscaler-Timestamp with it, or send Authorization: Bearer"
)


def handle(cluster: str, headers: Mapping[str, str], body: bytes, rt: Runtime) -> HttpResponse:
    """POST /clusters/{cluster}/events. headers: names in any case. body: the bytes as sent.

    202 {"accepted": n, "matched": m, "woken": bool}; where some of several events could not be read also "unread": how
    many, and "gaps": a line each for the first of them. Raises Refused for 401, 404 and 413, BadInput for 400,
    StoreError and NotSent where the table or the queue fails, NewerSchema where a newer release has written the table.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    _check_size(lower, body)
    door = rt.webhook_credentials.for_cluster(cluster)
    knock = verify(cluster, lower, body, door.keys, rt.webhook_credentials.decoy, rt.clock())
    if knock.verdict is AuthResult.WRONG and (changed := rt.webhook_credentials.again(cluster)) is not None:
        knock = verify(cluster, lower, body, changed.keys, rt.webhook_credentials.decoy, rt.clock())
    policy = _admitted(cluster, door, knock, rt)
    try:
        heard = parse(body)
    except BadInput as bad:
        logger.warning("webhook body refused", cluster=policy.name, detail=str(bad))
        raise
    matched = sum(is_relevant(signal, policy.webhook.reasons) for signal in heard.signals)
    looked_at = permitted(instant(policy, rt.clock())).plan  # a door is kept for a while, a schedule is of now
    woken = matched > 0 and looked_at and request_reconcile(policy, Cause.WEBHOOK, rt)
    _note(policy, knock, rt)
    logger.info("webhook", cluster=policy.name, accepted=len(heard.signals), matched=matched, woken=woken)
    gaps = {"gaps": list(heard.gaps[:MAX_GAPS]), "unread": len(heard.gaps)} if heard.gaps else {}
    return HttpResponse(202, {"accepted": len(heard.signals), "matched": matched, "woken": woken, **gaps})


def _check_size(headers: Mapping[str, str], body: bytes) -> None:
    if max(len(body), _declared(headers)) > MAX_BODY:
        raise HttpError(413, f"body: more than {MAX_BODY} bytes; post less at a time")


def _declared(headers: Mapping[str, str]) -> int:
    """Content-Length, 0 where it says nothing. Ten digits tell enough; thousands are more than int() reads."""
    digits = headers.get("content-length", "").strip()
    return int(digits.lstrip("0")[:10] or "0") if digits.isascii() and digits.isdigit() else 0


def _admitted(cluster: str, door: ClusterCredentials, knock: WebhookAuth, rt: Runtime) -> Policy:
    """The policy of the cluster whose door was opened; Refused says 404 or 401, and only the log says why."""
    if not door.known:
        raise _refused(cluster, "no such cluster", 404, f"clusters/{_shown(cluster)}: {_NOT_KNOWN}")
    if knock.verdict is not AuthResult.ACCEPTED:
        raise _refused(cluster, knock.verdict.value)
    rt.store.schema.check()  # not before: callers without proof cost no read
    if knock.signature and _is_used(cluster, knock, rt):
        raise _refused(cluster, _USED)
    policy = rt.webhook_credentials.policy(cluster)
    if policy is None:
        raise _refused(cluster, "the stored policy cannot be used")
    return policy


def _is_used(cluster: str, knock: WebhookAuth, rt: Runtime) -> bool:
    """Whether this signature was noted. Releases that knew the older form only noted it in another place: an upgrade
    must not make a signature good for a second time."""
    debounce = rt.store.debounce
    return debounce.used(cluster, knock.signature) or (knock.older and debounce.used_before(cluster, knock.signature))


def _refused(cluster: str, cause: str, status: int = 401, line: str = _NOT_ACCEPTED) -> HttpError:
    """What to raise. Known or not, a refusal leaves one line in the log: writing it takes time, too."""
    logger.warning("webhook refused", cluster=_shown(cluster), cause=cause)
    return HttpError(status, line)


def _shown(cluster: str) -> str:
    """A name that may be anything, as a short line of ASCII."""
    return cluster[:64].encode("ascii", "backslashreplace").decode()[:64]


def _note(policy: Policy, knock: WebhookAuth, rt: Runtime) -> None:
    """The signature is used from now on; Refused if the same request has been served meanwhile."""
    if not knock.signature:
        return
    debounce, by = rt.store.debounce, rt.owner()
    try:
        first = debounce.note(policy.name, knock.signature, 2 * SKEW, by=by)
    except StoreError:
        cancel_request(policy.name, lambda: debounce.forget(policy.name, knock.signature, by=by))
        raise
    if not first:
        raise _refused(policy.name, _USED)
