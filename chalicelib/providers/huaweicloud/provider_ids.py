"""Conversions and matching between CCE nodes, the cluster's nodes and our handles.

A Kubernetes node names its CCE node by its providerID, which is the CCE node's uid or, if another component wrote it,
the server's id. A node without either is matched by its address or its name. The label `cce.cloud.com/cce-nodepool` is
never used, because it stays on a node that leaves its pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.errors import InvalidRequest
from chalicelib.providers.huaweicloud.models import CceNode, NodePool, ScaleGroup, is_leaving
from chalicelib.providers.node_identity import Identity, Known, N

_PLACEHOLDER = "placeholder-"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE)
_PROJECT = re.compile(r"[0-9a-f]{32}\Z", re.ASCII)


def is_id(text: str) -> bool:
    """Whether this is the uid of a cluster, pool, node or job; capitals are as good as small letters."""
    return _UUID.match(text) is not None


def is_project(text: str) -> bool:
    """Whether this is a project's id: 32 hex digits."""
    return _PROJECT.match(text) is not None


def checked(text: str, what: str) -> str:
    """The id in small letters; raises InvalidRequest, so that nothing is sent. what: `node pool`."""
    if not is_id(text):
        raise InvalidRequest(f"{text[:80]!r} is not the id of a {what}", code="Id")
    return text.lower()


class CceGroupNames(Generic[N]):
    """The cluster's nodes by CCE node.

    An id decides; if it is not one of CCE's, addresses and names do. A node that matches two CCE nodes is matched to
    neither, and a CCE node that two nodes claim has no known node (providers/node_identity.py): a kubelet can write any
    providerID and cannot choose its node's name.
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
            """Return the machines that a node claims.

            An id and a name that agree outweigh a name alone. A name counts in addition to an id unless another node
            has that machine's id."""
            said = {addresses.get(_address(node), ""), addresses.get(node.name, "")} - {""}
            if machine := own[node.name]:
                return frozenset({machine} | (said - claimed_by_id))
            return frozenset((said or {called.get(node.name, "")} - {""}) - proven)

        self._identity = Identity(nodes, claimed)

    def node_of(self, machine: str) -> N | None:
        """Return the node of a CCE node; None if it has not joined or its node is ambiguous."""
        return self._identity.node_of(machine)

    def claimants(self, machine: str) -> tuple[str, ...]:
        """Return the nodes that claim a CCE node whose node is ambiguous."""
        return self._identity.claimants(machine)

    @property
    def identity(self) -> Identity[str, N]:
        """The complete matching."""
        return self._identity


def _first(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return text -> the first item that has it, without empty texts."""
    found: dict[str, str] = {}
    for word, machine in pairs:
        if word:
            found.setdefault(word, machine)
    return found


def _tail(node: Known) -> str:
    """Return the providerID without scheme and path."""
    return node.provider_id.rpartition("/")[2].lower()


def _address(node: Known) -> str:
    return node.labels.get(HOSTNAME_LABEL, "")


def group_of(node: CceNode, pool: NodePool) -> ScaleGroup | None:
    """Return the scale group of one of the pool's nodes, derived because no field contains it.

    By flavour and AZ; by the flavour of a group whose AZ the vendor chooses; otherwise the pool's own, which comes
    first."""
    alike = [each for each in pool.groups if each.flavor == node.flavor]
    exact = [each for each in alike if each.az == node.az]
    loose = [each for each in alike if not is_zone(each.az)]
    return next(iter((*exact, *loose, *pool.groups)), None)


def is_zone(az: str) -> bool:
    """Whether the text names an AZ. A pool may have `random`."""
    return az not in {"", "random"}


def group_id(pool: str, group: str) -> str:
    """Return the node group's id, `<pool uid>/<scale group>`."""
    return f"{pool}/{group}"


def split(group: str) -> tuple[str, str]:
    """Return the pool's uid and the scale group's name; a uid contains no slash."""
    pool, _, name = group.partition("/")
    return pool, name


def placeholder(group: str, number: int) -> str:
    """Return handle and provider id of a machine that was requested and does not exist."""
    return f"{group}/{_PLACEHOLDER}{number}"


def is_placeholder(handle: str) -> bool:
    """Whether the handle stands for a machine that does not exist."""
    return handle.rpartition("/")[2].startswith(_PLACEHOLDER)


def placeholder_group(handle: str) -> str:
    """Return the node group of a placeholder."""
    return handle.rpartition("/")[0]


def handle_of(target: RemovalTarget) -> str:
    """Return the CCE node's uid or the placeholder of a target; "" if neither its handle nor its provider id contains
    one."""
    for word in (target.handle, target.instance):
        if is_placeholder(word):
            return word
        uid = word.rpartition("/")[2].lower()
        if is_id(uid):
            return uid
    return ""
