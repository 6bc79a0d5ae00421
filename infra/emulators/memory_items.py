"""Items of the in-memory table: stored values, sizes, and PynamoDB's conditions and actions applied to an item.

An item is a dict of attribute values in the API's form: {"owner": {"S": "..."}}. The store uses only strings, numbers
and binary values at the top level. Anything else raises NotImplementedError, so that a new use in the store is noticed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow, Underflow
from typing import Any, NamedTuple

from botocore.exceptions import ClientError
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.operand import Path, Value
from pynamodb.expressions.update import Action, AddAction, RemoveAction, SetAction

from chalicelib.store.tables import PARTITION_KEY, SORT_KEY

Json = dict[str, Any]
Item = dict[str, dict[str, Any]]

LARGEST_ITEM = 400 * 1024  # bytes
_KEYS = frozenset({PARTITION_KEY, SORT_KEY})
_NUMBERS = Context(prec=38, Emax=125, Emin=-130, traps=[Inexact, InvalidOperation, Overflow, Underflow])
_SUMS = Context(prec=38)


def refusal(code: str, message: str, **more: Any) -> ClientError:
    """Return botocore's error for a response of DynamoDB. more: other members of the response (Item,
    CancellationReasons)."""
    status = {"HTTPStatusCode": 400}
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": status, **more}
    return ClientError(answer, "InMemory")


def invalid(message: str) -> ClientError:
    """ValidationException."""
    return refusal("ValidationException", message)


class Kept(NamedTuple):
    """A stored item and its size in bytes."""

    item: Item
    size: int


def kept(item: Mapping[str, Mapping[str, Any]]) -> Kept:
    """Return a copy in the form that DynamoDB stores. Raises ClientError for a value or a size that DynamoDB
    rejects."""
    made = {name: stored(value) for name, value in item.items()}
    size = item_size(made)
    if size > LARGEST_ITEM:
        raise invalid("Item size has exceeded the maximum allowed size")
    return Kept(made, size)


def shown(item: Item) -> Item:
    """A copy for a reader."""
    return {name: dict(value) for name, value in item.items()}


def stored(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an attribute value; a number becomes plain decimal digits without superfluous zeros."""
    ((kind, content),) = value.items()
    if kind == "N":
        return {"N": _number(content)}
    if kind not in _SIZES:
        raise NotImplementedError(f"attribute type {kind} (infra/emulators/memory_items.py)")
    return {kind: bytes(content) if kind == "B" else content}


@functools.lru_cache(maxsize=65536)
def _number(text: str) -> str:
    try:
        found = _NUMBERS.create_decimal(text)
    except DecimalException:
        raise invalid(f"The number has too many digits, or is out of range: {text}") from None
    if not found.is_finite():
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}")
    return format(found.normalize(_NUMBERS), "f") if found else "0"


# --- sizes, as the Developer Guide counts them ("DynamoDB item sizes and formats")


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the bytes of an item, including the names of its attributes."""
    return sum(
        _text_size(name) + _SIZES[kind](content) for name, value in item.items() for kind, content in value.items()
    )


def _text_size(content: str) -> int:
    return len(content) if content.isascii() else len(content.encode())


def _number_size(content: str) -> int:
    digits = content.strip("-0.").replace(".", "")
    return (len(digits) + 1) // 2 + 1 + content.startswith("-")


_SIZES: Mapping[str, Callable[[Any], int]] = {"S": _text_size, "N": _number_size, "B": len, "NULL": lambda _: 1}


# --- conditions


def holds(condition: Condition, item: Item) -> bool:
    """Return whether PynamoDB's condition is true for the item, which is empty if there is none."""
    test = _TESTS.get(condition.operator)
    if test is None:
        raise NotImplementedError(f"condition {condition.operator} (infra/emulators/memory_items.py)")
    return test(item, *condition.values)


def _operand(item: Item, operand: Any) -> dict[str, Any] | None:
    if isinstance(operand, Path):
        return item.get(_name(operand))
    if isinstance(operand, Value):
        return stored(operand.value)
    raise NotImplementedError(f"operand {operand} (infra/emulators/memory_items.py)")


def _name(path: Any) -> str:
    (name,) = path.path
    return str(name)


def _same(item: Item, left: Any, right: Any) -> bool:
    one = _operand(item, left)
    return one is not None and one == _operand(item, right)


def _ordered(item: Item, left: Any, right: Any, compare: Callable[[Any, Any], bool]) -> bool:
    one, other = _operand(item, left), _operand(item, right)
    if one is None or other is None or one.keys() != other.keys():
        return False
    ((kind, content),) = one.items()
    return compare(Decimal(content), Decimal(other[kind])) if kind == "N" else compare(content, other[kind])


_TESTS: Mapping[str, Callable[..., bool]] = {
    "AND": lambda item, left, right: holds(left, item) and holds(right, item),
    "OR": lambda item, left, right: holds(left, item) or holds(right, item),
    "NOT": lambda item, negated: not holds(negated, item),
    "attribute_exists": lambda item, path: _operand(item, path) is not None,
    "attribute_not_exists": lambda item, path: _operand(item, path) is None,
    "=": _same,
    "<>": lambda item, left, right: not _same(item, left, right),
    "IN": lambda item, left, *among: any(_same(item, left, each) for each in among),
    "BETWEEN": lambda item, one, low, high: (
        _ordered(item, one, low, operator.ge) and _ordered(item, one, high, operator.le)
    ),
    **{
        sign: functools.partial(_ordered, compare=compare)
        for sign, compare in (("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge))
    },
}


# --- actions


def updated(item: Item, actions: Sequence[Action]) -> Item:
    """Return the item after PynamoDB's actions. Every action sees the item as it was before all of them."""
    names = [_name(action.values[0]) for action in actions]
    if len(set(names)) < len(names):
        raise invalid("Invalid UpdateExpression: Two document paths overlap with each other")
    if _KEYS.intersection(names):
        raise invalid(
            "One or more parameter values were invalid: Cannot update attribute. This attribute is part of the key"
        )
    made = dict(item)
    for name, action in zip(names, actions, strict=True):
        if isinstance(action, RemoveAction):
            made.pop(name, None)
        elif isinstance(action, SetAction):
            made[name] = _there(_operand(item, action.values[1]))
        elif isinstance(action, AddAction):
            made[name] = _sum(item.get(name, {"N": "0"}), _there(_operand(item, action.values[1])))
        else:
            raise NotImplementedError(f"action {action} (infra/emulators/memory_items.py)")
    return made


def _there(value: dict[str, Any] | None) -> dict[str, Any]:
    if value is None:
        raise invalid("The provided expression refers to an attribute that does not exist in the item")
    return value


def _sum(old: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    if old.keys() != {"N"} or added.keys() != {"N"}:
        raise invalid("An operand in the update expression has an incorrect data type")
    return {"N": _number(str(_SUMS.add(Decimal(old["N"]), Decimal(added["N"]))))}
