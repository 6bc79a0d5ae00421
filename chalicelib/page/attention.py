"""What an operator asks first: is it well, since when not, what needs me and what do I type, what
is under way, what is paused.

Sentences only: a template prints them as they are. Instants in them are RFC 3339, which the
template shows as times.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from chalicelib.journal.metrics import key
from chalicelib.model.memory import ReplacementState
from chalicelib.model.operation import REPLACES, Operation, OperationKind
from chalicelib.model.pause import Pause, PausedPart, whole
from chalicelib.model.quantity import format_amount
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.timestamps import format_time
from chalicelib.page.cluster_data import ClusterDetails, ClusterSummary
from chalicelib.reasons.text import disruption_words, lasting_first, sentence
from chalicelib.views.cluster_view import LATE_AFTER
from chalicelib.views.consolidation import (
    ReplacementView,
    money,
    replacement_action,
    replacement_views,
    state_words,
)
from chalicelib.views.journal_lines import spoken
from chalicelib.views.lifecycle import verdict_of
from chalicelib.views.rows import Tone, usual_seconds

LISTED = 5
"""Rows of one kind; the rest is counted, and is on a page of its own."""
UNHEALTHY = "unhealthy"


class ClusterStatus(msgspec.Struct, frozen=True):
    """Whether a cluster is well. word: the tag beside its name, so that no status depends on a
    colour. detail: a sentence, "" where the word says it all. since: epoch seconds, 0.0: not known.
    rank: the worst is first."""

    word: str
    tone: Tone
    detail: str
    since: float
    rank: int


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


def counted(number: int, noun: str) -> str:
    """Return `1 pod` or `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


# -- is it well


def status_of(summary: ClusterSummary, now: float) -> ClusterStatus:
    """Return the first status that applies, the worst first."""
    state, pause = summary.passed.state, whole(summary.pauses)
    last, failure = state.last_pass, state.failure
    interval = summary.policy.scan_interval if summary.policy is not None else 0.0
    late = bool(last) and now - last > interval + LATE_AFTER
    braked = bool(last) and summary.gauges.get(key("brake"), 0.0) > 0
    unsafe = bool(last) and summary.gauges.get(key("cluster_safe_to_autoscale"), 1.0) == 0.0
    since = failure.since if failure is not None else 0.0
    waiting = summary.pending
    wait = "1 pod waits" if waiting == 1 else f"{waiting} pods wait"
    statuses: tuple[tuple[bool, ClusterStatus], ...] = (
        (bool(summary.problem), ClusterStatus("not read", Tone.BAD, summary.problem, 0.0, 0)),
        (not summary.plans, ClusterStatus("off", Tone.INFO, "the policy's mode is off", 0.0, 8)),
        (late, ClusterStatus("no passes", Tone.BAD, summary.failure or "no pass is made", last, 1)),
        (bool(summary.failure), ClusterStatus("passes fail", Tone.BAD, summary.failure, since, 2)),
        (
            braked,
            ClusterStatus("circuit breaker tripped", Tone.BAD, "removals are blocked", 0.0, 3),
        ),
        (
            unsafe,
            ClusterStatus(
                UNHEALTHY, Tone.BAD, "too many nodes are not ready; nothing is changed", 0.0, 3
            ),
        ),
        (
            pause is not None,
            ClusterStatus("paused", Tone.WARN, pause.reason if pause else "", 0.0, 4),
        ),
        (not last, ClusterStatus("no pass yet", Tone.INFO, "", 0.0, 6)),
        (waiting > 0, ClusterStatus(wait, Tone.WARN, "", 0.0, 5)),
        (True, ClusterStatus("ok", Tone.OK, "", 0.0, 7)),
    )
    return next(status for applies, status in statuses if applies)


# -- what needs a person


def needs(details: ClusterDetails, status: ClusterStatus, now: float) -> list[Need]:
    """Return what needs a person, the most urgent first."""
    return [
        *_of_cluster(details, status),
        *_of_breaker(details, now),
        *_of_pods(details),
        *_of_nodes(details, now),
        *_of_groups(details),
        *(
            Need(gap.name or gap.kind, f"not read: {gap.detail}", anchor="gaps")
            for gap in details.plan.gaps[:LISTED]
        ),
    ]


def _of_cluster(details: ClusterDetails, status: ClusterStatus) -> list[Need]:
    name = details.summary.name
    if status.rank == 0:
        command = shlex.join(("outscaler", "get", "policy", name))
        return [
            Need(
                "Policy",
                status.detail,
                "not in force",
                anchor="policies-not-in-effect",
                command=command,
            )
        ]
    if status.rank in (1, 2):
        command = shlex.join(("outscaler", "history", name, "--kind", "pass"))
        note = "no pass is made" if status.rank == 1 else "nothing is decided"
        return [
            Need(
                "Passes",
                status.detail,
                note,
                status.since,
                anchor="missing-passes",
                command=command,
            )
        ]
    if status.word == UNHEALTHY:
        health, command = details.plan.health, shlex.join(("outscaler", "get", "nodes", name))
        text = (
            f"{health.unready} of {counted(health.registered, 'node')} are not ready; nothing is "
            "changed until they are"
        )
        return [Need("Nodes", text, anchor="notification-clusterunhealthy", command=command)]
    if details.undecided and details.summary.plans and details.summary.passed.last_pass:
        return [Need("Last decision", details.undecided, anchor="empty-plans")]
    return []


def _of_breaker(details: ClusterDetails, now: float) -> list[Need]:
    breaker = details.memory.breaker
    if not breaker.tripped_at or details.memory.released_until > now:
        return []
    text = (
        f"a plan would have removed {counted(breaker.wanted, 'node')} at once; no node is removed "
        "until it is released"
    )
    command = shlex.join(("outscaler", "release", details.summary.name))
    return [
        Need(
            "Circuit breaker",
            text,
            "",
            breaker.tripped_at,
            anchor="tripped-circuit-breaker",
            command=command,
        ),
    ]


def _of_pods(details: ClusterDetails) -> list[Need]:
    rows = details.plan.unschedulable
    listed = []
    for verdict in rows[:LISTED]:
        more = len(verdict.pods) - 1
        command = shlex.join(
            ("outscaler", "explain", "pod", verdict.pods[0], "--cluster", details.summary.name)
        )
        note = f"and {counted(more, 'pod')} like it" if more else ""
        text = pods_reason(verdict.reasons, verdict.against)
        listed.append(Need(verdict.pods[0], text, note, page="pods", command=command))
    if len(rows) > LISTED:
        listed.append(
            Need(
                f"{counted(len(rows) - LISTED, 'more kind')} of pods",
                "no node for them either",
                page="pods",
            )
        )
    return listed


_NODE_NOTES: Mapping[ReasonCode, tuple[str, str]] = {
    ReasonCode.INTERRUPTION_REPORTED: (
        "interruptionreported",
        "its vendor takes it back, and nothing is done about it",
    ),
    ReasonCode.NO_REPLACEMENT_IN_TIME: (
        "noreplacementintime",
        "no new node can be ready before its vendor takes it back",
    ),
    ReasonCode.NODE_OVERDUE: ("nodeoverdue", "it is older than maxNodeAge and expiryGrace allow"),
}
"""Of notes on a node: the anchor of the runbook, and what it is."""


def _of_nodes(details: ClusterDetails, now: float) -> list[Need]:
    """Return nodes that their vendor takes back without a remedy, that are overdue, and
    groups too sick to repair."""
    plan, name, listed = details.plan, details.summary.name, []
    noted = [note for code in _NODE_NOTES for note in plan.notes if note.code is code]
    for note in noted[:LISTED]:
        node, until = str(note.params.get("node", "")), note.params.get("until")
        anchor, text = _NODE_NOTES[note.code]
        left = (
            f"; {spoken(until - now)} left"
            if isinstance(until, int | float) and until > now
            else ""
        )
        verdict = verdict_of(plan, node)
        held = (
            f": {sentence(verdict.held)}"
            if verdict is not None and verdict.held is not None
            else ""
        )
        command = shlex.join(("outscaler", "explain", "node", node, "--cluster", name))
        listed.append(
            Need(node, f"{text}{left}{held}", page="nodes", anchor=anchor, command=command)
        )
    if len(noted) > LISTED:
        listed.append(
            Need(
                counted(len(noted) - LISTED, "more node"), "announced or overdue, too", page="nodes"
            )
        )
    group_of, sick = details.overview.group_of, dict[str, Reason]()
    for verdict in plan.lifecycle:
        if (
            verdict.held is not None
            and verdict.held.code is ReasonCode.TOO_MANY_UNHEALTHY
            and verdict.node in group_of
        ):
            sick.setdefault(group_of[verdict.node].group, verdict.held)
    for group, reason in sorted(sick.items())[:LISTED]:
        command = shlex.join(
            ("outscaler", "explain", "group", details.name_of(group), "--cluster", name)
        )
        listed.append(
            Need(
                details.name_of(group),
                sentence(reason),
                "no repair",
                0.0,
                group,
                "groups",
                "toomanyunhealthy",
                command,
            )
        )
    return [*listed, *_resting(details)]


def _resting(details: ClusterDetails) -> list[Need]:
    """Return the groups whose new nodes are no better than those that they replace."""
    rests = (
        [note for note in details.plan.notes if note.code is ReasonCode.RENEWAL_RESTS]
        if details.plan
        else []
    )
    needs: list[Need] = []
    for note in rests[:LISTED]:
        group = str(note.params.get("group", ""))
        command = shlex.join(
            ("outscaler", "retry", details.summary.name, "group", details.name_of(group))
        )
        needs.append(
            Need(
                details.name_of(group),
                sentence(note),
                "it rests",
                0.0,
                group,
                "groups",
                "renewalrests",
                command,
            )
        )
    return needs


_MEANS = {
    "unhealthy": "its nodes are not ready, so it is neither grown nor shrunk",
    "not read": "it could not be read",
}


def _of_groups(details: ClusterDetails) -> list[Need]:
    listed = []
    for row in details.groups:
        if row.status.tone is not Tone.BAD:
            continue
        backoff = (
            details.memory.groups[row.group].backoff if row.group in details.memory.groups else None
        )
        name = details.summary.name
        if row.status.until and backoff is not None:
            again = f"; next try {format_time(row.status.until)}"
            note = (
                f"backing off, {counted(backoff.attempt, 'failure')} in a row"
                if backoff.attempt > 1
                else "backing off"
            )
            command = shlex.join(("outscaler", "retry", name, "group", row.name))
        else:
            again, note = "", row.status.word
            command = shlex.join(("outscaler", "explain", "group", row.name, "--cluster", name))
        text = f"{row.status.detail or _MEANS.get(row.status.word, row.status.word)}{again}"
        listed.append(
            Need(row.name, text, note, row.status.since, row.group, "groups", command=command)
        )
    return listed[:LISTED]


# -- why pods wait


def pods_reason(
    reasons: Mapping[str, Sequence[Reason]], against: Sequence[tuple[Reason, int]] = ()
) -> str:
    """Return in one sentence why pods get no node. reasons: by group. against: how many existing
    nodes each reason excludes, which counts where there is no group."""
    main = [lasting_first(of_group)[0] for of_group in reasons.values() if of_group]
    if not main:
        nodes = "; ".join(
            f"{sentence(reason)} ({counted(count, 'node')})" for reason, count in against[:3]
        )
        return f"no node group could help{f': {nodes}' if nodes else ''}"
    codes = {(reason.code, reason.params.get("resource")) for reason in main}
    if len(codes) == 1 and main[0].code is ReasonCode.INSUFFICIENT:
        resource = str(main[0].params.get("resource", ""))
        needed, largest = (
            max(_number(reason, name) for reason in main) for name in ("needs", "offers")
        )
        amounts = [_amount(resource, amount) for amount in (needed, largest)]
        return (
            f"asks for {amounts[0]} {resource}; the largest machine of any group offers "
            f"{amounts[1]}"
        )
    grouped = Counter(sentence(reason) for reason in main).most_common(3)
    if len(grouped) == 1:
        return grouped[0][0]
    return "; ".join(f"{text} ({counted(count, 'group')})" for text, count in grouped)


def _number(reason: Reason, name: str) -> int:
    value = reason.params.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


def _amount(resource: str, amount: int) -> str:
    # Cores are what people compare: 7.75, not 7750m.
    return f"{amount / 1000:g}" if resource == "cpu" else format_amount(resource, amount)


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
    proposed = view.state == ReplacementState.PROPOSED.value
    done, of = (0, 0) if proposed else (view.done, view.of - 1)
    return OperationProgress(
        id=view.id,
        group="",
        up=False,
        text=text,
        step=state_words(view.state),
        since=view.since,
        usually=0.0,
        done=done,
        of=of,
    )


def _progress(details: ClusterDetails, operation: Operation) -> OperationProgress:
    spec, status = operation.spec, operation.status
    steps = _INTERRUPTED_STEPS if spec.interrupted else _STEPS[spec.kind]
    step = steps.get(status.step, "waiting for its turn" if not status.step else status.step)
    if spec.after and not status.step:
        step = "waiting for another operation"
    name, row = details.name_of(spec.group), details.group(spec.group)
    nodes = [target.node or target.instance for target in spec.targets]
    which = nodes[0] if len(nodes) == 1 else counted(len(nodes), "node")
    done = of = 0
    match spec.kind:
        case OperationKind.SCALE_UP:
            pods = f" for {counted(len(spec.pods), 'pod')}" if spec.pods else ""
            pods += (
                f" to replace {replaced.replace(',', ', ')}"
                if (replaced := status.data.get(REPLACES))
                else ""
            )
            text = f"{name} grows from {spec.from_size} to {spec.to_size}{pods}"
            of = spec.to_size - spec.from_size
            done = min(max((row.ready if row is not None else 0) - spec.from_size, 0), of)
        case OperationKind.DELETE_NODES:
            moved = sum(len(target.evict) for target in spec.targets)
            text = (
                f"{which} of {name} is removed"
                if len(nodes) == 1
                else f"{which} of {name} are removed"
            )
            text += f" {disruption_words(spec.reason)}" if spec.reason else ""
            text += f", {counted(moved, 'pod')} to move" if moved else ""
            done, of = list(steps).index(status.step) if status.step in steps else 0, len(steps) - 1
        case OperationKind.RESTART_NODE:
            moved = sum(len(target.evict) for target in spec.targets)
            text = f"{which} of {name} is restarted {disruption_words(spec.reason)}".rstrip()
            text += f", {counted(moved, 'pod')} to move" if moved else ""
            done, of = list(steps).index(status.step) if status.step in steps else 0, len(steps) - 1
        case OperationKind.DECREASE_TARGET if spec.from_size == spec.to_size:
            text = f"marks of old removals are taken off machines of {name}"
        case OperationKind.DECREASE_TARGET:
            text = f"the target of {name} is lowered from {spec.from_size} to {spec.to_size}"
        case _:
            text = (
                f"{counted(len(nodes), 'machine')} of {name} that never became a node is given back"
            )
    usually = usual_seconds(
        (entry for entry in details.entries if entry.group == spec.group), spec.kind
    )
    up = spec.kind is OperationKind.SCALE_UP
    since, ends = spec.created_at, spec.leaves_at
    return OperationProgress(spec.id, spec.group, up, text, step, since, usually, done, of, ends)


# -- what is paused


def paused(cluster: str, pauses: Sequence[Pause], names: Mapping[str, str]) -> list[Paused]:
    """Return the pauses in force. names: of groups by their id."""
    rows = []
    for pause in pauses:
        part = {
            PausedPart.ALL: "Everything",
            PausedPart.GROWTH: "Growth",
            PausedPart.REMOVALS: "Removals",
        }[pause.part]
        words = ["outscaler", "resume", cluster]
        words += {
            PausedPart.ALL: [],
            PausedPart.GROWTH: ["--growth"],
            PausedPart.REMOVALS: ["--removals"],
        }[pause.part]
        words += ["--group", names.get(pause.group, pause.group)] if pause.group else []
        of_group = f" of {names.get(pause.group, pause.group)}" if pause.group else ""
        by = pause.by.rpartition("/")[2]
        rows.append(Paused(f"{part}{of_group}", pause.reason, by, pause.until, shlex.join(words)))
    return rows
