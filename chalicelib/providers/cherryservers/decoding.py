"""Reading answers that are not quite as documented, so that one strange value does not hide a project's servers.

A key of a wrong type counts as not sent, with two exceptions. A row without a usable id is no row, and a list with one
is no list: who counts fewer servers than there are buys more. And tags decide whose a server is: as long as they are a
map they are read, value by value, and anything else than a map or nothing fails the list for the same reason.
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

_DEEPEST = 8  # structs within structs; the deepest of wire.py has four
_DECISIVE = "tags"  # of the thing itself, not of what hangs on it


def read_one(answer: VendorResponse, kind: type[S]) -> S:
    """The answer's body as that struct. Raises Transient for what is no JSON, Unknown for what is no such thing."""
    return read_row(decoded(answer), kind, answer.call)


def read_list(answer: VendorResponse, kind: type[S]) -> list[S]:
    """The answer's body as a list of it; raises as read_one, also where a single row cannot be read."""
    rows = decoded(answer)
    if not isinstance(rows, list):
        raise Unknown(f"{answer.call}: the answer is no list")
    return [read_row(row, kind, f"{answer.call}: row {number}") for number, row in enumerate(rows)]


def decoded(answer: VendorResponse) -> Any:
    """The answer's body. Raises Transient for what is no JSON."""
    try:
        return read_json(answer.body)
    except msgspec.DecodeError:
        raise Transient(f"{answer.call}: the answer is not complete JSON") from None


def read_row(value: Any, kind: type[S], place: str) -> S:
    """A value as that struct. Raises Unknown for what is no such thing. place: where it stands."""
    with suppress(msgspec.ValidationError, OverflowError, RecursionError):
        return msgspec.convert(value, kind, strict=False)
    try:  # key by key
        return _struct(value, kind, _DEEPEST)
    except msgspec.ValidationError as error:
        raise Unknown(f"{place}: the answer has another shape than expected: {error}") from None


def _struct(value: Any, kind: type[S], depth: int) -> S:
    """Raises ValidationError only for what is no object, a key that has no default, and tags that are none."""
    if not isinstance(value, Mapping):
        raise msgspec.ValidationError(f"{kind.__name__} is no object")
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
    """(name, type, whether it has no default) of a struct, whose keys are named as its fields are."""
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
    """Those that can be read."""
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
    """A map of texts; numbers count as they are written. PHP writes an empty map as an empty list."""
    if value is None or value in ([], ""):
        return {}
    if not isinstance(value, Mapping):
        raise msgspec.ValidationError("no map")
    return {key: each if isinstance(each, str) else msgspec.json.encode(each).decode() for key, each in value.items()}
