"""Pages of a List as the API sends them, and the bounds of reading them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from chalicelib.net.json_repair import decode_repaired, repaired

T = TypeVar("T")

_SURROGATE = rb"\ud"


class ListMeta(msgspec.Struct, gc=False, frozen=True):
    """metadata of a List. remaining: objects after this page; the API does not
    count them for a selection."""

    next_page: str | None = msgspec.field(default=None, name="continue")
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")


class ListHead(msgspec.Struct, gc=False):
    """The fields of a List that paging needs. msgspec skips the items, but detects a
    truncated body; items are required, so that an empty object from a proxy is not taken
    for a cluster without pods."""

    metadata: ListMeta
    items: msgspec.Raw


class Page(msgspec.Struct, frozen=True):
    """One page of a List as received. first: discard the earlier pages, because the
    list starts (again) here."""

    body: bytes
    first: bool


class TypedList(Protocol):
    """A List decoded at once."""

    @property
    def metadata(self) -> ListMeta | None:
        """None where the document has none."""

    @property
    def items(self) -> list[Any] | None:
        """None where the document has none."""


class TypedPage(msgspec.Struct, frozen=True):
    """One page of a List. listing: decoded, None if an object in it is not of the
    type; body: complete JSON."""

    body: bytes
    listing: Any
    meta: ListMeta


def decoded(body: bytes, kind: type[T]) -> tuple[T, bytes]:
    """Return the body as that type, and the body without values that cannot be decoded: one such
    object must not hide the others of its list. Raises msgspec.DecodeError and nothing else."""
    try:
        return msgspec.json.decode(body, type=kind), body
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # API servers write no surrogates, so a body without them that is not JSON was
        # truncated and is read again.
        if isinstance(error, msgspec.DecodeError) and _SURROGATE not in body.lower():
            raise
    readable = repaired(body)
    return decode_repaired(readable, kind), readable


def typed_page(body: bytes, decode: Callable[[bytes], TypedList]) -> TypedPage:
    """Return a page, decoded once where all its objects are well-formed. Raises msgspec.DecodeError
    if it is not a List or not complete."""
    try:
        listing = decode(body)
        if listing.metadata is not None and listing.items is not None:
            return TypedPage(body, listing, listing.metadata)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass  # the caller finds the malformed object item by item
    head, readable = decoded(body, ListHead)
    return TypedPage(readable, None, head.metadata)
