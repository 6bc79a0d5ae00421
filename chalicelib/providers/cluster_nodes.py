"""What providers ask the cluster itself while a change is made: which machines have become nodes by now.

A pass has listed the nodes and hands them over; a change comes minutes later and asks for itself. Errors are a reason
to wait: who cannot see the nodes must not give up a machine that may be one.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.errors import Transient
from chalicelib.providers.kube_protocol import KubeLists


class Seen(msgspec.Struct, frozen=True):
    """A node as it is now; provider_id is empty until a cloud controller has been there."""

    name: str
    provider_id: str = ""
    labels: dict[str, str] = {}
    uid: str = ""


class _ListedMeta(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None
    uid: str = ""


class _ListedSpec(msgspec.Struct, frozen=True):
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class _ListedNode(msgspec.Struct, frozen=True):
    metadata: _ListedMeta = _ListedMeta()
    spec: _ListedSpec = _ListedSpec()


class _List(msgspec.Struct, frozen=True):
    items: list[_ListedNode] | None = None


def nodes(kube: KubeLists, selector: str = "") -> tuple[Seen, ...]:
    """The cluster's nodes as of now, all or those of a label selector; raises Transient where they cannot be read."""
    found: list[Seen] = []
    try:
        for page in kube.list_pages("/api/v1/nodes", query={"labelSelector": selector} if selector else None):
            if page.first:
                found.clear()
            items = msgspec.json.decode(page.body, type=_List).items or ()
            found += [
                Seen(each.metadata.name, each.spec.provider_id or "", each.metadata.labels or {}, each.metadata.uid)
                for each in items
            ]
    except (OutscalerError, msgspec.MsgspecError, UnicodeError) as error:
        raise Transient(f"the cluster's nodes could not be read: {error}") from None
    return tuple(found)
