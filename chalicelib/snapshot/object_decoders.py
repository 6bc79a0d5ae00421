"""Decoders of the API's documents by kind: of a whole list at once, and of one object.

They are made once, because making a decoder takes longer than decoding an object.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.model.api_groups import CONTROLLER_GROUPS, METADATA, is_foreign
from chalicelib.snapshot import api_types
from chalicelib.snapshot.storage import FOLDS

HEAD = msgspec.json.Decoder(api_types.Head)
RAWS = msgspec.json.Decoder(list[msgspec.Raw])
FOREIGN = "of another API group"
"""In place of a kind: an object whose kind has a built-in name and another API group."""
_KIND = msgspec.json.Decoder(api_types.KindOnly)
_WRITTEN_KIND = re.compile(rb'"kind":\s*"(\w+)"')

_TYPES: dict[str, type[Any]] = {
    "Pod": api_types.ApiPod,
    "Node": api_types.ApiNode,
    "PodDisruptionBudget": api_types.ApiBudget,
    "Namespace": api_types.ApiNamespace,
    **dict.fromkeys(CONTROLLER_GROUPS, api_types.ApiController),
    **{kind: wired for kind, (wired, _) in FOLDS.items()},
}
LISTINGS: dict[str, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(api_types.Listing[wired])  # type: ignore[valid-type]
    for kind, wired in _TYPES.items()
}
OBJECTS: dict[str, msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(wired) for kind, wired in _TYPES.items()}


def wire_type(kind: str) -> type[Any]:
    """Return the API type of a kind; raises KeyError for a kind that is not read."""
    return _TYPES[kind]


def kind_of(raw: msgspec.Raw) -> str:
    """Return the kind that an item names, `FOREIGN` if it is not the built-in one, "" if it names none."""
    try:
        item = _KIND.decode(raw)
        if item.api_version == METADATA:
            return ""
        return FOREIGN if is_foreign(item.kind, item.api_version) else item.kind
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def first_kind(body: bytes) -> str:
    """Guess the common kind of a list's items, from where the API writes the kind of a list and of its first item; the
    caller verifies each item."""
    kinds = (match.group(1).decode() for match in _WRITTEN_KIND.finditer(body, 0, 2048))
    return next((kind.removesuffix("List") for kind in kinds if kind != "List"), "")
