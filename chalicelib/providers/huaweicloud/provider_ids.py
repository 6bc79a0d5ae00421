"""Ids: how a node is called by CCE, by the cluster and by us (huaweicloud-cce.md B5).

A Kubernetes node says which CCE node it is by its providerID, which is the CCE node's uid or, where somebody else wrote
it, the server's id; a node without either is known by its address or its name. What a node says by its label
`cce.cloud.com/cce-nodepool` is never believed: the label stays behind when a node leaves its pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.huaweicloud.ids import is_id
from chalicelib.providers.huaweicloud.instance_states import is_leaving
from chalicelib.providers.huaweicloud.models import CceNode, NodePool, ScaleGroup
from chalicelib.providers.node_identity import Identity, Known, N

_PLACEHOLDER = "placeholder-"


class CceGroupNames(Generic[N]):
    """The cluster's nodes by CCE node. An id decides; where it is none of CCE's, addresses and names do. A node whose
    words mean two CCE nodes is believed of neither, and a CCE node that two nodes claim has no node that is known
    (providers/identity.py): a kubelet can write any providerID, and cannot choose its node's name.
    """

    def __init__(self, nodes: Iterable[N], machines: Iterable[CceNode]) -> None:
        nodes, machines = tuple(nodes), tuple(machines)
        ordered = sorted(machines, key=is_leaving)
        ids = {each.id: each.id for each in machines}
        ids |= {each.server.lower(): each.id for each in machines if each.server}
        addresses = _first((each.private_ip, each.id) for each in ordered)
        called = _first((each.name, each.id) for each in ordered)
        own = {node.name: ids.get(_tail(node), "") for node in nodes}
        claimed_by_id = {machine for machine in own.values() if machine}
        proven = {machine for name, machine in own.items() if machine and addresses.get(name) == machine}

        def claimed(node: N) -> frozenset[str]:
            """An id and a name that agree beat a name alone; a name counts beside an id unless another node has that
            machine's id."""
            said = {addresses.get(_address(node), ""), addresses.get(node.name, "")} - {""}
            if machine := own[node.name]:
                return frozenset({machine} | (said - claimed_by_id))
            return frozenset((said or {called.get(node.name, "")} - {""}) - proven)

        self._identity = Identity(nodes, claimed)

    def node_of(self, machine: str) -> N | None:
        """The node that a CCE node has become; None while it has not joined, and where that cannot be known."""
        return self._identity.node_of(machine)

    def claimants(self, machine: str) -> tuple[str, ...]:
        """The nodes that claim a CCE node of which it cannot be known which node it is."""
        return self._identity.claimants(machine)

    @property
    def identity(self) -> Identity[str, N]:
        """All of it."""
        return self._identity


def _first(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Word -> the first that has it; none for an empty word."""
    found: dict[str, str] = {}
    for word, machine in pairs:
        if word:
            found.setdefault(word, machine)
    return found


def _tail(node: Known) -> str:
    """The providerID without scheme and path (B5, 1)."""
    return node.provider_id.rpartition("/")[2].lower()


def _address(node: Known) -> str:
    return node.labels.get(HOSTNAME_LABEL, "")


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


def handle_of(target: RemovalTarget) -> str:
    """The CCE node's uid, or the placeholder; "" where neither the handle nor the provider id says it."""
    for word in (target.handle, target.instance):
        if is_placeholder(word):
            return word
        uid = word.rpartition("/")[2].lower()
        if is_id(uid):
            return uid
    return ""
