"""A credential that stands in a secret: read at the first call, and once more when the vendor refuses it.

Functions keep secrets for some minutes (handlers/runtime.py), so a key that was just replaced would be refused by every
pass until then. A person's mistake in the secret is Unauthorized, an answer that AWS does not give is Transient: both
are errors of a call, and neither ends a pass or another provider.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.secret import place_of
from chalicelib.providers.errors import ProviderError, Transient, Unauthorized

C = TypeVar("C")
T = TypeVar("T")


@runtime_checkable
class FreshReader(Protocol):
    """A secret reader that keeps what it read, and can be told not to."""

    def fresh(self, name: str) -> str:
        """The secret as it is now."""


def read_fresh(reader: Callable[[str], str], name: str) -> str:
    """The secret as it is now, also where the reader keeps what it read; raises what the reader raises."""
    return reader.fresh(name) if isinstance(reader, FreshReader) else reader(name)


def as_provider_error(read: Callable[[], T]) -> T:
    """What a person must mend is Unauthorized, what AWS does not answer is Transient."""
    try:
        return read()
    except ProviderError:
        raise
    except BadInput as error:
        raise Unauthorized(str(error), code="Credentials") from None
    except OutscalerError as error:
        raise Transient(str(error), code="Credentials") from None


def digest(text: str, length: int = 12) -> str:
    """The beginning of the text's SHA-256, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


class SecretSource(Generic[C]):
    """One credential of one secret, for one provider object.

    parse: the secret's text and its place (for errors) -> the credential, comparable; raises BadInput.
    """

    def __init__(self, read_secret: Callable[[str], str], name: str, parse: Callable[[str, str], C]) -> None:
        self._read_secret, self._name, self._parse = read_secret, name, parse
        self._held: C | None = None
        self._renewed = False
        self._lock = threading.Lock()

    def current(self) -> C:
        """The credential to use; raises Unauthorized or Transient."""
        if self._held is None:
            self._held = as_provider_error(lambda: self._parsed(self._read_secret(self._name)))
        return self._held

    def renewed(self, refused: C) -> bool:
        """Whether there is another credential by now than the one that was refused; raises as current does. The secret
        is read once in the life of a provider object; after that a refusal stands. Several threads may find the old one
        refused at the same time: one reads, and all go on with what it has read."""
        with self._lock:
            if self._held != refused:
                return True
            if self._renewed:
                return False
            self._renewed = True
            self._held = as_provider_error(lambda: self._parsed(read_fresh(self._read_secret, self._name)))
            return self._held != refused

    def _parsed(self, text: str) -> C:
        return self._parse(text, place_of(self._name))
