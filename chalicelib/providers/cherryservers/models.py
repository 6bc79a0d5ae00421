"""The types of Cherry Servers' API, and the one request body that is sent to it.

The vendor's responses contain more keys than its documentation and occasionally another type, so only a row's id is
required; decoding.py handles unexpected values.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

CLUSTER_TAG, POOL_TAG, OPERATION_TAG = "k8s-cluster", "k8s-nodepool", "outscaler-operation"

Id = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=300)]
Slug = Annotated[str, msgspec.Meta(max_length=63)]  # it becomes the value of a label
Whole = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
"""Of a plan: cores, GB, EUR. A value out of bounds counts as not sent (decoding.py)."""


class Region(msgspec.Struct, frozen=True):
    """Where servers stand. slug is the name in requests; old and new slugs are equal here."""

    id: int = 0
    slug: Slug = ""
    name: Text = ""
    location: str = ""


class Pricing(msgspec.Struct, frozen=True):
    """One price. unit: `Hourly`, `Spot hourly`, `Monthly` and so on; taxed: whether value added tax is in it."""

    price: Amount = 0.0
    taxed: bool = False
    currency: Text = ""
    unit: Text = ""
    id: int = 0
    unit_price: float = 0.0


class AvailableRegion(msgspec.Struct, frozen=True):
    """A region where a plan is sold, with its stock there."""

    id: int = 0
    name: Text = ""
    slug: Slug = ""
    region_iso_2: str = ""
    stock_qty: Whole = 0
    spot_qty: Whole = 0
    href: str = ""
    location: str = ""


class Cpus(msgspec.Struct, frozen=True):
    """cores: of the whole server, not of each of `count` processors. frequency in `unit`."""

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
    """A server's hardware."""

    cpus: Cpus = Cpus()
    memory: Memory = Memory()
    storage: tuple[Storage, ...] = ()
    raid: Named = Named()
    nics: Named = Named()
    bandwidth: Named = Named()


class CherryPlan(msgspec.Struct, frozen=True):
    """A kind of server. Requests and node labels use slug; name is for display and may contain blanks."""

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


class CherryServer(msgspec.Struct, frozen=True):
    """A server. The vendor also sends its password, which is not decoded so that it cannot be shown."""

    id: Id
    name: Text = ""
    hostname: Text = ""
    state: Text = ""
    status: Text = ""
    tags: dict[str, str] = {}
    region: Region = Region()
    plan: CherryPlan = CherryPlan()
    created_at: str = ""


class CherryRefusal(msgspec.Struct, frozen=True):
    """An error body: `code` and `message` in real responses; `errors` and `error` in upstream's client."""

    code: int = 0
    message: str = ""
    error: str = ""
    errors: tuple[str, ...] = ()


class CreateServer(msgspec.Struct, frozen=True):
    """A server to buy. os_partition_size: GB, 0 for the image's default. user_data: in base64, "" for none."""

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
        return f"CreateServer({self.hostname})"  # user data contains a bootstrap token

    def body(self) -> bytes:
        """Return the request's JSON. Empty values are left out, except the two lists, which are null if empty."""
        always = {"ssh_keys": list(self.ssh_keys) if self.ssh_keys else None, "ip_addresses": None}
        fields = {key: value for key, value in msgspec.structs.asdict(self).items() if value and key not in always}
        return msgspec.json.encode(fields | always)
