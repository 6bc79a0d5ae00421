"""What new nodes of a group turned out not to have: labels, extended resources, the absence of a
taint. See docs/reference/node-groups.md "Unfinished nodes".

A node that has just ceased to be young is compared with the template that its group had without it.
What it lacks, and some pod of the cluster asks for, is not expected of the group's next nodes for a
time, which doubles each time: another node would be of no more use. It is expected again as soon as
a node has it that is not older. A single node may be broken: the first time it is followed by
another one.

The groups of a managed pool count together: a part that no node of the pool has is waited for
longer with each of its groups, and after a few is not expected of machine types either that had no
node yet. One after the other would be bought in vain otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

import msgspec

from chalicelib.model.memory import HOUR, GroupMemory, Memory, Part, Undelivered
from chalicelib.model.node import Node, Taint
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.selector import NodeTerm
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.state.backoff import rest_after
from chalicelib.plan.state.managed_groups import MOST_IN_VAIN, declaration_of
from chalicelib.plan.state.unfinished_nodes import (
    Expected,
    ObservedNodes,
    TemplatesOf,
    Unfinished,
    YoungNodes,
    difference,
    expected_nodes,
    young_nodes,
)

MOST_UNDELIVERED = 20
"""Parts of a group's new nodes that are remembered as missing, the first ones by name."""
MOST_NAMED = 5
"""Parts that a note names."""
# seconds after its youth in which a node is judged: later it may have lost what it had
_JUDGED_FOR = 300.0
_REMEMBERED = 24 * HOUR  # seconds after a rest within which the next one is longer


class _Lacking(msgspec.Struct, frozen=True):
    """The newest judged node without a part: when it was created, and its taint if the part is a
    taint. nodes: how many judged nodes are without it."""

    created: float
    nodes: int
    taint: Taint | None = None


def judge_newcomers(
    observed: ObservedNodes, templates_of: TemplatesOf
) -> tuple[Memory, YoungNodes]:
    """Judge the nodes that have just ceased to be young, then those that are young. Returns the
    memory with what is not expected of new nodes any more."""
    memory, now, declared = observed.memory, observed.now, _Declared(observed)
    changed = _UndeliveredParts(observed, declared).judge(templates_of)
    if changed:
        memory = msgspec.structs.replace(memory, groups={**memory.groups, **changed})
    undelivered = {}
    for group, of_group in memory.groups.items():
        resting = {name: part for name, part in of_group.undelivered.items() if part.rests(now)}
        if resting:
            undelivered[group] = resting
    undelivered |= declared.of_new_groups(undelivered)
    return memory, young_nodes(observed, undelivered, templates_of)


class _Declared:
    """The groups of each managed pool, which count together."""

    def __init__(self, observed: ObservedNodes) -> None:
        self._observed = observed

    @cached_property
    def _pool_of(self) -> dict[str, str]:
        """Group -> its managed pool, "" for a group that somebody else has made."""
        snapshot = self._observed.snapshot
        groups = (*snapshot.groups, *snapshot.candidates)
        return {group.id: declaration_of(group) for group in groups}

    def _groups_of(self, pool: str) -> list[str]:
        return [group for group, own_pool in self._pool_of.items() if pool and own_pool == pool]

    def times_elsewhere(self, group: str, part: str) -> int:
        """Return how often a part was missing in another group of a group's pool, 0 if some node of
        the pool has it."""
        others = self._groups_of(self._pool_of.get(group, ""))
        memories = self._observed.memory.groups
        times = 0
        for other in others:
            known = memories[other].undelivered.get(part) if other in memories else None
            is_recent = known is not None and known.until + _REMEMBERED >= self._observed.now
            if known is not None and is_recent and other != group:
                times = max(times, known.times)
        return times if times and not self._is_delivered(others, part) else 0

    def of_new_groups(
        self, undelivered: Mapping[str, Mapping[str, Undelivered]]
    ) -> dict[str, dict[str, Undelivered]]:
        """Return group -> what is not expected of it because other groups of its pool did not have
        it, for groups that never had a node. undelivered: group -> what is not expected of it."""
        parts_of: dict[str, dict[str, Undelivered]] = {}
        for group, parts in undelivered.items():
            of_pool = parts_of.setdefault(self._pool_of.get(group, ""), {})
            of_pool |= {name: part for name, part in parts.items() if part.times >= MOST_IN_VAIN}
        known = self._observed.memory.templates.keys() | self._observed.members.keys()
        of_new: dict[str, dict[str, Undelivered]] = {}
        for pool, parts in parts_of.items():
            groups = self._groups_of(pool)
            missing = {
                name: part for name, part in parts.items() if not self._is_delivered(groups, name)
            }
            new = [group for group in groups if group not in known and group not in undelivered]
            of_new |= dict.fromkeys(new, missing)
        return of_new

    def _is_delivered(self, groups: Iterable[str], part: str) -> bool:
        members = self._observed.members
        nodes = (node for group in groups for node in self._observed.ready(members.get(group, ())))
        return any(_has(node, part) for node in nodes)


