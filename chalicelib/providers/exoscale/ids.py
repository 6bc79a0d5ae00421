"""Which texts are ids. The vendor's ids are UUIDs, and nothing else may get into an address that is signed and sent."""

from __future__ import annotations

import re

from chalicelib.providers.errors import InvalidRequest

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE)


def is_id(text: str) -> bool:
    """Whether this is a UUID as the vendor writes it; capitals are as good as small letters."""
    return _UUID.match(text) is not None


def checked(text: str, what: str) -> str:
    """The id in small letters; raises InvalidRequest, so that nothing is sent. what: `instance pool`."""
    if not is_id(text):
        raise InvalidRequest(f"{text[:80]!r} is not the id of an {what}", code="Id")
    return text.lower()
