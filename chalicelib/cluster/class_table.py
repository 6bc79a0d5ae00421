"""Interns pod classes by the raw bytes of pod specs, so that a spec is decoded once per
class and not once per pod.

Two pods are of one class if the scheduler and the drain rules cannot tell them apart. Meaningless
differences between siblings are removed before the bytes are compared: the node to which a pod is
bound, the random suffix of its service-account volume, and the node's name in the affinity of a
DaemonSet's pod. Bytes that were seen are kept as digests: a tenant may write 1.5 MB per pod, and
none of it twice.

Nearly every pod is a sibling of an earlier one. Its spec has the bytes of that one's spec except
for the variable parts, which a pattern finds at known offsets, so it is compared and neither
decoded nor searched. What is left per pod is its name, its node and its times. `PodFold.fold` is
the innermost loop of a pass: a large cluster has 170,000 pods.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from chalicelib.cluster import api_types
from chalicelib.cluster.input_limits import within
from chalicelib.cluster.pod_classes import labels_of, make_class, resized_requests
from chalicelib.model.errors import MALFORMED
from chalicelib.model.pod import Pod, PodClass
from chalicelib.model.resources import largest
from chalicelib.model.timestamps import instant, parse_time

ENDED = frozenset({"Succeeded", "Failed"})
RESIZED = b"PodResize"  # prefix of the types of pod conditions that indicate a resize
_CONDITIONS = msgspec.json.Decoder(list[api_types.PodCondition] | None)
_TIME = msgspec.json.Decoder(str | None)
_NO_CONDITION = api_types.PodCondition()
_FALSE, _F = b'"False"', b"F"  # looking for one byte first is four times as fast
_MINUTE = len("2026-11-21T07:20:")
_SECONDS = {f"{second:02}Z": float(second) for second in range(60)}
_MOST_MINUTES = 100_000

_SPEC = msgspec.json.Decoder(api_types.PodSpec)
_BOUND_TO = msgspec.json.Decoder(api_types.BoundTo)
_NO_ANNOTATIONS = api_types.Annotations()
_TOKEN_VOLUME = b"kube-api-access-"
_SUFFIX = 5  # characters of the random suffix
_NAME = b'"nodeName"'
_BOUND, _PINNED = (
    re.compile(rb'"nodeName":\s*"([^"\\]*)"'),
    re.compile(rb'"values":\s*\[\s*"([^"\\]*)"\s*\]'),
)
# siblings of one owner that differ in labels or annotations, such as the zone's label
_VARIANTS = 8
# bytes of one spec, and of all; pods of others are decoded
_LONGEST_PATTERN, _MOST_PATTERNS = 1 << 16, 32 << 20
_CHECKED_EVERY = 1 << 18  # bytes of classes as MessagePack
CLASS_GROWTH = 12
"""Bytes of memory for a byte of a class as MessagePack, at most: a short text takes 60 in place
of 5. Measured by tests/benchmarks/hostile_memory.py."""


Malformed = Callable[[int, Exception], None]
"""(index in the list, why it cannot be used)"""


_PLACES = ("node_at", "node_slots", "token_at", "token_slots")


class Sibling:
    """The pattern by which siblings of a pod are recognised.

    parts: the spec's bytes with empty places for the variable parts. node_at, token_at: offsets of
    the node's name and of the suffix, 0 without one; both are before any part of variable length,
    or the spec has no pattern.
    """

    __slots__ = ("annotations", "cls", "fixed", "labels", "namespace", "owners", "parts", *_PLACES)

    def __init__(self) -> None:
        self.cls = -1
        self.namespace = ""
        self.owners = self.labels = msgspec.Raw(b"")
        self.annotations: api_types.Annotations | None = None
        self.parts: list[bytes] = []
        self.node_slots: tuple[int, ...] = ()
        self.token_slots: tuple[int, ...] = ()
        self.node_at = self.token_at = 0
        self.fixed: frozenset[bytes] = frozenset()

    def reduced(self) -> bytes:
        """Return the spec's bytes without the variable parts."""
        for at in (*self.node_slots, *self.token_slots):
            self.parts[at] = b""
        return b"".join(self.parts)


NOBODY = Sibling()
"""Matches no pod: its namespace is empty."""


def unbounded() -> None:
    """A check of memory that is never exceeded."""


