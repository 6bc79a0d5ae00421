"""Starts our cool-downs for what the other autoscaler did.

In mode active, executors start them with what they have done
(chalicelib/operations/memory_updates.py). In mode shadow nobody does, and our plan would remove
nodes right after a growth of the other autoscaler. A pass in mode shadow therefore remembers the
other's growths, removals and removals that it gave up, in the same fields of memory: its plan waits
as it would have, and so does the first active pass after a hand-over.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.node import TO_BE_DELETED
from chalicelib.model.plan import Plan
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.shadow.observed import Pass, confirmed, growths, observe, removals
from chalicelib.shadow.outages import restarted_at
from chalicelib.shadow.records import Growth, Ledger


class Acts(msgspec.Struct, frozen=True):
    """Group -> the instant of the other autoscaler's last act of a kind; "" for a node of
    which no group is known."""

    growths: dict[str, float] = {}
    removals: dict[str, float] = {}
    failures: dict[str, float] = {}


NO_PLAN = Plan("", "", 0.0)
"""The plan of a pass that has not decided yet."""


def with_cooldowns(ledger: Ledger | None, this_pass: Pass) -> Memory:
    """Return the memory of the pass, in which the acts since the last pass have
    started their cool-downs."""
    memory = this_pass.before
    if ledger is None or this_pass.at <= ledger.seen.at or ledger.seen.dead:
        return memory
    if memory.watching_since > ledger.seen.at:  # passes acted since, or there were none
        return memory
    observation = observe(this_pass, ledger.seen)
    if observation.dead:
        return memory
    acts = _acts(ledger, this_pass)
    # a new process takes all hard taints back
    if restarted_at(ledger.seen, observation.soft, this_pass):
        acts = msgspec.structs.replace(acts, failures={})
    return _remembered(memory, acts)


def _acts(ledger: Ledger, this_pass: Pass) -> Acts:
    open_growths: tuple[Growth, ...] = ()
    if ledger.episode is not None:  # a status may be written after the act
        open_growths = tuple(confirmed(growth, this_pass) for growth in ledger.episode.growths)
    several = (*open_growths, *growths(ledger.seen, this_pass))
    group_of = {node: group for group, nodes in ledger.seen.nodes.items() for node in nodes}
    ended = [node for node in ledger.deleting if node not in this_pass.node_names]
    removed = [
        removal
        for removal in removals(ledger.seen, ledger.deleting, this_pass)
        if removal.confirmed
    ]
    gone = [removal.group for removal in removed if removal.node not in this_pass.node_names]
    at = this_pass.at
    return Acts(
        _latest((growth.group, growth.at) for growth in several if growth.is_others),
        _latest((group, at) for group in (*gone, *(group_of.get(node, "") for node in ended))),
        _latest((group_of.get(node, ""), at) for node in given_up(ledger, this_pass)),
    )


def given_up(ledger: Ledger, this_pass: Pass) -> list[str]:
    """Return the nodes whose removal the other autoscaler gave up: it took its hard
    taint back, and they exist."""
    stays = {node.name for node in this_pass.snapshot.nodes if node.taint(TO_BE_DELETED) is None}
    return [node for node in ledger.deleting if node in stays]


def _latest(acts: Iterable[tuple[str, float]]) -> dict[str, float]:
    latest: dict[str, float] = {}
    for group, at in acts:
        latest[group] = max(at, latest.get(group, at))
    return latest


def _remembered(memory: Memory, acts: Acts) -> Memory:
    if not (acts.growths or acts.removals or acts.failures):
        return memory
    groups = {name: _of_group(name, group, acts) for name, group in memory.groups.items()}
    return msgspec.structs.replace(
        memory,
        groups=groups,
        last_scale_up=max(memory.last_scale_up, *acts.growths.values(), 0.0),
        last_scale_down=max(memory.last_scale_down, *acts.removals.values(), 0.0),
        last_scale_down_failure=max(memory.last_scale_down_failure, *acts.failures.values(), 0.0),
    )


def _of_group(name: str, group: GroupMemory, acts: Acts) -> GroupMemory:
    return msgspec.structs.replace(
        group,
        last_add=max(group.last_add, acts.growths.get(name, 0.0)),
        last_delete=max(group.last_delete, acts.removals.get(name, 0.0)),
        last_failure=max(group.last_failure, acts.failures.get(name, 0.0)),
    )


def cooldown_end(memory: Memory, group: str, options: Options) -> float:
    """Return when our last cool-down for a removal of this group ends."""
    own = memory.groups.get(group, GroupMemory())
    instants = memory.last_scale_up, memory.last_scale_down, memory.last_scale_down_failure
    if options.scale_down_delay_type_local:
        instants = own.last_add, own.last_delete, own.last_failure
    ends = zip(instants, options.cooldowns, strict=True)
    return max(at + delay if at else 0.0 for at, delay in ends)
