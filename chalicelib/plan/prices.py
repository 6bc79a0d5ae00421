"""Computes the hourly price of nodes and pods from the policy's price list (Policy.prices),
otherwise from the provider's prices.

A node costs the price of its instance type; without one, its capacity by the rates; without rates,
the price that its provider reports for a node of its group (NodeGroup.price). For a group that
Outscaler has made, or could open, the provider's price precedes the rates: its machine was chosen
among others by what the vendor's catalogue says. A node of a spot
group costs the price of its instance type in `spot`; without one, what its provider reports; only
then the others. `node` is added in any case. Either cpu or memory may be omitted and then costs
nothing, but a GPU is never free: a node with GPUs but without a GPU rate has no price by the list.

Currencies are not converted and not mixed. Prices are compared in one currency
(`PriceBook.currency`); a provider's price in another one is not used, and its nodes have no price
(`NoPrice`, which names both). A currency that nobody states counts as the only one that is stated,
if there is only one.

Pods have no instance type, so they need rates. If the list has none, rates are derived from the
existing nodes whose type is listed or whose provider reports a price. A GiB of memory counts as an
eighth of a core and a GPU as ten cores, close to what clouds charge; a core costs the price of all
these types together, divided by their total size. Pod prices only weigh options against each other;
they are not used for billing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import repeat
from math import fsum

import msgspec

from chalicelib.model.group import DEAREST, NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.resources import CPU, GPU_LABELS, GPU_RESOURCES, MEMORY, Amounts
from chalicelib.policy.settings.node_prices import NodePrices

INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_GIB = 2**30
_GIB_PER_CORE, _CORES_PER_GPU = 8.0, 10.0
_NO_LIST = NodePrices()
MICRO = 1_000_000
"""Millionths in a unit of a currency."""


class PriceSource(StrEnum):
    """Who states a price."""

    POLICY = "policy"
    PROVIDER = "provider"


class Price(msgspec.Struct, frozen=True, omit_defaults=True):
    """The hourly price of a node. amount: in millionths of the currency. currency: ISO 4217
    code, "" if nobody states it. date: YYYY-MM-DD, of the policy's list or of the
    provider's answer; "" if unknown."""

    amount: int
    currency: str = ""
    source: PriceSource = PriceSource.POLICY
    date: str = ""

    @property
    def hourly(self) -> float:
        """Return the amount in units of the currency."""
        return self.amount / MICRO


class NoPrice(msgspec.Struct, frozen=True):
    """A node has no price. detail: why."""

    detail: str


