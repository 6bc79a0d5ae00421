"""Reads from the cluster which machines have become nodes, for use during a change.

A pass has listed the nodes and passes them in; a change runs minutes later and reads them itself. An error is a reason
to wait: while the nodes cannot be read, a machine that may be one must not be given up.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.providers.errors import Transient
from chalicelib.providers.kube_protocol import KubeLists


class Seen(msgspec.Struct, frozen=True):
    """A current node; provider_id is empty until a cloud controller has set it."""

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
    """Return the cluster's current nodes, all or those of a label selector; raises Transient if they cannot be read."""
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
