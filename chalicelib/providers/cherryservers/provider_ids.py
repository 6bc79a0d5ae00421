"""Conversions between the vendor's server ids, nodes' providerIDs and handles, and the names of the tags.

The vendor's cloud controller writes `cherryservers://1000` and also reads a bare `1000`. Two tags assign a server to a
pool; a third one names the operation that bought it.
"""

from __future__ import annotations

import re

from chalicelib.model.operation import RemovalTarget

SCHEME = "cherryservers://"
CLUSTER_TAG, POOL_TAG, OPERATION_TAG = "k8s-cluster", "k8s-nodepool", "outscaler-operation"

_ID = re.compile(r"[1-9][0-9]{0,18}\Z", re.ASCII)


def parse(provider_id: str) -> int | None:
    """Return the server's id in a node's providerID, with or without the scheme; None if it is empty or anything
    else."""
    text = provider_id.removeprefix(SCHEME)
    return int(text) if _ID.match(text) else None


def likely(provider_id: str) -> int | None:
    """Return the server's id in a text that resembles a providerID of this vendor (capitals, a path, blanks) but is
    invalid."""
    text = provider_id.strip()
    return parse(text.rpartition("/")[2]) if text.lower().startswith(SCHEME.rstrip("/")) or text.isdecimal() else None


def spell(server: int) -> str:
    """Return the providerID that a server's node will have."""
    return f"{SCHEME}{server}"


def id_of(target: RemovalTarget) -> int | None:
    """Return the server that a target names by its handle or its provider id; None if neither does."""
    return parse(target.handle) or parse(target.instance)


def alike(one: str, other: str) -> bool:
    """Whether two host names are equal in DNS and in Kubernetes, which writes them in lower case."""
    return bool(one) and one.casefold() == other.casefold()
