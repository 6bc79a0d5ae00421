"""Text that must never be seen: a credential in memory, and the error for one that cannot be had.

A plain `str` finds its way into a log line, an exception or a debugger's repr sooner or later. This type shows `***` in
all of them, refuses to be written as JSON (msgspec and json do not know it), and hands its text out by one word that
can be searched for.
"""

from __future__ import annotations

import base64
import hmac
import html
import json
import re
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from chalicelib.model.errors import OutscalerError

_SHORTEST_SPELLING = 8  # characters; a shorter one, other than the secret itself, would hide innocent text
_WITHHELD = "*** (a text that held a credential)"
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)


class Secret:
    """A credential's text. `reveal()` is the only way to it; everything else shows `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one call that needs it."""
        return self._text

    def hidden_in(self, text: str) -> str:
        """The same text with every occurrence of the secret replaced by `***`, in each encoding that a service may
        repeat it in: as it is, percent-encoded, in base64, escaped as in JSON, HTML or a literal.

        A text in which the secret is only found by decoding (an uncommon or a mixed encoding) is withheld as a whole.
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
    """The text in one line, each control character, line separator and invisible formatting character a blank."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def _spellings(text: str) -> list[str]:
    """The text itself and its usual encodings, the longest first: one may be the beginning of another."""
    escaped = json.dumps(text)[1:-1]
    kept = ("", "/", ":/", "!*'()")  # by quote, by browsers and by other languages' libraries
    percent = {quote(text, safe=safe, errors=_ODD) for safe in kept} | {quote_plus(text, errors=_ODD)}
    found = percent | {re.sub("%..", lambda match: match.group().lower(), each) for each in percent}
    found |= {quote(each, safe="") for each in percent}  # twice
    found |= {escaped, escaped.replace("/", "\\/"), json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    found |= {html.escape(text), html.escape(text, quote=False)}
    data = text.encode("utf-8", _ODD)
    found |= {data.hex(), data.hex().upper()}
    for before in range(3):  # base64 of a text that holds the secret behind other bytes
        whole = base64.b64encode(b"\0" * before + data).decode()
        begin, end = _ALONE[before], len(whole) - _ALONE[-(before + len(data)) % 3]
        cores = {whole[begin:end]} if before else {whole[:end], whole, whole.rstrip("=")}
        found |= cores | {core.translate(_URL_SAFE) for core in cores}
    usable = {each for each in found if len(each) >= _SHORTEST_SPELLING} | {text}
    return sorted(usable, key=lambda each: (-len(each), each))


_ODD = "surrogatepass"  # how characters are encoded that no text should have
# By how many bytes a group of three is not the secret's: the characters of base64 that depend on them.
_ALONE = (0, 2, 3)
_URL_SAFE = str.maketrans("+/", "-_")


def _decoded(text: str) -> list[str]:
    """What the text may mean: percent-decoded up to three times, unescaped, or both."""
    found = []
    for start in (text, _ESCAPED.sub(_unescaped, text), html.unescape(text)):
        plain = start
        for _ in range(3):
            found += [plain, unquote_plus(plain)]
            plain = unquote(plain)
        found.append(plain)
    return found


def _unescaped(match: re.Match[str]) -> str:
    code = match.group(1) or match.group(2)
    return chr(int(code, 16)) if code else match.group(3)


PARAMETER = "ssm:/"
"""What a name in a policy begins with where the secret is a parameter of SSM: `ssm:/outscaler/shop/kubeconfig`."""


def place_of(name: str) -> str:
    """What a secret of that name is called in an error: `secret NAME`, or `parameter /NAME`."""
    return f"parameter {parameter_name(name)}" if name.startswith(PARAMETER) else f"secret {name}"


def parameter_name(name: str) -> str:
    """The name that SSM knows, which begins with a slash. name: one that begins with PARAMETER."""
    return "/" + name.removeprefix(PARAMETER)


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
