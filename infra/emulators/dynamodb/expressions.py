"""Words, paths and operands of expressions (Developer Guide, "Expressions in DynamoDB").

An expression is read once per text and becomes a function of a scope: the row, and what the placeholders stand for.
Reserved words are not refused as plain names: nothing of ours writes an attribute's name into an expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from infra.emulators.dynamodb.errors import invalid
from infra.emulators.dynamodb.values import Item, Value, kind, size


class Scope(NamedTuple):
    """What an expression is about. item: the row as it is, empty where there is none."""

    item: Item
    names: Mapping[str, str]
    values: Mapping[str, Value]


Operand = Callable[[Scope], Value | None]
Parts = tuple[str | int, ...]

_WORD = re.compile(r"\s*(?:([#:]?[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*)|(<>|<=|>=|[=<>()\[\],.+-]))")


class Reader:
    """The words of one expression, one after the other. what: its name in the request, for messages."""

    def __init__(self, text: str, what: str) -> None:
        self.what = what
        self._words, self._at = self._split(text), 0
        self.names: set[str] = set()
        self.values: set[str] = set()
        if not self._words:
            raise invalid(f"Invalid {what}: The expression can not be empty;")

    def _split(self, text: str) -> list[str]:
        words, at = [], 0
        text = text.rstrip()
        while at < len(text):
            found = _WORD.match(text, at)
            if found is None:
                raise invalid(f'Invalid {self.what}: Syntax error; token: "{text[at:].strip()[:1]}", near: "{text}"')
            words.append(found.group(1) or found.group(2))
            at = found.end()
        return words

    @property
    def next(self) -> str:
        """The next word, "" at the end."""
        return self._words[self._at] if self._at < len(self._words) else ""

    @property
    def keyword(self) -> str:
        """The next word in capitals."""
        return self.next.upper()

    def look(self, ahead: int) -> str:
        """A later word."""
        return self._words[self._at + ahead] if self._at + ahead < len(self._words) else ""

    def take(self) -> str:
        """The next word, which is then over."""
        word = self.next
        self._at += 1
        return word

    def has(self, *words: str) -> bool:
        """Whether one of these comes next; then it is over."""
        if self.keyword not in words:
            return False
        self._at += 1
        return True

    def want(self, word: str) -> None:
        """This must come next."""
        if not self.has(word):
            raise self.wrong()

    def end(self) -> None:
        """Nothing may be left."""
        if self.next:
            raise self.wrong()

    def wrong(self) -> Exception:
        """A syntax error here."""
        return invalid(f'Invalid {self.what}: Syntax error; token: "{self.next or "<EOF>"}"')

    # --- paths and operands

    def path(self) -> Parts:
        """attribute, attribute.member, attribute[3] …"""
        parts: list[str | int] = [self._name()]
        while self.next in (".", "["):
            if self.take() == ".":
                parts.append(self._name())
                continue
            index = self.take()
            if not index.isdigit():
                raise self.wrong()
            parts.append(int(index))
            self.want("]")
        return tuple(parts)

    def _name(self) -> str:
        word = self.next
        if not word or not (word[0] == "#" or word[0].isalpha() or word[0] == "_"):
            raise self.wrong()
        if word[0] == "#":
            self.names.add(word)
        return self.take()

    def value(self) -> str:
        """A placeholder of a value."""
        if not self.next.startswith(":"):
            raise self.wrong()
        self.values.add(self.next)
        return self.take()

    def operand(self) -> Operand:
        """A value, a path, or size(path)."""
        if self.next.startswith(":"):
            return of_value(self.value())
        if self.next.lower() == "size" and self.look(1) == "(":
            self.take()
            self.want("(")
            inner = of_path(self.path())
            self.want(")")
            return _measured(inner)
        return of_path(self.path())


def of_value(name: str) -> Operand:
    """What a placeholder stands for."""
    return lambda scope: scope.values[name]


def of_path(parts: Parts) -> Operand:
    """What is at a path, None if nothing is."""
    if len(parts) == 1:
        (only,) = parts
        assert isinstance(only, str)
        name: str = only
        return lambda scope: scope.item.get(scope.names.get(name, name))

    def found(scope: Scope) -> Value | None:
        at: Value | None = {"M": scope.item}
        for part in resolved(parts, scope.names):
            at = member(at, part)
        return at

    return found


def member(value: Value | None, part: str | int) -> Value | None:
    """One step down a path."""
    if value is None:
        return None
    if isinstance(part, int):
        held = value.get("L", ())
        return held[part] if part < len(held) else None
    found: Value | None = value.get("M", {}).get(part)
    return found


def resolved(parts: Parts, names: Mapping[str, str]) -> Parts:
    """A path with the names that its placeholders stand for."""
    return tuple(names.get(part, part) if isinstance(part, str) else part for part in parts)


def _measured(inner: Operand) -> Operand:
    def found(scope: Scope) -> Value | None:
        value = inner(scope)
        if value is None:
            return None
        content = value[kind(value)]
        return {"N": str(size(value) if kind(value) in ("S", "B") else len(content))}

    return found


def check_placeholders(
    used_names: Iterable[str],
    used_values: Iterable[str],
    names: Mapping[str, str] | None,
    values: Mapping[str, Value] | None,
    what: str,
) -> None:
    """Every placeholder is defined and every definition is used; ValidationException."""
    used_names, used_values = set(used_names), set(used_values)
    for name in sorted(used_names - (names or {}).keys()):
        raise invalid(
            f"Invalid {what}: An expression attribute name used in the document path is not defined; "
            f"attribute name: {name}"
        )
    for value in sorted(used_values - (values or {}).keys()):
        raise invalid(
            f"Invalid {what}: An expression attribute value used in expression is not defined; attribute value: {value}"
        )
    for given, used, member_name in ((names, used_names, "Names"), (values, used_values, "Values")):
        if given is None:
            continue
        if not given:
            raise invalid(f"ExpressionAttribute{member_name} must not be empty")
        if left := sorted(given.keys() - used):
            raise invalid(
                f"Value provided in ExpressionAttribute{member_name} unused in expressions: keys: {{{', '.join(left)}}}"
            )
