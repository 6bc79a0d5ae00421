"""Reads from the tables what advice is made of: the ended operations of a cluster, and
what is known of its groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cli.advise.history import (
    DAY,
    GroupFacts,
    GroupHistory,
    RecordSpan,
    gaps_between,
    group_histories,
)
from chalicelib.cli.arguments import meant_group
from chalicelib.model.errors import BadInput
from chalicelib.model.join_summary import nearest_rank
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.operation import Operation, OperationKind
from chalicelib.model.overview import ClusterOverview, GroupOverview
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.store.leases import LastPass
from chalicelib.store.memory_rows import KEPT, PRICED_KEPT
from chalicelib.views.rows import unique_names

if TYPE_CHECKING:
    from chalicelib.store import Store


class Record(msgspec.Struct, frozen=True):
    """What the tables have of a cluster. policy: in force without schedules; text: its document."""

    policy: Policy
    text: str
    histories: tuple[GroupHistory, ...]
    span: RecordSpan


def read_record(
    store: Store, cluster: str, text: str, days: int, groups: Collection[str], now: float
) -> Record:
    """Return the record of a cluster's last days. text: its policy document. groups: names of
    groups, all if empty. Raises BadInput where no pass was made, or for an unknown group."""
    from chalicelib.policy.load import load

    policy, _ = load(text, place=cluster)
    passed = store.scan_states.last(cluster, points=True)
    if passed is None or not passed.last_pass:
        raise BadInput(cluster, "no pass has been made yet", f"repeat it after {days} days")
    memory, operations = store.memory.look(cluster), store.operations.ended(cluster)
    span = _span(passed, memory, days, now)
    overview = _completed(passed.overview, memory)
    chosen = {meant_group(overview.groups, name, "--groups") for name in groups}
    facts = {
        group.group: facts
        for group, facts in zip(
            overview.groups, _facts(overview, policy, memory, operations, span), strict=True
        )
        if not chosen or group.group in chosen
    }
    return Record(policy, text, group_histories(operations, facts), span)


def _span(passed: LastPass, memory: Memory, days: int, now: float) -> RecordSpan:
    until = min(now, passed.state.last_success or passed.last_pass)
    since = max(until - days * DAY, memory.first_seen or until)
    gaps = gaps_between((*passed.hours, *passed.points))
    return RecordSpan(since, until, tuple((begin, end) for begin, end in gaps if end > since))


def _completed(overview: ClusterOverview, memory: Memory) -> ClusterOverview:
    """Return the overview with groups that only memory knows. A group that is gone gets no
    advice."""
    others = {*memory.groups} - {group.group for group in overview.groups}
    groups = (*overview.groups, *(GroupOverview(group) for group in sorted(others)))
    return msgspec.structs.replace(overview, groups=groups)


def _facts(
    overview: ClusterOverview,
    policy: Policy,
    memory: Memory,
    operations: Sequence[Operation],
    span: RecordSpan,
) -> list[GroupFacts]:
    names = unique_names(overview.groups)
    bought = [
        operation.spec for operation in operations if operation.spec.kind is OperationKind.SCALE_UP
    ]
    without_price = {spec.group for spec in bought if not spec.price}
    bounds = {group.id: group for group in policy.node_groups}
    facts = []
    for group in overview.groups:
        group_memory = memory.groups.get(group.group, GroupMemory())
        lead, learned = _lead(group_memory, policy)
        stored = PRICED_KEPT if group.price and group.group not in without_price else KEPT
        own = bounds.get(group.group)
        most = [
            bound
            for bound in (group.max or -1, own.max if own is not None else None)
            if bound and bound >= 0
        ]
        facts.append(
            GroupFacts(
                group.group,
                names[group.group],
                lead,
                learned,
                group.price,
                group.currency or overview.currency,
                group.ready,
                group.min,
                min(most, default=-1),
                policy.options.scale_down_unneeded_time,
                max(
                    span.until - stored, group_memory.first_seen or memory.first_seen or span.until
                ),
            )
        )
    return facts


def _lead(group_memory: GroupMemory, policy: Policy) -> tuple[float, bool]:
    """Return how long a new node of a group usually takes until it is ready, and
    whether it has taught that."""
    median = (
        nearest_rank(sorted(group_memory.joins.ready), 50)
        if group_memory.joins is not None
        else None
    )
    if median is not None:
        return max(0.0, float(median)), True
    return policy.options.max_node_provision_time, False


def usual_zone(policy: Policy) -> str:
    """Return the time zone of the policy's schedules or maintenance windows,
    UTC where they have none."""
    zones = [
        *(item.time_zone for item in policy.schedules),
        *(item.time_zone for item in policy.maintenance_windows),
    ]
    return next((zone for zone in zones if zone != "UTC"), "UTC")
