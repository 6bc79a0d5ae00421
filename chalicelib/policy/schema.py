"""How a setting is declared, and how a section of the document is read by its declarations.

    confirm_after: Annotated[float, duration(0.0, DAY), "A move begins if a later pass …"] = 60.0

is a key of the document (`confirmAfter`), its check, its default, its text in docs/policy.md and
its JSON schema; a field without a default is required. The fields are the single source for
reading, for writing back (cli/serialize_policy.py), for the JSON schema and for the reference
(infra/tools/policy_reference.py). This module contains no keys itself. An unknown key is refused
with the nearest known one; a key that belongs to another place of the document is refused with a
sentence of its own (`refused`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as Map
from functools import cache
from typing import Annotated, Any, get_origin

import msgspec

from chalicelib import DOCS
from chalicelib.policy.diagnostics import (
    Diagnostics,
    Mapping,
    Node,
    Path,
    Scalar,
    Sequence,
    closest,
    quote,
)
from chalicelib.policy.value_types import UNSET, Form, ValueType


class Required(msgspec.Struct, frozen=True):
    """Of a key that every document states, even where its struct can do without. example: of a line
    with it, shown where it is missing; the example of its kind if empty."""

    example: str = ""


class Field(msgspec.Struct, frozen=True):
    """One key. meaning: for the reference. default: its value where the key is missing, UNSET where
    there is none. example: a line with it, shown where a required key is missing."""

    key: str
    kind: ValueType
    meaning: str
    required: bool = False
    default: Any = UNSET
    example: str = ""

    @property
    def attribute(self) -> str:
        """The attribute of the section's struct: `nodesPerHour` -> `nodes_per_hour`."""
        return attribute_of(self.key)

    @property
    def missing(self) -> tuple[str, str]:
        """Problem and remedy of a document without the key."""
        return "is missing", f"add {self.example}" if self.example else f"write {self.key}: …"

    @property
    def default_text(self) -> str:
        """The default as a document would state it; empty for a value that none can state, such
        as no pods of a number from 1."""
        text = "" if self.required else text_of(self.kind, self.default)
        node = Scalar(text, plain=False, line=1, column=1)
        reads_back = bool(text) and self.kind.read(node, (), Diagnostics("")) is not UNSET
        return text if reads_back else ""


_NOTHING: tuple[Any, ...] = (None, UNSET, "", ())


def text_of(kind: ValueType, value: Any) -> str:
    """Return a value of a kind as one text of a document; empty for no value, or a mapping."""
    shown = "" if value in _NOTHING else kind.show(value)
    if isinstance(shown, bool):
        return "true" if shown else "false"
    if isinstance(shown, list):
        return ", ".join(map(str, shown))
    return "" if isinstance(shown, dict) else str(shown)


@cache
def attribute_of(key: str) -> str:
    """Return the name in Python of a key: `maxNodesTotal` -> `max_nodes_total`."""
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", key)


def retired(key: str, kind: ValueType, instead: str) -> Field:
    """Return a key without effect that stays in documents written for an older release: it is
    checked, and nothing keeps its value. A struct names such keys in its class variable `retired`.
    instead: what holds now, for the reference and the warning."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if kind.read(node, path, diagnostics) is not UNSET:
            diagnostics.warn(path, f"has no effect any more: {instead}")
        return UNSET

    meaning = f"Accepted, and without effect: {instead}."
    return Field(key, msgspec.structs.replace(kind, read=read, example=""), meaning)


class Section(msgspec.Struct, frozen=True):
    """One mapping of the document. refused: known keys that are not allowed here -> (problem,
    remedy). by_key: its values are kept by key, not by attribute. struct: what its values make;
    None: they stay as they are."""

    fields: tuple[Field, ...]
    refused: dict[str, tuple[str, str]] = {}
    by_key: bool = False
    struct: type[msgspec.Struct] | None = None


def section(
    *fields: Field,
    refused: dict[str, tuple[str, str]] | None = None,
    struct: type[msgspec.Struct] | None = None,
) -> Section:
    """Return a section of these fields. struct: what they make, and where their defaults are."""
    declared = msgspec.structs.fields(struct) if struct is not None else ()
    defaults = {field.name: field.default for field in declared}
    with_defaults = tuple(
        msgspec.structs.replace(field, default=defaults.get(field.attribute, UNSET))
        for field in fields
    )
    return Section(with_defaults, refused or {}, struct=struct)


@cache
def fields_of(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the keys that a struct declares, in its order. A field without a kind is no key, such
    as one that is derived from others."""
    fields = []
    for field in msgspec.structs.fields(struct):
        if get_origin(field.type) is not Annotated:
            continue
        kind, meaning, *demands = field.type.__metadata__
        default = UNSET if field.default is msgspec.NODEFAULT else field.default
        example = f"{field.encode_name}: {kind.example}" if kind.example else ""
        for demand in demands:
            example = demand.example or example
        required = field.required or bool(demands)
        fields.append(Field(field.encode_name, kind, meaning, required, default, example))
    return tuple(fields)


@cache
def section_of(struct: type[msgspec.Struct]) -> Section:
    """Return the section whose keys a struct declares. Its class variable `document_order` names
    them all where the document has another order than the struct."""
    retired_keys: tuple[Field, ...] = getattr(struct, "retired", ())
    fields = {field.key: field for field in (*fields_of(struct), *retired_keys)}
    order: tuple[str, ...] = getattr(struct, "document_order", ()) or tuple(fields)
    return Section(tuple(fields[key] for key in order), struct=struct)


Keys = Section | type[msgspec.Struct]
"""A section, or the struct that declares it, whose fields are not read before they are needed."""


