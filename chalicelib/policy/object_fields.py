"""Reads the fields of one level of an object whose spelling varies, and collects its problems and warnings.

policy/horizontal_node_autoscaler.py defines what the fields mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST_TOLD, _LONGEST = 20, 60


class Told:
    """Problems and warnings: one sentence each, with its place; the first MOST_TOLD of each."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._warnings: list[str] = []

    @property
    def problems(self) -> tuple[str, ...]:
        """Return why the object is refused."""
        return _capped(self._problems)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what is ignored."""
        return _capped(self._warnings)

    def problem(self, place: str, what: str, remedy: str) -> None:
        """Add a problem as `place: what; remedy`."""
        self._problems.append(f"{place}: {what}; {remedy}" if place else f"{what}; {remedy}")

    def warning(self, place: str, what: str) -> None:
        """Add a warning as `place: what`."""
        self._warnings.append(f"{place}: {what}")


class Fields:
    """One mapping with case-insensitive keys. A key that is null counts as absent, as in Kubernetes."""

    def __init__(self, values: Mapping[str, Any], place: str, reported: Told) -> None:
        self._values, self.place, self._told = values, place, reported

    @classmethod
    def of(cls, raw: Any, place: str, known: Sequence[str] | None, reported: Told) -> Fields | None:
        """Return the fields of a mapping; None, with a problem, for any other value. known: permitted names, None to
        permit all."""
        if not isinstance(raw, Mapping):
            reported.problem(place, f"{shown(raw)} is not a mapping", "write its fields by name")
            return None
        spellings = {name.casefold(): name for name in known or ()}
        values: dict[str, Any] = {}
        for key, value in raw.items():
            folded = (key if isinstance(key, str) else shown(key)).casefold()
            if known is not None and folded not in spellings:
                reported.warning(_join(place, shown(key).strip('"')), "is no field of it, and passed over")
            elif folded in values and value is not None and not (isinstance(value, str) and value == values[folded]):
                reported.problem(
                    _join(place, spellings.get(folded, folded)), "is there twice, in two spellings", "leave one"
                )
            elif value is not None:
                values[folded] = value
        return cls(values, place, reported)

    def get(self, name: str) -> Any:
        """Return its value; None where it is absent."""
        return self._values.get(name.casefold())

    def at(self, name: str) -> str:
        """Return its place."""
        return _join(self.place, name)

    def flag(self, name: str) -> bool:
        """Return true or false; absent is false, any other value a problem."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            self._told.problem(self.at(name), f"{shown(value)} is neither true nor false", "write true or false")
        return value is True

    def only(self, name: str, words: Sequence[str]) -> None:
        """Check a field that has only one permitted value: absent counts as that value, and any other is a problem."""
        value = self.get(name)
        if value is None:
            self._told.warning(self.at(name), f"is missing, and taken as {words[0]}")
        elif not isinstance(value, str) or value.strip().casefold() not in {word.casefold() for word in words}:
            self._told.problem(self.at(name), f"{shown(value)} is not known", f"write {words[0]}")


def shown(value: Any) -> str:
    """Return a value as written, shortened; for lists and mappings only their kind."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str):
        text = "".join(letter if letter.isprintable() else "?" for letter in value[: _LONGEST + 1])
        return f'"{text}"' if len(text) <= _LONGEST else f'"{text[:_LONGEST]}…"'
    return _number(value)[:_LONGEST]


def _number(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a very long number"


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _capped(sentences: Sequence[str]) -> tuple[str, ...]:
    more = len(sentences) - MOST_TOLD
    return (*sentences[:MOST_TOLD], *([f"and {more} more"] if more > 0 else ()))
