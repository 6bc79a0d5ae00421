"""`outscaler catalogue PROVIDER`: the machine types that a vendor sells, with prices and stock."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.catalogue_files import parse_requirements, write_catalogue
from chalicelib.cli.live_cluster import add_secret_files, secret_files
from chalicelib.cli.output import Block, Table, emit, one_line, progress
from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.model.errors import BadInput
from chalicelib.model.managed_group import PoolSelection
from chalicelib.views.managed_pools import funnel_data, funnel_words

if TYPE_CHECKING:
    from chalicelib.policy.settings.managed_pools import Requirements

_GIB = 2**30
_USUAL_CURRENCY = "EUR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the provider, the policy with its settings, and the secrets."""
    parser.add_argument("provider", metavar="PROVIDER", help="exoscale or cherryservers")
    parser.add_argument(
        "--policy",
        metavar="FILE",
        required=True,
        help="a policy document with the provider's settings, or - for standard input",
    )
    add_secret_files(parser)
    parser.add_argument(
        "--currency",
        metavar="CODE",
        default="",
        help=f"of the prices (default: the policy's, or {_USUAL_CURRENCY})",
    )
    parser.add_argument(
        "--requirements",
        metavar="MAPPING",
        default="",
        help=(
            "only the types that meet these, written as in spec.managedPools[].requirements, such "
            "as 'cpu: 2..8, families: [standard]', and how many fail at what"
        ),
    )
    parser.add_argument(
        "--save",
        metavar="FILE",
        type=Path,
        help="also write the whole catalogue, for plan --catalogue and cost --catalogue",
    )


def run(args: argparse.Namespace) -> int:
    """Print the types, and on standard error what could not be read. Always returns 0. Raises
    BadInput, ProviderError."""
    requirements = parse_requirements(args.requirements) if args.requirements else None
    with progress("reading"):
        catalogue = _read(args)
    for gap in catalogue.gaps:
        sys.stderr.write(f"note: {one_line(gap)}\n")
    if args.save is not None:
        write_catalogue(args.save, args.provider, catalogue, time.time())
    data: dict[str, Any] = {
        "provider": args.provider,
        "currency": catalogue.currency,
        "diskPrice": catalogue.disk_price,
    }
    before: list[Block] = []
    if requirements is not None:
        catalogue, selection = _selected(catalogue, requirements, args.provider)
        data["selection"] = funnel_data(selection)
        before.append(funnel_words(selection))
    data["types"] = msgspec.to_builtins(catalogue.entries)
    emit(args.output, data, lambda: [*before, _table(catalogue)])
    return 0


def _selected(
    catalogue: Catalogue, requirements: Requirements, provider: str
) -> tuple[Catalogue, PoolSelection]:
    """Return the catalogue with the types that meet the requirements in some market, and how many
    others fail at what."""
    from chalicelib.policy.settings.managed_pools import ManagedPool
    from chalicelib.providers.kit.machine_types import select_machines

    pool = ManagedPool(provider, provider, requirements=requirements)
    selection = select_machines(pool, catalogue)
    meeting = {(machine.entry.name, machine.entry.zone) for machine in selection.machines}
    entries = tuple(entry for entry in catalogue.entries if (entry.name, entry.zone) in meeting)
    counts = PoolSelection(
        provider, provider, selection.offered, selection.failed, len(selection.machines)
    )
    return msgspec.structs.replace(catalogue, entries=entries), counts


def _read(args: argparse.Namespace) -> Catalogue:
    from chalicelib.cli.deployment_settings import on_this_machine, settings_here
    from chalicelib.cli.policy_files import load_document, place_of, read_document
    from chalicelib.policy.secret_names import observing
    from chalicelib.providers.kit.base import CatalogueReader
    from chalicelib.providers.kit.services import ProviderServices
    from chalicelib.providers.registry import providers

    policy, _ = load_document(read_document(args.policy), place_of(args.policy))
    read_secret = secret_files(args.secret, policy)
    if args.provider not in policy.providers:
        named = ", ".join(sorted(policy.providers)) or "none"
        raise BadInput(
            f"provider {args.provider}",
            f"is not in the policy, which has {named}",
            f"add spec.providers.{args.provider} with its settings",
        )
    only = msgspec.structs.replace(
        policy, providers={args.provider: policy.providers[args.provider]}
    )
    services = ProviderServices(deployment=on_this_machine(settings_here().deployment))
    (provider,) = providers(observing(only), None, read_secret, time.time, services)
    if not isinstance(provider, CatalogueReader):
        raise BadInput(
            f"provider {args.provider}",
            "has no catalogue",
            "name exoscale or cherryservers",
        )
    own_currency = policy.prices.currency if policy.prices is not None else ""
    return provider.catalogue(args.currency or own_currency or _USUAL_CURRENCY)


def _table(catalogue: Catalogue) -> Table:
    columns = ("TYPE", "ZONE", "CORES", "GIB", "GPUS", "PRICE", "SPOT", "STOCK", "SPOT STOCK")
    rows = tuple(_row(entry) for entry in catalogue.entries)
    disk = catalogue.disk_price
    title = f"Prices in {catalogue.currency} an hour"
    return Table(
        columns,
        rows,
        title=title if disk is None else f"{title}; a GiB of disk {disk:g}",
        right=frozenset(range(2, len(columns))),
        empty="No type is left.",
    )


def _row(entry: CatalogueEntry) -> tuple[str, ...]:
    amounts = (entry.cores, round(entry.memory / _GIB, 1), entry.gpus)
    prices = (entry.price, entry.spot_price)
    stock = (entry.stock, entry.spot_stock)
    numbers = ["" if number is None else f"{number:g}" for number in (*amounts, *prices, *stock)]
    return entry.name, entry.zone, *numbers
