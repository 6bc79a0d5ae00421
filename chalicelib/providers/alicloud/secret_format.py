"""Parses a secret with an access key in three formats: Outscaler's, upstream's Kubernetes Secret, or upstream's INI.

All forms of a field name are equal: `accessKeyId`, `access-key-id`, `ACCESS_KEY_ID` and `ALIBABA_CLOUD_ACCESS_KEY_ID`.
A trailing newline breaks signatures and is removed. No error contains a value.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_KEY, LONGEST_TOKEN, Secret, is_sendable
from chalicelib.providers.credential_source import json_fields

_PREFIX = re.compile(r"(?:ALIBABA|ALI)_?CLOUD_", re.IGNORECASE)
# A field's letters in lower case, without dashes and underscores -> our field.
_FIELDS = {
    "accesskeyid": "key_id",
    "accesskeysecret": "key_secret",
    "securitytoken": "token",
    "regionid": "region",
    "region": "region",
    "rolearn": "role_arn",
    "rolesessionname": "session_name",
    "sessionname": "session_name",
    "oidcproviderarn": "oidc_provider_arn",
    "oidctokenfile": "oidc_token_file",
    "oidctokenfilepath": "oidc_token_file",
}
_SENT = {"key_id": LONGEST_KEY, "key_secret": LONGEST_KEY, "token": LONGEST_TOKEN}  # field -> maximum length
LONGEST_OIDC_TOKEN = 20_000
"""Characters of an OIDC token at most."""
# The characters of a signed JSON Web Token.
_OIDC_TOKEN = re.compile(rf"[A-Za-z0-9_.-]{{4,{LONGEST_OIDC_TOKEN}}}\Z")
_FORM = 'write {"accessKeyId": "…", "accessKeySecret": "…"}'
_KNOWN = "accessKeyId, accessKeySecret, securityToken, roleArn, sessionName, oidcProviderArn, oidcTokenFile, regionId"


class SecretText(msgspec.Struct, frozen=True):
    """The contents of a secret. Its region is not used; the policy's region applies."""

    key_id: Secret = Secret("")
    key_secret: Secret = Secret("")
    token: Secret = Secret("")
    region: str = ""
    role_arn: str = ""
    session_name: str = ""
    oidc_provider_arn: str = ""
    oidc_token_file: str = ""


def parse_secret(text: str, place: str) -> SecretText:
    """Parse JSON or an INI with a section [global]; raises BadInput naming the field, never its value."""
    pairs = json_fields(text, place, _FORM) if text.lstrip().startswith("{") else _ini(text, place)
    found: dict[str, str] = {}
    for name, written in pairs:
        field = _FIELDS.get(_PREFIX.sub("", name.strip()).replace("-", "").replace("_", "").lower())
        if field is None:
            # A user may have written the key in place of its name, so only text that looks like a name is shown.
            shown = name if re.fullmatch(r"[A-Za-z_-]{1,40}", name) else "a field"
            raise BadInput(place, f"{shown} is not known", f"the fields are {_KNOWN}")
        value = written.strip()
        if re.search(r"[\s\x00-\x1f\x7f]", value) or not value.isascii():
            raise BadInput(place, f"{name} contains spaces or special characters", "write it without them")
        if value and field in _SENT and not is_sendable(value, _SENT[field]):
            raise BadInput(
                place,
                f"{name} is not a key or token: it is too long or contains invalid characters",
                "write it as the vendor gave it",
            )
        if value and found.setdefault(field, value) != value:
            raise BadInput(place, f"{name} is given twice with different values", "keep one of the two")
    secrets = {field: Secret(found.pop(field)) for field in ("key_id", "key_secret", "token") if field in found}
    return SecretText(**secrets, **found)  # type: ignore[arg-type]


def parse_oidc_token(text: str, place: str) -> Secret:
    """Return an OIDC token. Raises BadInput, which contains no part of it."""
    token = text.strip()
    if not _OIDC_TOKEN.match(token):
        problem = "holds no OIDC token" if token else "is empty"
        raise BadInput(place, problem, "put the token there, and nothing else")
    return Secret(token)


def _ini(text: str, place: str) -> Iterable[tuple[str, str]]:
    parser = configparser.RawConfigParser(delimiters=("=",), interpolation=None, default_section="")
    try:
        parser.read_string(text)
    except configparser.Error:
        raise BadInput(place, "is neither JSON nor an INI with a section [global]", _FORM) from None
    sections = {name.strip().lower(): name for name in parser.sections()}
    others = [name for name in sections if name != "global"]
    if others or not sections:
        raise BadInput(
            place,
            "has another section than [global]" if others else "has no section [global]",
            "put the fields under [global]",
        )
    return [(name, value.strip().strip('"')) for name, value in parser.items(sections["global"])]
