"""What an operator asks first: what needs me and what do I type, what ends by itself, what is under
way, what is paused. Whether a cluster is well is in journal/cluster_health.py.

Sentences only: a template prints them as they are. Instants in them are RFC 3339, which the
template shows as times.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.model.health import HealthState
from chalicelib.model.memory import ReplacementState
from chalicelib.model.operation import REPLACES, Operation, OperationKind
from chalicelib.model.pause import Pause, PausedPart
from chalicelib.model.plan import NodeVerdict
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.page.cluster_data import ClusterDetails
from chalicelib.reasons.no_place import no_place
from chalicelib.reasons.text import disruption_words, sentence
from chalicelib.reasons.words import counted, money
from chalicelib.views.cluster_view import ClusterStatus
from chalicelib.views.consolidation import (
    ReplacementView,
    replacement_action,
    replacement_views,
    state_words,
)
from chalicelib.views.journal_lines import spoken
from chalicelib.views.lifecycle import verdict_of
from chalicelib.views.rows import GroupRow, provider_title, usual_seconds

LISTED = 5
"""Rows of one kind; the rest is counted, and is on a page of its own."""


class Need(msgspec.Struct, frozen=True):
    """One thing for a person to do. subject: what it is about; group: the id, where that is a
    node group. page: of the cluster, with more about it. anchor: of the runbook. command: to
    type; each "" where there is none."""

    subject: str
    text: str
    note: str = ""
    since: float = 0.0
    group: str = ""
    page: str = ""
    anchor: str = ""
    command: str = ""


class OperationProgress(msgspec.Struct, frozen=True):
    """An open operation. done, of: how far it is, 0 of 0 where that is not known. usually:
    seconds that it takes, 0.0 where that is not known. leaves_at: when the vendor takes the node
    back, 0.0 where it does not."""

    id: str
    group: str
    up: bool
    text: str
    step: str
    since: float
    usually: float
    done: int
    of: int
    leaves_at: float = 0.0


class Paused(msgspec.Struct, frozen=True):
    """A pause in force. command: ends it."""

    subject: str
    reason: str
    by: str
    until: float
    command: str


# -- what needs a person


def needs(details: ClusterDetails, status: ClusterStatus, now: float) -> list[Need]:
    """Return what needs a person, the most urgent first."""
    gaps = [
        Need(gap.name or gap.kind, f"not read: {gap.detail}", anchor="gaps")
        for gap in details.plan.gaps
        if not gap.unread_provider
    ]
    return [
        *_of_cluster(details, status),
        *_of_vendors(details),
        *_of_breaker(details, now),
        *_of_pods(details),
        *_of_nodes(details, now, ends=False),
        *_sick_groups(details),
        *_resting(details),
        *_of_groups(details),
        *_of_pools(details),
        *_behind_budgets(details),
        *gaps[:LISTED],
    ]


def _of_cluster(details: ClusterDetails, status: ClusterStatus) -> list[Need]:
    name = details.summary.name
    detail = status.detail
    if status.is_one_of(HealthState.NOT_READ):
        command = shlex.join(("outscaler", "get", "policy", name))
        return [_need(HealthState.NOT_READ, "Policy", detail, "not in force", command=command)]
    if status.is_one_of(HealthState.NO_PASSES):
        since = status.since
        command = _of_passes(details)
        state = HealthState.NO_PASSES
        text = detail or "none has ended since then"
        return [_need(state, "Passes", text, "no pass is made", since, command=command)]
    if status.is_one_of(HealthState.PASSES_FAIL):
        since = status.since
        command = _of_passes(details)
        state = HealthState.PASSES_FAIL
        return [_need(state, "Passes", detail, "nothing is decided", since, command=command)]
    if status.is_one_of(HealthState.CLUSTER_UNHEALTHY):
        health = details.plan.health
        command = shlex.join(("outscaler", "get", "nodes", name))
        nodes = counted(health.registered, "node")
        text = f"{health.unready} of {nodes} are not ready; nothing is changed until they are"
        return [_need(HealthState.CLUSTER_UNHEALTHY, "Nodes", text, command=command)]
    if details.undecided and details.summary.plans and details.summary.passed.last_pass:
        return [Need("Last decision", details.undecided, anchor="empty-plans")]
    return []


def _of_vendors(details: ClusterDetails) -> list[Need]:
    """Return the vendors that could not be read, once for all of their groups."""
    command = shlex.join(("outscaler", "get", "groups", details.summary.name))
    state = HealthState.VENDORS_NOT_READ
    gaps = [gap for gap in details.plan.gaps if gap.unread_provider]
    return [
        _need(
            state,
            provider_title(gap.unread_provider),
            f"not read: {gap.detail}",
            "its groups stay as they are",
            command=command,
        )
        for gap in gaps[:LISTED]
    ]


def _need(
    state: HealthState,
    subject: str,
    text: str,
    note: str = "",
    since: float = 0.0,
    command: str = "",
) -> Need:
    return Need(subject, text, note, since, anchor=state.row.anchor, command=command)


def _of_passes(details: ClusterDetails) -> str:
    """Return what shows why passes are missing or fail. Where there never was one, the journal has
    nothing, and the log of the function that should have worked says why."""
    scan = details.summary.passed.state
    if scan.last_pass:
        return shlex.join(("outscaler", "history", details.summary.name, "--kind", "pass"))
    function = "reconcile" if scan.queued_until or scan.lease_until else "tick"
    return f"aws logs tail /aws/lambda/outscaler-STAGE-{function} --since 10m"


def _of_breaker(details: ClusterDetails, now: float) -> list[Need]:
    breaker = details.memory.breaker
    if not breaker.tripped_at or details.memory.released_until > now:
        return []
    nodes = counted(breaker.wanted, "node")
    text = f"a plan would have removed {nodes} at once; no node is removed until it is released"
    command = shlex.join(("outscaler", "release", details.summary.name))
    anchor = "tripped-circuit-breaker"
    return [Need("Circuit breaker", text, "", breaker.tripped_at, anchor=anchor, command=command)]


def _explain(details: ClusterDetails, kind: str, name: str) -> str:
    return shlex.join(("outscaler", "explain", kind, name, "--cluster", details.summary.name))


def _of_pods(details: ClusterDetails) -> list[Need]:
    rows = details.plan.unschedulable
    listed = []
    for verdict in rows[:LISTED]:
        first = verdict.pods[0]
        more = len(verdict.pods) - 1
        note = f"and {counted(more, 'pod')} like it" if more else ""
        text = no_place(verdict, details.names, details.plan.gaps).line
        command = _explain(details, "pod", first)
        listed.append(Need(first, text, note, page="pods", command=command))
    more_kinds = len(rows) - LISTED
    if more_kinds > 0:
        subject = f"{counted(more_kinds, 'more kind')} of pods"
        listed.append(Need(subject, "no node for them either", page="pods"))
    return listed


def _of_nodes(details: ClusterDetails, now: float, *, ends: bool) -> list[Need]:
    """Return nodes that their vendor takes back without a remedy, and that are overdue. ends: those
    about which nobody has to do anything, or the others."""
    plan = details.plan
    codes = [code for code in ReasonCode if code.row.need and code.row.need_ends is ends]
    notes = [note for code in codes for note in plan.notes if note.code is code]
    listed = []
    for note in notes[:LISTED]:
        node = str(note.params.get("node", ""))
        until = note.params.get("until")
        text = note.code.row.need
        if isinstance(until, int | float) and until > now:
            text += f"; {spoken(until - now)} left"
        ready = note.params.get("ready")
        if isinstance(ready, int | float):
            text += f", and a new node usually takes {spoken(ready)}"
        verdict = verdict_of(plan, node)
        if verdict is not None and verdict.held is not None:
            text += f": {sentence(verdict.held)}"
        command = _explain(details, "node", node)
        anchor = note.code.lower()
        listed.append(Need(node, text, page="nodes", anchor=anchor, command=command))
    more = len(notes) - LISTED
    if more > 0:
        subject = counted(more, "more node")
        listed.append(Need(subject, "announced or overdue, too", page="nodes"))
    return listed


def _behind_budgets(details: ClusterDetails) -> list[Need]:
    """Return the budgets that block nodes and never allow a disruption, with their nodes."""
    verdicts: dict[str, list[NodeVerdict]] = {}
    for verdict in details.plan.unremovable:
        if verdict.reason.never_drains:
            verdicts.setdefault(str(verdict.reason.params["budget"]), []).append(verdict)
    needs = []
    for nodes in list(verdicts.values())[:LISTED]:
        first = nodes[0]
        more = len(nodes) - 1
        note = f"and {counted(more, 'node')} like it" if more else ""
        command = _explain(details, "node", first.node)
        anchor = HealthState.NODES_BEHIND_BUDGETS.row.anchor
        text = sentence(first.reason)
        needs.append(Need(first.node, text, note, page="nodes", anchor=anchor, command=command))
    return needs


def _sick_groups(details: ClusterDetails) -> list[Need]:
    """Return the groups that are too sick to repair."""
    group_of = details.overview.group_of
    reasons: dict[str, Reason] = {}
    for verdict in details.plan.lifecycle:
        held = verdict.held
        if held is None or held.code is not ReasonCode.TOO_MANY_UNHEALTHY:
            continue
        if verdict.node in group_of:
            reasons.setdefault(group_of[verdict.node].group, held)
    needs = []
    for group, reason in sorted(reasons.items())[:LISTED]:
        name = details.name_of(group)
        command = _explain(details, "group", name)
        needs.append(_group_need(name, reason, "no repair", group, "toomanyunhealthy", command))
    return needs


def _resting(details: ClusterDetails) -> list[Need]:
    """Return the groups whose new nodes are no better than those that they replace."""
    needs = []
    for note in details.plan.rests[:LISTED]:
        group = str(note.params.get("group", ""))
        name = details.name_of(group)
        command = shlex.join(("outscaler", "retry", details.summary.name, "group", name))
        needs.append(_group_need(name, note, "it rests", group, "renewalrests", command))
    return needs


def _group_need(
    name: str, reason: Reason, note: str, group: str, anchor: str, command: str
) -> Need:
    return Need(name, sentence(reason), note, 0.0, group, "groups", anchor, command)


_OF_GROUPS = (
    HealthState.GROUP_NOT_READ,
    HealthState.GROUP_UNHEALTHY,
    HealthState.GROUP_CANNOT_GROW,
)
"""States of a group that stand under what needs a person. A group at its maximum does with the pods
that it would take."""


def _of_groups(details: ClusterDetails) -> list[Need]:
    of_vendors = {
        gap.detail for gap in details.plan.gaps if gap.unread_provider
    }  # which stand for their groups
    listed = []
    for state in _OF_GROUPS:
        rows = [row for row in details.groups if row.status.is_one_of(state)]
        listed += [
            _of_group(details, row, state) for row in rows if row.status.detail not in of_vendors
        ]
    return listed[:LISTED]


def _of_group(details: ClusterDetails, row: GroupRow, state: HealthState) -> Need:
    status = row.status
    text = status.detail or state.row.meaning
    note = status.word
    command = _explain(details, "group", row.name)
    backoff = row.remembered.backoff
    if status.until and backoff is not None:
        text += f"; next try {format_time(status.until)}"
        if backoff.attempt > 1:
            note += f", {counted(backoff.attempt, 'failure')} in a row"
        cluster = details.summary.name
        command = shlex.join(("outscaler", "retry", cluster, "group", row.name))
    anchor = state.row.anchor
    return Need(row.name, text, note, status.since, row.group, "groups", anchor, command)


def _of_pools(details: ClusterDetails) -> list[Need]:
    """Return the managed pools that cannot buy anything. A vendor that is not read stands for
    its own."""
    unread = {gap.unread_provider for gap in details.plan.gaps}
    pools = [
        pool for pool in details.overview.pools if pool.buys_nothing and pool.provider not in unread
    ]
    command = shlex.join(("outscaler", "get", "pools", details.summary.name))
    return [Need(pool.name, pool.held, "managed pool", command=command) for pool in pools[:LISTED]]


# -- what ends by itself


def healing(details: ClusterDetails, now: float) -> list[Need]:
    """Return what is not as it should be and ends by itself: groups that are tried again later or
    failed lately, and nodes whose pods may wait for a while."""
    state = HealthState.GROUP_BACKING_OFF
    rows = [row for row in details.groups if row.status.is_one_of(state)]
    listed = [_of_group(details, row, state) for row in rows[:LISTED]]
    more = len(rows) - LISTED
    if more > 0:
        listed.append(Need(counted(more, "more group"), "tried again later, too", page="groups"))
    return [*listed, *_failed_lately(details), *_of_nodes(details, now, ends=True)]


def _failed_lately(details: ClusterDetails) -> list[Need]:
    """Return the groups whose last change failed; it is tried again."""
    name = details.summary.name
    command = shlex.join(("outscaler", "history", name, "--kind", "failed"))
    rows = [
        row
        for row in details.groups
        if row.status.is_one_of(HealthState.GROUP_STEADY) and row.status.detail
    ]
    return [
        Need(
            row.name, row.status.detail, "tried again", row.status.since, row.group, command=command
        )
        for row in rows[:LISTED]
    ]


# -- what is under way

_REMOVAL_STEPS = {
    "look": "looking at it",
    "taint": "keeping new pods away",
    "recheck": "checking once more",
    "evict": "moving its pods",
    "gone": "waiting until its pods have ended",
    "delay": "waiting before the machine is deleted",
    "delete": "asking for the deletion of the machine",
    "poll": "the machine is being deleted",
    "confirm": "waiting until the node is gone",
    "undo": "giving the node back",
}
_INTERRUPTED_STEPS = {
    **{step: _REMOVAL_STEPS[step] for step in ("look", "taint", "evict", "delete", "poll")},
    "leave": "waiting until its vendor takes it",
    **{step: _REMOVAL_STEPS[step] for step in ("confirm", "undo")},
}
_RESTART_STEPS = {
    **{step: _REMOVAL_STEPS[step] for step in ("look", "taint", "recheck", "evict", "gone")},
    "restart": "asking for the restart",
    "poll": "the machine restarts",
    "ready": "waiting until the node is ready",
    "return": "giving the node back",
    "undo": _REMOVAL_STEPS["undo"],
}
_STEPS = {
    OperationKind.SCALE_UP: {
        "request": "asking for machines",
        "poll": "machines are being created",
    },
    OperationKind.DELETE_NODES: _REMOVAL_STEPS,
    OperationKind.DECREASE_TARGET: {
        "lower": "asking for a lower target",
        "poll": "waiting for the group",
    },
    OperationKind.DELETE_INSTANCES: {
        "delete": "asking for the deletion",
        "poll": "machines are being deleted",
    },
    OperationKind.RESTART_NODE: _RESTART_STEPS,
    OperationKind.REMOVE_GROUP: {
        "delete": "looking whether it is empty",
        "poll": "the group is being deleted",
    },
}


def under_way(details: ClusterDetails) -> list[OperationProgress]:
    """Return the replacements that are not over and the open operations, the oldest first."""
    operations = sorted(
        details.memory.operations,
        key=lambda operation: (operation.spec.created_at, operation.spec.id),
    )
    replacements = [view for view in replacement_views(details.memory) if not view.is_over]
    return [
        *(_replacement(details, view) for view in replacements),
        *(_progress(details, operation) for operation in operations),
    ]


def _replacement(details: ClusterDetails, view: ReplacementView) -> OperationProgress:
    text = replacement_action(view, details.names)
    if view.saves > 0 and not view.purpose:
        text += f", saves {money(view.saves, details.overview.currency)} an hour"
    is_proposed = view.state == ReplacementState.PROPOSED.value
    return OperationProgress(
        id=view.id,
        group="",
        up=False,
        text=text,
        step=state_words(view.state),
        since=view.since,
        usually=0.0,
        done=0 if is_proposed else view.done,
        of=0 if is_proposed else view.of - 1,
    )


def _progress(details: ClusterDetails, operation: Operation) -> OperationProgress:
    spec = operation.spec
    step = operation.status.step
    steps = _INTERRUPTED_STEPS if spec.interrupted else _STEPS[spec.kind]
    if step:
        words = steps.get(step, step)
    else:
        words = "waiting for another operation" if spec.after else "waiting for its turn"
    done = of = 0
    if spec.kind is OperationKind.SCALE_UP:
        row = details.group(spec.group)
        ready = (row.ready or 0) if row is not None else 0
        of = spec.to_size - spec.from_size
        done = min(max(ready - spec.from_size, 0), of)
    elif spec.kind in (OperationKind.DELETE_NODES, OperationKind.RESTART_NODE):
        of = len(steps) - 1
        done = list(steps).index(step) if step in steps else 0
    entries = (entry for entry in details.entries if entry.group == spec.group)
    return OperationProgress(
        spec.id,
        spec.group,
        spec.kind is OperationKind.SCALE_UP,
        _operation_text(operation, details.name_of(spec.group)),
        words,
        spec.created_at,
        usual_seconds(entries, spec.kind),
        done,
        of,
        spec.leaves_at,
    )


def _operation_text(operation: Operation, name: str) -> str:
    """Return what an operation does to the group of this name."""
    spec = operation.spec
    nodes = [target.node or target.instance for target in spec.targets]
    subject = nodes[0] if len(nodes) == 1 else counted(len(nodes), "node")
    verb = "is" if len(nodes) == 1 else "are"
    moved = sum(len(target.evict) for target in spec.targets)
    moving = f", {counted(moved, 'pod')} to move" if moved else ""
    match spec.kind:
        case OperationKind.SCALE_UP:
            text = f"{name} grows from {spec.from_size} to {spec.to_size}"
            if spec.pods:
                text += f" for {counted(len(spec.pods), 'pod')}"
            replaced = operation.status.data.get(REPLACES)
            if replaced:
                text += f" to replace {replaced.replace(',', ', ')}"
            return text
        case OperationKind.DELETE_NODES | OperationKind.RESTART_NODE:
            change = "restarted" if spec.kind is OperationKind.RESTART_NODE else "removed"
            text = f"{subject} of {name} {verb} {change} {disruption_words(spec.reason)}"
            return f"{text.rstrip()}{moving}"
        case OperationKind.DECREASE_TARGET if spec.from_size == spec.to_size:
            return f"marks of old removals are taken off machines of {name}"
        case OperationKind.DECREASE_TARGET:
            return f"the target of {name} is lowered from {spec.from_size} to {spec.to_size}"
        case OperationKind.REMOVE_GROUP:
            return f"the empty group {name} is deleted"
        case _:
            machines = counted(len(nodes), "machine")
            return f"{machines} of {name} that never became a node is given back"


# -- what is paused


_PARTS: Mapping[PausedPart, tuple[str, tuple[str, ...]]] = {
    PausedPart.ALL: ("Everything", ()),
    PausedPart.GROWTH: ("Growth", ("--growth",)),
    PausedPart.REMOVALS: ("Removals", ("--removals",)),
}
"""What is paused, and the option of `outscaler resume` that ends it."""


def paused(cluster: str, pauses: Sequence[Pause], names: Mapping[str, str]) -> list[Paused]:
    """Return the pauses in force. names: of groups by their id."""
    rows = []
    for pause in pauses:
        subject, option = _PARTS[pause.part]
        command = ["outscaler", "resume", cluster, *option]
        if pause.group:
            name = names.get(pause.group, pause.group)
            subject += f" of {name}"
            command += ["--group", name]
        _, _, by = pause.by.rpartition("/")
        rows.append(Paused(subject, pause.reason, by, pause.until, shlex.join(command)))
    return rows
