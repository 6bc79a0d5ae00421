"""Describes a section of the document as a table: its keys, how each is read, and its attribute in the model.

The tables (document.py, providers.py, options.py) are the single source for reading, writing back (serialize.py) and
the reference (docs.py). This module contains no keys itself.
An unknown key is refused with the nearest known one; a key that belongs to a later version, or to another place of the
document, is refused with a sentence of its own (`refused`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Map
from typing import Any

import msgspec

from chalicelib.policy.diagnostics import Diagnostics, Path, closest, quote
from chalicelib.policy.value_types import UNSET, Form, ValueType
from chalicelib.policy.yaml_document import Mapping, Node, Scalar


class Field(msgspec.Struct, frozen=True):
    """One key. lands: the attribute of the section's struct; meaning, default: for the reference."""

    key: str
    kind: ValueType
    attribute: str
    meaning: str
    required: bool = False
    default: str = ""
    example: str = ""  # example shown where the key is missing


class Section(msgspec.Struct, frozen=True):
    """One mapping of the document. refused: known keys that are not allowed here -> (problem, remedy)."""

    fields: tuple[Field, ...]
    refused: dict[str, tuple[str, str]] = {}


LIKE_A_SECRET = re.compile("secret|token|password|passphrase|credential|(api|access|private)_?key", re.IGNORECASE)


def read_section(section: Section, node: Node | None, path: Path, diagnostics: Diagnostics) -> dict[str, Any] | None:
    """Return attribute -> value for the valid keys; None where the node is not a mapping.

    node None or null: an empty section, so that required keys are still reported.
    """
    entries = entries_of(node, path, diagnostics)
    if entries is None:
        return None
    known = {field.key: field for field in section.fields}
    found: dict[str, Any] = {}
    for key, value in entries.items():
        below = (*path, key)
        if key in known:
            read = known[key].kind.read(value, below, diagnostics)
            if read is not UNSET:
                found[known[key].attribute] = read
        elif key in section.refused:
            diagnostics.problem(below, *section.refused[key])
        else:
            unknown_key(key, known, path, diagnostics)
    for field in section.fields:
        if field.required and field.key not in entries:
            diagnostics.problem(
                (*path, field.key), "is missing", f"add {field.example}" if field.example else f"write {field.key}: …"
            )
    return found


def entries_of(node: Node | None, path: Path, diagnostics: Diagnostics) -> dict[str, Node] | None:
    """Return the mapping's entries, the first of duplicate keys (the report already names the others)."""
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return {}
    if not isinstance(node, Mapping):
        diagnostics.problem(
            path,
            "is a list" if not isinstance(node, Scalar) else f"is {quote(node.text)}",
            "write a mapping: one `name: value` per line",
        )
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
    elif LIKE_A_SECRET.search(key):
        remedy = "secrets stay in Secrets Manager and are named here by a key ending in Secret"
    else:
        remedy = f"known here: {', '.join(known)}" if len(known) <= 12 else "docs/policy.md lists what is known"
    diagnostics.problem((*path, key), "is unknown", remedy)


def nested(section: Section) -> ValueType:
    """A nested mapping: read into attribute -> value, written back from its struct."""

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        found = read_section(section, node, path, diagnostics)
        return UNSET if found is None else found

    return ValueType("mapping", read, lambda struct: show_section(section, struct), lambda: section_form(section))


def section_form(section: Section) -> Form:
    """Return the JSON schema of a section, with the meaning of each key."""
    required = [field.key for field in section.fields if field.required]
    return {
        "type": "object" if required else ["object", "null"],
        "properties": {field.key: field_form(field) for field in section.fields},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def field_form(field: Field) -> Form:
    """Return the JSON schema of a key, with its meaning and default as an editor shows them."""
    default = f" Default: {field.default}." if field.default else ""
    return {**field.kind.form(), "description": f"{field.meaning}{default}"}


def show_section(section: Section, struct: msgspec.Struct) -> dict[str, Any]:
    """Return key -> YAML value for everything that differs from the struct's defaults (required keys always)."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    shown: dict[str, Any] = {}
    for field in section.fields:
        value = getattr(struct, field.attribute)
        if field.required or value != defaults[field.attribute]:
            shown[field.key] = field.kind.show(value)
    return shown
