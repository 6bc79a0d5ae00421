"""The names and marks of groups that Outscaler makes itself.

Both follow from the definition alone. So a create whose answer was lost is recognised by its name
before it is repeated, and a table that was lost is filled again from the vendor's list.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

PREFIX = "osc-"
_CLUSTER_DIGITS, _DIGEST_DIGITS, _MARK_DIGITS = 6, 10, 10
_LONGEST_DECLARATION = 16


class ManagedGroup(msgspec.Struct, frozen=True):
    """What makes the nodes of a group different from those of another. cluster: uid of the
    namespace kube-system. declaration: its name in spec.managedPools. market: on-demand or spot.
    definition: what the declaration says of its nodes, by the names of its keys."""

    cluster: str
    declaration: str
    instance_type: str
    zone: str
    market: str
    definition: dict[str, Any] = {}

    @property
    def digest(self) -> str:
        """Return ten hexadecimal digits of the definition."""
        document = {
            "cluster": self.cluster,
            "declaration": self.declaration,
            "definition": self.definition,
            "market": self.market,
            "type": self.instance_type,
            "zone": self.zone,
        }
        encoded = msgspec.json.encode(document, order="deterministic")
        return hashlib.sha256(encoded).hexdigest()[:_DIGEST_DIGITS]

    @property
    def name(self) -> str:
        """Return the group's name: at most 38 characters that every vendor takes."""
        cluster = _digits_of(self.cluster, _CLUSTER_DIGITS)
        return f"{PREFIX}{cluster}-{short_declaration(self.declaration)}-{self.digest}"

    @property
    def mark(self) -> str:
        """Return the value of the label or tag by which the group is known as Outscaler's."""
        cluster = _digits_of(self.cluster, _MARK_DIGITS)
        return f"{cluster}.{short_declaration(self.declaration)}.{self.digest}"


def short_declaration(declaration: str) -> str:
    """Return what names and marks have of a declaration's name."""
    return declaration[:_LONGEST_DECLARATION].rstrip("-")


def declaration_in_name(name: str) -> str:
    """Return short_declaration of the declaration that made a group of this name; "" for a name
    that no managed group has."""
    cluster, digest = f"[0-9a-f]{{{_CLUSTER_DIGITS}}}", f"[0-9a-f]{{{_DIGEST_DIGITS}}}"
    parts = re.fullmatch(f"{PREFIX}{cluster}-([a-z0-9-]+)-{digest}", name)
    return parts[1] if parts is not None else ""


def _digits_of(cluster: str, digits: int) -> str:
    return hashlib.sha256(cluster.encode()).hexdigest()[:digits]
