"""A bootstrap token, and its formats in a secret.

Upstream takes the two parts from its environment and checks neither. With a wrong part, servers are paid for and never
join, so both are checked before one is bought. An error names the wrong part and never its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import Secret

ID, SECRET = "[a-z0-9]{6}", "[a-z0-9]{16}"

_FIELDS = {
    "tokenid": "id",
    "bootstraptokenid": "id",
    "id": "id",
    "tokensecret": "secret",
    "bootstraptokensecret": "secret",
    "secret": "secret",
}
_FORM = 'write {"tokenId": "…", "tokenSecret": "…"}, or id.secret'


class Token(msgspec.Struct, frozen=True):
    """id: 6 lower-case letters and digits, not secret by itself; secret: 16."""

    id: str
    secret: Secret


def parse_token(text: str, place: str) -> Token:
    """Parse `id.secret`, JSON, or lines NAME=value; all forms of a name are equal (tokenId, token-id,
    BOOTSTRAP_TOKEN_ID).

    Raises BadInput naming the part, never its value.
    """
    written = text.strip()
    pairs = _json(written, place) if written.startswith("{") else _lines(written)
    if pairs is None:
        token_id, _, secret = written.partition(".")
        found = {"id": token_id, "secret": secret}
    else:
        found = _named(pairs, place)
    for part, form in (("id", ID), ("secret", SECRET)):
        if not re.fullmatch(form, found.get(part, ""), re.ASCII):
            length = form[form.index("{") + 1 : -1]
            problem = (
                f"the token's {part} is not {length} small letters and digits"
                if found.get(part)
                else f"the token's {part} is missing"
            )
            raise BadInput(place, problem, _FORM)
    return Token(found["id"], Secret(found["secret"]))


def _named(pairs: Iterable[tuple[str, str]], place: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        field = _FIELDS.get(re.sub(r"[-_\s]", "", name).lower())
        if field is None:
            continue  # a complete copy of a Kubernetes Secret contains usages and groups as well
        if found.setdefault(field, value.strip()) != value.strip():
            raise BadInput(place, f"the token's {field} is given twice with different values", "keep one of the two")
    return found


def _json(text: str, place: str) -> Iterable[tuple[str, str]]:
    try:
        fields = msgspec.json.decode(text, type=dict[str, str | bool | int | float | None])
    except msgspec.MsgspecError:
        raise BadInput(place, "is not complete JSON of texts", _FORM) from None
    return [(name, value) for name, value in fields.items() if isinstance(value, str)]


def _lines(text: str) -> Iterable[tuple[str, str]] | None:
    """Return the lines as a mapping; None if the text is not such a list."""
    if "=" not in text:
        return None
    pairs = (line.partition("=") for line in text.splitlines() if line.strip())
    return [(name.strip().removeprefix("export "), value.strip().strip("\"'")) for name, _, value in pairs]