class ClassTable:
    """Interns pod classes. Not safe for several threads. check: called when the classes have grown;
    it raises MemoryExceeded where memory ends."""

    def __init__(self) -> None:
        self.check: Callable[[], None] = unbounded
        self.classes: list[PodClass] = []
        self.nodes: dict[bytes, str] = {b"": ""}
        # digest of what pods of a class have in common -> its index
        self._by_bytes: dict[bytes, int] = {}
        self._by_value: dict[bytes, int] = {}  # digest of a class -> its index
        self._pattern_bytes = self._value_bytes = self._checked = 0
        self._by_namespace: Counter[str] = Counter()
        self._valued = 0  # classes that are in _by_value
        self._siblings: dict[bytes, list[Sibling]] = {}  # by the owners' raw JSON, the latest first

    @property
    def size(self) -> int:
        """Return the number of classes, of pods that are gone too."""
        return len(self.classes)

    @property
    def memory(self) -> int:
        """Return the bytes of memory that the classes take, roughly; more for
        classes of many short texts."""
        return self._pattern_bytes + CLASS_GROWTH * self._value_bytes

    @property
    def largest_namespace(self) -> str:
        """Return the namespace whose classes take the most memory, "" without any."""
        return max(self._by_namespace, key=self._by_namespace.__getitem__, default="")

    def sibling(self, namespace: str, meta: api_types.PodMeta) -> Sibling:
        """Return the pattern of earlier pods with these owners, labels and
        annotations; NOBODY without one."""
        for sibling in self._siblings.get(bytes(meta.owner_references), ()):
            if (
                sibling.namespace == namespace
                and sibling.labels == meta.labels
                and sibling.annotations == meta.annotations
            ):
                return sibling
        return NOBODY

    def matched(self, sibling: Sibling, spec: bytes) -> str | None:
        """Return the node of a pod whose spec fits the pattern, "" if it has none;
        None if it does not fit."""
        parts = sibling.parts
        if sibling.token_at:
            suffix = spec[sibling.token_at : sibling.token_at + _SUFFIX]
            for at in sibling.token_slots:
                parts[at] = suffix
        node = raw = b""
        if sibling.node_at:
            node = spec[sibling.node_at : spec.find(b'"', sibling.node_at)]
            raw = node
            if not raw or raw in sibling.fixed:
                return None
            for at in sibling.node_slots:
                parts[at] = raw
        return self.nodes.get(raw) if b"".join(parts) == spec else None

    def bound(
        self, namespace: str, spec: bytes, meta: api_types.PodMeta
    ) -> tuple[int, str, Sibling]:
        """Return the class of a pod with this spec (raw JSON), the name of the node to which it is
        bound, or "", and the pattern for its siblings. Raises the errors of intern."""
        owners, labels = bytes(meta.owner_references), bytes(meta.labels)
        node = (_BOUND_TO.decode(spec).node_name or "") if _NAME in spec else ""
        raw = node.encode()
        daemon = b'"DaemonSet"' in owners
        pattern = _pattern(spec, raw, daemon=daemon) if len(spec) <= _LONGEST_PATTERN else None
        reduced = (
            _without_token(_without_node(spec, raw, daemon=daemon))
            if pattern is None
            else pattern.reduced()
        )
        cls = self._interned(namespace, reduced, labels, owners, meta.annotations)
        node = self.nodes.setdefault(raw, node)
        if pattern is None or self._pattern_bytes + len(spec) > _MOST_PATTERNS:
            return cls, node, NOBODY
        self._pattern_bytes += len(spec)
        pattern.cls, pattern.namespace, pattern.annotations = cls, namespace, meta.annotations
        pattern.owners, pattern.labels = meta.owner_references.copy(), meta.labels.copy()
        others = [
            sibling
            for sibling in self._siblings.get(owners, ())
            if sibling.labels != pattern.labels or sibling.annotations != pattern.annotations
        ]
        self._siblings[owners] = [pattern, *others[: _VARIANTS - 1]]
        return cls, node, pattern

    def intern(
        self,
        namespace: str,
        spec: bytes,
        labels: bytes,
        owners: bytes,
        annotations: api_types.Annotations | None,
    ) -> int:
        """Return the index of the class of a pod without a node. spec: raw JSON.

        Raises msgspec.ValidationError or BadInput for an invalid spec.
        """
        return self._interned(namespace, _without_token(spec), labels, owners, annotations)

    def _interned(
        self,
        namespace: str,
        spec: bytes,
        labels: bytes,
        owners: bytes,
        annotations: api_types.Annotations | None,
    ) -> int:
        """spec: raw JSON without the parts in which siblings differ."""
        notes = annotations or _NO_ANNOTATIONS
        key = _digest(
            msgspec.msgpack.encode(
                (namespace, spec, labels, owners, *msgspec.structs.astuple(notes))
            )
        )
        cls = self._by_bytes.get(key)
        if cls is None:
            decoded = _SPEC.decode(spec)
            containers = len(decoded.containers) + len(decoded.init_containers or ())
            cls = self.add(
                within(make_class(namespace, decoded, labels_of(labels), owners, notes), containers)
            )
            self._by_bytes[key] = cls
        return cls

    def add(self, pod_class: PodClass) -> int:
        """Return the index of an equal class, or of this one after adding it."""
        # The values of restored classes are noted now, not when restoring, because few
        # passes meet a new class.
        for at in range(self._valued, len(self.classes)):
            encoded = _encoded(self.classes[at])
            self._grow(self.classes[at].namespace, len(encoded))
            self._by_value.setdefault(_digest(encoded), at)
        self._valued = len(self.classes)
        encoded = _encoded(pod_class)
        value = _digest(encoded)
        cls = self._by_value.get(value)
        if cls is None:
            cls = self._by_value[value] = len(self.classes)
            self.classes.append(pod_class)
            self._grow(pod_class.namespace, len(encoded))
            self._valued += 1
        return cls

    def _grow(self, namespace: str, size: int) -> None:
        self._value_bytes += size
        self._by_namespace[namespace] += size
        if self._value_bytes - self._checked > _CHECKED_EVERY:
            self._checked = self._value_bytes
            self.check()

    def restore(self, classes: Sequence[PodClass]) -> None:
        """Add classes of a table that was stored, with the numbers that
        follow those of this one."""
        self.classes.extend(classes)

    def at_least(self, cls: int, amounts: Mapping[str, int]) -> int:
        """Return a class that differs from another only by requesting at least this much."""
        pod_class = self.classes[cls]
        return self.add(
            msgspec.structs.replace(pod_class, requests=largest(pod_class.requests, dict(amounts)))
        )


