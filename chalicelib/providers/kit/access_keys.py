"""Access keys: their fields in the operator's secret, and temporary ones that a process keeps.

All forms of a field's name are equal: `accessKey`, `access-key`, `ACCESS_KEY`. An error names the
field, never a value, and only a text that looks like a name: a user may have written the key in its
place. A trailing newline would break signatures and is removed.

Temporary keys are kept in memory only, never in a table. They are looked up by what they were made
from, so a changed key or role never gets keys of the old one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_KEY, Secret, is_sendable
from chalicelib.providers.kit.credential_source import json_fields
from chalicelib.providers.kit.errors import ProviderError

# -- the operator's secret

_NAME = re.compile(r"[A-Za-z][A-Za-z_-]{0,39}\Z", re.ASCII)
_SPECIAL = re.compile(r"[\s\x00-\x1f\x7f]")


class SecretFormat(msgspec.Struct, frozen=True):
    """The form of a vendor's secret. fields: a name's letters in lower case, without prefix, dashes
    and underscores -> our name of the field; None: known but not used here. written: our name -> as
    users write it, for each part of a key. known: the fields, for the remedy. remedy: an example.
    lines: reads a text that is not JSON, raises BadInput. prefix: of names; shown: names that may
    be shown; longest: of a part, in characters."""

    fields: Mapping[str, str | None]
    written: Mapping[str, str]
    known: str
    remedy: str
    lines: Callable[[str, str], Iterable[tuple[str, str]]]
    prefix: re.Pattern[str] = re.compile(r"(?!)")
    shown: re.Pattern[str] = _NAME
    longest: Mapping[str, int] = {}
    problem: str = "contains spaces or special characters"


def secret_fields(
    text: str, place: str, form: SecretFormat, required: Iterable[str] = ()
) -> dict[str, str]:
    """Return the fields that are used and not empty, by our name. place: the secret, for errors.
    Raises BadInput for a field that is unknown, missing, given twice, or that no key can be."""
    text = text.lstrip("\ufeff")
    values: dict[str, str] = {}
    for name, text_value in (
        json_fields(text, place, form.remedy) if _is_json(text) else form.lines(text, place)
    ):
        letters = re.sub(r"[-_ ]", "", form.prefix.sub("", name.strip())).lower()
        shown = name.strip() if form.shown.match(name.strip()) else "a field"
        if letters not in form.fields:
            raise BadInput(place, f"{shown} is not known", f"the fields are {form.known}")
        field, value = form.fields[letters], text_value.strip()
        if field is None or not value:
            continue
        label, is_key = form.written.get(field, shown), field in form.written
        if not value.isascii() or _SPECIAL.search(value):
            raise BadInput(place, f"{label} {form.problem}", "write it without them")
        if is_key and not is_sendable(value, form.longest.get(field, LONGEST_KEY)):
            raise BadInput(
                place, f"{label} {form.problem}, or is too long", "write it as the vendor gave it"
            )
        if values.setdefault(field, value) != value:
            raise BadInput(
                place, f"{label} is given twice with different values", "keep one of the two"
            )
    for field in required:
        if field not in values:
            raise BadInput(place, f"{form.written[field]} is missing", form.remedy)
    return values


def _is_json(text: str) -> bool:
    return text.lstrip().startswith("{")


def name_value_lines(lines: Iterable[str], place: str, remedy: str) -> list[tuple[str, str]]:
    """Return name and value of lines `name=value`, whose values may be quoted. Raises
    BadInput for any other line."""
    pairs = [line.partition("=") for line in lines]
    if not pairs or not all(equals for _, equals, _ in pairs):
        raise BadInput(place, "is neither JSON nor lines of name=value", remedy)
    return [(name, value.strip().strip("\"'")) for name, _, value in pairs]


# -- keys


class AccessKey(msgspec.Struct, frozen=True):
    """A key that signs, and for a temporary one its token and lifetime.
    obtained, expires: epoch seconds."""

    key: Secret
    secret: Secret
    token: Secret = Secret("")
    obtained: float = 0.0
    expires: float = float("inf")

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The parts that must be hidden."""
        return self.token, self.secret, self.key

    def signs_like(self, other_key: AccessKey) -> bool:
        """Whether both sign alike, regardless of when they were obtained."""
        return self.secrets == other_key.secrets


K = TypeVar("K", bound=AccessKey)

# seconds before their expiry until which old keys are used while there are no new ones
_LAST_USE = 60.0
_AGAIN = 30.0  # seconds until the next attempt in that case
_MOST = 256  # maximum temporary keys of one process


class TemporaryKeys(Generic[K]):
    """The temporary keys of a process. Thread-safe; if two threads both create some, the later are
    kept. due: when keys are to be replaced, in epoch seconds. tolerated: errors in spite of which
    the old keys are used while they are valid."""

    def __init__(
        self, due: Callable[[K], float], tolerated: tuple[type[ProviderError], ...]
    ) -> None:
        self._due, self._tolerated = due, tolerated
        self._lock = threading.Lock()
        self._sessions: dict[str, tuple[K, float]] = {}

    def get(self, name: str, now: float, make: Callable[[], K]) -> K:
        """Return the keys of that name, renewed before they expire. If `make` raises a tolerated
        error, the old ones are used as long as they are valid, and it is called again half a minute
        later; any other error is raised. A clock that goes back does not extend their life."""
        with self._lock:
            old, renewal = self._sessions.get(name, (None, 0.0))
        if old is not None and old.obtained - _LAST_USE <= now < renewal:
            return old
        try:
            new = make()
        except self._tolerated:
            if old is None or not old.obtained - _LAST_USE <= now < old.expires - _LAST_USE:
                raise
            return self._keep(name, old, now, now + _AGAIN)
        return self._keep(name, new, now, self._due(new))

    def drop(self, name: str, refused: K) -> None:
        """Remove keys that the vendor refused, unless others have replaced them."""
        with self._lock:
            key = self._sessions.get(name)
            if key is not None and key[0].signs_like(refused):
                del self._sessions[name]

    def _keep(self, name: str, key: K, now: float, renewal: float) -> K:
        with self._lock:
            if name not in self._sessions and len(self._sessions) >= _MOST:
                self._sessions = {
                    name: pair for name, pair in self._sessions.items() if pair[0].expires > now
                }
            if name not in self._sessions and len(self._sessions) >= _MOST:
                self._sessions.clear()
            self._sessions[name] = (key, renewal)
        return key
