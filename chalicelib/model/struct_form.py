"""A digest of the types that stored data is decoded with, so that data of
other types is recognized.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import msgspec

DIGITS = 20


@cache
def form_of(kind: type, *more: str | int) -> str:
    """Return 20 hexadecimal digits that stand for a type: every field, default and enumeration that
    it consists of. more: what else the digits stand for, such as a number of the format."""
    text = msgspec.json.encode([*more, parts_of(kind)], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:DIGITS]


def parts_of(kind: type) -> dict[str, list[str]]:
    """Return every struct and enumeration that a type consists of, by name, with a
    text per field or member."""
    described: dict[str, list[str]] = {}
    _describe(kind, described)
    return described


def _describe(kind: Any, described: dict[str, list[str]]) -> None:
    """Add every struct and enumeration that a type consists of."""
    for part in get_args(kind):
        _describe(part, described)
    name = getattr(kind, "__name__", "")
    if name in described or not isinstance(kind, type):
        return
    if issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        described[name] = [
            f"{one.name} {one.encode_name} {_bare(one.type)} {one.default!r} "
            f"{one.default_factory!r}"
            for one in fields
        ]
        for one in fields:
            _describe(_bare(one.type), described)
    elif hasattr(kind, "__members__"):
        described[name] = [f"{key} {one.value!r}" for key, one in kind.__members__.items()]


def _bare(kind: Any) -> Any:
    """Return a type without what is declared beside it, which decoders do not read."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
