"""Values as text or bytes, and the fingerprint that tells one content from another.

A row's version is the fingerprint of its content rather than a counter, because the planner hands back plain values
(`before`, `after`) and nothing that would carry a counter: whoever has the value he read can name the version he read.
Equal content has an equal version; a write that is based on it loses nothing.

The content is fingerprinted in canonical form: encoded, read back and encoded again, so that 5 and 5.0, or a field
that only an older release knew, do not make a difference that no reader can see.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

PIECE = 300_000  # bytes of one compressed piece; DynamoDB's limit for an item is 400 KB


def encode(value: Any) -> bytes:
    """JSON with sorted keys."""
    return msgspec.json.encode(value, order="deterministic")


def decode(data: bytes | str, kind: type[T]) -> T:
    """The value; fields that this release does not know are passed over."""
    return msgspec.json.decode(data, type=kind)


def canonical(value: Any, kind: Any) -> bytes:
    """The one encoding of what a reader of this release would get."""
    return encode(msgspec.json.decode(encode(value), type=kind))


def fingerprint(data: bytes) -> str:
    """20 hexadecimal digits; a collision by chance is out of reach, and nobody gains by one made on purpose."""
    return hashlib.sha256(data).hexdigest()[:20]


def pack(data: bytes) -> tuple[bytes, ...]:
    """Compress and cut into pieces that fit an item each."""
    packed = zlib.compress(data, 6)
    return tuple(packed[at : at + PIECE] for at in range(0, len(packed), PIECE))


def unpack(pieces: tuple[bytes, ...]) -> bytes:
    """What `pack` was given."""
    return zlib.decompress(b"".join(pieces))