class _UndeliveredParts:
    """What the new nodes of all groups do not have."""

    def __init__(self, observed: ObservedNodes, declared: _Declared) -> None:
        self._observed, self._options, self._now = observed, observed.options, observed.now
        self._declared = declared
        self._asked: _Asked | None = None

    def judge(self, templates_of: TemplatesOf) -> dict[str, GroupMemory]:
        """Return the memory of the groups in which it changes."""
        observed = self._observed
        judged: dict[str, list[Node]] = {}
        before: dict[str, list[Node]] = {}
        for group, nodes in observed.members.items():
            recent = observed.younger(group, _JUDGED_FOR)
            young = {node.name for node in observed.younger(group)} if recent else set()
            grown_up = observed.working(node for node in recent if node.name not in young)
            if grown_up:
                names = {node.name for node in recent}
                judged[group] = grown_up
                before[group] = [node for node in nodes if node.name not in names]
        expected = expected_nodes(observed, before, templates_of(before, None) if before else {})
        changed: dict[str, GroupMemory] = {}
        for group, nodes in observed.members.items():
            known = observed.memory.groups.get(group, GroupMemory())
            if group not in judged and not known.undelivered:
                continue
            lacking = self._lacking(judged[group], expected[group]) if group in judged else {}
            parts = self._next_parts(group, known.undelivered, lacking, observed.ready(nodes))
            if parts != known.undelivered:
                changed[group] = msgspec.structs.replace(known, undelivered=parts)
        return changed

    def _lacking(self, nodes: Iterable[Node], expected: Expected) -> dict[str, _Lacking]:
        lacking: dict[str, _Lacking] = {}
        for node in nodes:
            lacks = difference(node, expected, self._options)
            if not lacks:
                continue
            self._asked = self._asked or _Asked(self._observed.snapshot)
            for name, taint in _parts(self._asked.only(lacks)):
                newest = lacking.get(name)
                if newest is None:
                    lacking[name] = _Lacking(node.created, 1, taint)
                    continue
                if newest.created < node.created:
                    newest = msgspec.structs.replace(newest, created=node.created, taint=taint)
                lacking[name] = msgspec.structs.replace(newest, nodes=newest.nodes + 1)
        return lacking

    def _next_parts(
        self,
        group: str,
        known: Mapping[str, Undelivered],
        lacking: Mapping[str, _Lacking],
        nodes: Sequence[Node],
    ) -> dict[str, Undelivered]:
        parts: dict[str, Undelivered] = {}
        for name in sorted({*known, *lacking}):
            delivered_at = max((node.created for node in nodes if _has(node, name)), default=0.0)
            elsewhere = self._declared.times_elsewhere(group, name)
            part = self._next(known.get(name), lacking.get(name), delivered_at, elsewhere)
            if part is not None:
                parts[name] = part
        return dict(islice(parts.items(), MOST_UNDELIVERED))

    def _next(
        self,
        undelivered: Undelivered | None,
        lacking: _Lacking | None,
        delivered_at: float,
        elsewhere: int,
    ) -> Undelivered | None:
        """Return what is to be remembered of a part. delivered_at: the creation of the newest node
        that has it. elsewhere: how often it was missing in other groups of the managed pool."""
        now = self._now
        if undelivered is not None and (
            undelivered.created <= delivered_at or undelivered.until + _REMEMBERED < now
        ):
            undelivered = None
        if (
            lacking is None
            or lacking.created <= delivered_at
            or (undelivered is not None and lacking.created <= undelivered.created)
        ):
            return undelivered
        if undelivered is not None and undelivered.rests(now):
            return msgspec.structs.replace(
                undelivered, created=lacking.created, taint=lacking.taint
            )
        if undelivered is None and lacking.nodes == 1 and not elsewhere:
            return Undelivered(until=now, times=0, created=lacking.created, taint=lacking.taint)
        times = max(elsewhere, undelivered.times if undelivered is not None else 0) + 1
        until = now + rest_after(times)
        return Undelivered(until=until, times=times, created=lacking.created, taint=lacking.taint)