def _encoded(pod_class: PodClass) -> bytes:
    return msgspec.msgpack.encode(pod_class, order="deterministic")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _pattern(spec: bytes, node: bytes, *, daemon: bool) -> Sibling | None:
    """Return the pattern of a spec without its class; None if the parts that are removed
    for the class are not found at fixed offsets: `_without_node` or `_without_token`
    would leave some of them in."""
    first = spec.find(_TOKEN_VOLUME)
    if first < 0:
        suffix, cut = b"", [spec]
    else:
        token = spec[first : first + len(_TOKEN_VOLUME) + _SUFFIX]
        suffix = token[len(_TOKEN_VOLUME) :]
        pieces = spec.split(token)
        if len(suffix) < _SUFFIX or spec.count(_TOKEN_VOLUME) != len(pieces) - 1:
            return None
        cut = [
            pieces[0] + _TOKEN_VOLUME,
            *(each + _TOKEN_VOLUME for each in pieces[1:-1]),
            pieces[-1],
        ]
    values = [match.group(1) for match in _PINNED.finditer(spec)] if daemon and node else []
    slots = 1 + values.count(node) if node else 0
    at = spec.find(_NAME)
    bound = _BOUND.match(spec, at) if at >= 0 else None
    if (
        (bound.group(1) if bound else b"") != node
        or (at >= 0 and spec.find(_NAME, at + 1) >= 0)
        or slots > 2
    ):
        return None
    pattern = Sibling()
    quoted = b'"' + node + b'"'
    for number, piece in enumerate(cut):
        if number:
            pattern.token_slots += (len(pattern.parts),)
            pattern.parts.append(suffix)
        for place, text in enumerate(piece.split(quoted) if node else (piece,)):
            if place:
                pattern.parts[-1] += b'"'
                pattern.node_slots += (len(pattern.parts),)
                pattern.parts.append(node)
            pattern.parts.append(b'"' + text if place else text)
    if len(pattern.node_slots) != slots:
        return None
    pattern.node_at = _offset(pattern.parts, pattern.node_slots)
    pattern.token_at = _offset(pattern.parts, pattern.token_slots)
    if pattern.node_at and pattern.token_at > pattern.node_at:
        return None
    pattern.fixed = frozenset(values) - {node}
    return pattern


def _offset(parts: list[bytes], slots: tuple[int, ...]) -> int:
    return sum(map(len, parts[: slots[0]])) if slots else 0


def _without_token(spec: bytes) -> bytes:
    """Return the spec without the random suffix of its service-account volume."""
    at = spec.find(_TOKEN_VOLUME)
    return (
        spec
        if at < 0
        else spec.replace(spec[at : at + len(_TOKEN_VOLUME) + _SUFFIX], _TOKEN_VOLUME)
    )


def _without_node(spec: bytes, node: bytes, *, daemon: bool) -> bytes:
    """Return the spec without its node: without the single nodeName, and without a daemon's single
    list that contains just that name.

    A spec in which these words occur more than once is not changed: it becomes a class of its
    own, which is only slower.
    """
    spec = _without(_BOUND, node, spec)
    return _without(_PINNED, node, spec) if daemon else spec


