"""Catalogues of machine types in files, and requirements on the command line.

`outscaler catalogue PROVIDER --save FILE` writes what a vendor sells, without anything of the
account, so that `plan` and `cost` can weigh its machines without the vendor.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.model.errors import BadInput
from chalicelib.model.timestamps import format_time, parse_time
from chalicelib.net.bounded_files import content
from chalicelib.policy.settings.managed_pools import Requirements

KIND = "outscaler/catalogue"
_MOST_BYTES = 2**25
_MOST_TYPES = 50_000
_MOST_CORES, _MOST_MEMORY, _MOST_PRICE = 100_000, 2**50, 1e6
_REMEDY = "write one with outscaler catalogue exoscale --policy FILE --save catalogue.json"


class SavedCatalogue(msgspec.Struct, frozen=True, rename="camel"):
    """A file. read_at: RFC 3339. disk_price: of a GiB an hour, None where machines come with their
    disks."""

    kind: str
    provider: str
    read_at: str
    currency: str
    types: tuple[CatalogueEntry, ...]
    disk_price: float | None = None

    @property
    def catalogue(self) -> Catalogue:
        """Return what the vendor sells."""
        return Catalogue(self.currency, self.types, self.disk_price)

    @property
    def at(self) -> float:
        """Return when it was read, epoch seconds."""
        return parse_time(self.read_at)


def write_catalogue(path: Path, provider: str, catalogue: Catalogue, now: float) -> None:
    """Write a catalogue that was read now. Raises OSError."""
    entries = (msgspec.structs.replace(entry, vendor_id="") for entry in catalogue.entries)
    saved = SavedCatalogue(
        KIND,
        provider,
        format_time(now),
        catalogue.currency,
        tuple(entries),
        catalogue.disk_price,
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n")


def read_catalogue(path: Path) -> SavedCatalogue:
    """Read a saved catalogue. Raises BadInput; OSError for a file that cannot be read."""
    data = content(path, _MOST_BYTES)
    try:
        saved = msgspec.json.decode(data, type=SavedCatalogue)
        parse_time(saved.read_at)
    except RecursionError:
        raise _no_catalogue(path, "nested too deeply") from None
    except BadInput as error:
        raise _no_catalogue(path, f"readAt: {error.problem}") from None
    except (msgspec.MsgspecError, ValueError) as error:
        # ValueError: text that is not UTF-8, an overlong number
        raise _no_catalogue(path, str(error)[:200]) from None
    if saved.kind != KIND:
        raise _no_catalogue(path, f"kind must be {KIND}")
    if len(saved.types) > _MOST_TYPES:
        raise _no_catalogue(path, f"it has more than {_MOST_TYPES} types")
    if not _is_price(saved.disk_price):
        raise _no_catalogue(path, "diskPrice is not possible")
    for number, entry in enumerate(saved.types):
        impossible = _impossible(entry)
        if impossible:
            raise _no_catalogue(path, f"types[{number}].{impossible} is not possible")
    return saved


def _no_catalogue(path: Path, problem: str) -> BadInput:
    return BadInput(str(path), f"is not a saved catalogue ({problem})", _REMEDY)


def _impossible(entry: CatalogueEntry) -> str:
    """Return the first field of a type with a value that no machine has, "" if all are possible."""
    checks = (
        ("name", 0 < len(entry.name) <= 200),
        ("zone", len(entry.zone) <= 200),
        ("family", len(entry.family) <= 200),
        ("cores", 0 < entry.cores <= _MOST_CORES),
        ("memory", 0 < entry.memory <= _MOST_MEMORY),
        ("gpus", 0 <= entry.gpus <= _MOST_CORES),
        ("disk", 0 <= entry.disk <= _MOST_MEMORY),
        ("price", _is_price(entry.price)),
        ("spotPrice", _is_price(entry.spot_price)),
        ("stock", entry.stock is None or 0 <= entry.stock <= _MOST_PRICE),
        ("spotStock", entry.spot_stock is None or 0 <= entry.spot_stock <= _MOST_PRICE),
    )
    return next((name for name, is_possible in checks if not is_possible), "")


def _is_price(price: float | None) -> bool:
    return price is None or (math.isfinite(price) and 0 <= price <= _MOST_PRICE)


def parse_requirements(text: str) -> Requirements:
    """Return requirements from an inline mapping such as `cpu: 2..8`, with or without braces.
    Raises InputErrors, BadInput."""
    from chalicelib.policy.diagnostics import Diagnostics
    from chalicelib.policy.schema import nested
    from chalicelib.policy.value_types import UNSET
    from chalicelib.policy.yaml_document import read

    place = "--requirements"
    is_mapping = text.strip().startswith("{")
    root = read(text if is_mapping else f"{{{text}}}", place=place)
    diagnostics = Diagnostics(place, root)
    kind = nested(Requirements)
    values = kind.read(root, (), diagnostics)
    diagnostics.check()
    if values is UNSET:
        raise BadInput(place, "is no mapping", "write it like 'cpu: 2..8, families: [standard]'")
    requirements: Requirements = kind.build(values)
    return requirements
