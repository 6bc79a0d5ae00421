"""The one question that this provider has for the cluster itself: which machines have become nodes by now.

The kube package and this one may not know each other, so its client is met as a Protocol, and its errors as what they
are: a reason to wait, for who cannot see the nodes must not discard a machine that may be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.errors import Transient


class Page(Protocol):
    """One page of a list; first: the list begins (again), what came before is void."""

    @property
    def body(self) -> bytes:
        """The List as the server sent it."""

    @property
    def first(self) -> bool:
        """Whether it is the first page."""


class KubeApi(Protocol):
    """What is needed of the connection to the cluster."""

    def list_pages(self, path: str, *, query: Mapping[str, str] | None = None) -> Iterable[Page]:
        """A whole list in pages."""


class _Spec(msgspec.Struct, frozen=True):
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class _Node(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class _List(msgspec.Struct, frozen=True):
    items: list[_Node] | None = None


def provider_ids(kube: KubeApi) -> frozenset[str]:
    """The provider ids of the cluster's nodes as of now; raises Transient where they cannot be read."""
    found: set[str] = set()
    try:
        for page in kube.list_pages("/api/v1/nodes"):
            if page.first:
                found.clear()
            items = msgspec.json.decode(page.body, type=_List).items or ()
            found.update(node.spec.provider_id for node in items if node.spec.provider_id)
    except (OutscalerError, msgspec.MsgspecError, UnicodeError) as error:
        raise Transient(f"the cluster's nodes could not be read: {error}") from None
    return frozenset(found)
