"""A credential from a secret, read at the first call and once more when the vendor refuses it.

Functions cache secrets for some minutes (runtime/runtime.py), so a key that was just replaced would
be refused in every pass until the cache expires. An error in the secret's contents is Unauthorized,
an unavailable AWS service is Transient. Both are errors of a call and end neither a pass nor
another provider.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.secret import Secret, SecretNotGiven, place_of
from chalicelib.providers.kit.errors import NOT_GIVEN, ProviderError, Transient, Unauthorized

C = TypeVar("C")
T = TypeVar("T")


@runtime_checkable
class FreshReader(Protocol):
    """A caching secret reader that can bypass its cache."""

    def fresh(self, name: str) -> str:
        """Return the current secret."""


def read_fresh(reader: Callable[[str], str], name: str) -> str:
    """Return the current secret, bypassing the reader's cache if it has one;
    raises what the reader raises."""
    return reader.fresh(name) if isinstance(reader, FreshReader) else reader(name)


def as_provider_error(read: Callable[[], T]) -> T:
    """Return what `read` returns. Raises Unauthorized for errors that the operator must correct,
    Transient if AWS is unavailable."""
    try:
        return read()
    except ProviderError:
        raise
    except BadInput as error:
        raise Unauthorized(
            str(error), code=NOT_GIVEN if isinstance(error, SecretNotGiven) else "Credentials"
        ) from None
    except OutscalerError as error:
        raise Transient(str(error), code="Credentials") from None


def digest(text: str, length: int = 12) -> str:
    """Return the beginning of the text's SHA-256, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


_PURPOSE = "outscaler: budget of calls"


def account_digest(secret: Secret | None, *parts: str) -> str:
    """Return a name for what signs calls, under which their pace and cached data
    are shared: 12 hex digits.

    secret: the secret part of the long-lived credential; None where a cluster has none, which then
    must be among the parts. parts: the credential's id, and the role that it assumes. Who knows the
    id only cannot compute it, and the secret does not follow from it: it is the key of the digest,
    and vendors' secrets are too long to be tried.
    """
    text = "\0".join(f"{len(part)}:{part}" for part in (_PURPOSE, *parts))
    key = secret.reveal().encode() if secret is not None else b""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:12]


class SecretSource(Generic[C]):
    """One credential of one secret, for one provider object. parse: the secret's text and its place
    (for errors) -> the credential, which must be comparable; raises BadInput."""

    def __init__(
        self, read_secret: Callable[[str], str], name: str, parse: Callable[[str, str], C]
    ) -> None:
        self._read_secret, self._name, self._parse = read_secret, name, parse
        self._credential: C | None = None
        self._renewed = False
        self._lock = threading.Lock()

    def current(self) -> C:
        """Return the credential to use; raises Unauthorized or Transient."""
        if self._credential is None:
            self._credential = self._parsed(self._read_secret)
        return self._credential

    def renewed(self, refused: C) -> bool:
        """Return whether the credential has changed since it was refused; raises as current does.
        The secret is read again once in the life of a provider object; after that a refusal is
        final. If several threads find the old credential refused at the same time, one reads, and
        all use what it has read."""
        with self._lock:
            if self._credential != refused:
                return True
            if self._renewed:
                return False
            self._renewed = True
            self._credential = self._parsed(partial(read_fresh, self._read_secret))
            return self._credential != refused

    def _parsed(self, read: Callable[[str], str]) -> C:
        return as_provider_error(lambda: self._parse(read(self._name), place_of(self._name)))


def json_fields(text: str, place: str, form: str) -> list[tuple[str, str]]:
    """Return name and text of each field, without those that are null.
    form: the remedy of an error.

    Raises BadInput.
    """
    try:
        fields = msgspec.json.decode(text, type=dict[str, str | None])
    except msgspec.ValidationError:
        raise BadInput(place, "has a field that is not text", form) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadInput(place, "is not complete JSON", form) from None
    return [(name, value) for name, value in fields.items() if value is not None]
