"""Encodes values as text or bytes, and computes the fingerprint that identifies a content.

A row's version is the fingerprint of its content rather than a counter, because the planner returns
plain values that could not carry a counter. A write based on equal content loses nothing. The
content is fingerprinted in canonical form: encoded, read back and encoded again, so that 5 and 5.0,
or a field that only an older release knew, make no difference.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, TypeVar

import msgspec

from chalicelib.model.errors import MALFORMED

T = TypeVar("T")

LARGEST_UNPACKED = 32_000_000  # bytes for each piece
NOT_DECODED: tuple[type[Exception], ...] = (*MALFORMED, zlib.error)
"""The errors that decoding a row may raise, whatever it contains."""
PIECE = 300_000  # bytes of one compressed piece; DynamoDB's limit for an item is 400 KB


def encode(value: Any) -> bytes:
    """Return JSON with sorted keys."""
    return msgspec.json.encode(value, order="deterministic")


def decode(data: bytes | str, kind: type[T]) -> T:
    """Return the value; fields that this release does not know are ignored."""
    return msgspec.json.decode(data, type=kind)


def canonical(value: Any, kind: Any) -> bytes:
    """Return the canonical encoding of what a reader of this release would get."""
    return encode(msgspec.json.decode(encode(value), type=kind))


def fingerprint(data: bytes) -> str:
    """Return 20 hexadecimal digits; an accidental collision is practically impossible, and a
    deliberate one gains nothing."""
    return hashlib.sha256(data).hexdigest()[:20]


def pack(data: bytes) -> tuple[bytes, ...]:
    """Compress and split into pieces that each fit an item."""
    packed = zlib.compress(data, 6)
    return tuple(packed[at : at + PIECE] for at in range(0, len(packed), PIECE))


def unpack(pieces: tuple[bytes, ...]) -> bytes:
    """Return what `pack` was given. Raises zlib.error, and ValueError for more than is ever packed:
    a row of 400 KB may expand to 400 MB."""
    unpacker, packed = zlib.decompressobj(), b"".join(pieces)
    data = unpacker.decompress(packed, LARGEST_UNPACKED * len(pieces) + 1)
    if not unpacker.eof or len(data) > LARGEST_UNPACKED * len(pieces):
        raise ValueError("a packed value is cut off, or expands to more than is ever stored")
    return data
