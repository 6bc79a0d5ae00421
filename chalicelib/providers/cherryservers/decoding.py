"""Decodes responses that deviate from the documentation, so that one unexpected value does not hide a project's
servers.

A key with a wrong type counts as missing, with two exceptions. A row without a usable id is invalid, and so is a list
that contains one, because an underestimated number of servers leads to purchases. Tags decide which pool owns a server:
a map of tags is read value by value, and any other value except null fails the list for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from chalicelib.net.json_repair import read_json
from chalicelib.providers.errors import Transient, Unknown
from chalicelib.providers.http import VendorResponse

S = TypeVar("S", bound=msgspec.Struct)

_DEEPEST = 8  # maximum nesting of structs; the deepest of models.py has four
_DECISIVE = "tags"  # of the item itself, not of its nested objects


def read_one(response: VendorResponse, kind: type[S]) -> S:
    """Decode the response's body as that struct. Raises Transient if it is not JSON, Unknown if it is not such an
    item."""
    return read_row(decoded(response), kind, response.call)


def decoded(response: VendorResponse) -> Any:
    """Return the response's body as JSON. Raises Transient if it is not JSON."""
    try:
        return read_json(response.body)
    except msgspec.DecodeError:
        raise Transient(f"{response.call}: the answer is not complete JSON") from None


def read_row(value: Any, kind: type[S], place: str) -> S:
    """Decode a value as that struct. Raises Unknown if it is not such an item. place: for the error."""
    with suppress(msgspec.ValidationError, OverflowError, RecursionError):
        return msgspec.convert(value, kind, strict=False)
    try:  # key by key
        return _struct(value, kind, _DEEPEST)
    except msgspec.ValidationError as error:
        raise Unknown(f"{place}: the answer has another shape than expected: {error}") from None


def _struct(value: Any, kind: type[S], depth: int) -> S:
    """Raises ValidationError only for a value that is not an object, a missing required key, and tags that are not a
    map."""
    if not isinstance(value, Mapping):
        raise msgspec.ValidationError(f"{kind.__name__} is not an object")
    if depth <= 0:
        raise msgspec.ValidationError("nested too deeply")
    found: dict[str, Any] = {}
    for name, hint, required in _fields(kind):
        if name not in value:
            if required:
                raise msgspec.ValidationError(f"it has no {name}")
            continue
        try:
            found[name] = _value(value[name], hint, depth)
        except (msgspec.ValidationError, OverflowError):
            if required or (name == _DECISIVE and depth == _DEEPEST):
                raise msgspec.ValidationError(f"its {name} cannot be read") from None
    return kind(**found)


@lru_cache(maxsize=64)
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, bool], ...]:
    """Return (name, type, whether it has no default) of a struct's fields, which are named as its JSON keys."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((field.name, hints[field.name], field.required) for field in msgspec.structs.fields(kind))


def _value(value: Any, kind: Any, depth: int) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(value, kind, depth - 1)
    if origin is tuple:
        return _items(value, inner[0], depth)
    if origin is dict:
        return _texts(value)
    if origin in (Union, UnionType) and value is not None:
        return _value(value, next(each for each in inner if each is not type(None)), depth)
    return msgspec.convert(value, kind, strict=False)


def _items(value: Any, kind: Any, depth: int) -> tuple[Any, ...]:
    """Return the items that can be decoded."""
    if not isinstance(value, list):
        raise msgspec.ValidationError("no list")
    found = []
    for item in value:
        try:
            found.append(_value(item, kind, depth))
        except (msgspec.ValidationError, OverflowError):
            continue
    return tuple(found)


def _texts(value: Any) -> dict[str, str]:
    """Return a map of texts; numbers are kept as written. PHP encodes an empty map as an empty list."""
    if value is None or value in ([], ""):
        return {}
    if not isinstance(value, Mapping):
        raise msgspec.ValidationError("no map")
    return {key: each if isinstance(each, str) else msgspec.json.encode(each).decode() for key, each in value.items()}
