"""The machine types that a vendor sells, with their prices and stock."""

from __future__ import annotations

import msgspec


class CatalogueEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A type in one zone, or in one region of a vendor without zones.

    name: as nodes state it in `node.kubernetes.io/instance-type`. memory, disk: bytes; disk 0: none
    comes with it, or its size is unknown. price, spot_price: of one machine an hour, None where the
    vendor states none. stock, spot_stock: how many can be ordered, None where the vendor does not
    say. vendor_id: by which the vendor's API names the type, "" for its name. architecture: of the
    processor, as in `kubernetes.io/arch`; "" where the vendor does not say: amd64.
    """

    name: str
    family: str
    zone: str
    cores: int
    memory: int
    gpus: int = 0
    disk: int = 0
    vendor_id: str = ""
    price: float | None = None
    spot_price: float | None = None
    stock: int | None = None
    spot_stock: int | None = None
    architecture: str = ""


class Catalogue(msgspec.Struct, frozen=True):
    """currency: of all prices. disk_price: of a GiB an hour, None where machines come with their
    disks. gaps: what could not be read, a sentence each."""

    currency: str
    entries: tuple[CatalogueEntry, ...]
    disk_price: float | None = None
    gaps: tuple[str, ...] = ()