def _without(pattern: re.Pattern[bytes], node: bytes, spec: bytes) -> bytes:
    """Return the spec with the single match of the node's name emptied."""
    matches = [match.span(1) for match in pattern.finditer(spec) if match.group(1) == node]
    if len(matches) != 1:
        return spec
    start, end = matches[0]
    return spec[:start] + spec[end:]


# --- pods


def key_of(namespace: str, name: str) -> str:
    """Return the key of an object: its separator sorts before all other characters,
    so namespaces sort first."""
    return f"{namespace}\0{name}"


class PodFold:
    """Converts pods. One for all lists of a cluster. Not safe for several threads."""

    def __init__(self, table: ClassTable) -> None:
        self._table = table
        self._minutes: dict[str, float] = {}

    def fold(
        self,
        items: Sequence[api_types.ApiPod],
        into: dict[str, Pod],
        malformed: Malformed,
        *,
        resizing: bool,
    ) -> None:
        """Add all pods that have not ended, by key_of. resizing: whether any of them may be in an
        in-place resize, as the bytes of their list show."""
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
                    known_node = matched(last, spec)
                    if known_node is None:
                        cls, node, last = table.bound(namespace, spec, meta)
                    else:
                        cls, node = last.cls, known_node
                created = meta.creation_timestamp
                minute = minutes.get(created[:_MINUTE]) if created else 0.0
                second = _SECONDS.get(created[_MINUTE:]) if created else 0.0
                created_at = (
                    self._instant(created) if minute is None or second is None else minute + second
                )
                name = meta.name
                if node:
                    conditions = bytes(status.conditions)
                    if resizing and RESIZED in conditions:
                        cls = table.at_least(cls, resized_requests(spec, status.container_statuses))
                    leaving = (
                        meta.deletion_timestamp or meta.deletion_grace_period_seconds is not None
                    )
                    notes = meta.annotations
                    special = leaving or (notes is not None and notes.do_not_disrupt)
                    if (_F not in conditions or _FALSE not in conditions) and not special:
                        into[f"{namespace}\0{name}"] = Pod(
                            namespace,
                            name,
                            meta.uid,
                            cls,
                            node,
                            status.nominated_node_name,
                            phase,
                            created_at,
                        )
                        continue
                into[f"{namespace}\0{name}"] = _pod_with_condition(
                    item, namespace, cls, node, created_at
                )
            except MALFORMED as error:
                malformed(at, error)
                last = NOBODY

    def _instant(self, text: str | None) -> float:
        """Parse a time, and keep its minute, in which other pods were
        created too. Raises BadInput."""
        if not text:
            return 0.0
        created, second = parse_time(text), _SECONDS.get(text[_MINUTE:])
        if second is not None and len(self._minutes) < _MOST_MINUTES:
            self._minutes[text[:_MINUTE]] = created - second
        return created


def _pod_with_condition(
    item: api_types.ApiPod, namespace: str, cls: int, node: str, created_at: float
) -> Pod:
    """Return a pod that is pending, unready, being deleted, or not to be disrupted."""
    meta, status = item.metadata, item.status
    condition = _NO_CONDITION
    if not node and status.conditions:
        for candidate in _CONDITIONS.decode(status.conditions) or ():
            if candidate.type == "PodScheduled":
                condition = candidate
    grace = meta.deletion_grace_period_seconds
    refused = condition.last_transition_time if condition.status == "False" else None
    return Pod(
        namespace,
        meta.name,
        meta.uid,
        cls,
        node,
        status.nominated_node_name,
        status.phase,
        created_at,
        parse_time(meta.deletion_timestamp) if meta.deletion_timestamp else 0.0,
        30.0 if grace is None else float(grace),
        condition.status,
        condition.reason,
        condition.message,
        bool(node) and _is_unready(bytes(status.conditions)),
        _start(item) if meta.annotations is not None and meta.annotations.do_not_disrupt else 0.0,
        instant(refused) if refused else 0.0,
    )


def _start(item: api_types.ApiPod) -> float:
    """Return status.startTime, 0.0 without one. Raises BadInput."""
    text = _TIME.decode(item.status.start_time) if item.status.start_time else None
    return parse_time(text) if text else 0.0


def _is_unready(conditions: bytes) -> bool:
    """Return whether a pod's condition Ready is False; most pods have no false
    condition, and are not decoded."""
    if _FALSE not in conditions:
        return False
    return any(
        each.type == "Ready" and each.status == "False"
        for each in _CONDITIONS.decode(conditions) or ()
    )