def _section(keys: Keys) -> Section:
    return keys if isinstance(keys, Section) else section_of(keys)


def built(section: Section, values: Map[str, Any]) -> Any:
    """Return what the values of a valid section make."""
    kinds = {field.attribute: field.kind for field in section.fields}
    parts = {attribute: kinds[attribute].build(value) for attribute, value in values.items()}
    return parts if section.struct is None else section.struct(**parts)


Check = Callable[[dict[str, Any], Path, Diagnostics], None]
"""Checks a mapping: its readable values by attribute, and its path."""
_LIKE_A_SECRET = "secret|token|password|passphrase|credential|(api|access|private)_?key"  # noqa: S105 (a pattern)


def read_section(
    section: Section, node: Node | None, path: Path, diagnostics: Diagnostics
) -> dict[str, Any] | None:
    """Return attribute -> value for the valid keys; None where the node is not a mapping.

    node None or null: an empty section, so that required keys are still reported.
    """
    entries = entries_of(node, path, diagnostics)
    if entries is None:
        return None
    fields = {field.key: field for field in section.fields}
    values: dict[str, Any] = {}
    for key, value_node in entries.items():
        if key in fields:
            value = fields[key].kind.read(value_node, (*path, key), diagnostics)
            if value is not UNSET:
                values[key if section.by_key else fields[key].attribute] = value
        elif key in section.refused:
            diagnostics.problem((*path, key), *section.refused[key])
        else:
            unknown_key(key, fields, path, diagnostics)
    for field in section.fields:
        if field.required and field.key not in entries:
            diagnostics.problem((*path, field.key), *field.missing)
    return values


def entries_of(node: Node | None, path: Path, diagnostics: Diagnostics) -> dict[str, Node] | None:
    """Return the mapping's entries, the first of duplicate keys (the report
    already names the others)."""
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return {}
    if not isinstance(node, Mapping):
        problem = f"is {quote(node.text)}" if isinstance(node, Scalar) else "is a list"
        diagnostics.problem(path, problem, "write a mapping: one `name: value` per line")
        return None
    entries: dict[str, Node] = {}
    for key, value in node.entries:
        entries.setdefault(key.text, value)
    return entries


def unknown_key(key: str, known: Map[str, object], path: Path, diagnostics: Diagnostics) -> None:
    """Refuse a key with the nearest known one, or with all known ones where they are few."""
    near = closest(key, known)
    if key == "<<":
        remedy = "merge keys are not used here; write the keys out"
    elif near:
        remedy = f"did you mean {near}?"
    elif re.search(_LIKE_A_SECRET, key, re.IGNORECASE):
        remedy = "secrets stay in Secrets Manager and are named here by a key ending in Secret"
    else:
        remedy = (
            f"known here: {', '.join(known)}"
            if len(known) <= 12
            else f"{DOCS}/policy.md lists what is known"
        )
    diagnostics.problem((*path, key), "is unknown", remedy)


def nested(keys: Keys, *checks: Check) -> ValueType:
    """A nested mapping: read into attribute -> value, written back from its struct."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        values = read_section(_section(keys), node, path, diagnostics)
        if values is None:
            return UNSET
        for check in checks:
            check(values, path, diagnostics)
        return values

    return ValueType(
        "mapping",
        read,
        lambda struct: show_section(_section(keys), struct),
        lambda: section_form(_section(keys)),
        build=lambda values: built(_section(keys), values),
    )


def listed_sections(
    keys: Keys, noun: str, most: int, example: str, *checks: Check, name: str = ""
) -> ValueType:
    """A list of at most `most` mappings, read as a tuple of attribute -> value.

    Invalid values are missing from an entry and are already reported. example: an entry as an
    author would write it, for the remedy. name: the plural, if it is not the noun with an s.
    """
    plural = name or noun + "s"

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if isinstance(node, Scalar) and node.is_null:
            return ()
        if not isinstance(node, Sequence):
            diagnostics.problem(path, "is not a list", f"write one {noun} per line, as - {example}")
            return UNSET
        if len(node.items) > most:
            diagnostics.problem(path, f"has {len(node.items)} {plural}", f"write at most {most}")
            return UNSET
        entries = tuple(
            read_section(_section(keys), item, (*path, index), diagnostics) or {}
            for index, item in enumerate(node.items)
        )
        for index, entry in enumerate(entries):
            for check in checks:
                check(entry, (*path, index), diagnostics)
        return entries

    return ValueType(
        f"list of {plural}",
        read,
        lambda structs: [show_section(_section(keys), struct) for struct in structs],
        lambda: {
            "type": ["array", "null"],
            "items": section_form(_section(keys)),
            "maxItems": most,
        },
        build=lambda entries: tuple(built(_section(keys), entry) for entry in entries),
    )


def section_form(section: Section) -> Form:
    """Return the JSON schema of a section, with the meaning and the default of each key
    as an editor shows them."""
    required = [field.key for field in section.fields if field.required]
    return {
        "type": "object" if required else ["object", "null"],
        "properties": {
            field.key: {
                **field.kind.form(),
                "description": f"{field.meaning} Default: {field.default_text}."
                if field.default_text
                else field.meaning,
            }
            for field in section.fields
        },
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def show_section(section: Section, struct: msgspec.Struct) -> dict[str, Any]:
    """Return key -> YAML value for everything that differs from the struct's
    defaults (required keys always)."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    shown: dict[str, Any] = {}
    for field in section.fields:
        if field.attribute not in defaults:
            continue  # without effect, so that nothing has it
        value = getattr(struct, field.attribute)
        if field.required or value != defaults[field.attribute]:
            shown[field.key] = field.kind.show(value)
    return shown
