"""Remembers recently reported events, so that each fact about an object is reported once in five minutes.

Upstream keeps this in a process that lives for weeks. Here every invocation may be another process, so it is stored in
the table, and its cost matters. A row per event would be a thousand writes for a thousand pods; a row per *set* of
events would repeat all of them as soon as one more pod joins. The reported events are therefore one small value, ten
bytes per event, in a row that is written anyway:

    reported by   stored in                              reads  writes
    a pass        the lease's row (store/leases.py)          0       0   read by acquire, written by release
    an executor   the cluster's ledger (journal.py)          1       1   only for a step that has events; the counters
                                                                         go with the same write

The two never report the same fact about the same object. If a pass could not write its events (it died after posting),
they are posted once more within the five minutes, without further effects. The rule is upstream's
(docs/reference/reporting.md "Event deduplication").

A fact is not a reason: `marked the node` and `nodes removed` both have reason ScaleDown, and both are reported.
Upstream's filter suppresses the second where it follows within five minutes. On the status ConfigMap the message is the
fact (events.py).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

APART = 300.0
"""Seconds within which an event for the same fact and object is not repeated."""
LASTING = 86400.0
"""The same for facts that do not change, such as a deprecated taint. One event would be enough; a day is the longest
that fits into this row. Digests of these facts begin with a byte of their own."""
MOST = 500
"""Maximum facts kept; the oldest are dropped, so that the row stays small (5 KB)."""

_ENTRY = struct.Struct(">6sI")  # digest of the fact, epoch second
_STAYS, _PASSES = b"\xff", b"\xfe"


def digest(*words: str, lasting: bool = False) -> bytes:
    """Return six bytes for a fact about an object. Among 500, a collision has a probability of 1 in 2 billion, and
    costs one event."""
    made = hashlib.sha256("\0".join(words).encode()).digest()[:6]
    if lasting:
        return _STAYS + made[1:]
    return _PASSES + made[1:] if made.startswith(_STAYS) else made


def recent(told: bytes, now: float) -> dict[bytes, int]:
    """Return what was reported within the last five minutes (or the last day, for a lasting fact), with its second.
    Invalid bytes count as nothing reported; so do future instants, after a clock was set back."""
    whole = len(told) - len(told) % _ENTRY.size
    return {
        key: at
        for key, at in _ENTRY.iter_unpack(told[:whole])
        if -APART < now - at < (LASTING if key.startswith(_STAYS) else APART)
    }


def filter_new(told: bytes, keys: Iterable[bytes], now: float) -> tuple[frozenset[bytes], bytes]:
    """Return those of the keys that are not known, and the value to store once they are reported.

    Where no key is fresh and none has expired, the value is exactly the given bytes.
    """
    lately = recent(told, now)
    new = frozenset(keys) - lately.keys()
    if not new and len(lately) * _ENTRY.size == len(told):
        return new, told
    entries = [*lately.items(), *((key, max(0, int(now))) for key in new)]
    newest = sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:MOST]
    return new, b"".join(_ENTRY.pack(*entry) for entry in sorted(newest))
