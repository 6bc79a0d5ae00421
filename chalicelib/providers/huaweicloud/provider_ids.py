"""Conversions and matching between CCE nodes, the cluster's nodes and our handles.

A Kubernetes node names its CCE node by its providerID, which is the CCE node's uid or, if another
component wrote it, the server's id. A node without either is matched by its address or its name.
The label `cce.cloud.com/cce-nodepool` is never used, because it stays on a node that leaves its
pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Generic

from chalicelib.model.node import HOSTNAME_LABEL
from chalicelib.model.operation import RemovalTarget
from chalicelib.providers.huaweicloud.models import CceNode, NodePool, ScaleGroup, is_leaving
from chalicelib.providers.kit.errors import InvalidRequest
from chalicelib.providers.kit.node_identity import Identity, N

ANY_ZONE = "random"
"""The AZ of a group for each of whose nodes CCE chooses one."""
_PLACEHOLDER = "placeholder-"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.ASCII | re.IGNORECASE)
_PROJECT = re.compile(r"[0-9a-f]{32}\Z", re.ASCII)


def is_id(text: str) -> bool:
    """Whether this is the uid of a cluster, pool, node or job; capitals are
    as good as small letters."""
    return _UUID.match(text) is not None


def is_project(text: str) -> bool:
    """Whether this is a project's id: 32 hex digits."""
    return _PROJECT.match(text) is not None


def is_job(text: str) -> bool:
    """Whether this is the id of a job of ECS: 32 hex digits, or a uid."""
    return is_project(text.lower()) or is_id(text)


def checked(text: str, what: str) -> str:
    """The id in small letters; raises InvalidRequest, so that nothing is
    sent. what: `node pool`."""
    if not is_id(text):
        raise InvalidRequest(f"{text[:80]!r} is not the id of a {what}", code="Id")
    return text.lower()


class CceGroupNames(Generic[N]):
    """The cluster's nodes by CCE node. An id decides; if it is not one of CCE's, addresses and
    names do. A node that matches two CCE nodes is matched to neither, and a CCE node that two nodes
    claim has no known node (providers/kit/node_identity.py): a kubelet can write any providerID and
    cannot choose its node's name."""

    def __init__(self, nodes: Iterable[N], machines: Iterable[CceNode]) -> None:
        nodes, machines = tuple(nodes), tuple(machines)
        ids = {machine.id: machine.id for machine in machines}
        ids |= {machine.server.lower(): machine.id for machine in machines if machine.server}
        by_address: dict[str, str] = {}
        by_name: dict[str, str] = {}
        for machine in sorted(machines, key=is_leaving):
            by_address.setdefault(machine.private_ip, machine.id)
            by_name.setdefault(machine.name, machine.id)
        by_address.pop("", None)
        by_name.pop("", None)
        by_id = {
            node.name: ids.get(node.provider_id.rpartition("/")[2].lower(), "") for node in nodes
        }
        claimed_by_id = frozenset(by_id.values())
        proven = {
            machine
            for name, machine in by_id.items()
            if machine and by_address.get(name) == machine
        }

        def claimed(node: N) -> frozenset[str]:
            """Return the machines that a node claims. An id and a name that agree outweigh a name
            alone. A name counts in addition to an id unless another node has that machine's id."""
            addresses = {
                by_address.get(node.labels.get(HOSTNAME_LABEL, ""), ""),
                by_address.get(node.name, ""),
            } - {""}
            if machine := by_id[node.name]:
                return frozenset({machine} | (addresses - claimed_by_id))
            return frozenset((addresses or {by_name.get(node.name, "")} - {""}) - proven)

        self.identity = Identity(nodes, claimed)

    def node_of(self, machine: str) -> N | None:
        """Return the node of a CCE node; None if it has not joined or its node is ambiguous."""
        return self.identity.node_of(machine)

    def claimants(self, machine: str) -> tuple[str, ...]:
        """Return the nodes that claim a CCE node whose node is ambiguous."""
        return self.identity.claimants(machine)


def group_of(node: CceNode, pool: NodePool) -> ScaleGroup | None:
    """Return the scale group of one of the pool's nodes, derived because no field contains it.
    By flavour and AZ; by the flavour of a group whose AZ the vendor chooses; otherwise the
    pool's own, which comes first."""
    same_flavor = [group for group in pool.groups if group.flavor == node.flavor]
    same_az = [group for group in same_flavor if group.az == node.az]
    any_az = [group for group in same_flavor if not is_zone(group.az)]
    return next(iter((*same_az, *any_az, *pool.groups)), None)


def is_zone(az: str) -> bool:
    """Whether the text names an AZ. A pool may have `random`."""
    return az not in {"", ANY_ZONE}


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


def placeholder_group(handle: str) -> str | None:
    """Return the node group of a placeholder; None for a machine's handle."""
    group, _, name = handle.rpartition("/")
    return group if name.startswith(_PLACEHOLDER) else None


def handle_of(target: RemovalTarget) -> str:
    """Return the CCE node's uid or the placeholder of a target; "" if neither its handle nor its
    provider id contains one."""
    for word in (target.handle, target.instance):
        if placeholder_group(word) is not None:
            return word
        uid = word.rpartition("/")[2].lower()
        if is_id(uid):
            return uid
    return ""
