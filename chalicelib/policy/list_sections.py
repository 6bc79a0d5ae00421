"""Reads lists of mappings (windows, rules, schedules, headroom) in one way, so that their mistakes are reported
alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.schema import Section, read_section, section_form, show_section
from chalicelib.policy.value_types import UNSET, ValueType, listed, scalar, text
from chalicelib.policy.yaml_document import Node, Scalar, Sequence

Check = Callable[[dict[str, Any], Path, Diagnostics], None]


def entries(section: Section, noun: str, most: int, example: str, *checks: Check, name: str = "") -> ValueType:
    """Read a list of at most `most` entries of a section as a tuple of attribute -> value.

    Invalid values are missing from an entry and are already reported. checks: cross-field checks within one entry,
    called with its readable values and its path. example: an entry as an author would write it, for the remedy.
    """

    def read(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
        if isinstance(node, Scalar) and node.is_null:
            return ()
        if not isinstance(node, Sequence):
            diagnostics.problem(path, "is not a list", f"write one {noun} per line, as - {example}")
            return UNSET
        if len(node.items) > most:
            diagnostics.problem(path, f"has {len(node.items)} {name or noun + 's'}", f"write at most {most}")
            return UNSET
        found = tuple(
            read_section(section, item, (*path, index), diagnostics) or {} for index, item in enumerate(node.items)
        )
        for index, entry in enumerate(found):
            for check in checks:
                check(entry, (*path, index), diagnostics)
        return found

    return ValueType(
        f"list of {name or noun + 's'}",
        read,
        lambda structs: [show_section(section, each) for each in structs],
        lambda: {"type": ["array", "null"], "items": section_form(section), "maxItems": most},
    )


# A slash is reserved for the rules of objects in a cluster, which memory stores as namespace/object/rule.
NAME = text("a name without spaces and slashes", r"[^\s/\x00-\x1f\x7f]{1,100}", "something like evening")
_GROUP_IDS = listed(text("a node group's id or name", r"[^\s\x00-\x1f\x7f]{1,512}"))


def _read_groups(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    found = _GROUP_IDS.read(node, path, diagnostics)
    if found == ():  # an empty list from a template must not mean every group
        diagnostics.problem(path, "names no group", "write groups: [ID], or take the line out")
        return UNSET
    twice = next((name for name in found if found.count(name) > 1), None) if found is not UNSET else None
    if twice is not None:
        diagnostics.problem(path, f"names {twice} twice", "name each group once")
        return UNSET
    return found


GROUPS = ValueType(_GROUP_IDS.name, _read_groups, _GROUP_IDS.show, _GROUP_IDS.form)

_PERCENT = re.compile(r"(0|[1-9][0-9]{0,8}) ?%?\Z")


def percent(least: int, most: int) -> ValueType:
    """Parse a whole number of percent, with or without the sign."""
    span = f"a whole percentage from {least}% to {most}%"

    def parse(value: str) -> int:
        match = _PERCENT.match(value)
        if match is None:
            raise BadInput("", f"{quote(value)} is not a whole percentage", f"write {span}")
        if not least <= int(match[1]) <= most:
            raise BadInput("", f"{quote(value)} is out of range", f"write {span}")
        return int(match[1])

    return ValueType("percentage", scalar(parse, span), lambda value: f"{value}%")
