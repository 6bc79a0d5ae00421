"""Handles the webhook: verifies Kubernetes events and turns them into debounced wake-ups, and
stores posts of watchers.

A wake-up is one delayed message. The first relevant event opens a window (spec.webhook.debounce) in
the table and sends a message that becomes visible when the window has closed; every other event
within it finds the window open and sends nothing:

    events      x xxx  xx                x
    window      [==========)             [==========)
    message                v                        v
    pass                   |— snapshot … |          |—

So 1,000 events in a second cause one or two passes, and no event is lost: an event inside the
window precedes the snapshot of the pass at its end, and the first event after it opens the next
window. A first FailedScheduling does not wait for others: its pass begins at once
(runtime/wakeup.py), and waits itself while pods still arrive. A message that arrives during a pass
is not dropped, because the snapshot of that pass may be older than the event:
passes/reconciler.py queues it again.

A signature counts once, and it is recorded last: a request that ended in 503 or 400 was not served,
and the sender may repeat it byte for byte in every case (a function that is killed could not remove
the record). A window whose message the queue refused is closed again for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.cluster.watcher_post import LARGEST_POST, MAGIC, read_post
from chalicelib.functions.http_response import HttpError, HttpResponse
from chalicelib.functions.webhook_events import is_new_refusal, is_relevant, parse
from chalicelib.model.errors import BadInput
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.active_policy import instant
from chalicelib.runtime.log import logger
from chalicelib.runtime.messages import Cause
from chalicelib.runtime.mode_guard import permitted
from chalicelib.runtime.runtime import Runtime
from chalicelib.runtime.wakeup import cancel_request, request_reconcile
from chalicelib.runtime.webhook_authentication import SKEW, AuthResult, WebhookAuth, verify
from chalicelib.runtime.webhook_credentials import ClusterCredentials
from chalicelib.store.errors import StoreError

MAX_BODY = 256 * 1024
MAX_GAPS = 20

_NOT_KNOWN = "not known; store its policy first (outscaler apply)"
_USED = "signature was used before"
_NOT_ACCEPTED = (
    "Authorization: not accepted; sign the path, timestamp and body into X-Outscaler-Signature: "
    "v2=… with the "
    "cluster's webhook secret, send a fresh X-Outscaler-Timestamp with it, or send Authorization: "
    "Bearer"
)


def handle(cluster: str, headers: Mapping[str, str], body: bytes, runtime: Runtime) -> HttpResponse:
    """Handle POST /clusters/{cluster}/events. headers: names in any case. body: the bytes as sent.

    202 {"accepted": n, "matched": m, "woken": bool}; where some of several events could not be
    read, also "unread" (their number) and "gaps" (a line each for the first of them). For the post
    of a watcher see _stored. Raises HttpError for 401, 404 and 413, BadInput for 400, StoreError
    and NotSent where the table or the queue fails, NewerSchema where a newer release has written
    the table.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    posted = body.startswith(MAGIC)
    _check_size(lower, body, LARGEST_POST if posted and runtime.lists else MAX_BODY)
    credentials = runtime.webhook_credentials.for_cluster(cluster)
    auth = verify(
        cluster, lower, body, credentials.keys, runtime.webhook_credentials.decoy, runtime.clock()
    )
    if (
        auth.verdict is AuthResult.WRONG
        and (changed := runtime.webhook_credentials.again(cluster)) is not None
    ):
        auth = verify(
            cluster, lower, body, changed.keys, runtime.webhook_credentials.decoy, runtime.clock()
        )
    policy = _admitted(cluster, credentials, auth, runtime)
    if posted:
        return _stored(policy, auth, body, runtime)
    try:
        events = parse(body)
    except BadInput as bad:
        logger.warning("webhook body refused", cluster=policy.name, detail=str(bad))
        raise
    relevant = [signal for signal in events.signals if is_relevant(signal, policy.webhook.reasons)]
    matched, now = len(relevant), runtime.clock()
    prompt = any(is_new_refusal(signal, now) for signal in relevant)
    # credentials are cached; schedules apply to the current time
    looked_at = permitted(instant(policy, runtime.clock())).plan
    woken = (
        matched > 0
        and looked_at
        and request_reconcile(policy, Cause.WEBHOOK, runtime, prompt=prompt)
    )
    _record_signature(policy, auth, runtime)
    logger.info(
        "webhook", cluster=policy.name, accepted=len(events.signals), matched=matched, woken=woken
    )
    gaps = {"gaps": list(events.gaps[:MAX_GAPS]), "unread": len(events.gaps)} if events.gaps else {}
    return HttpResponse(
        202, {"accepted": len(events.signals), "matched": matched, "woken": woken, **gaps}
    )


