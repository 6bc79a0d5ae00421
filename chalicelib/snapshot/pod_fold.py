"""Converts the pods of one decoded list. This is the innermost loop of a pass: a large cluster has 170,000 pods.

A pod whose spec, labels, owners and annotations have the bytes of an earlier one gets that one's class by comparing
bytes (class_table.py). What is left per pod is its name, its node and its times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chalicelib.model.errors import MALFORMED
from chalicelib.model.pod import Pod
from chalicelib.model.timestamps import parse_time
from chalicelib.snapshot import api_types
from chalicelib.snapshot.class_table import NOBODY, ClassTable
from chalicelib.snapshot.in_place_resize import held_requests

ENDED = frozenset({"Succeeded", "Failed"})
RESIZED = b"PodResize"  # prefix of the types of pod conditions that indicate a resize
_CONDITIONS = msgspec.json.Decoder(list[api_types.PodCondition] | None)
_NO_CONDITION = api_types.PodCondition()
_FALSE, _F = b'"False"', b"F"  # looking for one byte first is four times as fast
_MINUTE = len("2026-11-21T07:20:")
_SECONDS = {f"{second:02}Z": float(second) for second in range(60)}
_MOST_MINUTES = 100_000

Malformed = Callable[[int, Exception], None]
"""(index in the list, why it cannot be used)"""


def key_of(namespace: str, name: str) -> str:
    """Return the key of an object: its separator sorts before all other characters, so namespaces sort first."""
    return f"{namespace}\0{name}"


class PodFold:
    """Converts pods. One for all lists of a cluster. Not safe for several threads."""

    def __init__(self, table: ClassTable) -> None:
        self._table = table
        self._minutes: dict[str, float] = {}

    def fold(
        self, items: Sequence[api_types.ApiPod], into: dict[str, Pod], malformed: Malformed, *, resizing: bool
    ) -> None:
        """Add all pods that have not ended, by key_of. resizing: whether any of them may be in an in-place resize, as
        the bytes of their list show."""
        table, last = self._table, NOBODY
        matched, minutes = table.matched, self._minutes
        for at, item in enumerate(items):
            try:
                meta, status = item.metadata, item.status
                phase = status.phase
                if phase in ENDED:
                    continue  # never listed; the live reader excludes them at the server
                namespace = meta.namespace or "default"
                spec = bytes(item.spec)
                if (
                    meta.owner_references != last.owners
                    or meta.labels != last.labels
                    or namespace != last.namespace
                    or meta.annotations != last.annotations
                ):
                    last = table.sibling(namespace, meta)
                if last is NOBODY:
                    cls, node, last = table.bound(namespace, spec, meta)
                else:
                    found = matched(last, spec)
                    if found is None:
                        cls, node, last = table.bound(namespace, spec, meta)
                    else:
                        cls, node = last.cls, found
                created = meta.creation_timestamp
                minute = minutes.get(created[:_MINUTE]) if created else 0.0
                second = _SECONDS.get(created[_MINUTE:]) if created else 0.0
                born = self._instant(created) if minute is None or second is None else minute + second
                name = meta.name
                if node:
                    conditions = bytes(status.conditions)
                    if resizing and RESIZED in conditions:
                        cls = table.at_least(cls, held_requests(spec, status.container_statuses))
                    leaving = meta.deletion_timestamp or meta.deletion_grace_period_seconds is not None
                    if (_F not in conditions or _FALSE not in conditions) and not leaving:
                        into[f"{namespace}\0{name}"] = Pod(
                            namespace, name, meta.uid, cls, node, status.nominated_node_name, phase, born
                        )
                        continue
                into[f"{namespace}\0{name}"] = _rare(item, namespace, cls, node, born)
            except MALFORMED as error:
                malformed(at, error)
                last = NOBODY

    def _instant(self, text: str | None) -> float:
        """Parse a time, and keep its minute, in which other pods were created too. Raises BadInput."""
        if not text:
            return 0.0
        found, second = parse_time(text), _SECONDS.get(text[_MINUTE:])
        if second is not None and len(self._minutes) < _MOST_MINUTES:
            self._minutes[text[:_MINUTE]] = found - second
        return found


def _rare(item: api_types.ApiPod, namespace: str, cls: int, node: str, born: float) -> Pod:
    """Return a pod that is pending, unready or being deleted."""
    meta, status = item.metadata, item.status
    condition = _NO_CONDITION
    if not node and status.conditions:
        for candidate in _CONDITIONS.decode(status.conditions) or ():
            if candidate.type == "PodScheduled":
                condition = candidate
    grace = meta.deletion_grace_period_seconds
    return Pod(
        namespace,
        meta.name,
        meta.uid,
        cls,
        node,
        status.nominated_node_name,
        status.phase,
        born,
        parse_time(meta.deletion_timestamp) if meta.deletion_timestamp else 0.0,
        30.0 if grace is None else float(grace),
        condition.status,
        condition.reason,
        condition.message,
        bool(node) and _unready(bytes(status.conditions)),
    )


def _unready(conditions: bytes) -> bool:
    """Return whether a pod's condition Ready is False; most pods have no false condition, and are not decoded."""
    if _FALSE not in conditions:
        return False
    return any(each.type == "Ready" and each.status == "False" for each in _CONDITIONS.decode(conditions) or ())
