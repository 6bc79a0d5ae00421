"""Text that must never be seen: a credential in memory, and the error for one that cannot be had.

A plain `str` finds its way into a log line, an exception or a debugger's repr sooner or later. This type shows `***` in
all of them, refuses to be written as JSON (msgspec and json do not know it), and hands its text out by one word that
can be searched for.
"""

from __future__ import annotations

import hmac
import re

from chalicelib.model.errors import OutscalerError


class Secret:
    """A credential's text. `reveal()` is the only way to it; everything else shows `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one call that needs it."""
        return self._text

    def hidden_in(self, text: str) -> str:
        """The same text with every occurrence of the secret replaced by `***`."""
        return text.replace(self._text, "***") if self._text else text

    def __repr__(self) -> str:
        return "***"

    def __str__(self) -> str:
        return "***"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(("Secret", self._text))

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not written anywhere")


LONGEST_KEY, LONGEST_TOKEN = 256, 40_000
"""Characters of an access key, and of a token; the largest tokens of vendors have about 32,000."""

_SENDABLE = re.compile(r"[A-Za-z0-9._~+/:=-]+\Z")


def is_sendable(text: str, longest: int) -> bool:
    """Whether a text can be a key or a token: the characters of base64, of JSON Web Tokens, and `:`, not too many.

    What a secret holds is sent to a server. A text that is no credential (an environment, a file, a document) has
    other characters, and is not sent.
    """
    return len(text) <= longest and _SENDABLE.match(text) is not None


class SecretUnavailable(OutscalerError):
    """The place where secrets are kept gave no answer just now; a later attempt may succeed."""
