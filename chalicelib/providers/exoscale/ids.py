"""Validation of ids. The vendor's ids are UUIDs, and no other text may be used in a URL that is signed and sent."""

from __future__ import annotations

import re

from chalicelib.providers.errors import InvalidRequest

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE)


def is_id(text: str) -> bool:
    """Whether the text is a UUID in the vendor's format, in upper or lower case."""
    return _UUID.match(text) is not None


def checked(text: str, what: str) -> str:
    """Return the id in lower case; raises InvalidRequest, so that nothing is sent. what: `instance pool`."""
    if not is_id(text):
        raise InvalidRequest(f"{text[:80]!r} is not the id of an {what}", code="Id")
    return text.lower()
