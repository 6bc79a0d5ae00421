"""Kubernetes events with upstream's reasons and formats, so that `kubectl describe` and
existing tools show the same.

Defines what an event is, which object it is about, how repeated events are recognised, and how
events are posted. Two tables map facts to events: pass_events.py for what a pass saw and decided,
operation_events.py for the results of operations. Events are best effort: if an API refuses one
event, the rest of them are not posted, and no event is ever waited for.

Each fact about an object is reported once in five minutes (docs/events.md "Event
frequency"). Upstream keeps the reported ones in a process that lives for weeks. Here every
invocation may be another process, so they are stored in the table, and their cost matters. A row
per event would be a thousand writes for a thousand pods; a row per *set* of events would repeat all
of them as soon as one more pod joins. The reported events are therefore one small value, ten bytes
per event, in a row that is written anyway:

    reported by   stored in                              reads  writes
    a pass        the lease's row (store/leases.py)          0       0   read by acquire, written by
                                                                         release
    an executor   the cluster's ledger (store/journal.py)    1       1   only for a step that has
                                                                         events; the counters go
                                                                         with the same write

The two never report the same fact about the same object. If a pass could not write its events (it
died after posting), they are posted once more within the five minutes, without further effects.

A fact is not a reason: `marked the node` and `nodes removed` both have reason ScaleDown, and both
are reported. Upstream's filter suppresses the second where it follows within five minutes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from chalicelib.cluster.errors import ClusterError, NotFound
from chalicelib.model.errors import published_name
from chalicelib.policy.settings.cluster_options import Options

NORMAL, WARNING = "Normal", "Warning"
PODS_TOLD = 50
"""Maximum pods that get an event for one fact, sorted by name."""
POSTING = 15.0
"""Seconds after which no further event of one batch is posted: a pass that hangs
here would keep its lease."""

_BY_MESSAGE = ("kube-system", "cluster-autoscaler-status")
"""Upstream's exception, by namespace and name: events on this ConfigMap are
deduplicated by their message."""


class Event(msgspec.Struct, frozen=True):
    """One event to be posted. fact: the row of the table it comes from, which identifies repeated
    events. A Node has no namespace. uid empty: not known yet; `kubectl describe` does not show an
    event without its object's uid. api_version: the object's, empty for `v1`. lasting: a permanent
    fact, reported once a day."""

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
        fact = self.message if by_message else self.fact
        return digest(self.kind, self.namespace, self.name, self.reason, fact, lasting=self.lasting)


class EventRow(msgspec.Struct, frozen=True):
    """A fact that is published, in the words of docs/events.md: on what, as which reasons, with
    which messages. The events that it makes follow them."""

    fact: str
    on: str
    reason: str
    message: str


class EventApi(Protocol):
    """The cluster's API for events; ClusterWriter (recorder.py) implements it.
    Methods raise ClusterError."""

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
    known_uids, events = uids or {}, []
    for key in sorted(pods)[:PODS_TOLD]:
        namespace, _, name = key.partition("/")
        events.append(
            Event(
                fact,
                "Pod",
                name,
                reason,
                message,
                type_,
                namespace,
                known_uids.get(key, ""),
                lasting=lasting,
            )
        )
    return events


def about_node(
    fact: str, node: str, reason: str, message: str, *, type_: str = NORMAL, lasting: bool = False
) -> Event:
    """Return an event about a node, which upstream's recorder identifies by its name."""
    return Event(fact, "Node", node, reason, message, type_, uid=node, lasting=lasting)


def about_status(
    fact: str, options: Options, reason: str, message: str, *, type_: str = NORMAL
) -> list[Event]:
    """Return an event on the status ConfigMap; none where the option disables
    that ConfigMap, as upstream."""
    if not options.write_status_configmap:
        return []
    return [
        Event(
            fact,
            "ConfigMap",
            options.status_config_map_name,
            reason,
            message,
            type_,
            options.namespace,
        )
    ]


def sizes(old: int, new: int, largest: int | None) -> str:
    """Return `N instead of M (max: K)`, which the events of a scale-up's start and end share."""
    return f"{new} instead of {old}" + ("" if largest is None else f" (max: {largest})")


def post_all(events: Iterable[Event], api: EventApi, clock: Callable[[], float]) -> tuple[int, str]:
    """Post the events, and stop at the first that is refused. Returns how many were tried, and what
    stopped it early, if anything did. An object that is gone needs no event."""
    tried, until = 0, clock() + POSTING
    # None: the object is gone; several events may be about one
    uids: dict[tuple[str, str, str], str | None] = {}
    for event in events:
        if clock() >= until:
            return tried, f"no time left after {tried} events"
        tried += 1
        try:
            if not event.uid:
                place = (event.kind, event.namespace, event.name)
                if place not in uids:
                    uids[place] = None
                    uids[place] = api.uid_of(*place)
                uid = uids[place]
                if uid is None:
                    continue
                event = msgspec.structs.replace(event, uid=uid)  # noqa: PLW2901
            api.post(event, clock())
        except NotFound:
            continue
        except ClusterError as error:
            return tried, f"{published_name(error)}: {error}"
    return tried, ""


# -- which events were reported recently

APART = 300.0
"""Seconds within which an event for the same fact and object is not repeated."""
LASTING = 86400.0
"""The same for facts that do not change, such as a deprecated taint. One event would
be enough; a day is the longest that fits into this row. Digests of these facts begin
with a byte of their own."""
MOST = 500
"""Maximum facts kept; the oldest are dropped, so that the row stays small (5 KB)."""

_ENTRY = struct.Struct(">6sI")  # digest of the fact, epoch second
_LASTING_MARK, _OTHER_MARK = b"\xff", b"\xfe"


def digest(*words: str, lasting: bool = False) -> bytes:
    """Return six bytes for a fact about an object. Among 500, a collision has a probability of 1 in
    2 billion, and costs one event."""
    short = hashlib.sha256("\0".join(words).encode()).digest()[:6]
    if lasting:
        return _LASTING_MARK + short[1:]
    return _OTHER_MARK + short[1:] if short.startswith(_LASTING_MARK) else short


def recent(reported: bytes, now: float) -> dict[bytes, int]:
    """Return what was reported within the last five minutes (or the last day, for a lasting
    fact), with its second. Invalid bytes count as nothing reported; so do future instants,
    after a clock was set back."""
    whole = len(reported) - len(reported) % _ENTRY.size
    return {
        key: at
        for key, at in _ENTRY.iter_unpack(reported[:whole])
        if -APART < now - at < (LASTING if key.startswith(_LASTING_MARK) else APART)
    }


def filter_new(
    reported: bytes, keys: Iterable[bytes], now: float
) -> tuple[frozenset[bytes], bytes]:
    """Return those of the keys that are not known, and the value to store once they are reported.

    Where no key is fresh and none has expired, the value is exactly the given bytes.
    """
    lately = recent(reported, now)
    new = frozenset(keys) - lately.keys()
    if not new and len(lately) * _ENTRY.size == len(reported):
        return new, reported
    entries = [*lately.items(), *((key, max(0, int(now))) for key in new)]
    newest = sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:MOST]
    return new, b"".join(_ENTRY.pack(*entry) for entry in sorted(newest))