class PriceBook(msgspec.Struct, frozen=True):
    """The prices of a pass. currency: in which prices are compared, "" if nobody states one, or if
    providers state several and the policy none. stated: the currencies of all providers' prices,
    sorted. now: the date of prices that were read in this pass. spot: nodes of spot groups have
    prices of their own, because the policy has a list of them or spec.spot."""

    prices: NodePrices | None = None
    currency: str = ""
    stated: tuple[str, ...] = ()
    now: float = 0.0
    spot: bool = False

    def of_node(self, node: Node, group: NodeGroup | None) -> Price | NoPrice:
        """Return the price of a node. group: that it is in, None if it is in none."""
        listed = node_price(node, self._list_for(group))
        if group is not None and group.spot and self.spot:
            listed = _spot_price(node, self.prices) or (
                None if is_price(self.own(group)) else listed
            )
        if listed is not None:
            return Price(
                _millionths(listed),
                self.currency,
                PriceSource.POLICY,
                (self.prices or _NO_LIST).as_of,
            )
        if group is not None and is_price(group.price):
            return self._of_provider(group)
        detail = unpriced(node, self.prices)
        if group is None or not group.price_error:
            return NoPrice(detail)
        return NoPrice(
            group.price_error if self.prices is None else f"{detail}; {group.price_error}"
        )

    def hourly(self, node: Node, group: NodeGroup) -> float | None:
        """Return the same in units of the currency, not rounded; None if the node has no price."""
        own = self.own(group)
        if group.spot and self.spot:
            listed = _spot_price(node, self.prices)
            if listed is not None or is_price(own):
                return own + (self.prices or _NO_LIST).node if listed is None else listed
        return node_price(node, self._list_for(group), own)

    def _list_for(self, group: NodeGroup | None) -> NodePrices | None:
        """Return the list by which nodes of a group are priced: without its rates where the
        vendor's catalogue names the price."""
        if self.prices is None or group is None or group.managed is None:
            return self.prices
        if not is_price(self.own(group)):
            return self.prices
        return msgspec.structs.replace(self.prices, cpu=None, memory=None)

    def of_group(self, group: NodeGroup, example_node: Node | None = None) -> Price | NoPrice:
        """Return the price of a new node of the group. example_node: one of its
        nodes, if it has no template."""
        node = group.template or example_node
        if node is not None:
            return self.of_node(node, group)
        return (
            self._of_provider(group)
            if is_price(group.price)
            else NoPrice("it has no node template")
        )

    def paid(self, node: Node, group: NodeGroup | None) -> Price | None:
        """Return what a node costs for bills: in its provider's currency where that cannot be
        compared with the others. None if it is unknown."""
        price = self.of_node(node, group)
        if isinstance(price, Price):
            return price
        return self.named(group) if group is not None and self.foreign(group) else None

    def named(self, group: NodeGroup) -> Price | None:
        """Return what the group's provider states, in its own currency, whether
        it can be compared or not."""
        if not is_price(group.price):
            return None
        return Price(
            _millionths(group.price), group.currency, PriceSource.PROVIDER, self._date(group)
        )

    def own(self, group: NodeGroup) -> float:
        """Return the provider's price if it can be compared (`own` of node_price), otherwise 0."""
        return 0.0 if self.foreign(group) else group.price

    def foreign(self, group: NodeGroup) -> str:
        """Return why the provider's price cannot be compared with the others; "" if it
        can, or if there is none."""
        if not is_price(group.price) or not group.currency or group.currency == self.currency:
            return ""
        both = " and ".join(self.stated)
        if self.currency:
            return (
                f"its provider's price is in {group.currency}, and spec.prices are in "
                f"{self.currency}"
            )
        if self.prices is None:
            return (
                f"providers state prices in {both}, which are not converted; give spec.prices in "
                "one currency"
            )
        return (
            f"providers state prices in {both}, and spec.prices name no currency; add "
            "prices.currency"
        )

    def _of_provider(self, group: NodeGroup) -> Price | NoPrice:
        if detail := self.foreign(group):
            return NoPrice(detail)
        fee = (self.prices or _NO_LIST).node
        return Price(
            _millionths(group.price + fee), self.currency, PriceSource.PROVIDER, self._date(group)
        )

    def _date(self, group: NodeGroup) -> str:
        return date_of(group.priced_at or self.now)


def price_book(
    prices: NodePrices | None, groups: Iterable[NodeGroup], now: float = 0.0, *, spot: bool = False
) -> PriceBook:
    """Return the prices of a pass. now: epoch seconds. spot: the policy has spec.spot."""
    stated = tuple(sorted({group.currency for group in groups if is_price(group.price)} - {""}))
    currency = prices.currency if prices is not None else ""
    return PriceBook(
        prices,
        currency or (stated[0] if len(stated) == 1 else ""),
        stated,
        now,
        spot or bool(prices and prices.spot),
    )


