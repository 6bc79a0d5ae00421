"""Attribute values: what may be stored, what is equal, what comes first, how large it is.

A value is a dict of one entry, its type and its content, as in the API: {"S": "…"}. Values are never changed once they
are stored; `stored` and `shown` copy, so neither a caller's hand nor a reader's reaches into the table.
Numbers are kept as DynamoDB gives them back: plain decimal digits without needless zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from infra.emulators.dynamodb.errors import bad_value, invalid

Value = dict[str, Any]
Item = dict[str, Value]

MOST_DIGITS = 38
LARGEST, SMALLEST = Decimal("9.9999999999999999999999999999999999999E+125"), Decimal("1E-130")
LARGEST_ITEM = 400 * 1024  # bytes
DEEPEST = 32

_WORDS = {
    "S": "STRING",
    "N": "NUMBER",
    "B": "BINARY",
    "SS": "STRING_SET",
    "NS": "NUMBER_SET",
    "BS": "BINARY_SET",
    "BOOL": "BOOLEAN",
    "NULL": "NULL",
    "L": "LIST",
    "M": "MAP",
}
ORDERED = frozenset({"S", "N", "B"})


def kind(value: Value) -> str:
    """Its type as the API abbreviates it."""
    return next(iter(value))


def word(value: Value) -> str:
    """Its type as messages spell it."""
    return _WORDS[kind(value)]


@functools.lru_cache(maxsize=65536)
def number(text: str) -> str:
    """A number as DynamoDB gives it back; ValidationException where it cannot be one."""
    try:
        found = Decimal(text)
    except (InvalidOperation, TypeError):
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}") from None
    if not found.is_finite():
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}")
    if not found:
        return "0"
    found = found.normalize() if len(found.as_tuple().digits) <= 28 else _trimmed(found)
    if len(found.as_tuple().digits) > MOST_DIGITS:
        raise invalid("Attempting to store more than 38 significant digits in a Number")
    if abs(found) > LARGEST:
        raise invalid("Number overflow. Attempting to store a number with magnitude larger than supported range")
    if abs(found) < SMALLEST:
        raise invalid("Number underflow. Attempting to store a number with magnitude smaller than supported range")
    return format(found, "f")


def _trimmed(found: Decimal) -> Decimal:
    """Without zeros at its end; normalize() would round to the context's precision."""
    sign, digits, exponent = found.as_tuple()
    assert isinstance(exponent, int)
    kept = list(digits)
    while len(kept) > 1 and kept[-1] == 0:
        kept.pop()
        exponent += 1
    while len(kept) > 1 and kept[0] == 0:
        kept.pop(0)
    return Decimal((sign, tuple(kept), exponent))


def stored(value: Value, depth: int = 0) -> Value:
    """A copy as it is kept; ValidationException where DynamoDB would not keep it."""
    if not isinstance(value, dict) or len(value) != 1:
        raise invalid(
            "Supplied AttributeValue has more than one datatypes set, "
            "must contain exactly one of the supported datatypes"
        )
    if depth > DEEPEST:
        raise invalid("Nesting Levels have exceeded supported limits")
    ((name, content),) = value.items()
    kept = _KEPT.get(name)
    if kept is None:
        raise invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
    return {name: kept(content, depth)}


def _text(content: Any, depth: int) -> str:
    del depth
    if not isinstance(content, str):
        raise invalid("Start of structure or map found where not expected")
    return content


def _number(content: Any, depth: int) -> str:
    return number(_text(content, depth))


def _bytes(content: Any, depth: int) -> bytes:
    del depth
    return content if isinstance(content, bytes) else bytes(content)


def _set(one: Callable[[Any, int], Any]) -> Callable[[Any, int], list[Any]]:
    def kept(content: Any, depth: int) -> list[Any]:
        made = [one(each, depth) for each in content]
        if not made:
            raise bad_value("An number set  may not be empty" if one is _number else "An string set  may not be empty")
        if len(set(made)) != len(made):
            raise bad_value(f"Input collection {content} contains duplicates.")
        return made

    return kept


def _list(content: Any, depth: int) -> list[Value]:
    return [stored(each, depth + 1) for each in content]


def _map(content: Any, depth: int) -> Item:
    return {name: stored(each, depth + 1) for name, each in content.items()}


def _null(content: Any, depth: int) -> bool:
    del depth
    if content is not True:
        raise bad_value("Null attribute value types must have the value of true")
    return True


_KEPT: Mapping[str, Callable[[Any, int], Any]] = {
    "S": _text,
    "N": _number,
    "B": _bytes,
    "BOOL": lambda content, _: bool(content),
    "NULL": _null,
    "SS": _set(_text),
    "NS": _set(_number),
    "BS": _set(_bytes),
    "L": _list,
    "M": _map,
}
_PLAIN = frozenset({"S", "N", "B", "BOOL", "NULL"})


def shown(value: Value) -> Value:
    """A copy for a reader."""
    ((name, content),) = value.items()
    if name in _PLAIN:
        return {name: content}
    if name == "M":
        return {name: {key: shown(each) for key, each in content.items()}}
    return {name: [shown(each) for each in content] if name == "L" else list(content)}


def shown_item(item: Item) -> Item:
    """The same of a whole row."""
    return {name: shown(value) for name, value in item.items()}


def size(value: Value) -> int:
    """Bytes, as DynamoDB counts them (Developer Guide, "DynamoDB item sizes and formats")."""
    ((name, content),) = value.items()
    return _SIZES[name](content)


def _text_size(content: str) -> int:
    return len(content) if content.isascii() else len(content.encode())


def _number_size(content: str) -> int:
    digits = content.strip("-0.").replace(".", "")
    return (len(digits) + 1) // 2 + 1 + content.startswith("-")


def _many(one: Callable[[Any], int]) -> Callable[[Any], int]:
    return lambda content: sum(map(one, content))


_SIZES: Mapping[str, Callable[[Any], int]] = {
    "S": _text_size,
    "N": _number_size,
    "B": len,
    "BOOL": lambda _: 1,
    "NULL": lambda _: 1,
    "SS": _many(_text_size),
    "NS": _many(_number_size),
    "BS": _many(len),
    "L": lambda content: 3 + sum(1 + size(each) for each in content),
    "M": lambda content: 3 + sum(1 + _text_size(key) + size(each) for key, each in content.items()),
}


def item_size(item: Item) -> int:
    """Bytes of a row, names included."""
    return sum(_text_size(name) + size(value) for name, value in item.items())


def comparable(value: Value) -> Any:
    """What Python compares; only within one type."""
    ((name, content),) = value.items()
    return Decimal(content) if name == "N" else content


def same(one: Value | None, other: Value | None) -> bool:
    """Equal as `=` means it; what is not there equals nothing."""
    if one is None or other is None or one.keys() != other.keys():
        return False
    name = kind(one)
    return _SAME.get(name, _plainly)(one[name], other[name])


def _plainly(left: Any, right: Any) -> bool:
    return bool(left == right)


_SAME: Mapping[str, Callable[[Any, Any], bool]] = {  # numbers are kept in one way of writing each
    "SS": lambda left, right: set(left) == set(right),
    "NS": lambda left, right: set(left) == set(right),
    "BS": lambda left, right: set(left) == set(right),
    "L": lambda left, right: len(left) == len(right) and all(map(same, left, right)),
    "M": lambda left, right: left.keys() == right.keys() and all(same(left[key], right[key]) for key in left),
}
