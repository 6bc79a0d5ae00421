"""Validation of ids. Only valid ids are used in a URL that is signed and sent, whatever the user or the vendor
wrote."""

from __future__ import annotations

import re

from chalicelib.providers.errors import InvalidRequest

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE)
_PROJECT = re.compile(r"[0-9a-f]{32}\Z", re.ASCII)


def is_id(text: str) -> bool:
    """Whether this is the uid of a cluster, pool, node or job, in upper or lower case."""
    return _UUID.match(text) is not None


def is_project(text: str) -> bool:
    """Whether this is a project's id: 32 hex digits."""
    return _PROJECT.match(text) is not None


def checked(text: str, what: str) -> str:
    """Return the id in lower case; raises InvalidRequest, so that nothing is sent. what: `node pool`."""
    if not is_id(text):
        raise InvalidRequest(f"{text[:80]!r} is not the id of a {what}", code="Id")
    return text.lower()