def undelivered_notes(groups: Mapping[str, GroupMemory], now: float) -> Iterator[Reason]:
    """Return a reason for each group of whose new nodes something is not expected now, by name.
    groups: those that exist."""
    for group in sorted(groups):
        resting = {
            name: part for name, part in groups[group].undelivered.items() if part.rests(now)
        }
        if not resting:
            continue
        names = sorted(resting)
        more = len(names) - MOST_NAMED
        what = ", ".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
        until = min(part.until for part in resting.values())
        yield Reason.of(ReasonCode.NEW_NODES_LACK, group=group, what=what, until=until)


def _parts(unfinished: Unfinished) -> Iterator[tuple[str, Taint | None]]:
    """Return the name of each part that a node lacks, and the taint if the part is that it goes."""
    yield from ((Part.LABEL.of(key), None) for key in unfinished.labels)
    yield from ((Part.RESOURCE.of(name), None) for name in unfinished.resources)
    yield from ((Part.TAINT.of(taint.key), taint) for taint in unfinished.taints)


def _has(node: Node, part: str) -> bool:
    """Return whether a node has a part; with a taint, whether it is gone."""
    kind, _, name = part.partition(" ")
    if kind == Part.LABEL:
        return name in node.labels
    if kind == Part.RESOURCE:
        return node.allocatable.get(name, 0) > 0
    return node.taint(name) is None


class _Asked:
    """The labels and resources for which some pod of the cluster asks, running or waiting,
    itself or by its volumes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._resources = {name for pod in snapshot.classes for name in pod.requests}
        labels: set[str] = set()
        for pod in snapshot.classes:
            labels.update(pod.node_selector)
            labels.update(_keys(pod.required_affinity))
            labels.update(term.topology_key for term in (*pod.pod_affinity, *pod.pod_anti_affinity))
            labels.update(spread.topology_key for spread in pod.spread)
        for volume in snapshot.storage.volumes:
            labels.update(_keys(volume.node_terms))
        for storage_class in snapshot.storage.classes:
            labels.update(_keys(storage_class.topologies))
        for capacity in snapshot.storage.capacities:
            if capacity.node_topology is not None:
                labels.update(
                    requirement.key for requirement in capacity.node_topology.requirements
                )
        self._labels = labels

    def only(self, unfinished: Unfinished) -> Unfinished:
        """Return what of this is asked for. A taint concerns every pod."""
        return Unfinished(
            tuple(key for key in unfinished.labels if key in self._labels),
            tuple(name for name in unfinished.resources if name in self._resources),
            unfinished.taints,
        )


def _keys(terms: Iterable[NodeTerm] | None) -> Iterator[str]:
    return (requirement.key for term in terms or () for requirement in term.expressions)
