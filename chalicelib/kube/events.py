"""Events on the cluster's own objects, as upstream's recorder writes them: `kubectl describe` shows who did what.

Names are made from what is said, not by the server: the same event posted twice (a repeated message, a lost answer) has
the same name, and the second is refused as a duplicate, which is just what is wanted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from chalicelib.kube.client import KubeClient, path_segment
from chalicelib.kube.errors import Conflict
from chalicelib.model.timestamps import format_time

REPORTER = "outscaler"
"""The reporting instance of our events: the component stays upstream's, for the tools that look for it, and the webhook
knows by this that an event is our own (handlers/webhook/matter.py)."""
_TIMEOUT = (3.05, 5.0)  # connect, read: an event is worth no longer a wait
_LONGEST_NAME = 253  # of any object
_LONGEST_MESSAGE = 1024  # the API's limit for a note
# The name's number is an instant in nanoseconds, as upstream's. A float knows it to some 250 ns only, and a pass has
# one `now` for all its events, so its lowest bits (about a millisecond) come from what is said.
_SAID_BITS = 20


def post_event(
    cluster: KubeClient,
    *,
    namespace: str,
    involved: Mapping[str, str],
    reason: str,
    message: str,
    type_: str,
    now: float,
    component: str = "cluster-autoscaler",
) -> None:
    """Post a core/v1 Event. Raises ClusterError; posting the same again is no error.

    namespace: the involved object's, empty for a cluster-scoped one such as a Node (its events are in `default`).
    involved: kind, name, and what is known of apiVersion, namespace, uid, resourceVersion. type_: Normal or Warning.
    """
    home = namespace or "default"
    at = format_time(now)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _name(involved, reason, message, now), "namespace": home},
        "involvedObject": {"apiVersion": "v1", **involved, **({"namespace": namespace} if namespace else {})},
        "reason": reason,
        "message": message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…",
        "type": type_,
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": REPORTER,
    }
    try:
        cluster.request("POST", f"/api/v1/namespaces/{path_segment(home)}/events", body=event, timeout=_TIMEOUT)
    except Conflict as conflict:
        if conflict.reason != "AlreadyExists":
            raise


def _name(involved: Mapping[str, str], reason: str, message: str, now: float) -> str:
    said = hashlib.sha256("\0".join((involved.get("kind", ""), involved.get("uid", ""), reason, message)).encode())
    low = int.from_bytes(said.digest()[:8], "big") >> (64 - _SAID_BITS)
    number = (int(now * 1e9) >> _SAID_BITS << _SAID_BITS) | low
    suffix = f".{number:x}"
    return involved.get("name", "")[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix
