"""A made-up list of machine types of a vendor, and a backlog of pods for it.

50 families of 12 sizes, from 1 to 128 cores with 2, 4 or 8 GiB each, in three zones, on demand and
as spot: 3,600 offers. Prices are nearly proportional to the size; spot is 50 to 80 % cheaper.
The 5,000 pods are of 40 classes, whose sizes have a heavy tail; half of the classes are bound to a
zone, and half tolerate spot.
"""

from __future__ import annotations

import random

import msgspec
import numpy as np

from chalicelib.plan.scale_up.least_cost.problem import Ask, Offer

FAMILIES = 50
CORES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
GIB_PER_CORE = (2, 4, 8)
ZONES = ("z1", "z2", "z3")
PODS, CLASSES = 5_000, 40
PODS_PER_NODE, MOST_NODES = 110, 100_000


class MachineOffer(msgspec.Struct, frozen=True):
    """A type in a zone and a market, with its capacity in milli-cores and MiB."""

    name: str
    zone: str
    is_spot: bool
    cores: int
    gib: int
    price: float

    def offer(self) -> Offer:
        """As the search sees it."""
        room = [PODS_PER_NODE, self.cores * 1000, self.gib * 1024]
        return Offer(self.name, np.array(room, dtype=np.int64), self.price, MOST_NODES)


class Backlog(msgspec.Struct, frozen=True):
    """Machines, and the pods that wait for them."""

    machines: tuple[MachineOffer, ...]
    asks: tuple[Ask, ...]

    def offers(self) -> list[Offer]:
        """The machines as the search sees them."""
        return [machine.offer() for machine in self.machines]


def machine_offers(seed: int) -> list[MachineOffer]:
    """All offers of the list."""
    dice = random.Random(seed)
    offers: list[MachineOffer] = []
    for family in range(FAMILIES):
        gib_per_core = GIB_PER_CORE[family % len(GIB_PER_CORE)]
        per_core = (0.03 + 0.004 * gib_per_core) * dice.uniform(0.8, 1.5)
        discounts = {zone: dice.uniform(0.5, 0.8) for zone in ZONES}
        for cores in CORES:
            price = cores * per_core * dice.uniform(0.985, 1.015)
            for zone in ZONES:
                for is_spot in (False, True):
                    market = "spot" if is_spot else "on-demand"
                    name = f"f{family:02d}.{cores}-{zone}-{market}"
                    paid = price * (1 - discounts[zone]) if is_spot else price
                    gib = cores * gib_per_core
                    offers.append(MachineOffer(name, zone, is_spot, cores, gib, paid))
    return offers


def backlog(seed: int, offers: int | None = None, pods: int = PODS) -> Backlog:
    """A backlog for so many of the machines, all of them by default."""
    dice = random.Random(1000 + seed)
    machines = machine_offers(seed)
    if offers is not None:
        machines = dice.sample(machines, offers)
    asks: list[Ask] = []
    weights = [dice.paretovariate(1.0) for _ in range(CLASSES)]
    for weight in weights:
        cpu = min(16_000, int(100 * dice.paretovariate(0.8)))
        memory = int(cpu * dice.choice((0.5, 1, 2, 4, 8)) * 1.024)
        zone = dice.choice(ZONES) if dice.random() < 0.5 else ""
        takes_spot = dice.random() < 0.5
        fits = tuple(
            zone in ("", machine.zone) and (takes_spot or not machine.is_spot)
            for machine in machines
        )
        need = np.array([1, cpu, min(memory, 64 * 1024)], dtype=np.int64)
        count = max(1, round(pods * weight / sum(weights)))
        asks.append(Ask(need, count, fits))
    return Backlog(tuple(machines), tuple(asks))