def _stored(policy: Policy, auth: WebhookAuth, body: bytes, runtime: Runtime) -> HttpResponse:
    """Store the post of a watcher; 202 {"stored": "base" or "changes", "woken": bool}. Raises as
    handle does, and BucketFailure or ArchiveFailure where the post cannot be stored."""
    # Imported here, because most deployments have no watcher.
    from chalicelib.cluster.list_archive import WatchedLists, list_place

    if not runtime.lists:
        raise BadInput(
            "deployment", "has no place for the lists of watchers", "deploy it with ShareLists"
        )
    if not policy.kubernetes.watcher_secret:
        raise BadInput(
            "spec.kubernetes.watcherSecret",
            "is not set",
            "apply a policy that names the watcher's secret",
        )
    post = read_post(body)
    WatchedLists(list_place(runtime.lists), runtime.clock).store(policy.name, post)
    planned = permitted(instant(policy, runtime.clock())).plan
    woken = False
    if post.wake is not None and planned:
        woken = request_reconcile(policy, Cause.WEBHOOK, runtime, prompt=True)
    _record_signature(policy, auth, runtime)
    logger.info("webhook", cluster=policy.name, stored=post.kind, bytes=len(post.data), woken=woken)
    return HttpResponse(202, {"stored": post.kind, "woken": woken})


def _check_size(headers: Mapping[str, str], body: bytes, most: int) -> None:
    digits = headers.get("content-length", "").strip()
    # Ten digits are enough; int() does not read thousands of digits.
    declared = int(digits.lstrip("0")[:10] or "0") if digits.isascii() and digits.isdigit() else 0
    if max(len(body), declared) > most:
        raise HttpError(413, f"body: more than {most} bytes; post less at a time")


def _admitted(
    cluster: str, credentials: ClusterCredentials, auth: WebhookAuth, runtime: Runtime
) -> Policy:
    """Return the policy of the authenticated cluster. HttpError is 404 or 401,
    and only the log says why."""
    if not credentials.known:
        raise _refused(cluster, "no such cluster", 404, f"clusters/{_shown(cluster)}: {_NOT_KNOWN}")
    if auth.verdict is not AuthResult.ACCEPTED:
        raise _refused(cluster, auth.verdict.value)
    runtime.store.schema.check()  # only now: an unauthenticated caller must not cause a read
    # Releases that knew only the older form recorded a used signature in another place, and an
    # upgrade must not make a signature valid a second time.
    debounce, signature = runtime.store.debounce, auth.signature
    if signature and (
        debounce.used(cluster, signature)
        or (auth.older and debounce.used_before(cluster, signature))
    ):
        raise _refused(cluster, _USED)
    policy = runtime.webhook_credentials.policy(cluster)
    if policy is None:
        raise _refused(cluster, "the stored policy cannot be used")
    return policy


def _refused(cluster: str, cause: str, status: int = 401, line: str = _NOT_ACCEPTED) -> HttpError:
    """Return the error to raise. Every refusal writes one log line, for known and unknown clusters
    alike, because writing takes measurable time."""
    logger.warning("webhook refused", cluster=_shown(cluster), cause=cause)
    return HttpError(status, line)


def _shown(cluster: str) -> str:
    """Return an arbitrary name as a short line of ASCII."""
    return cluster[:64].encode("ascii", "backslashreplace").decode()[:64]


def _record_signature(policy: Policy, auth: WebhookAuth, runtime: Runtime) -> None:
    """Record the signature as used; raises HttpError if the same request has
    been served in the meantime."""
    if not auth.signature:
        return
    debounce, by = runtime.store.debounce, runtime.owner()
    try:
        first = debounce.note(policy.name, auth.signature, 2 * SKEW, by=by)
    except StoreError:
        cancel_request(policy.name, lambda: debounce.forget(policy.name, auth.signature, by=by))
        raise
    if not first:
        raise _refused(policy.name, _USED)
