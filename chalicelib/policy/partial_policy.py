"""The readable parts of a document, for cross-field validation."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.policy.diagnostics import Diagnostics, Path
from chalicelib.policy.options import Read

SPEC: Path = ("spec",)


class PartialPolicy(msgspec.Struct, frozen=True):
    """The sections that could be read, as attribute -> value. None: the section is missing."""

    spec: dict[str, Any]
    kubernetes: dict[str, Any] | None
    providers: dict[str, dict[str, str]] | None
    groups: tuple[dict[str, Any], ...]
    options: Read


def names_once(draft_policy: PartialPolicy, attribute: str, key: str, noun: str, diagnostics: Diagnostics) -> None:
    """Refuse the second of two entries of spec.<key> with the same name."""
    first: dict[str, int] = {}
    for index, entry in enumerate(draft_policy.spec.get(attribute, ())):
        name = entry.get("name", "")
        known = first.setdefault(name, index) if name else index
        if known != index:
            diagnostics.problem(
                (*SPEC, key, index, "name"), f"{name} is already {key}[{known}]", f"name each {noun} once"
            )
