"""A type for secrets that must never be shown, and the error for a secret that cannot be read.

A plain `str` sooner or later appears in a log line, an exception or a debugger's repr. This type
shows `***` in all of them, cannot be written as JSON (msgspec and json do not know it), and returns
its text only through one method, which is easy to search for.
"""

from __future__ import annotations

import base64
import hmac
import html
import json
import re
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from chalicelib.model.errors import BadInput, OutscalerError

# characters; replacing a shorter spelling, other than the secret itself, would hide harmless text
_SHORTEST_SPELLING = 8
_WITHHELD = "*** (a text that contained a credential)"
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)


class Secret:
    """A secret text. `reveal()` is the only access to it; everything else shows `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself, for the one call that needs it."""
        return self._text

    def hidden_in(self, text: str) -> str:
        """Return the text with every occurrence of the secret replaced by `***`, in each
        encoding that a service may repeat it in: plain, percent-encoded, in base64, escaped as
        in JSON, HTML or a literal.

        A text in which the secret is only found by decoding (an uncommon or a mixed
        encoding) is withheld as a whole.
        """
        if not self._text:
            return text
        for spelling in _spellings(self._text):
            text = text.replace(spelling, "***")
        return _WITHHELD if any(self._text in plain for plain in _decoded(text)) else text

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


def one_line(text: str) -> str:
    """Return the text in one line; each control character, line separator and invisible formatting
    character becomes a blank."""
    return " ".join(
        "".join(character if character.isprintable() else " " for character in text).split()
    )


def _spellings(text: str) -> list[str]:
    """Return the text itself and its usual encodings, the longest first, because one may be
    the beginning of another."""
    escaped = json.dumps(text)[1:-1]
    # used by quote, by browsers and by other languages' libraries
    safe_characters = ("", "/", ":/", "!*'()")
    percent = {quote(text, safe=safe, errors=_ODD) for safe in safe_characters} | {
        quote_plus(text, errors=_ODD)
    }
    spellings = percent | {
        re.sub("%..", lambda match: match.group().lower(), spelling) for spelling in percent
    }
    spellings |= {quote(spelling, safe="") for spelling in percent}  # encoded twice
    spellings |= {
        escaped,
        escaped.replace("/", "\\/"),
        json.dumps(text, ensure_ascii=False)[1:-1],
        repr(text)[1:-1],
    }
    spellings |= {html.escape(text), html.escape(text, quote=False)}
    data = text.encode("utf-8", _ODD)
    spellings |= {data.hex(), data.hex().upper()}
    for before in range(3):  # base64 of a text in which other bytes precede the secret
        whole = base64.b64encode(b"\0" * before + data).decode()
        begin, end = _ALONE[before], len(whole) - _ALONE[-(before + len(data)) % 3]
        cores = {whole[begin:end]} if before else {whole[:end], whole, whole.rstrip("=")}
        spellings |= cores | {core.translate(_URL_SAFE) for core in cores}
    usable = {spelling for spelling in spellings if len(spelling) >= _SHORTEST_SPELLING} | {text}
    return sorted(usable, key=lambda spelling: (-len(spelling), spelling))


_ODD = "surrogatepass"  # how surrogates, which no text should contain, are encoded
# By the number of preceding bytes in a group of three: how many base64
# characters also depend on them.
_ALONE = (0, 2, 3)
_URL_SAFE = str.maketrans("+/", "-_")


def _decoded(text: str) -> list[str]:
    """Return possible decodings of the text: percent-decoded up to three
    times, unescaped, or both."""
    decodings = []
    for start in (text, _ESCAPED.sub(_unescaped, text), html.unescape(text)):
        plain = start
        for _ in range(3):
            decodings += [plain, unquote_plus(plain)]
            plain = unquote(plain)
        decodings.append(plain)
    return decodings


def _unescaped(match: re.Match[str]) -> str:
    code = match.group(1) or match.group(2)
    return chr(int(code, 16)) if code else match.group(3)


PARAMETER = "ssm:/"
"""Prefix of a secret's name in a policy if it is an SSM parameter:
`ssm:/outscaler/shop/kubeconfig`."""


def place_of(name: str) -> str:
    """Return the display name of a secret in an error: `secret NAME`, or `parameter /NAME`."""
    return f"parameter {parameter_name(name)}" if name.startswith(PARAMETER) else f"secret {name}"


def parameter_name(name: str) -> str:
    """Return the SSM name, which begins with a slash. name: one that begins with PARAMETER."""
    return "/" + name.removeprefix(PARAMETER)


LONGEST_KEY, LONGEST_TOKEN = 256, 40_000
"""Maximum characters of an access key and of a token; the largest tokens of
vendors have about 32,000."""

_SENDABLE = re.compile(r"[A-Za-z0-9._~+/:=-]+\Z")


def is_sendable(text: str, longest: int) -> bool:
    """Return whether a text can be a key or a token: only characters of base64, of JSON Web Tokens,
    and `:`, up to a length.

    The content of a secret is sent to a server. A text that is not a credential (an environment, a
    file, a document) has other characters and is not sent.
    """
    return len(text) <= longest and _SENDABLE.match(text) is not None


class SecretNotGiven(BadInput):
    """A command reads no secrets, and no file that replaces this one was given."""


class SecretUnavailable(OutscalerError):
    """The secret store did not answer; a later attempt may succeed."""
