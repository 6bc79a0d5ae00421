"""Which machine types a declaration may use, and why not the others."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.catalogue import Catalogue, CatalogueEntry
from chalicelib.policy.settings.managed_pools import ManagedPool, Market, Range, Requirements
from chalicelib.providers.kit.machine_types import Selection, select_machines

GIB = 2**30


def entry(name: str, cores: int, gib: int, price: float | None, **fields: Any) -> CatalogueEntry:
    family = name.partition(".")[0]
    values = {"family": family, "zone": "z1", "price": price} | fields
    return CatalogueEntry(name, cores=cores, memory=gib * GIB, **values)


LIST = Catalogue(
    "EUR",
    (
        entry("s.2", 2, 8, 0.10, spot_price=0.04, stock=3, spot_stock=0),
        entry("s.4", 4, 16, 0.19, spot_price=0.08),
        entry("s.8", 8, 32, 0.40),
        entry("c.4", 4, 8, 0.15),
        entry("r.4", 4, 32, 0.24, zone="z2"),
        entry("g.4", 4, 16, 1.50, gpus=1),
        entry("x.4", 4, 16, None),
        entry("q.4", 4, 16, 0.01, stock=0),
    ),
    disk_price=0.001,
)


def selected(disk: int = 0, **wanted: Any) -> Selection:
    pool = ManagedPool("general", "exoscale", requirements=Requirements(**wanted))
    return select_machines(pool, LIST, disk)


def names(result: Selection) -> list[str]:
    return [machine.entry.name for machine in result.machines]


def test_candidates_without_requirements_have_a_price_stock_and_no_gpu() -> None:
    result = selected()
    assert names(result) == ["s.2", "c.4", "s.4", "r.4", "s.8"]
    assert (result.offered, result.failed) == (8, {"gpus": 1, "price": 1, "stock": 1})


REQUIREMENTS = {
    "types": ({"types": ("s.*", "!s.8")}, ["s.2", "s.4"]),
    "excluded types only": ({"types": ("!s.*",)}, ["c.4", "r.4"]),
    "families": ({"families": ("c", "r")}, ["c.4", "r.4"]),
    "a dot is no pattern": ({"types": ("s?2",)}, ["s.2"]),
    "zones": ({"zones": ("z2",)}, ["r.4"]),
    "cpu": ({"cpu": Range(4, 4)}, ["c.4", "s.4", "r.4"]),
    "memory": ({"memory": Range(16, None)}, ["s.4", "r.4", "s.8"]),
    "memory per cpu": ({"memory_per_cpu": Range(None, 4)}, ["s.2", "c.4", "s.4", "s.8"]),
    "gpus": ({"gpus": Range(1, 4)}, ["g.4"]),
    "price": ({"max_price": 0.19}, ["s.2", "c.4", "s.4"]),
}


@pytest.mark.parametrize(("wanted", "left"), REQUIREMENTS.values(), ids=REQUIREMENTS)
def test_type_is_a_candidate_if_it_meets_each_requirement(
    wanted: dict[str, Any], left: list[str]
) -> None:
    result = selected(**wanted)
    assert names(result) == left
    assert sum(result.failed.values()) == result.offered - len(left)


def test_each_market_is_a_candidate_of_its_own() -> None:
    result = selected(types=("s.*",), markets=(Market.ON_DEMAND, Market.SPOT))
    assert [
        (machine.entry.name, machine.market.value, machine.price) for machine in result.machines
    ] == [
        ("s.4", "spot", 0.08),
        ("s.2", "on-demand", 0.10),
        ("s.4", "on-demand", 0.19),
        ("s.8", "on-demand", 0.40),
    ]
    assert result.failed == {"types": 10, "stock": 1, "price": 1}


def test_pool_8_price_of_a_disk_counts_for_each_node() -> None:
    assert [machine.price for machine in selected(disk=50, types=("s.2",)).machines] == [
        pytest.approx(0.15)
    ]
    assert names(selected(disk=50, max_price=0.2)) == ["s.2", "c.4"]
