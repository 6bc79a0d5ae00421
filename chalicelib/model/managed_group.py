"""Groups that Outscaler makes itself: what makes each different, their names and marks.

Names and marks follow from the definition alone. So a create whose answer was lost is recognised by
its name before it is repeated, and a table that was lost is filled again from the vendor's list.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

PREFIX = "osc-"
NOT_IN_POLICY, NAME_TAKEN = "NotInPolicy", "NameTaken"
MANAGED_CHANGED, COPY_SOURCE_GONE = "ManagedChanged", "CopySourceGone"
"""Codes of Outscaler's own refusals: the policy does not allow what an operation asks for; a group
has the name of an own one and not its mark; an own group is not what it was made as; what a
declaration copies is gone."""
_CLUSTER_DIGITS, _DIGEST_DIGITS, _MARK_DIGITS = 6, 10, 10
_LONGEST_DECLARATION = 16
_NAME = re.compile(r"osc-[0-9a-f]{6}-([a-z0-9-]{1,16})-[0-9a-f]{10}\Z", re.ASCII)
_MARK = re.compile(r"([0-9a-f]{10})\.([a-z0-9-]{1,16})\.([0-9a-f]{10})\Z", re.ASCII)


class MachineChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a declaration of spec.managedPools may buy. declaration: its name. instance_type: as the
    vendor calls it. market: on-demand or spot."""

    declaration: str
    instance_type: str
    zone: str
    market: str = "on-demand"

    @property
    def machine(self) -> str:
        """Return `standard.large ch-gva-2 on-demand`."""
        return f"{self.instance_type} {self.zone} {self.market}"

    @property
    def kind(self) -> tuple[str, str, str]:
        """Return declaration, zone and market: what machines have that may stand for each other."""
        return self.declaration, self.zone, self.market


class Managed(msgspec.Struct, frozen=True, omit_defaults=True):
    """That a group is Outscaler's own. exists: whether the vendor has it. retiring: why it never
    grows again, "" if it may."""

    choice: MachineChoice
    exists: bool = False
    retiring: str = ""


class PoolSelection(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the vendor's catalogue leaves of a declaration. offered: types in all zones and markets.
    failed: requirement -> how many fail there first. candidates: how many meet all. read_at: when
    the catalogue was read, epoch seconds, 0.0: never. problem: why nothing may be opened. warning:
    what is wrong although groups may be opened. quota: what the provider's account may still have,
    by resource of a declaration's limits, memory in bytes; a resource without a known quota is
    absent."""

    declaration: str
    provider: str
    offered: int = 0
    failed: dict[str, int] = {}
    candidates: int = 0
    currency: str = ""
    read_at: float = 0.0
    problem: str = ""
    warning: str = ""
    quota: dict[str, int] = {}


class ManagedGroup(msgspec.Struct, frozen=True):
    """What makes the nodes of a group different from those of another. cluster: uid of the
    namespace kube-system. definition: what the declaration says of its nodes, by the names of its
    keys."""

    cluster: str
    choice: MachineChoice
    definition: dict[str, Any] = {}

    @property
    def digest(self) -> str:
        """Return ten hexadecimal digits of the definition."""
        document = {
            "cluster": self.cluster,
            "declaration": self.choice.declaration,
            "definition": self.definition,
            "market": self.choice.market,
            "type": self.choice.instance_type,
            "zone": self.choice.zone,
        }
        encoded = msgspec.json.encode(document, order="deterministic")
        return hashlib.sha256(encoded).hexdigest()[:_DIGEST_DIGITS]

    @property
    def name(self) -> str:
        """Return the group's name: at most 38 characters that every vendor takes."""
        cluster = _digits_of(self.cluster, _CLUSTER_DIGITS)
        return f"{PREFIX}{cluster}-{short_declaration(self.choice.declaration)}-{self.digest}"

    @property
    def mark(self) -> str:
        """Return the value of the label or tag by which the group is known as Outscaler's."""
        cluster = _digits_of(self.cluster, _MARK_DIGITS)
        return f"{cluster}.{short_declaration(self.choice.declaration)}.{self.digest}"


def short_declaration(declaration: str) -> str:
    """Return what names and marks have of a declaration's name."""
    return declaration[:_LONGEST_DECLARATION].rstrip("-")


def is_own_name(name: str) -> bool:
    """Return whether groups of Outscaler's own have such names."""
    return _NAME.match(name) is not None


def declaration_in_name(name: str) -> str:
    """Return short_declaration of the declaration that made a group of this name; "" for a name
    that no managed group has."""
    parts = _NAME.match(name)
    return parts[1] if parts is not None else ""


def name_in_mark(cluster: str, mark: str) -> str:
    """Return the name of the group that bears a mark which Outscaler has set for the cluster; ""
    for another text. cluster: see ManagedGroup."""
    parts = _MARK.match(mark)
    if parts is None or parts[1] != _digits_of(cluster, _MARK_DIGITS):
        return ""
    return f"{PREFIX}{_digits_of(cluster, _CLUSTER_DIGITS)}-{parts[2]}-{parts[3]}"


def is_own_mark(cluster: str, name: str, mark: str) -> bool:
    """Return whether a group with this name bears a mark that Outscaler has set for the cluster.
    cluster: see ManagedGroup."""
    return bool(name) and name == name_in_mark(cluster, mark)


def declaration_in(mark: str) -> str:
    """Return short_declaration of the declaration that a mark names; "" for another text."""
    parts = _MARK.match(mark)
    return parts[2] if parts is not None else ""


def _digits_of(cluster: str, digits: int) -> str:
    return hashlib.sha256(cluster.encode()).hexdigest()[:digits]
