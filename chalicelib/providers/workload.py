"""The one question that this provider has for the cluster itself: which machines have become nodes by now.

Its errors are a reason to wait: who cannot see the nodes must not discard a machine that may be one.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.errors import Transient
from chalicelib.providers.kube_api import KubeLists


class _Spec(msgspec.Struct, frozen=True):
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class _Node(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class _List(msgspec.Struct, frozen=True):
    items: list[_Node] | None = None


def provider_ids(kube: KubeLists) -> frozenset[str]:
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
