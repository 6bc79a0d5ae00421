"""What nodes of a managed pool have shown of those of its machine types that have no node yet.

The template of a machine type that no node has is an estimate. Where nodes of other types are
smaller than their estimates, or have another value of a label, the next type is expected to be so,
too: otherwise pods that just do not fit would get a node of every type. See
docs/reference/managed-pools.md "Estimates".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import LearntTemplate
from chalicelib.model.node import HOSTNAME_LABEL, Node
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY
from chalicelib.plan.state.managed_groups import declaration_of

_ESTIMATED = (CPU, MEMORY, EPHEMERAL)
"""Resources of which a node reports all at once when it joins."""
_LEAST_SHARE = 0.5
"""A node with less of its estimate is broken, and says nothing of other types."""
_MOST_NODES = 20  # of a group


class PoolEvidence(msgspec.Struct, frozen=True):
    """shares: resource -> the smallest part of its estimate that a node has, if that is less than
    all of it. labels: those of which a node has another value."""

    shares: dict[str, float] = {}
    labels: frozenset[str] = frozenset()

    def applied(self, template_node: Node) -> Node:
        """Return the estimate of a new node as far as it is confirmed."""
        labels = {key: text for key, text in template_node.labels.items() if key not in self.labels}
        allocatable = {
            name: int(amount * self.shares.get(name, 1.0))
            for name, amount in template_node.allocatable.items()
        }
        return msgspec.structs.replace(template_node, labels=labels, allocatable=allocatable)


def evidence_of_pools(
    groups: Iterable[NodeGroup],
    members: Mapping[str, Sequence[Node]],
    learnt: Mapping[str, LearntTemplate],
) -> dict[str, PoolEvidence]:
    """Return managed pool -> what its nodes have shown. members: group -> its nodes."""
    evidence: dict[str, PoolEvidence] = {}
    for group in groups:
        pool, template = declaration_of(group), group.template
        if not pool or template is None:
            continue
        for node in _shown(members.get(group.id, ()), learnt.get(group.id)):
            known = evidence.get(pool, PoolEvidence())
            shares = dict(known.shares)
            for name, share in _shares(node, template).items():
                shares[name] = min(share, shares.get(name, 1.0))
            evidence[pool] = PoolEvidence(shares, known.labels | _other_labels(node, template))
    return evidence


def _other_labels(node: Node, template_node: Node) -> frozenset[str]:
    """Return the keys of the labels of which a node has another value than its template."""
    return frozenset(
        key
        for key, text in template_node.labels.items()
        if key != HOSTNAME_LABEL and node.labels.get(key, text) != text
    )


def _shown(nodes: Sequence[Node], learnt: LearntTemplate | None) -> Iterator[Node]:
    yield from nodes[:_MOST_NODES]
    if learnt is not None:
        yield learnt.node


def _shares(node: Node, template_node: Node) -> dict[str, float]:
    """Return resource -> the part of its estimate that a node has."""
    estimates = template_node.allocatable
    shares = {
        name: node.allocatable[name] / estimates[name]
        for name in _ESTIMATED
        if name in node.allocatable and estimates.get(name, 0) > 0
    }
    return {name: share for name, share in shares.items() if _LEAST_SHARE <= share < 1.0}
