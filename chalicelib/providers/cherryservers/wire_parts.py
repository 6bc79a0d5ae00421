"""The nested objects of a server that this provider does not act on: addresses, routing, disks, keys.

No decision depends on them; they make the decoded server complete with respect to the vendor's documentation. Unlisted
keys are ignored.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Text = Annotated[str, msgspec.Meta(max_length=300)]
Slug = Annotated[str, msgspec.Meta(max_length=63)]  # it becomes a label's value
Whole = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
"""Numbers of a plan: cores, GB, EUR. A value out of bounds counts as missing."""


class RegionBGP(msgspec.Struct, frozen=True):
    """The routers of a region."""

    hosts: tuple[str, ...] = ()
    asn: int = 0


class Region(msgspec.Struct, frozen=True):
    """The location of servers. Requests use slug; old and new slugs are accepted alike."""

    id: int = 0
    slug: Slug = ""
    name: Text = ""
    region_iso_2: str = ""
    bgp: RegionBGP = RegionBGP()
    href: str = ""
    location: str = ""


class Pricing(msgspec.Struct, frozen=True):
    """One price. unit: `Hourly`, `Spot hourly`, `Monthly` … ; taxed: whether it includes value added tax."""

    price: Amount = 0.0
    taxed: bool = False
    currency: Text = ""
    unit: Text = ""
    id: int = 0
    unit_price: float = 0.0


class ProjectBGP(msgspec.Struct, frozen=True):
    """Routing of a project."""

    enabled: bool = False
    local_asn: int = 0


class Project(msgspec.Struct, frozen=True):
    """The owner of servers, to which they are billed."""

    id: int = 0
    name: str = ""
    bgp: ProjectBGP = ProjectBGP()
    href: str = ""


class BGPRoute(msgspec.Struct, frozen=True):
    """A route that a server announces."""

    subnet: str = ""
    active: bool = False
    router: str = ""
    age: str = ""
    updated: str = ""


class ServerBGP(msgspec.Struct, frozen=True):
    """Routing of a server."""

    enabled: bool = False
    available: bool = False
    status: str = ""
    routers: int = 0
    connected: int = 0
    limit: int = 0
    active: int = 0
    routes: tuple[BGPRoute, ...] = ()
    updated: str = ""


class RoutedTo(msgspec.Struct, frozen=True):
    """The address that an address is routed to."""

    id: str = ""
    address: str = ""
    address_family: int = 0
    cidr: str = ""
    gateway: str = ""
    type: str = ""
    region: Region = Region()


class AssignedTo(msgspec.Struct, frozen=True):
    """The server that an address belongs to."""

    id: int = 0
    name: str = ""
    href: str = ""
    hostname: str = ""
    image: str = ""
    region: Region = Region()
    state: str = ""
    pricing: Pricing = Pricing()


class IPAddress(msgspec.Struct, frozen=True):
    """An address; type `primary-ip`, `private-ip` …"""

    id: str = ""
    address: str = ""
    address_family: int = 0
    cidr: str = ""
    gateway: str = ""
    type: str = ""
    region: Region = Region()
    routed_to: RoutedTo = RoutedTo()
    assigned_to: AssignedTo = AssignedTo()
    targeted_to: AssignedTo = AssignedTo()
    project: Project = Project()
    ptr_record: str = ""
    a_record: str = ""
    tags: dict[str, str] = {}
    href: str = ""


class IPAddressCreateRequest(msgspec.Struct, frozen=True):
    """A request for an address independent of a server; part of the vendor's types, never sent here."""

    address_family: int
    public: bool


class AttachedTo(msgspec.Struct, frozen=True):
    """The server that a disk is attached to."""

    href: str = ""
    id: int = 0
    hostname: str = ""


class BlockStorage(msgspec.Struct, frozen=True):
    """A network disk."""

    id: int = 0
    name: str = ""
    href: str = ""
    size: int = 0
    allow_edit_size: bool = False
    unit: str = ""
    description: str = ""
    attached_to: AttachedTo = AttachedTo()
    vlan_id: str = ""
    vlan_ip: str = ""
    initiator: str = ""
    discovery_ip: str = ""
    region: Region = Region()


class SSHKey(msgspec.Struct, frozen=True):
    """A key that may log in; `key` is its public part."""

    id: int = 0
    label: str = ""
    key: str = ""
    fingerprint: str = ""
    updated: str = ""
    created: str = ""
    href: str = ""
