"""Finds PersistentVolumeClaims whose volume is being provisioned for pods that are not bound to the node yet.

When a scheduler has chosen a node for a pod with an unbound claim, it writes the node's name on the claim and binds the
pod only once the volume exists. This takes minutes, during which the pod does not show its node (kubernetes#125491). A
drain therefore has to read the claims.
"""

from __future__ import annotations

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import Forbidden, NotFound, Unavailable

CLAIMS = "/api/v1/persistentvolumeclaims"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MOST_PAGES = 60
"""Maximum pages of 500 claims. Claims beyond the limit do not delay a removal."""


class _ClaimMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _ClaimStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _Claim(msgspec.Struct, frozen=True):
    metadata: _ClaimMeta
    status: _ClaimStatus = _ClaimStatus()

    def awaits(self, node: str) -> bool:
        """Return whether the claim is assigned to this node and not bound: phase Pending, or no phase yet."""
        chosen = (self.metadata.annotations or {}).get(SELECTED_NODE) == node
        return chosen and self.status.phase in ("", "Pending") and not self.metadata.deletion_timestamp


class _Claims(msgspec.Struct, frozen=True):
    items: list[_Claim] | None = None


def awaiting(kube: KubeClient, node: str) -> tuple[str, ...]:
    """Return the claims (namespace/name) whose volume is being provisioned on this node; none where claims may not be
    read, as in a pass. Raises ClusterError for any other failure."""
    found: list[str] = []
    try:
        for number, page in enumerate(kube.list_pages(CLAIMS), start=1):
            if page.first:
                found.clear()
            claims = msgspec.json.decode(page.body, type=_Claims).items or ()
            found += [f"{each.metadata.namespace}/{each.metadata.name}" for each in claims if each.awaits(node)]
            if found or number >= MOST_PAGES:
                break
    except (Forbidden, NotFound):
        return ()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unavailable(f"{CLAIMS}: the answer is not what the Kubernetes API gives: {error}") from None
    return tuple(sorted(found))
