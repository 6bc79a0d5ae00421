"""Condition expressions, and the key condition of a query.

NOT binds tighter than AND, AND tighter than OR. A comparison of different types does not hold, and neither does one
with an attribute that is not there; only `<>` holds then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from infra.emulators.dynamodb.errors import invalid
from infra.emulators.dynamodb.expressions import Operand, Reader, Scope, of_path
from infra.emulators.dynamodb.values import ORDERED, Value, comparable, kind, same, word

WHAT = "ConditionExpression"

Test = Callable[[Scope], bool]
Ordered = Callable[[Value, Value], bool]


class Condition(NamedTuple):
    """holds: whether it is true of a row. names, values: the placeholders it uses."""

    holds: Test
    names: frozenset[str]
    values: frozenset[str]


@functools.lru_cache(maxsize=4096)
def condition(text: str) -> Condition:
    """Read it; ValidationException where it is none."""
    reader = Reader(text, WHAT)
    test = _either(reader)
    reader.end()
    return Condition(test, frozenset(reader.names), frozenset(reader.values))


def _either(reader: Reader) -> Test:
    tests = [_both(reader)]
    while reader.has("OR"):
        tests.append(_both(reader))
    return tests[0] if len(tests) == 1 else lambda scope: any(test(scope) for test in tests)


def _both(reader: Reader) -> Test:
    tests = [_not(reader)]
    while reader.has("AND"):
        tests.append(_not(reader))
    return tests[0] if len(tests) == 1 else lambda scope: all(test(scope) for test in tests)


def _not(reader: Reader) -> Test:
    if reader.has("NOT"):
        test = _not(reader)
        return lambda scope: not test(scope)
    return _single(reader)


def _single(reader: Reader) -> Test:
    if reader.has("("):
        doubled = reader.next == "("
        test = _either(reader)
        if doubled and reader.next == ")" and _closes_itself(reader):
            raise invalid(f"Invalid {WHAT}: The expression has redundant parentheses;")
        reader.want(")")
        return test
    function = _FUNCTIONS.get(reader.next)
    if function is not None and reader.look(1) == "(":
        reader.take()
        reader.want("(")
        made = function(reader)
        reader.want(")")
        return made
    return _comparison(reader)


def _closes_itself(reader: Reader) -> bool:
    """Whether what stands between a pair of parentheses is one more pair and nothing else."""
    depth = 0
    for back in range(1, 10_000):
        found = reader.look(-back)
        depth += (found == ")") - (found == "(")
        if depth == 0:
            return reader.look(-back - 1) == "("
    return False


def _comparison(reader: Reader) -> Test:
    left = reader.operand()
    if reader.has("BETWEEN"):
        low = reader.operand()
        reader.want("AND")
        high = reader.operand()
        return lambda scope: _ordered(left, low, scope, ">=") and _ordered(left, high, scope, "<=")
    if reader.has("IN"):
        reader.want("(")
        among = [reader.operand()]
        while reader.has(","):
            among.append(reader.operand())
        reader.want(")")
        return lambda scope: any(same(left(scope), each(scope)) for each in among)
    sign = reader.take()
    right = reader.operand() if sign in _SIGNS or sign in ("=", "<>") else None
    if right is None:
        raise reader.wrong()
    return _compared(left, right, sign)


def _compared(left: Operand, right: Operand, sign: str) -> Test:
    if sign == "=":
        return lambda scope: same(left(scope), right(scope))
    if sign == "<>":
        return lambda scope: not same(left(scope), right(scope))
    return lambda scope: _ordered(left, right, scope, sign)


_SIGNS: Mapping[str, Ordered] = {
    "<": lambda one, other: bool(comparable(one) < comparable(other)),
    "<=": lambda one, other: bool(comparable(one) <= comparable(other)),
    ">": lambda one, other: bool(comparable(one) > comparable(other)),
    ">=": lambda one, other: bool(comparable(one) >= comparable(other)),
}


def _ordered(left: Operand, right: Operand, scope: Scope, sign: str) -> bool:
    one, other = left(scope), right(scope)
    for value in (one, other):
        if value is not None and kind(value) not in ORDERED and value in scope.values.values():
            raise _wrong_operand(sign, value)
    if one is None or other is None or kind(one) != kind(other) or kind(one) not in ORDERED:
        return False
    return _SIGNS[sign](one, other)


def _wrong_operand(what: str, value: Value) -> Exception:
    return invalid(
        f"Invalid {WHAT}: Incorrect operand type for operator or function; operator or function: {what}, "
        f"operand type: {word(value)}"
    )


# --- functions


def _exists(reader: Reader) -> Test:
    at = of_path(reader.path())
    return lambda scope: at(scope) is not None


def _not_exists(reader: Reader) -> Test:
    at = of_path(reader.path())
    return lambda scope: at(scope) is None


def _two(reader: Reader) -> tuple[Operand, Operand]:
    first = of_path(reader.path())
    reader.want(",")
    return first, reader.operand()


def _begins(reader: Reader) -> Test:
    at, start = _two(reader)

    def holds(scope: Scope) -> bool:
        one, other = at(scope), start(scope)
        if other is not None and kind(other) not in ("S", "B"):
            raise _wrong_operand("begins_with", other)
        return (
            one is not None
            and other is not None
            and kind(one) == kind(other)
            and bool(one[kind(one)].startswith(other[kind(other)]))
        )

    return holds


def _contains(reader: Reader) -> Test:
    at, part = _two(reader)

    def holds(scope: Scope) -> bool:
        one, other = at(scope), part(scope)
        if one is None or other is None:
            return False
        name, content = kind(one), one[kind(one)]
        if name in ("S", "B"):
            return kind(other) == name and other[name] in content
        if name in ("SS", "NS", "BS"):
            return kind(other) == name[0] and other[name[0]] in content
        return name == "L" and any(same(each, other) for each in content)

    return holds


def _is_type(reader: Reader) -> Test:
    at, name = _two(reader)

    def holds(scope: Scope) -> bool:
        one, wanted = at(scope), name(scope)
        return one is not None and wanted is not None and kind(one) == wanted.get("S")

    return holds


_FUNCTIONS: Mapping[str, Callable[[Reader], Test]] = {
    "attribute_exists": _exists,
    "attribute_not_exists": _not_exists,
    "begins_with": _begins,
    "contains": _contains,
    "attribute_type": _is_type,
}


# --- the key condition of a query


class KeyCondition(NamedTuple):
    """`partition = :p`, perhaps with something about the sort key.

    partition, sort: names or placeholders of names, sort "" where it is not mentioned. of: the value of the
    partition. how: =, <, <=, >, >=, BETWEEN, begins_with, or "". bounds: placeholders of its values.
    """

    partition: str
    of: str
    sort: str
    how: str
    bounds: tuple[str, ...]
    names: frozenset[str]
    values: frozenset[str]


@functools.lru_cache(maxsize=1024)
def key_condition(text: str) -> KeyCondition:
    """Read it; ValidationException where it is none."""
    reader = Reader(text, "KeyConditionExpression")
    terms = [_key_term(reader)]
    if reader.has("AND"):
        terms.append(_key_term(reader))
    reader.end()
    terms.sort(key=lambda term: term[1] != "=")  # the partition's comes first, whichever way they stand
    (name, how, of), (sort, sort_how, bounds) = terms[0], (terms[1:] or [("", "", ())])[0]
    if how != "=":
        raise invalid("Query key condition not supported")
    return KeyCondition(name, of[0], sort, sort_how, bounds, frozenset(reader.names), frozenset(reader.values))


def _key_term(reader: Reader) -> tuple[str, str, tuple[str, ...]]:
    if reader.has("("):
        term = _key_term(reader)
        reader.want(")")
        return term
    if reader.next == "begins_with" and reader.look(1) == "(":
        reader.take()
        reader.want("(")
        name = _key_name(reader)
        reader.want(",")
        start = reader.value()
        reader.want(")")
        return name, "begins_with", (start,)
    name = _key_name(reader)
    if reader.has("BETWEEN"):
        low = reader.value()
        reader.want("AND")
        return name, "BETWEEN", (low, reader.value())
    sign = reader.take()
    if sign != "=" and sign not in _SIGNS:
        raise invalid(f"Invalid operator used in KeyConditionExpression: {sign or '<EOF>'}")
    return name, sign, (reader.value(),)


def _key_name(reader: Reader) -> str:
    (name,) = reader.path()
    return str(name)
