"""Volumes that are being made for pods which are not on the node yet (demands.md 7, kubernetes#125491).

A scheduler that has chosen a node for a pod with an unbound claim writes the node's name on the claim, and waits until
the volume is there before it binds the pod. That takes minutes, in which no pod says that it is coming. So the claims
are asked.
"""

from __future__ import annotations

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import Forbidden, NotFound, Unavailable

CLAIMS = "/api/v1/persistentvolumeclaims"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MOST_PAGES = 60
"""Pages of 500 that are read at most, for a function must end; what lies beyond holds nothing up."""


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
        """Chosen for this node and not bound: phase Pending, or none yet."""
        chosen = (self.metadata.annotations or {}).get(SELECTED_NODE) == node
        return chosen and self.status.phase in ("", "Pending") and not self.metadata.deletion_timestamp


class _Claims(msgspec.Struct, frozen=True):
    items: list[_Claim] | None = None


def awaiting(cluster: KubeClient, node: str) -> tuple[str, ...]:
    """Claims (namespace/name) whose volume is being made on this node; none where claims may not be read, as in a pass.
    Raises ClusterError for any other failure."""
    found: list[str] = []
    try:
        for number, page in enumerate(cluster.list_pages(CLAIMS), start=1):
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
