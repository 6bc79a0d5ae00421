"""CloudWatch's metric math, as far as the deployment's alarms use it: one value of an expression at one instant.

Grammar: numbers, ids, `+ - * /`, comparisons, AND, OR, parentheses, and the functions IF, FILL, SUM, MAX, METRICS. A
missing value is None. SUM and MAX ignore missing values of a list; every other operation with one is missing, and so is
a division by zero.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

Value = float | None | list[float | None]

_TOKEN = re.compile(r'\s*(?:(\d+(?:\.\d+)?)|("[^"]*")|([A-Za-z][A-Za-z0-9_]*)|(>=|<=|==|!=|[-+*/()<>,\[\]]))')
_LEVELS: tuple[Mapping[str, Callable[[float, float], float | None]], ...] = (
    {"OR": lambda one, other: float(bool(one) or bool(other))},
    {"AND": lambda one, other: float(bool(one) and bool(other))},
    {
        word: lambda one, other, compare=compare: float(compare(one, other))  # type: ignore[misc]
        for word, compare in {
            ">": operator.gt,
            "<": operator.lt,
            ">=": operator.ge,
            "<=": operator.le,
            "==": operator.eq,
            "!=": operator.ne,
        }.items()
    },
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda one, other: one / other if other else None},
)


class MathError(Exception):
    """The expression cannot be read; the message says where."""


def evaluate(expression: str, values: Mapping[str, float | None]) -> float | None:
    """Return the value of an expression. values: by id, None where a metric has no value. Raises MathError."""
    reader = _Reader(expression, values)
    value = reader.level(0)
    if reader.left:
        raise MathError(f"{expression}: unexpected {reader.left[0]}")
    if isinstance(value, list):
        raise MathError(f"{expression}: an alarm needs one time series")
    return value


class _Reader:
    def __init__(self, text: str, values: Mapping[str, float | None]) -> None:
        self._text, self._values, self.left = text, values, _tokens(text)

    def level(self, number: int) -> Value:
        """Read operations of one precedence; those of the next one are their operands."""
        if number == len(_LEVELS):
            return self._operand()
        value = self.level(number + 1)
        while self.left and self.left[0] in _LEVELS[number]:
            made = _LEVELS[number][self.left.pop(0)]
            value = _each(made, value, self.level(number + 1))
        return value

    def _operand(self) -> Value:
        token = self._next()
        if token == "(":
            value = self.level(0)
            self._expect(")")
            return value
        if token == "[":
            return [one for value in self._arguments("]") for one in (value if isinstance(value, list) else [value])]
        if token[0].isdigit():
            return float(token)
        if self.left and self.left[0] == "(":
            self._expect("(")
            return self._function(token)
        if token not in self._values:
            raise MathError(f"{self._text}: no metric has the id {token}")
        return self._values[token]

    def _function(self, name: str) -> Value:
        if name == "METRICS":
            part = self._next().strip('"') if self.left and self.left[0] != ")" else ""
            self._expect(")")
            return [value for identifier, value in self._values.items() if part in identifier]
        if name not in _FUNCTIONS:
            raise MathError(f"{self._text}: unknown function {name}")
        return _FUNCTIONS[name](self._arguments(")"))

    def _arguments(self, end: str) -> list[Value]:
        made = [self.level(0)]
        while self.left and self.left[0] == ",":
            self._expect(",")
            made.append(self.level(0))
        self._expect(end)
        return made

    def _next(self) -> str:
        if not self.left:
            raise MathError(f"{self._text}: ends too early")
        return self.left.pop(0)

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise MathError(f"{self._text}: {found} in place of {token}")


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise MathError(f"{text}: cannot be read from {text[at:]}")
        found.append(token[0].strip())
        at = token.end()
    return found


def _each(made: Callable[[float, float], float | None], one: Value, other: Value) -> Value:
    if isinstance(one, list) or isinstance(other, list):
        raise MathError("an operation on lists of time series is not emulated")
    return None if one is None or other is None else made(one, other)


def _flat(arguments: list[Value]) -> list[float | None]:
    [given] = arguments
    return given if isinstance(given, list) else [given]


def _total(reduce: Callable[[list[float]], float]) -> Callable[[list[Value]], Value]:
    def of(arguments: list[Value]) -> Value:
        found = [value for value in _flat(arguments) if value is not None]
        return reduce(found) if found else None

    return of


def _filled(arguments: list[Value]) -> Value:
    given, fill = arguments
    if isinstance(fill, list):
        raise MathError("FILL: the second argument is a number")
    return (
        [fill if one is None else one for one in given] if isinstance(given, list) else fill if given is None else given
    )


def _chosen(arguments: list[Value]) -> Value:
    condition, yes, no = arguments
    return None if condition is None else yes if condition else no


_FUNCTIONS: Mapping[str, Callable[[list[Value]], Value]] = {
    "IF": _chosen,
    "FILL": _filled,
    "SUM": _total(sum),
    "MAX": _total(max),
}
