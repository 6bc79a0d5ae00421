"""Ids: how a node is called by CCE, by the cluster and by us (huaweicloud-cce.md B5).

A Kubernetes node says which CCE node it is by its providerID, which is the CCE node's uid or, where somebody else wrote
it, the server's id; a node without either is known by its address or its name. What a node says by its label
`cce.cloud.com/cce-nodepool` is never believed: the label stays behind when a node leaves its pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.operation import Target
from chalicelib.providers.huaweicloud.ids import is_id
from chalicelib.providers.huaweicloud.wire import CceNode, NodePool, ScaleGroup

_PLACEHOLDER = "placeholder-"


class Known(Protocol):
    """A node of the cluster, as a pass lists it or as a change asks for it (workload.py)."""

    @property
    def name(self) -> str:
        """Its name, by default its private address."""

    @property
    def provider_id(self) -> str:
        """Its providerID, or ""."""

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""


N = TypeVar("N", bound=Known)


class Names(Generic[N]):
    """The cluster's nodes by CCE node. Each of them is one CCE node at most, the surest way of telling first."""

    def __init__(self, nodes: Iterable[N], machines: Iterable[CceNode]) -> None:
        self._node_of: dict[str, N] = {}
        machines = tuple(machines)
        left = list(nodes)
        tables = (
            ({each.id: each.id for each in machines}, _tail),
            ({each.server: each.id for each in machines if each.server}, _tail),
            ({each.private_ip: each.id for each in machines if each.private_ip}, _address),
            ({each.private_ip: each.id for each in machines if each.private_ip}, _plain_name),
            ({each.name: each.id for each in machines if each.name}, _plain_name),
        )
        for known, word in tables:
            rest = []
            for node in left:
                machine = known.get(word(node), "")
                if machine and machine not in self._node_of:
                    self._node_of[machine] = node
                else:
                    rest.append(node)
            left = rest

    def node_of(self, machine: str) -> N | None:
        """The node that a CCE node has become; None while it has not joined."""
        return self._node_of.get(machine)


def _tail(node: Known) -> str:
    """The providerID without scheme and path (B5, 1)."""
    return node.provider_id.rpartition("/")[2].lower()


def _address(node: Known) -> str:
    return node.labels.get(HOSTNAME_LABEL, "")


def _plain_name(node: Known) -> str:
    return node.name


def group_of(node: CceNode, pool: NodePool) -> ScaleGroup | None:
    """The scale group of one of the pool's nodes: by flavour and AZ, for no field says it (B5, 4); by the flavour of a
    group whose AZ is left to the vendor; else the pool's own, which comes first."""
    alike = [each for each in pool.groups if each.flavor == node.flavor]
    exact = [each for each in alike if each.az == node.az]
    loose = [each for each in alike if not is_zone(each.az)]
    return next(iter((*exact, *loose, *pool.groups)), None)


def is_zone(az: str) -> bool:
    """Whether it names an AZ. A pool may say `random`."""
    return az not in {"", "random"}


def group_id(pool: str, group: str) -> str:
    """The node group's id, `<pool uid>/<scale group>`."""
    return f"{pool}/{group}"


def split(group: str) -> tuple[str, str]:
    """The pool's uid and the scale group's name; a uid has no slash."""
    pool, _, name = group.partition("/")
    return pool, name


def placeholder(group: str, number: int) -> str:
    """Handle and provider id of a machine that was asked for and is not there (B7)."""
    return f"{group}/{_PLACEHOLDER}{number}"


def is_placeholder(handle: str) -> bool:
    """Whether it stands for a machine that there is not."""
    return handle.rpartition("/")[2].startswith(_PLACEHOLDER)


def placeholder_group(handle: str) -> str:
    """The node group of a placeholder."""
    return handle.rpartition("/")[0]


def handle_of(target: Target) -> str:
    """The CCE node's uid, or the placeholder; "" where neither the handle nor the provider id says it."""
    for word in (target.handle, target.instance):
        if is_placeholder(word):
            return word
        uid = word.rpartition("/")[2].lower()
        if is_id(uid):
            return uid
    return ""
