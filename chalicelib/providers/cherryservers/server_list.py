"""Decodes a list of servers row by row, so that an unreadable row makes only its own pool's size unknown.

Tags decide which pool owns a server. A row is odd if it has no usable id, if another row of the page has its id, or if
its decisive tags are not texts. Its readable tags show which pools it may belong to.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.providers.cherryservers.decoding import decoded, read_row
from chalicelib.providers.cherryservers.models import CherryServer
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.cherryservers.provider_ids import CLUSTER_TAG, POOL_TAG
from chalicelib.providers.errors import Unknown
from chalicelib.providers.http import VendorResponse

_DECISIVE = (CLUSTER_TAG, POOL_TAG)


class UnreadableServer(msgspec.Struct, frozen=True):
    """A row that cannot be counted as a server.

    tags: the decisive ones, a value of None is unreadable; None: no tags can be read. key: of the row's contents, so
    that a row on two pages counts once."""

    key: str
    why: str
    tags: dict[str, str | None] | None

    def may_be_of(self, definition: Definition, *, untagged: bool = False) -> bool:
        """Whether the row may be a server of that pool.

        untagged: also accept a row without either tag, because a server that was just bought may have none."""
        if self.tags is None:
            return True
        if untagged and not self.tags:
            return True
        wanted = {CLUSTER_TAG: definition.cluster_name, POOL_TAG: definition.pool}
        return all(self.tags.get(name, "") in (None, text) for name, text in wanted.items())


def read_rows(response: VendorResponse) -> list[CherryServer | UnreadableServer]:
    """Return the servers of a page and its odd rows.

    Raises Transient if it is not JSON, Unknown if it is not a list or none of its rows can be read."""
    rows = decoded(response)
    if not isinstance(rows, list):
        raise Unknown(f"{response.call}: the answer is not a list")
    found, problem = list[CherryServer | UnreadableServer](), None
    for number, row in enumerate(rows):
        try:
            server = read_row(row, CherryServer, f"{response.call}: row {number}")
        except Unknown as error:
            problem = error
            found.append(UnreadableServer(_key(row), error.message, _tags(row)))
        else:
            unclear = UnreadableServer(_key(row), f"server {server.id} has tags that are not strings", _tags(row))
            found.append(unclear if None in (unclear.tags or {}).values() else server)
    if problem is not None and all(isinstance(each, UnreadableServer) for each in found):
        raise problem
    return _each_once(found, rows)


def _each_once(found: list[CherryServer | UnreadableServer], rows: list[Any]) -> list[CherryServer | UnreadableServer]:
    """Replace differing rows with the same id by odd rows."""
    keys: dict[int, set[str]] = {}
    times = Counter(each.id for each in found if isinstance(each, CherryServer))
    for each, row in zip(found, rows, strict=True):
        if isinstance(each, CherryServer) and times[each.id] > 1:
            keys.setdefault(each.id, set()).add(_key(row))
    return [
        UnreadableServer(_key(row), f"{len(keys[each.id])} rows have the id {each.id}", _tags(row))
        if isinstance(each, CherryServer) and len(keys.get(each.id, ())) > 1
        else each
        for each, row in zip(found, rows, strict=True)
    ]


def _tags(row: Any) -> dict[str, str | None] | None:
    said = row.get("tags") if isinstance(row, Mapping) else 0
    if said in (None, [], ""):
        return {}
    if not isinstance(said, Mapping):
        return None
    return {name: _text(said[name]) for name in _DECISIVE if name in said}


def _text(value: Any) -> str | None:
    """Return a text, or a number as written."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _key(row: Any) -> str:
    return hashlib.sha256(repr(row).encode("utf-8", "replace")).hexdigest()
