"""Describes a section of the document as a table: its keys, how each is read, and what it means.

The tables (document.py, sections.py, providers.py, options.py) are the single source for reading,
for writing back (cli/serialize_policy.py), for the JSON schema and for the reference
(infra/tools/policy_reference.py). This module contains no keys itself. An unknown key is refused
with the nearest known one; a key that belongs to another place of the document is refused with a
sentence of its own (`refused`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as Map
from functools import cache
from typing import Any

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


class Field(msgspec.Struct, frozen=True):
    """One key. meaning, default: for the reference. example: shown where a
    required key is missing."""

    key: str
    kind: ValueType
    meaning: str
    required: bool = False
    default: str = ""
    example: str = ""

    @property
    def attribute(self) -> str:
        """The attribute of the section's struct: `nodesPerHour` -> `nodes_per_hour`."""
        return _attribute(self.key)


@cache
def _attribute(key: str) -> str:
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", key)


class Section(msgspec.Struct, frozen=True):
    """One mapping of the document. refused: known keys that are not allowed here -> (problem,
    remedy). by_key: its values are kept by key, not by attribute."""

    fields: tuple[Field, ...]
    refused: dict[str, tuple[str, str]] = {}
    by_key: bool = False


def section(*fields: Field, refused: dict[str, tuple[str, str]] | None = None) -> Section:
    """Return a section of these fields."""
    return Section(fields, refused or {})


Check = Callable[[dict[str, Any], Path, Diagnostics], None]
"""Checks one entry of a list: its readable values by attribute, and its path."""
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
            remedy = f"add {field.example}" if field.example else f"write {field.key}: …"
            diagnostics.problem((*path, field.key), "is missing", remedy)
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


def nested(section: Section) -> ValueType:
    """A nested mapping: read into attribute -> value, written back from its struct."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        values = read_section(section, node, path, diagnostics)
        return UNSET if values is None else values

    return ValueType(
        "mapping", read, lambda struct: show_section(section, struct), lambda: section_form(section)
    )


def listed_sections(
    section: Section, noun: str, most: int, example: str, *checks: Check, name: str = ""
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
            read_section(section, item, (*path, index), diagnostics) or {}
            for index, item in enumerate(node.items)
        )
        for index, entry in enumerate(entries):
            for check in checks:
                check(entry, (*path, index), diagnostics)
        return entries

    return ValueType(
        f"list of {plural}",
        read,
        lambda structs: [show_section(section, struct) for struct in structs],
        lambda: {"type": ["array", "null"], "items": section_form(section), "maxItems": most},
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
                "description": f"{field.meaning} Default: {field.default}."
                if field.default
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
        value = getattr(struct, field.attribute)
        if field.required or value != defaults[field.attribute]:
            shown[field.key] = field.kind.show(value)
    return shown
