"""Parses a secret with an API key in three formats: Outscaler's, upstream's Kubernetes Secret, or an environment file.

All forms of a field name are equal: `apiKey`, `api-key`, `API_KEY` and `EXOSCALE_API_KEY`. Upstream's Secret also names
the zone, which the policy defines here. A trailing newline would break the signature and is removed. No error contains
a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_KEY, Secret, is_sendable
from chalicelib.providers.credential_source import json_fields
from chalicelib.providers.exoscale.signing import ExoscaleCredential

_PREFIX = re.compile(r"EXOSCALE[_-]?", re.IGNORECASE)
_NAME = re.compile(r"(?!EXO(?!SCALE_))[A-Za-z][A-Za-z_-]{0,39}\Z", re.ASCII)
# A field's letters in lower case, without dashes and underscores -> our field; None: known but not used here.
_FIELDS = {"apikey": "key", "apisecret": "secret", "apizone": None, "zone": None, "apienvironment": None}
_WRITTEN = {"key": "apiKey", "secret": "apiSecret"}
_FORM = 'write {"apiKey": "EXO…", "apiSecret": "…"}'


def parse_secret(text: str, place: str) -> ExoscaleCredential:
    """Parse JSON, or lines of name=value; raises BadInput naming the field, never its value."""
    found: dict[str, Secret] = {}
    for name, written in json_fields(text, place, _FORM) if text.lstrip().startswith("{") else _lines(text, place):
        letters = _PREFIX.sub("", name.strip()).replace("-", "").replace("_", "").lower()
        # A user may have written the key in place of its name, so only text that looks like a name is shown.
        shown = name.strip() if _NAME.match(name.strip()) else "a field"
        if letters not in _FIELDS:
            raise BadInput(place, f"{shown} is not known", "the fields are apiKey and apiSecret")
        field, value = _FIELDS[letters], written.strip()
        if field is None or not value:
            continue
        if not is_sendable(value, LONGEST_KEY):
            raise BadInput(place, f"{shown} contains spaces, commas or special characters", "write it without them")
        if found.setdefault(field, Secret(value)) != Secret(value):
            raise BadInput(place, f"{_WRITTEN[field]} is given twice with different values", "keep one of the two")
    for field, written in _WRITTEN.items():
        if field not in found:
            raise BadInput(place, f"{written} is missing", _FORM)
    return ExoscaleCredential(found["key"], found["secret"])


def _lines(text: str, place: str) -> Iterable[tuple[str, str]]:
    lines = [line.strip().removeprefix("export ") for line in text.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith(("#", "["))]
    if not pairs or not all(equals for _, equals, _ in pairs):
        raise BadInput(place, "is neither JSON nor lines of name=value", _FORM)
    return [(name, value.strip().strip("\"'")) for name, _, value in pairs]
