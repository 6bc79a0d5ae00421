"""Structural schemas of custom resources: validation with the real server's causes, pruning, and defaults.

It covers what the Cluster API definitions use (types, required, enum, bounds, lengths, patterns, item and property
counts, int-or-string, preserved unknown fields). CEL rules (`x-kubernetes-validations`) and `format` are not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from infra.emulators.kube.status import cause

Cause = dict[str, str]
Schema = dict[str, Any]
_PRESERVE, _INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"


def _type_name(value: Any) -> str:
    for types, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    ):
        if isinstance(value, types):
            return name
    return "null"


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _fits(expected: str, actual: str) -> bool:
    return expected == actual or (expected == "number" and actual == "integer")


def _length_causes(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    size = len(value)
    for field, noun, words in (
        ("maxLength", "", f"Too long: may not be more than {schema.get('maxLength')} bytes"),
        ("maxItems", "items", f"Too many: {size}: must have at most {schema.get('maxItems')} items"),
        ("maxProperties", "items", f"Too many: {size}: must have at most {schema.get('maxProperties')} items"),
    ):
        if field in schema and size > schema[field]:
            yield cause("FieldValueTooMany" if noun else "FieldValueTooLong", words, path)
    for field, noun in (("minLength", "chars long"), ("minItems", "items"), ("minProperties", "properties")):
        if field in schema and size < schema[field]:
            shown = _shown(value) if field == "minLength" else str(size)
            verb = "be" if field == "minLength" else "have"
            text = f"Invalid value: {shown}: {path} in body should {verb} at least {schema[field]} {noun}"
            yield cause("FieldValueInvalid", text, path)


def _scalar_causes(schema: Schema, value: Any, path: str) -> Iterator[Cause]:
    if "enum" in schema and value not in schema["enum"]:
        options = ", ".join(_shown(each) for each in schema["enum"])
        text = f"Unsupported value: {_shown(value)}: supported values: {options}"
        yield cause("FieldValueNotSupported", text, path)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for field, bad, words in (
            ("minimum", value < schema.get("minimum", value), "greater than or equal to"),
            ("maximum", value > schema.get("maximum", value), "less than or equal to"),
        ):
            if bad:
                text = f"Invalid value: {value}: {path} in body should be {words} {schema[field]}"
                yield cause("FieldValueInvalid", text, path)
    if isinstance(value, str) and "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        text = f"Invalid value: {_shown(value)}: {path} in body should match '{schema['pattern']}'"
        yield cause("FieldValueInvalid", text, path)


def causes(schema: Schema, value: Any, path: str = "") -> Iterator[Cause]:
    """Return all errors of a value in the order of the real server: contents first, then missing fields."""
    if value is None and schema.get("nullable"):
        return
    actual, expected = _type_name(value), schema.get("type")
    if expected and not schema.get(_INT_OR_STRING) and not _fits(expected, actual):
        text = f'Invalid value: "{actual}": {path} in body must be of type {expected}: "{actual}"'
        yield cause("FieldValueTypeInvalid", text, path)
        return
    yield from _scalar_causes(schema, value, path)
    if isinstance(value, (str, list, dict)):
        yield from _length_causes(schema, value, path)
    if isinstance(value, list) and "items" in schema:
        for index, each in enumerate(value):
            yield from causes(schema["items"], each, f"{path}[{index}]")
    if isinstance(value, dict):
        yield from _object_causes(schema, value, path)


def _object_causes(schema: Schema, value: Schema, path: str) -> Iterator[Cause]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, each in value.items():
        below = f"{path}.{name}" if path else name
        if name in properties:
            if below != "metadata":
                yield from causes(properties[name], each, below)
        elif isinstance(others, dict):
            yield from causes(others, each, below)
    for name in schema.get("required", ()):
        if name not in value:
            yield cause("FieldValueRequired", "Required value", f"{path}.{name}" if path else name)


def prune(schema: Schema, value: Any, *, top: bool = True) -> Any:
    """Return the value without fields that the schema does not contain; metadata of the object itself is kept."""
    if isinstance(value, list):
        items = schema.get("items")
        return [prune(items, each, top=False) for each in value] if items else value
    if not isinstance(value, dict):
        return value
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    keep_all = schema.get(_PRESERVE, False) or others is True
    kept: dict[str, Any] = {}
    for name, each in value.items():
        if top and name in {"apiVersion", "kind", "metadata"}:
            kept[name] = each
        elif name in properties:
            kept[name] = prune(properties[name], each, top=False)
        elif isinstance(others, dict):
            kept[name] = prune(others, each, top=False)
        elif keep_all:
            kept[name] = each
    return kept


def fill_defaults(schema: Schema, value: Any) -> None:
    """Add `default` values of missing fields, in place."""
    if isinstance(value, list) and "items" in schema:
        for each in value:
            fill_defaults(schema["items"], each)
    if not isinstance(value, dict):
        return
    for name, below in schema.get("properties", {}).items():
        if name not in value and "default" in below:
            value[name] = msgspec.json.decode(msgspec.json.encode(below["default"]))
        if name in value:
            fill_defaults(below, value[name])
    if isinstance(schema.get("additionalProperties"), dict):
        for name, each in value.items():
            if name not in schema.get("properties", {}):
                fill_defaults(schema["additionalProperties"], each)
