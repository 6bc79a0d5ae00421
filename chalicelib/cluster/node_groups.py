"""Reads all node groups of a cluster, on any cloud: a provider that fails becomes a gap and
does not affect the others.

Instances that more than one Node claims are reported here for all providers;
plan/state/group_membership.py determines the consequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from chalicelib.model.errors import MALFORMED, published_name
from chalicelib.model.group import NodeGroup
from chalicelib.model.managed_group import PoolSelection
from chalicelib.model.node import Node
from chalicelib.model.snapshot import ALL_GROUPS_OF_PROVIDER, MissingData, ObservedGroups
from chalicelib.plan.state.group_membership import contested_instances, names_for_message
from chalicelib.providers.kit.base import Provider
from chalicelib.providers.kit.errors import NOT_GIVEN, ProviderError

MOST = 20
"""Maximum reported instances with several claimants, sorted by id: many of
them usually have one cause."""
_SHOWN = 300  # characters of an unexpected error


def read_node_groups(providers: Sequence[Provider], nodes: Sequence[Node]) -> ObservedGroups:
    """Return what every provider says, in the order of the providers."""
    groups: list[NodeGroup] = []
    gaps: list[MissingData] = []
    candidates: list[NodeGroup] = []
    selections: list[PoolSelection] = []
    for provider in providers:
        try:
            observed = provider.observe(nodes)
        except ProviderError as error:
            problem = error.message if error.code == NOT_GIVEN else error.described
        except MALFORMED as error:
            # Each provider isolates its objects; an error that escapes must not cost the
            # other providers their pass.
            problem = (
                f"an answer could not be understood: {published_name(error)}: {str(error)[:_SHOWN]}"
            )
        else:
            groups += observed.groups
            gaps += observed.gaps
            candidates += observed.candidates
            selections += observed.selections
            continue
        kind = f"provider/{provider.name}"
        gaps.append(
            MissingData(kind=kind, detail=problem, affected_decisions=(ALL_GROUPS_OF_PROVIDER,))
        )
    gaps += islice(_contested(groups, nodes), MOST)
    return ObservedGroups(tuple(groups), tuple(gaps), tuple(candidates), tuple(selections))


def _contested(groups: Sequence[NodeGroup], nodes: Sequence[Node]) -> Iterator[MissingData]:
    """Yield one gap for each instance whose Node cannot be determined."""
    claimants = contested_instances(groups, nodes)
    owners = {
        instance.id: group
        for group in groups
        for instance in group.instances
        if instance.id in claimants
    }
    for instance, names in sorted(claimants.items()):
        group = owners[instance]
        says = (
            f"the nodes {names_for_message(names)} say that they are the machine {instance}"
            if len(names) > 1
            else (
                f"the node {names[0]} says that it is the machine {instance}, and something else "
                "as well"
            )
        )
        yield MissingData(
            kind="Node",
            name=names[0],
            place=f"nodeGroups[provider={group.provider}, id={group.id}]",
            detail=f"{says}; the machine and the nodes are left alone until one node names it: "
            "delete the Node object "
            "that is wrong, and look at its kubelet",
            affected_decisions=("removals of these nodes", "repairs of their node group"),
        )
