"""Computes the hourly price of nodes and pods from the policy's price list (Policy.prices), otherwise from the
provider's prices.

A node costs the price of its instance type; without one, its capacity by the rates; without rates, the price that its
provider reports for a node of its group (NodeGroup.price). `node` is added in any case. Either cpu or memory may be
omitted and then costs nothing, but a GPU is never free: a node with GPUs but without a GPU rate has no price by the
list. Currencies are not converted: users who mix providers, or a list and a provider, write the list in the provider's
currency.

Pods have no instance type, so they need rates. If the list has none, rates are derived from the existing nodes whose
type is listed or whose provider reports a price. A GiB of memory counts as an eighth of a core and a GPU as ten cores,
close to what clouds charge; a core costs the price of all these types together, divided by their total size. Pod prices
only weigh options against each other; they are not used for billing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from math import fsum, inf

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.policy import NodePrices
from chalicelib.model.resources import CPU, GPU_LABELS, GPU_RESOURCES, MEMORY, Amounts

INSTANCE_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_GIB = 2**30
_GIB_PER_CORE, _CORES_PER_GPU = 8.0, 10.0
_NO_LIST = NodePrices()


class Rates(msgspec.Struct, frozen=True):
    """Hourly rates per core, per GiB and per GPU."""

    cpu: float
    memory: float
    gpu: float

    def of(self, amounts: Amounts) -> float:
        """Return the price of these amounts; cpu in millicores, memory in bytes, every GPU resource in pieces."""
        return (
            self.cpu * amounts.get(CPU, 0) / 1000
            + self.memory * amounts.get(MEMORY, 0) / _GIB
            + self.gpu * _gpus(amounts)
        )


def instance_type(node: Node) -> str:
    """Return the instance type by the node's label, the stable label first; empty if there is none."""
    return next((node.labels[label] for label in INSTANCE_TYPE_LABELS if node.labels.get(label)), "")


def has_gpu(node: Node) -> bool:
    """Return whether the node has a GPU label or GPU capacity; one of them suffices."""
    return any(label in node.labels for label in GPU_LABELS) or _gpus(node.allocatable) > 0


def node_price(node: Node, prices: NodePrices | None, own: float = 0.0) -> float | None:
    """Return the hourly price of a node, None if it is unknown. own: its provider's price (NodeGroup.price), 0 for
    none."""
    prices = prices or _NO_LIST
    price = prices.instance_types.get(instance_type(node))
    amounts = _capacity(node)
    has_rates = prices.cpu is not None or prices.memory is not None
    if price is None and has_rates and not (prices.gpu is None and _gpus(amounts)):
        price = Rates(prices.cpu or 0.0, prices.memory or 0.0, prices.gpu or 0.0).of(amounts)
    if price is None and _is_price(own):
        price = own
    return None if price is None else price + prices.node


def price_in_millionths(node: Node, prices: NodePrices | None, group: NodeGroup | None) -> int:
    """Return the hourly price of a node in millionths of the currency, 0 if it is unknown. group: that it is in."""
    return round(1_000_000 * (node_price(node, prices, group.price if group is not None else 0.0) or 0.0))


def pod_rates(prices: NodePrices | None, nodes: Iterable[Node], own: Sequence[float] = ()) -> Rates | None:
    """Return the rates for pod prices, or None if the list has no rates and no node has a listed type or a provider's
    price. own: the providers' prices, one for each node, or none."""
    prices = prices or _NO_LIST
    if prices.cpu is None and prices.memory is None:
        # Over the types, independent of the order of the nodes; a type counts once for each of its prices.
        cores: dict[tuple[str, float], float] = {}
        in_cores = Rates(1.0, 1 / _GIB_PER_CORE, _CORES_PER_GPU)
        for node, own_price in zip(nodes, own or repeat(0.0), strict=False):
            name = instance_type(node)
            price = prices.instance_types.get(name, own_price if _is_price(own_price) else None)
            if price is not None:
                cores[name, price] = max(cores.get((name, price), 0.0), in_cores.of(_capacity(node)))
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
    if (prices.cpu is not None or prices.memory is not None) and prices.gpu is None and _gpus(_capacity(node)):
        return "it has GPUs, and prices.gpu is not given"
    name = instance_type(node)
    return f"{name} is not in prices.instanceTypes" if name else "it has no instance type label, and no rate is given"


def _is_price(own: float) -> bool:
    """Return whether a provider's value is usable as a price."""
    return 0.0 < own < inf


def _capacity(node: Node) -> Amounts:
    return node.capacity or node.allocatable


def _gpus(amounts: Amounts) -> int:
    return sum(amounts.get(name, 0) for name in GPU_RESOURCES)