def date_of(at: float) -> str:
    """Return the date of an instant (epoch seconds) in UTC as YYYY-MM-DD; "" for 0
    and for no possible date."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") if at > 0 else ""
    except (OverflowError, ValueError, OSError):
        return ""


def _millionths(price: float) -> int:
    return round(price * MICRO)


class Rates(msgspec.Struct, frozen=True):
    """Hourly rates per core, per GiB and per GPU."""

    cpu: float
    memory: float
    gpu: float

    def of(self, amounts: Amounts) -> float:
        """Return the price of these amounts; cpu in millicores, memory in bytes,
        every GPU resource in pieces."""
        return (
            self.cpu * amounts.get(CPU, 0) / 1000
            + self.memory * amounts.get(MEMORY, 0) / _GIB
            + self.gpu * _gpus(amounts)
        )


def instance_type(node: Node) -> str:
    """Return the instance type by the node's label, the stable label first; empty if there is
    none."""
    return next(
        (node.labels[label] for label in INSTANCE_TYPE_LABELS if node.labels.get(label)), ""
    )


def has_gpu(node: Node) -> bool:
    """Return whether the node has a GPU label or GPU capacity; one of them suffices."""
    return any(label in node.labels for label in GPU_LABELS) or _gpus(node.allocatable) > 0


def node_price(node: Node, prices: NodePrices | None, own: float = 0.0) -> float | None:
    """Return the hourly price of a node, None if it is unknown. own: its provider's price
    (NodeGroup.price), 0 for none."""
    prices = prices or _NO_LIST
    price = prices.instance_types.get(instance_type(node))
    amounts = _capacity(node)
    has_rates = prices.cpu is not None or prices.memory is not None
    if price is None and has_rates and not (prices.gpu is None and _gpus(amounts)):
        price = Rates(prices.cpu or 0.0, prices.memory or 0.0, prices.gpu or 0.0).of(amounts)
    if price is None and is_price(own):
        price = own
    return None if price is None else price + prices.node


def _spot_price(node: Node, prices: NodePrices | None) -> float | None:
    """Return the listed price of a node of a spot group, None if the list has
    none for its instance type."""
    price = prices.spot.get(instance_type(node)) if prices is not None else None
    return None if price is None or prices is None else price + prices.node


def pod_rates(
    prices: NodePrices | None, nodes: Iterable[Node], own: Sequence[float] = ()
) -> Rates | None:
    """Return the rates for pod prices, or None if the list has no rates and no node has a listed
    type or a provider's price. own: the providers' prices, one for each node, or none."""
    prices = prices or _NO_LIST
    if prices.cpu is None and prices.memory is None:
        # Over the types, independent of the order of the nodes; a type counts
        # once for each of its prices.
        cores: dict[tuple[str, float], float] = {}
        in_cores = Rates(1.0, 1 / _GIB_PER_CORE, _CORES_PER_GPU)
        for node, own_price in zip(nodes, own or repeat(0.0), strict=False):
            name = instance_type(node)
            price = prices.instance_types.get(name, own_price if is_price(own_price) else None)
            if price is not None:
                cores[name, price] = max(
                    cores.get((name, price), 0.0), in_cores.of(_capacity(node))
                )
        total = fsum(cores.values())
        if total <= 0:
            return None
        core = fsum(price for _, price in cores) / total
        cpu, memory = core, core / _GIB_PER_CORE
    else:
        cpu, memory = prices.cpu or 0.0, prices.memory or 0.0
        core = cpu or memory * _GIB_PER_CORE
    return Rates(cpu, memory, core * _CORES_PER_GPU if prices.gpu is None else prices.gpu)


def unpriced(node: Node, prices: NodePrices | None) -> str:
    """Describe briefly what the list lacks for a node without a price."""
    if prices is None:
        return "its provider names no price, and no spec.prices are given"
    if (
        (prices.cpu is not None or prices.memory is not None)
        and prices.gpu is None
        and _gpus(_capacity(node))
    ):
        return "it has GPUs, and prices.gpu is not given"
    name = instance_type(node)
    return (
        f"{name} is not in prices.instanceTypes"
        if name
        else "it has no instance type label, and no rate is given"
    )


def is_price(own: float) -> bool:
    """Return whether a provider's value is usable as a price."""
    return 0.0 < own <= DEAREST


def _capacity(node: Node) -> Amounts:
    return node.capacity or node.allocatable


def _gpus(amounts: Amounts) -> int:
    return sum(amounts.get(name, 0) for name in GPU_RESOURCES)
