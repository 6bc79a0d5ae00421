"""Parses a secret with an access key in two formats: Outscaler's, or upstream's INI with a section [Global].

All forms of a field name are equal: `accessKey`, `access-key`, `ACCESS_KEY`. Upstream's file also names project and
endpoints, which the policy defines here. A trailing newline would break the signature and is removed. No error contains
a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_KEY, LONGEST_TOKEN, Secret, is_sendable
from chalicelib.providers.credential_source import json_fields
from chalicelib.providers.huaweicloud.signing import CceCredential

_NAME = re.compile(r"[A-Za-z][A-Za-z_-]{0,39}\Z", re.ASCII)
# A field's letters in lower case, without dashes and underscores -> our field; None: known but not used here.
_FIELDS = {
    "accesskey": "key",
    "accesskeyid": "key",
    "ak": "key",
    "secretkey": "secret",
    "secretaccesskey": "secret",
    "sk": "secret",
    "securitytoken": "token",
    "projectid": None,
    "clusterid": None,
    "region": None,
    "cceendpoint": None,
    "ecsendpoint": None,
    "asendpoint": None,
    "iamendpoint": None,
}
_WRITTEN = {"key": "accessKey", "secret": "secretKey", "token": "securityToken"}
_FORM = 'write {"accessKey": "…", "secretKey": "…"}'


def parse_secret(text: str, place: str) -> CceCredential:
    """Parse JSON, or lines of name=value, optionally under [Global]; raises BadInput naming the field, never its
    value."""
    found: dict[str, Secret] = {}
    in_json = text.lstrip("\ufeff \t\r\n").startswith("{")
    text = text.lstrip("\ufeff")
    for name, written in json_fields(text, place, _FORM) if in_json else _lines(text, place):
        letters = re.sub(r"[-_ ]", "", name.strip()).lower()
        # A user may have written the key in place of its name, so only text that looks like a name is shown.
        shown = name.strip() if _NAME.match(name.strip()) and len(name) <= len("security-token") else "a field"
        if letters not in _FIELDS:
            raise BadInput(place, f"{shown} is not known", f"the fields are {', '.join(_WRITTEN.values())}")
        field, value = _FIELDS[letters], written.strip()
        if field is None or not value:
            continue
        if not is_sendable(value, LONGEST_TOKEN if field == "token" else LONGEST_KEY):
            raise BadInput(place, f"{_WRITTEN[field]} contains spaces or special characters", "write it without them")
        if found.setdefault(field, Secret(value)) != Secret(value):
            raise BadInput(place, f"{_WRITTEN[field]} is given twice with different values", "keep one of the two")
    for field in ("key", "secret"):
        if field not in found:
            raise BadInput(place, f"{_WRITTEN[field]} is missing", _FORM)
    return CceCredential(found["key"], found["secret"], found.get("token", Secret("")))


def _lines(text: str, place: str) -> Iterable[tuple[str, str]]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", ";"))]
    if any(line.startswith("[") and line.replace(" ", "").lower() != "[global]" for line in lines):
        raise BadInput(place, "has another section than [Global]", "put the fields under [Global]")
    pairs = [line.partition("=") for line in lines if not line.startswith("[")]
    if not pairs or not all(equals for _, equals, _ in pairs):
        raise BadInput(place, "is neither JSON nor lines of name=value", _FORM)
    return [(name, value.strip().strip("\"'")) for name, _, value in pairs]
