"""Kubernetes events, in upstream's reasons and words, so that `kubectl describe` and people's tools read the same.

The texts are here, and the choice of whom to tell: at most PODS_TOLD pods of one thing. Posting is kube/events.py. An
API that refuses one event is not asked for the rest of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from chalicelib.kube.errors import ClusterError, Missing
from chalicelib.model.plan import PodVerdict
from chalicelib.model.reason import Reason

NORMAL, WARNING = "Normal", "Warning"
PODS_TOLD = 50


class Event(msgspec.Struct, frozen=True):
    """One event to be posted. namespace and name of a pod; a node has no namespace. uid empty: not known."""

    kind: str
    name: str
    reason: str
    message: str
    type: str = NORMAL
    namespace: str = ""
    uid: str = ""


class EventApi(Protocol):
    """The cluster as a place for events; the real one is record/board.py. Methods raise ClusterError."""

    def uid_of(self, namespace: str, pod: str) -> str:
        """The pod's uid; `kubectl describe` only shows events that carry it. Missing: the pod is gone."""

    def post(self, event: Event, now: float) -> None:
        """Write the event."""


def about_pods(pods: Iterable[str], reason: str, message: str, *, type_: str = NORMAL,
               uids: Mapping[str, str] | None = None) -> list[Event]:
    """The same event about each of the first PODS_TOLD pods (namespace/name)."""
    known, events = uids or {}, []
    for key in sorted(pods)[:PODS_TOLD]:
        namespace, _, name = key.partition("/")
        events.append(Event("Pod", name, reason, message, type_, namespace, known.get(key, "")))
    return events


def about_node(node: str, reason: str, message: str, *, type_: str = NORMAL) -> Event:
    """An event about a node, which upstream's recorder identifies by its name."""
    return Event("Node", node, reason, message, type_, uid=node)


def triggered(group: str, old: int, new: int, largest: int | None) -> str:
    """scale-up.md §10: `pod triggered scale-up: [{g 1->3 (max: 5)}]`."""
    bound = "" if largest is None else f" (max: {largest})"
    return f"pod triggered scale-up: [{{{group} {old}->{new}{bound}}}]"


def not_triggered(verdict: PodVerdict, text: Callable[[Reason], str]) -> str:
    """scale-up.md §10: how many groups have which reason, the most frequent first, equally frequent ones by their text.
    A reason that a group has several times counts once for it."""
    counts = Counter(words for reasons in verdict.reasons.values() for words in {text(reason) for reason in reasons})
    parts = [f"{count} {words}" for words, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    return f"pod didn't trigger scale-up: {', '.join(parts)}" if parts else "pod didn't trigger scale-up"


def post_all(events: Iterable[Event], api: EventApi, now: float) -> tuple[int, str]:
    """Post them; how many were, and the error that ended it, if one did. A pod that is gone needs no event."""
    posted = 0
    for event in events:
        try:
            if event.kind == "Pod" and not event.uid:
                event = msgspec.structs.replace(event, uid=api.uid_of(event.namespace, event.name))  # noqa: PLW2901 - the same, complete
            api.post(event, now)
        except Missing:
            continue
        except ClusterError as error:
            return posted, f"{type(error).__name__}: {error}"
        posted += 1
    return posted, ""
