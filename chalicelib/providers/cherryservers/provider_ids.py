"""Ids and tags: how a server is called by its vendor, by the cluster's nodes and by us (cherryservers.md §2).

The vendor's cloud controller writes `cherryservers://1000` and reads a bare `1000` too. Which pool a server belongs to
is written on it, as two tags; which of our operations has bought it is a third one.
"""

from __future__ import annotations

import re

from chalicelib.model.operation import RemovalTarget

SCHEME = "cherryservers://"
CLUSTER_TAG, POOL_TAG, OPERATION_TAG = "k8s-cluster", "k8s-nodepool", "outscaler-operation"

_ID = re.compile(r"[1-9][0-9]{0,18}\Z", re.ASCII)


def parse(provider_id: str) -> int | None:
    """The server's id in a node's providerID, with or without the scheme; None for an empty one and for any other."""
    text = provider_id.removeprefix(SCHEME)
    return int(text) if _ID.match(text) else None


def likely(provider_id: str) -> int | None:
    """The server's id in what resembles a providerID of this vendor (capitals, a path, blanks) and is none."""
    text = provider_id.strip()
    return parse(text.rpartition("/")[2]) if text.lower().startswith(SCHEME.rstrip("/")) or text.isdecimal() else None


def spell(server: int) -> str:
    """The providerID that a server's node will have."""
    return f"{SCHEME}{server}"


def id_of(target: RemovalTarget) -> int | None:
    """The server that a target names, by its handle, else by its provider id; None where neither does."""
    return parse(target.handle) or parse(target.instance)


def alike(one: str, other: str) -> bool:
    """Whether two host names are the same to a DNS, and to Kubernetes, which writes them small."""
    return bool(one) and one.casefold() == other.casefold()
