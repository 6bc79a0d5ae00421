"""What has been told lately, so that it is not told again: one event per fact and object in five minutes.

Upstream keeps this in a process that lives for weeks. Here every invocation is another process, so it is kept in the
table, and the question is what that costs. A row per event would be a thousand writes for a thousand pods; a row per
*set* of events repeats all of them as soon as one more pod joins. So what was told is one small value, ten bytes per
event, in a row that is written anyway:

    told by       lies in                                reads  writes
    a pass        the lease's row (store/leases.py)          0       0   read by acquire, written by release
    an executor   the cluster's ledger (journal.py)          1       1   only for a step that has events; the counters
                                                                         go with the same write

The two never tell the same fact about the same object. What a pass could not write (it died after posting) is told
once more five minutes early, and nothing else follows from it. The rule is upstream's (state.md §11).

A fact is not a reason: `marked the node` and `nodes removed` are both ScaleDown, and both are told. Upstream's filter
swallows the second where it follows within five minutes. On the status ConfigMap the message is the fact (events.py).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

APART = 300.0
"""Seconds in which the same fact about the same object is not told again."""
LASTING = 86400.0
"""The same for facts that stay so for good, such as a taint that nobody should use: once is enough, a day is as well as
it can be kept without a row of its own. Their digests begin with a byte that no other's does."""
MOST = 500
"""Facts kept; beyond that the oldest are forgotten, so that no storm makes the row a large one (5 KB)."""

_ENTRY = struct.Struct(">6sI")  # digest of the fact, epoch second
_STAYS, _PASSES = b"\xff", b"\xfe"


def digest(*words: str, lasting: bool = False) -> bytes:
    """Six bytes for a fact about an object; among 500 two are alike once in 2 billion times, which costs one event."""
    made = hashlib.sha256("\0".join(words).encode()).digest()[:6]
    if lasting:
        return _STAYS + made[1:]
    return _PASSES + made[1:] if made.startswith(_STAYS) else made


def recent(told: bytes, now: float) -> dict[bytes, int]:
    """What was told within the last five minutes (or the last day, where it lasts), with its second. Rubbish is nothing
    told; so is the future, where a clock went back."""
    whole = len(told) - len(told) % _ENTRY.size
    return {
        key: at
        for key, at in _ENTRY.iter_unpack(told[:whole])
        if -APART < now - at < (LASTING if key.startswith(_STAYS) else APART)
    }


def filter_new(told: bytes, keys: Iterable[bytes], now: float) -> tuple[frozenset[bytes], bytes]:
    """Those of the keys that are not known, and what is to be kept once they are told.

    Where nothing is fresh and nothing has run out, what is to be kept is the very same bytes.
    """
    lately = recent(told, now)
    new = frozenset(keys) - lately.keys()
    if not new and len(lately) * _ENTRY.size == len(told):
        return new, told
    entries = [*lately.items(), *((key, max(0, int(now))) for key in new)]
    newest = sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:MOST]
    return new, b"".join(_ENTRY.pack(*entry) for entry in sorted(newest))
