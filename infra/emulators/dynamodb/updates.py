"""Update expressions: SET, REMOVE, ADD, DELETE, each at most once.

Every right-hand side is of the row as it was, whatever the same expression changes; that is why values are found first
and written afterwards.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from infra.emulators.dynamodb.errors import bad_value, invalid
from infra.emulators.dynamodb.expressions import Operand, Parts, Reader, Scope, member, of_path, of_value, resolved
from infra.emulators.dynamodb.values import Item, Value, kind, number, same, shown_item, word

WHAT = "UpdateExpression"

Change = Callable[[Scope], Value | None]  # the value for the path; None takes it away


class Update(NamedTuple):
    """changes: what each path becomes. names, values: the placeholders it uses."""

    changes: tuple[tuple[Parts, Change], ...]
    names: frozenset[str]
    values: frozenset[str]


@functools.lru_cache(maxsize=4096)
def update(text: str) -> Update:
    """Read it; ValidationException where it is none."""
    reader = Reader(text, WHAT)
    changes: list[tuple[Parts, Change]] = []
    seen: set[str] = set()
    while reader.next:
        clause = reader.keyword
        if clause not in _CLAUSES:
            raise reader.wrong()
        if clause in seen:
            raise invalid(f'Invalid {WHAT}: The "{clause}" section can only be used once in an update expression;')
        seen.add(clause)
        reader.take()
        changes.append(_CLAUSES[clause](reader))
        while reader.has(","):
            changes.append(_CLAUSES[clause](reader))
    return Update(tuple(changes), frozenset(reader.names), frozenset(reader.values))


def apply(made: Update, scope: Scope, keys: frozenset[str]) -> Item:
    """The row as the update leaves it. keys: attributes that it may not touch."""
    paths = [resolved(parts, scope.names) for parts, _ in made.changes]
    _check_paths(paths, keys)
    values = [change(scope) for _, change in made.changes]
    new = dict(scope.item) if all(len(path) == 1 for path in paths) else shown_item(scope.item)
    removed = []
    for path, value in zip(paths, values, strict=True):
        if value is None:
            removed.append(path)
        else:
            _set_at(new, path, value)
    for path in sorted(removed, key=lambda path: [-part if isinstance(part, int) else 0 for part in path]):
        _remove_at(new, path)
    return new


def _check_paths(paths: list[Parts], keys: frozenset[str]) -> None:
    for path in paths:
        if path[0] in keys:
            raise bad_value(f"Cannot update attribute {path[0]}. This attribute is part of the key")
    ordered = sorted(paths, key=lambda path: [str(part) for part in path])
    for one, other in itertools.pairwise(ordered):
        if other[: len(one)] == one:
            raise invalid(
                f"Invalid {WHAT}: Two document paths overlap with each other; must remove or rewrite one of "
                f"these paths; path one: {list(one)}, path two: {list(other)}".replace("'", "")
            )


def _holder(item: Item, path: Parts) -> Value | None:
    at: Value | None = {"M": item}
    for part in path[:-1]:
        at = member(at, part)
    return at


def _no_such_path() -> Exception:
    return invalid("The document path provided in the update expression is invalid for update")


def _set_at(item: Item, path: Parts, value: Value) -> None:
    holder, last = _holder(item, path), path[-1]
    if holder is None or kind(holder) != ("L" if isinstance(last, int) else "M"):
        raise _no_such_path()
    content: Any = holder[kind(holder)]
    if isinstance(last, int) and last >= len(content):
        content.append(value)
    else:
        content[last] = value


def _remove_at(item: Item, path: Parts) -> None:
    holder, last = _holder(item, path), path[-1]
    if holder is None:
        if len(path) > 1:
            raise _no_such_path()
        return
    if isinstance(last, int):
        if last < len(holder.get("L", ())):
            del holder["L"][last]
    else:
        holder.get("M", {}).pop(last, None)


# --- clauses


def _set(reader: Reader) -> tuple[Parts, Change]:
    path = reader.path()
    reader.want("=")
    left = _set_value(reader)
    if reader.next in ("+", "-"):
        sign, right = reader.take(), _set_value(reader)
        return path, lambda scope: _summed(_there(left(scope)), _there(right(scope)), sign)
    return path, lambda scope: _there(left(scope))


def _set_value(reader: Reader) -> Operand:
    if reader.next == "if_not_exists" and reader.look(1) == "(":
        reader.take()
        reader.want("(")
        at = of_path(reader.path())
        reader.want(",")
        other = _set_value(reader)
        reader.want(")")
        return lambda scope: at(scope) or other(scope)
    if reader.next == "list_append" and reader.look(1) == "(":
        reader.take()
        reader.want("(")
        first = _set_value(reader)
        reader.want(",")
        second = _set_value(reader)
        reader.want(")")
        return lambda scope: {"L": [*_of_type(first(scope), "L")["L"], *_of_type(second(scope), "L")["L"]]}
    if reader.has("("):
        inner = _set_value(reader)
        reader.want(")")
        return inner
    return of_value(reader.value()) if reader.next.startswith(":") else of_path(reader.path())


def _there(value: Value | None) -> Value:
    if value is None:
        raise invalid("The provided expression refers to an attribute that does not exist in the item")
    return value


def _of_type(value: Value | None, name: str) -> Value:
    if kind(_there(value)) != name:
        raise invalid("An operand in the update expression has an incorrect data type")
    return _there(value)


def _summed(left: Value, right: Value, sign: str) -> Value:
    one, other = (Decimal(_of_type(value, "N")["N"]) for value in (left, right))
    return {"N": number(str(one + other if sign == "+" else one - other))}


def _remove(reader: Reader) -> tuple[Parts, Change]:
    return reader.path(), lambda _scope: None


def _add(reader: Reader) -> tuple[Parts, Change]:
    path = reader.path()
    at, given = of_path(path), of_value(reader.value())

    def made(scope: Scope) -> Value:
        old, extra = at(scope), _there(given(scope))
        name = kind(extra)
        if name not in ("N", "SS", "NS", "BS"):
            raise _wrong_operand("ADD", extra)
        if old is None:
            return extra
        if kind(old) != name:
            raise invalid("An operand in the update expression has an incorrect data type")
        if name == "N":
            return _summed(old, extra, "+")
        return {name: [*old[name], *(each for each in extra[name] if each not in old[name])]}

    return path, made


def _delete(reader: Reader) -> tuple[Parts, Change]:
    path = reader.path()
    at, given = of_path(path), of_value(reader.value())

    def made(scope: Scope) -> Value | None:
        old, less = at(scope), _there(given(scope))
        name = kind(less)
        if name not in ("SS", "NS", "BS"):
            raise _wrong_operand("DELETE", less)
        if old is None:
            return None
        if kind(old) != name:
            raise invalid("An operand in the update expression has an incorrect data type")
        left = [each for each in old[name] if each not in less[name]]
        return None if not left or same({name: less[name]}, old) else {name: left}

    return path, made


def _wrong_operand(operator: str, value: Value) -> Exception:
    return invalid(
        f"Invalid {WHAT}: Incorrect operand type for operator or function; operator: {operator}, "
        f"operand type: {word(value)}, typeSet: ALLOWED_FOR_{operator}_OPERAND"
    )


_CLAUSES: Mapping[str, Callable[[Reader], tuple[Parts, Change]]] = {
    "SET": _set,
    "REMOVE": _remove,
    "ADD": _add,
    "DELETE": _delete,
}
