"""Kubernetes events with upstream's reasons and formats, so that `kubectl describe` and existing tools show the same.

Defines what an event is, which object it is about, and how events are posted. Two tables map facts to events:
pass_events.py for what a pass saw and decided, operation_events.py for the results of operations. Events are best
effort: if an API refuses one event, the rest of them are not posted, and no event is ever waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from chalicelib.kube.errors import ClusterError, NotFound
from chalicelib.model.errors import published_name
from chalicelib.model.policy import Options
from chalicelib.record.event_dedup import digest

NORMAL, WARNING = "Normal", "Warning"
PODS_TOLD = 50
"""Maximum pods that get an event for one fact, sorted by name."""
POSTING = 15.0
"""Seconds after which no further event of one batch is posted: a pass that hangs here would keep its lease."""

_BY_MESSAGE = ("kube-system", "cluster-autoscaler-status")
"""Upstream's exception, by namespace and name: events on this ConfigMap are deduplicated by their message."""


class Event(msgspec.Struct, frozen=True):
    """One event to be posted. fact: the row of the table it comes from, which identifies repeated events. A Node has no
    namespace. uid empty: not known yet; `kubectl describe` does not show an event without its object's uid.
    api_version: the object's, empty for `v1`. lasting: a permanent fact, reported once a day (event_dedup.py)."""

    fact: str
    kind: str
    name: str
    reason: str
    message: str
    type: str = NORMAL
    namespace: str = ""
    uid: str = ""
    api_version: str = ""
    lasting: bool = False

    @property
    def key(self) -> bytes:
        """Return the key by which equal events within five minutes, or a day, are one."""
        by_message = self.kind == "ConfigMap" and (self.namespace, self.name) == _BY_MESSAGE
        return digest(
            self.kind,
            self.namespace,
            self.name,
            self.reason,
            self.message if by_message else self.fact,
            lasting=self.lasting,
        )


class EventApi(Protocol):
    """The cluster's API for events; record/cluster_writer.py implements it. Methods raise ClusterError."""

    def uid_of(self, kind: str, namespace: str, name: str) -> str:
        """Return the uid of a Pod or a ConfigMap. Raises NotFound if it is gone."""

    def post(self, event: Event, now: float) -> None:
        """Write the event."""


def about_pods(
    fact: str,
    pods: Iterable[str],
    reason: str,
    message: str,
    *,
    type_: str = NORMAL,
    uids: Mapping[str, str] | None = None,
    lasting: bool = False,
) -> list[Event]:
    """Return the same event about each of the first PODS_TOLD pods (namespace/name)."""
    known, events = uids or {}, []
    for key in sorted(pods)[:PODS_TOLD]:
        namespace, _, name = key.partition("/")
        events.append(Event(fact, "Pod", name, reason, message, type_, namespace, known.get(key, ""), lasting=lasting))
    return events


def about_node(fact: str, node: str, reason: str, message: str, *, type_: str = NORMAL, lasting: bool = False) -> Event:
    """Return an event about a node, which upstream's recorder identifies by its name."""
    return Event(fact, "Node", node, reason, message, type_, uid=node, lasting=lasting)


def about_status(fact: str, options: Options, reason: str, message: str, *, type_: str = NORMAL) -> list[Event]:
    """Return an event on the status ConfigMap; none where the option disables that ConfigMap, as upstream."""
    if not options.write_status_configmap:
        return []
    return [Event(fact, "ConfigMap", options.status_config_map_name, reason, message, type_, options.namespace)]


def post_all(events: Iterable[Event], api: EventApi, clock: Callable[[], float]) -> tuple[int, str]:
    """Post the events, and stop at the first that is refused. Returns how many were tried, and what stopped it early,
    if anything did. An object that is gone needs no event."""
    tried, until = 0, clock() + POSTING
    uids: dict[tuple[str, str, str], str | None] = {}
    for event in events:
        if clock() >= until:
            return tried, f"no time left after {tried} events"
        tried += 1
        try:
            _post(event, api, clock(), uids)
        except NotFound:
            continue
        except ClusterError as error:
            return tried, f"{published_name(error)}: {error}"
    return tried, ""


def _post(event: Event, api: EventApi, now: float, uids: dict[tuple[str, str, str], str | None]) -> None:
    """Post one event. uids: of objects that were looked up already, None for one that is gone; several events may be
    about the same object."""
    if not event.uid:
        place = (event.kind, event.namespace, event.name)
        if place not in uids:
            uids[place] = None
            uids[place] = api.uid_of(*place)
        uid = uids[place]
        if uid is None:
            return
        event = msgspec.structs.replace(event, uid=uid)
    api.post(event, now)


def sizes(old: int, new: int, largest: int | None) -> str:
    """Return `N instead of M (max: K)`, which the events of a scale-up's start and end share."""
    return f"{new} instead of {old}" + ("" if largest is None else f" (max: {largest})")
