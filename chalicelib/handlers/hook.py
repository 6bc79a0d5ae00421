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
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.dispatch.guard import permitted
from chalicelib.dispatch.messages import RECONCILE, Cause, ReconcileMessage, encode
from chalicelib.dispatch.send import whole_delay
from chalicelib.handlers.answer import Answer, Refused
from chalicelib.handlers.log import logger
from chalicelib.handlers.runtime import Runtime
from chalicelib.handlers.webhook.doors import Door
from chalicelib.handlers.webhook.matter import matters
from chalicelib.handlers.webhook.parse import parse
from chalicelib.handlers.webhook.verify import SKEW, Knock, Verdict, verify
from chalicelib.model.errors import BadInput
from chalicelib.model.policy import Policy

MAX_BODY = 256 * 1024
MAX_GAPS = 20

_NOT_ACCEPTED = (
    "Authorization: not accepted; sign timestamp.body into X-Outscaler-Timestamp and X-Outscaler-Signature: sha256=…, "
    "each with the cluster's webhook secret and a fresh timestamp, or send Authorization: Bearer"
)


def handle(cluster: str, headers: Mapping[str, str], body: bytes, rt: Runtime) -> Answer:
    """POST /clusters/{cluster}/events. headers: names in any case. body: the bytes as sent.

    202 {"accepted": n, "matched": m, "woken": bool}; where some of several events could not be read also "unread": how
    many, and "gaps": a line each for the first of them. Raises Refused for 401, 404 and 413, BadInput for 400,
    StoreError and NotSent where the table or the queue fails.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    _check_size(lower, body)
    door = rt.doors.at(cluster)
    knock = verify(lower, body, door.keys, rt.doors.decoy, rt.clock())
    policy = _admitted(cluster, door, knock, rt)
    try:
        heard = parse(body)
    except BadInput as bad:
        logger.warning("webhook body refused", cluster=policy.name, detail=str(bad))
        raise
    matched = sum(matters(signal, policy.webhook.reasons) for signal in heard.signals)
    woken = matched > 0 and permitted(policy).plan and _wake(policy, rt)
    logger.info("webhook", cluster=policy.name, accepted=len(heard.signals), matched=matched, woken=woken)
    gaps = {"gaps": list(heard.gaps[:MAX_GAPS]), "unread": len(heard.gaps)} if heard.gaps else {}
    return Answer(202, {"accepted": len(heard.signals), "matched": matched, "woken": woken, **gaps})


def _check_size(headers: Mapping[str, str], body: bytes) -> None:
    declared = headers.get("content-length", "").strip()
    size = max(len(body), int(declared) if declared.isascii() and declared.isdigit() else 0)
    if size > MAX_BODY:
        raise Refused(413, f"body: {size} bytes; post at most {MAX_BODY} at a time")


def _admitted(cluster: str, door: Door, knock: Knock, rt: Runtime) -> Policy:
    """The policy of the cluster whose door was opened; Refused says 404 or 401, and only the log says why."""
    if not door.known:
        raise Refused(404, f"clusters/{cluster[:64]}: not known; store its policy first (outscaler apply)")
    verdict = knock.verdict
    policy = door.policy
    if verdict is not Verdict.ACCEPTED or policy is None:
        logger.warning("webhook refused", cluster=cluster, cause=verdict.value)
        raise Refused(401, _NOT_ACCEPTED)
    if knock.signature and not rt.store.debounce.first_use(cluster, knock.signature, 2 * SKEW):
        logger.warning("webhook refused", cluster=cluster, cause="signature was used before")
        raise Refused(401, _NOT_ACCEPTED)
    return policy


def _wake(policy: Policy, rt: Runtime) -> bool:
    """Whether this event is the first of its window, and so sends the message that ends it."""
    window = policy.webhook.debounce
    if window > 0 and not rt.store.debounce.wake(policy.name, window):
        return False
    due = rt.clock() + window
    message = ReconcileMessage(cluster=policy.name, reason=Cause.WEBHOOK.value, at=due)
    rt.sender.send(RECONCILE, encode(message), whole_delay(window))
    return True
