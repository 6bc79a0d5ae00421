"""What Cherry Servers' API says, and the one body that is sent to it (cherryservers.md §3, §3.1).

The vendor's live answers hold more keys than its documentation and now and then another type than it says, so only a
row's id is indispensable; how a row with a strange value is read all the same stands in lenient.py.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from chalicelib.providers.cherryservers.wire_parts import (
    Amount,
    BlockStorage,
    IPAddress,
    Pricing,
    Project,
    Region,
    ServerBGP,
    Slug,
    SSHKey,
    Text,
    Whole,
)

__all__ = [
    "AvailableRegion",
    "CherryPlan",
    "CherryRefusal",
    "CherryServer",
    "Cpus",
    "CreateServer",
    "Memory",
    "Named",
    "Pricing",
    "Region",
    "Specs",
    "Storage",
]

Id = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]


class AvailableRegion(msgspec.Struct, frozen=True):
    """A region where a plan is sold, and how many are on stock there."""

    id: int = 0
    name: Text = ""
    slug: Slug = ""
    region_iso_2: str = ""
    stock_qty: Whole = 0
    spot_qty: Whole = 0
    href: str = ""
    location: str = ""


class Cpus(msgspec.Struct, frozen=True):
    """cores: of the whole machine, not of each of `count` processors (§7). frequency in `unit`."""

    count: int = 0
    name: str = ""
    cores: Whole = 0
    frequency: float = 0.0
    unit: Text = ""


class Memory(msgspec.Struct, frozen=True):
    """total in `unit`."""

    count: int = 0
    total: Whole = 0
    unit: Text = ""
    name: str = ""


class Storage(msgspec.Struct, frozen=True):
    """`count` disks of `size` `unit` each."""

    count: int = 0
    name: str = ""
    size: Amount = 0.0
    unit: Text = ""
    type: str = ""


class Named(msgspec.Struct, frozen=True):
    """Raid, Nics and Bandwidth: only a name."""

    name: str = ""


class Specs(msgspec.Struct, frozen=True):
    """A machine's parts."""

    cpus: Cpus = Cpus()
    memory: Memory = Memory()
    storage: tuple[Storage, ...] = ()
    raid: Named = Named()
    nics: Named = Named()
    bandwidth: Named = Named()


class CherryPlan(msgspec.Struct, frozen=True):
    """A kind of machine. slug is what requests and node labels name it by; name is for people and may hold blanks."""

    id: int = 0
    slug: Slug = ""
    name: Text = ""
    custom: bool = False
    type: str = ""
    category: str = ""
    title: str = ""
    href: str = ""
    specs: Specs = Specs()
    pricing: tuple[Pricing, ...] = ()
    available_regions: tuple[AvailableRegion, ...] = ()


class DeployedImage(msgspec.Struct, frozen=True):
    """What runs on a server."""

    name: str = ""
    slug: str = ""


class CherryServer(msgspec.Struct, frozen=True):
    """A machine. Its password is sent too, and is not read: what is not held cannot be shown."""

    id: Id
    name: Text = ""
    hostname: Text = ""
    state: Text = ""
    status: Text = ""
    tags: dict[str, str] = {}
    region: Region = Region()
    plan: CherryPlan = CherryPlan()
    spot_instance: bool = False
    created_at: str = ""
    termination_date: str = ""
    href: str = ""
    image: str = ""
    deployed_image: DeployedImage = DeployedImage()
    bgp: ServerBGP = ServerBGP()
    project: Project = Project()
    availableregions: AvailableRegion = AvailableRegion()
    pricing: Pricing = Pricing()
    ip_addresses: tuple[IPAddress, ...] = ()
    ssh_keys: tuple[SSHKey, ...] = ()
    storage: BlockStorage = BlockStorage()


class CherryRefusal(msgspec.Struct, frozen=True):
    """An error body: `code` and `message` live; `errors` and `error` in upstream's client."""

    code: int = 0
    message: str = ""
    error: str = ""
    errors: tuple[str, ...] = ()


class CreateServer(msgspec.Struct, frozen=True):
    """A machine to buy. os_partition_size: GB, 0: as the image has it. user_data: base64, empty: none."""

    project_id: int
    plan: str
    hostname: str
    image: str
    region: str
    ssh_keys: tuple[int, ...] | None = None
    ip_addresses: None = None
    user_data: str = ""
    tags: dict[str, str] = {}
    os_partition_size: int = 0
    spot_market: bool = False

    def __repr__(self) -> str:
        return f"CreateServer({self.hostname})"  # user data carries a bootstrap token

    def body(self) -> bytes:
        """The request's JSON. As §3: what is empty is left out, but the two lists, which are null then."""
        always = {"ssh_keys": list(self.ssh_keys) if self.ssh_keys else None, "ip_addresses": None}
        given = {key: value for key, value in msgspec.structs.asdict(self).items() if value and key not in always}
        return msgspec.json.encode(given | always)
