"""Values of any stored type in which every field is set and every word of an enumeration occurs."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from msgspec import inspect


class Filler:
    """Makes JSON values of a type, no two alike. said: (enumeration, word) and fields: (struct,
    encoded name) made. first: the first number in a value. known: words that come after all
    others of their enumerations."""

    def __init__(self, first: int = 1, known: Collection[tuple[str, str]] = ()) -> None:
        self._numbers = itertools.count(first)
        self._known = known
        self._words: dict[type, Iterator[Any]] = {}
        self.said: set[tuple[str, str]] = set()
        self.fields: set[tuple[str, str]] = set()

    def value(self, kind: Any) -> Any:
        """A value as JSON has it; msgspec.convert makes the object of it."""
        return self._made(inspect.type_info(kind))

    def completed(self, value: Any, kind: Any) -> Any:
        """A value as it is, with the fields that structs in it have got since."""
        return self._completed(value, inspect.type_info(kind))

    def _completed(self, value: Any, info: inspect.Type) -> Any:
        if isinstance(info, inspect.UnionType) and value is not None:
            info = next(each for each in info.types if not isinstance(each, inspect.NoneType))
        if isinstance(info, inspect.StructType) and info.array_like:
            added = [self._made(field.type) for field in info.fields[len(value) :]]
            return [
                self._completed(item, field.type)
                for item, field in zip(value, info.fields, strict=False)
            ] + added
        if isinstance(info, inspect.StructType):
            return {
                field.encode_name: self._completed(value[field.encode_name], field.type)
                if field.encode_name in value
                else self._made(field.type)
                for field in info.fields
            }
        if isinstance(info, inspect.DictType):
            return {key: self._completed(each, info.value_type) for key, each in value.items()}
        if isinstance(info, (inspect.VarTupleType, inspect.ListType)):
            return [self._completed(each, info.item_type) for each in value]
        return value

    def _made(self, info: inspect.Type) -> Any:
        for shape, make in _MAKERS:
            if isinstance(info, shape):
                return make(self, info)
        raise TypeError(f"nothing is known about {info}")

    def number(self) -> int:
        """Another one each time."""
        return next(self._numbers)

    def struct(self, info: inspect.StructType) -> dict[str, Any] | list[Any]:
        """Every field."""
        self.fields |= {(info.cls.__name__, field.encode_name) for field in info.fields}
        values = {field.encode_name: self._made(field.type) for field in info.fields}
        return list(values.values()) if info.array_like else values

    def enum(self, info: inspect.EnumType) -> Any:
        """One word after the other, and the first again after the last."""
        if info.cls not in self._words:
            words = sorted(
                info.cls, key=lambda word: (info.cls.__name__, str(word.value)) in self._known
            )
            self._words[info.cls] = itertools.cycle(words)
        word = next(self._words[info.cls])
        self.said.add((info.cls.__name__, str(word.value)))
        return word.value

    def union(self, info: inspect.UnionType) -> Any:
        """The first thing that is something."""
        return self._made(
            next(each for each in info.types if not isinstance(each, inspect.NoneType))
        )

    def many(self, info: inspect.Type) -> list[Any]:
        """Two, or what a tuple of fixed length has."""
        if isinstance(info, inspect.TupleType):
            return [self._made(each) for each in info.item_types]
        assert isinstance(
            info, (inspect.VarTupleType, inspect.ListType, inspect.FrozenSetType, inspect.SetType)
        )
        return [self._made(info.item_type) for _ in range(2)]

    def mapping(self, info: inspect.DictType) -> dict[str, Any]:
        """Two entries."""
        return {f"key-{self.number()}": self._made(info.value_type) for _ in range(2)}


_MAKERS: tuple[tuple[Any, Any], ...] = (
    (inspect.StructType, Filler.struct),
    (inspect.EnumType, Filler.enum),
    (inspect.UnionType, Filler.union),
    (
        (
            inspect.VarTupleType,
            inspect.TupleType,
            inspect.ListType,
            inspect.FrozenSetType,
            inspect.SetType,
        ),
        Filler.many,
    ),
    (inspect.DictType, Filler.mapping),
    (inspect.StrType, lambda filler, _: f"text-{filler.number()}"),
    (
        inspect.BytesType,
        lambda filler, _: base64.b64encode(f"bytes-{filler.number()}".encode()).decode(),
    ),
    (inspect.BoolType, lambda *_: True),
    (inspect.IntType, lambda filler, _: filler.number()),
    (inspect.FloatType, lambda filler, _: filler.number() + 0.25),
    (inspect.LiteralType, lambda _, info: info.values[0]),
)


def words_of(kind: Any) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """All (enumeration, word) and (struct, encoded name) that values of a type can have."""
    words: set[tuple[str, str]] = set()
    fields: set[tuple[str, str]] = set()
    waiting, seen = [inspect.type_info(kind)], set[Any]()
    while waiting:
        info = waiting.pop()
        if isinstance(info, inspect.EnumType):
            words |= {(info.cls.__name__, str(word.value)) for word in info.cls}
        elif isinstance(info, inspect.StructType) and info.cls not in seen:
            seen.add(info.cls)
            fields |= {(info.cls.__name__, field.encode_name) for field in info.fields}
            waiting += [field.type for field in info.fields]
        elif isinstance(info, inspect.DictType):
            waiting.append(info.value_type)
        elif isinstance(info, inspect.TupleType):
            waiting += info.item_types
        elif isinstance(info, inspect.UnionType):
            waiting += info.types
        elif hasattr(info, "item_type"):
            waiting.append(info.item_type)
    return words, fields


def words_in(data: Any, kind: Any) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The same of one JSON value: what really occurs in it."""
    words: set[tuple[str, str]] = set()
    fields: set[tuple[str, str]] = set()
    waiting = [(data, inspect.type_info(kind))]
    while waiting:
        value, info = waiting.pop()
        if isinstance(info, inspect.EnumType):
            words.add((info.cls.__name__, str(value)))
        elif isinstance(info, inspect.StructType):
            named = value
            if info.array_like:
                named = {
                    field.encode_name: each for field, each in zip(info.fields, value, strict=False)
                }
            there = [field for field in info.fields if field.encode_name in named]
            fields |= {(info.cls.__name__, field.encode_name) for field in there}
            waiting += [(named[field.encode_name], field.type) for field in there]
        else:
            waiting += _inside(value, info)
    return words, fields


def _inside(value: Any, info: inspect.Type) -> list[tuple[Any, inspect.Type]]:
    if isinstance(info, inspect.DictType):
        return [(each, info.value_type) for each in value.values()]
    if isinstance(info, inspect.TupleType):
        return list(zip(value, info.item_types, strict=True))
    if isinstance(info, inspect.UnionType):
        return [
            (value, next(each for each in info.types if not isinstance(each, inspect.NoneType)))
        ]
    return [(each, info.item_type) for each in value] if hasattr(info, "item_type") else []


def converted(data: Any, kind: Any) -> Any:
    """The object of JSON data."""
    return msgspec.json.decode(msgspec.json.encode(data), type=kind)
