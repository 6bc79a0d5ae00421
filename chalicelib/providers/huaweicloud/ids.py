"""Which texts are ids. Only they get into an address that is signed and sent, whatever a person or the vendor wrote."""

from __future__ import annotations

import re

from chalicelib.providers.errors import InvalidRequest

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE)
_PROJECT = re.compile(r"[0-9a-f]{32}\Z", re.ASCII)


def is_id(text: str) -> bool:
    """Whether this is the uid of a cluster, pool, node or job; capitals are as good as small letters."""
    return _UUID.match(text) is not None


def is_project(text: str) -> bool:
    """Whether this is a project's id: 32 hex digits."""
    return _PROJECT.match(text) is not None


def checked(text: str, what: str) -> str:
    """The id in small letters; raises InvalidRequest, so that nothing is sent. what: `node pool`."""
    if not is_id(text):
        raise InvalidRequest(f"{text[:80]!r} is not the id of a {what}", code="Id")
    return text.lower()
