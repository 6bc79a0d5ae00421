"""Interns pod classes by the raw bytes of pod specs, so that a spec is decoded once per class and not once per pod.

Two pods are of one class if the scheduler and the drain rules cannot tell them apart. Meaningless differences between
siblings are removed before the bytes are compared: the node to which a pod is bound, and the random suffix of its
service-account volume. DaemonSet pods also carry their node's name in an affinity; it is replaced, because otherwise a
cluster of 5,000 nodes would have 5,000 classes per DaemonSet.

Bytes that were seen are kept as digests: a tenant may write 1.5 MB per pod, and none of it twice.

Nearly every pod is a sibling of an earlier one. Its spec has the bytes of that one's spec except for the two variable
parts, which a pattern finds at known offsets, so such a spec is compared and neither decoded nor searched.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from chalicelib.model.pod import PodClass
from chalicelib.model.resources import largest
from chalicelib.snapshot import api_types
from chalicelib.snapshot.input_limits import within
from chalicelib.snapshot.pod_classes import labels_of, make_class

_SPEC = msgspec.json.Decoder(api_types.PodSpec)
_BOUND_TO = msgspec.json.Decoder(api_types.BoundTo)
_NO_ANNOTATIONS = api_types.Annotations()
_TOKEN_VOLUME = b"kube-api-access-"
_SUFFIX = 5  # characters of the random suffix
_NAME = b'"nodeName"'
_BOUND, _PINNED = re.compile(rb'"nodeName":\s*"([^"\\]*)"'), re.compile(rb'"values":\s*\[\s*"([^"\\]*)"\s*\]')
_VARIANTS = 8  # siblings of one owner that differ in labels or annotations, such as the zone's label
_LONGEST_PATTERN, _MOST_PATTERNS = 1 << 16, 32 << 20  # bytes of one spec, and of all; pods of others are decoded
_CHECKED_EVERY = 1 << 18  # bytes of classes as MessagePack
CLASS_GROWTH = 12
"""Bytes of memory for a byte of a class as MessagePack, at most: a short text takes 60 in place of 5. Measured by
tests/benchmarks/hostile_memory.py."""


class Sibling:
    """The pattern by which siblings of a pod are recognised.

    parts: the spec's bytes with empty places for the variable parts. node_at, token_at: offsets of the node's name and
    of the suffix, 0 without one; both are before any part of variable length, or the spec has no pattern.
    """

    __slots__ = (
        "annotations",
        "cls",
        "fixed",
        "labels",
        "namespace",
        "node_at",
        "node_slots",
        "owners",
        "parts",
        "token_at",
        "token_slots",
    )

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
    """Interns pod classes. Not safe for several threads. check: called when the classes have grown; it raises
    MemoryExceeded where memory ends."""

    def __init__(self) -> None:
        self.check: Callable[[], None] = unbounded
        self.classes: list[PodClass] = []
        self.nodes: dict[bytes, str] = {b"": ""}
        self._by_bytes: dict[bytes, int] = {}  # digest of what pods of a class have in common -> its index
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
        """Return the bytes of memory that the classes take, roughly; more for classes of many short texts."""
        return self._pattern_bytes + CLASS_GROWTH * self._value_bytes

    @property
    def largest_namespace(self) -> str:
        """Return the namespace whose classes take the most memory, "" without any."""
        return max(self._by_namespace, key=self._by_namespace.__getitem__, default="")

    def sibling(self, namespace: str, meta: api_types.PodMeta) -> Sibling:
        """Return the pattern of earlier pods with these owners, labels and annotations; NOBODY without one."""
        for each in self._siblings.get(bytes(meta.owner_references), ()):
            if each.namespace == namespace and each.labels == meta.labels and each.annotations == meta.annotations:
                return each
        return NOBODY

    def matched(self, sibling: Sibling, spec: bytes) -> str | None:
        """Return the node of a pod whose spec fits the pattern, "" if it has none; None if it does not fit."""
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

    def bound(self, namespace: str, spec: bytes, meta: api_types.PodMeta) -> tuple[int, str, Sibling]:
        """Return the class of a pod with this spec (raw JSON), the name of the node to which it is bound, or "", and
        the pattern for its siblings. Raises the errors of intern."""
        owners, labels = bytes(meta.owner_references), bytes(meta.labels)
        node = (_BOUND_TO.decode(spec).node_name or "") if _NAME in spec else ""
        raw = node.encode()
        daemon = b'"DaemonSet"' in owners
        found = _pattern(spec, raw, daemon=daemon) if len(spec) <= _LONGEST_PATTERN else None
        reduced = _without_token(_without_node(spec, raw, daemon=daemon)) if found is None else found.reduced()
        cls = self._interned(namespace, reduced, labels, owners, meta.annotations)
        node = self.nodes.setdefault(raw, node)
        if found is None or self._pattern_bytes + len(spec) > _MOST_PATTERNS:
            return cls, node, NOBODY
        self._pattern_bytes += len(spec)
        found.cls, found.namespace, found.annotations = cls, namespace, meta.annotations
        found.owners, found.labels = meta.owner_references.copy(), meta.labels.copy()
        others = [
            each
            for each in self._siblings.get(owners, ())
            if each.labels != found.labels or each.annotations != found.annotations
        ]
        self._siblings[owners] = [found, *others[: _VARIANTS - 1]]
        return cls, node, found

    def intern(
        self, namespace: str, spec: bytes, labels: bytes, owners: bytes, annotations: api_types.Annotations | None
    ) -> int:
        """Return the index of the class of a pod without a node. spec: raw JSON.

        Raises msgspec.ValidationError or BadInput for an invalid spec.
        """
        return self._interned(namespace, _without_token(spec), labels, owners, annotations)

    def _interned(
        self, namespace: str, spec: bytes, labels: bytes, owners: bytes, annotations: api_types.Annotations | None
    ) -> int:
        """spec: raw JSON without the parts in which siblings differ."""
        notes = annotations or _NO_ANNOTATIONS
        key = _digest(msgspec.msgpack.encode((namespace, spec, labels, owners, *msgspec.structs.astuple(notes))))
        found = self._by_bytes.get(key)
        if found is None:
            decoded = _SPEC.decode(spec)
            containers = len(decoded.containers) + len(decoded.init_containers or ())
            found = self.add(within(make_class(namespace, decoded, labels_of(labels), owners, notes), containers))
            self._by_bytes[key] = found
        return found

    def add(self, pod_class: PodClass) -> int:
        """Return the index of an equal class, or of this one after adding it."""
        self._value_all()
        encoded = _encoded(pod_class)
        value = _digest(encoded)
        found = self._by_value.get(value)
        if found is None:
            found = self._by_value[value] = len(self.classes)
            self.classes.append(pod_class)
            self._grow(pod_class.namespace, len(encoded))
            self._valued += 1
        return found

    def _grow(self, namespace: str, size: int) -> None:
        self._value_bytes += size
        self._by_namespace[namespace] += size
        if self._value_bytes - self._checked > _CHECKED_EVERY:
            self._checked = self._value_bytes
            self.check()

    def restore(self, classes: Sequence[PodClass]) -> None:
        """Add classes of a table that was stored, with the numbers that follow those that are held."""
        self.classes.extend(classes)

    def _value_all(self) -> None:
        """Note the values of restored classes. Later than restoring, because few passes meet a new class."""
        for at in range(self._valued, len(self.classes)):
            encoded = _encoded(self.classes[at])
            self._grow(self.classes[at].namespace, len(encoded))
            self._by_value.setdefault(_digest(encoded), at)
        self._valued = len(self.classes)

    def at_least(self, cls: int, amounts: Mapping[str, int]) -> int:
        """Return a class that differs from another only by requesting at least this much."""
        was = self.classes[cls]
        return self.add(msgspec.structs.replace(was, requests=largest(was.requests, dict(amounts))))


def _encoded(pod_class: PodClass) -> bytes:
    return msgspec.msgpack.encode(pod_class, order="deterministic")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _pattern(spec: bytes, node: bytes, *, daemon: bool) -> Sibling | None:
    """Return the pattern of a spec without its class; None if the parts that are removed for the class are not found at
    fixed offsets: `_without_node` or `_without_token` would leave some of them in."""
    first = spec.find(_TOKEN_VOLUME)
    if first < 0:
        suffix, cut = b"", [spec]
    else:
        token = spec[first : first + len(_TOKEN_VOLUME) + _SUFFIX]
        suffix = token[len(_TOKEN_VOLUME) :]
        pieces = spec.split(token)
        if len(suffix) < _SUFFIX or spec.count(_TOKEN_VOLUME) != len(pieces) - 1:
            return None
        cut = [pieces[0] + _TOKEN_VOLUME, *(each + _TOKEN_VOLUME for each in pieces[1:-1]), pieces[-1]]
    values = [match.group(1) for match in _PINNED.finditer(spec)] if daemon and node else []
    wanted = 1 + values.count(node) if node else 0
    at = spec.find(_NAME)
    named = _BOUND.match(spec, at) if at >= 0 else None
    if (named.group(1) if named else b"") != node or (at >= 0 and spec.find(_NAME, at + 1) >= 0) or wanted > 2:
        return None
    found = Sibling()
    quoted = b'"' + node + b'"'
    for number, piece in enumerate(cut):
        if number:
            found.token_slots += (len(found.parts),)
            found.parts.append(suffix)
        for place, text in enumerate(piece.split(quoted) if node else (piece,)):
            if place:
                found.parts[-1] += b'"'
                found.node_slots += (len(found.parts),)
                found.parts.append(node)
            found.parts.append(b'"' + text if place else text)
    if len(found.node_slots) != wanted:
        return None
    found.node_at = _offset(found.parts, found.node_slots)
    found.token_at = _offset(found.parts, found.token_slots)
    if found.node_at and found.token_at > found.node_at:
        return None
    found.fixed = frozenset(values) - {node}
    return found


def _offset(parts: list[bytes], slots: tuple[int, ...]) -> int:
    return sum(map(len, parts[: slots[0]])) if slots else 0


def _without_token(spec: bytes) -> bytes:
    """Return the spec without the random suffix of its service-account volume."""
    at = spec.find(_TOKEN_VOLUME)
    return spec if at < 0 else spec.replace(spec[at : at + len(_TOKEN_VOLUME) + _SUFFIX], _TOKEN_VOLUME)


def _without_node(spec: bytes, node: bytes, *, daemon: bool) -> bytes:
    """Return the spec without its node: without the single nodeName, and without a daemon's single list that contains
    just that name.

    A spec in which these words occur more than once is not changed: it becomes a class of its own, which is only
    slower.
    """
    spec = _without(_BOUND, node, spec)
    return _without(_PINNED, node, spec) if daemon else spec


def _without(pattern: re.Pattern[bytes], node: bytes, spec: bytes) -> bytes:
    """Return the spec with the single match of the node's name emptied."""
    found = [match.span(1) for match in pattern.finditer(spec) if match.group(1) == node]
    if len(found) != 1:
        return spec
    start, end = found[0]
    return spec[:start] + spec[end:]
