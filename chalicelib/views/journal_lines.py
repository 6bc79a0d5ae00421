"""What a line of the journal says: a type per kind of entry, and a sentence for people.

An entry is stored as its fields (JournalEntry.facts), whose names never change. Entries of earlier
releases may lack some of them, and those of later ones may have further kinds: for an entry that
has no type here, people get a sentence that says its kind, and JSON has what is stored.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.operation import MOST_PODS, OperationKind, OperationState
from chalicelib.reasons.text import disruption_words
from chalicelib.reasons.words import counted, money, some
from chalicelib.store.journal import UNREADABLE, JournalEntry


class PlanLine(msgspec.Struct, frozen=True, rename="camel"):
    """A decision that differs from the one before. rules: those that request nodes. departures:
    nodes that leave by a horizon that begins."""

    nodes: int
    healthy: bool = True
    scale_ups: int = 0
    removals: int = 0
    repairs: int = 0
    unschedulable: int = 0
    unneeded: int = 0
    gaps: int = 0
    restarts: int = 0
    departures: int = 0
    rules: str = ""

    @property
    def changes_nothing(self) -> bool:
        """Return whether no node is added, removed, repaired or chosen to leave: the reasons for
        that have changed, and no more."""
        return not (
            self.scale_ups or self.removals or self.repairs or self.restarts or self.departures
        )


class OperationLine(
    msgspec.Struct,
    frozen=True,
    rename={
        "from_size": "from",
        "to_size": "to",
        "error_class": "class",
        "replaced_by": "replacedBy",
    },
):
    """An operation that is over. targets: nodes, or instances without one. pods: for which it was
    planned (MOST_PODS at most), or that a removal moves. kept: nodes of a removal that still exist,
    with the reason. reason: of a removal of a needed node. replaces: old nodes of a purchase;
    replaced_by: new nodes of a removal. saves: per hour. gone: nodes that their vendor has taken
    before they were deleted. opens: the machine of a group that did not exist before."""

    kind: OperationKind
    state: OperationState
    seconds: float | None = None
    from_size: int | None = None
    to_size: int | None = None
    targets: str = ""
    pods: int = 0
    rules: str = ""
    note: str = ""
    error_class: str = ""
    code: str = ""
    message: str = ""
    kept: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    replaces: str = ""
    replaced_by: str = ""
    saves: float = 0.0
    currency: str = ""
    gone: str = ""
    opens: str = ""

    @property
    def succeeded(self) -> bool:
        """Return whether it did what it was planned for."""
        return self.state is OperationState.SUCCEEDED

    @property
    def target_names(self) -> list[str]:
        """Return the targets."""
        return [name for name in self.targets.split(",") if name]


class FailingLine(
    msgspec.Struct, frozen=True, tag_field="state", tag="failing", rename={"error_class": "class"}
):
    """The first of several passes that failed."""

    error_class: str
    message: str


class RecoveredLine(
    msgspec.Struct, frozen=True, tag_field="state", tag="recovered", rename={"error_class": "class"}
):
    """The first pass that succeeded again. seconds: since the first failure."""

    error_class: str
    failures: int
    seconds: float


class PolicyLine(msgspec.Struct, frozen=True):
    """A version of the policy that was stored. accepted, reason: findings of the doctor
    in spite of which it was."""

    version: int
    accepted: str = ""
    reason: str = ""
    by: str = ""


class PauseLine(msgspec.Struct, frozen=True):
    """A pause that began."""

    until: str
    part: str = "all"
    reason: str = ""
    by: str = ""


class ResumeLine(msgspec.Struct, frozen=True, rename={"was_until": "was until"}):
    """A pause that was ended before its time."""

    was_until: str
    part: str = "all"
    reason: str = ""
    by: str = ""


class RetryLine(msgspec.Struct, frozen=True):
    """A wait that was ended before its time. kind: group, node or operation. was: how
    long it would have waited."""

    kind: str
    name: str
    was: str = ""
    by: str = ""


class ReleaseLine(msgspec.Struct, frozen=True):
    """The circuit breaker was released."""

    until: str
    was_on: bool = False
    by: str = ""


class ClaimReleasedLine(msgspec.Struct, frozen=True):
    """A claim on a node group was given back."""

    claim: str
    provider: str = ""
    by: str = ""


class UninstalledLine(msgspec.Struct, frozen=True):
    """Outscaler was taken out of the cluster. objects: that were cleaned."""

    objects: int
    by: str = ""


class AcceptLine(msgspec.Struct, frozen=True):
    """A person has looked at a difference from another autoscaler."""

    accepted: str
    by: str = ""


class OtherLine(msgspec.Struct, frozen=True):
    """An entry without a type. by: who wrote it, "" where it does not say."""

    by: str = ""


JournalLine = (
    PlanLine
    | OperationLine
    | FailingLine
    | RecoveredLine
    | PolicyLine
    | PauseLine
    | ResumeLine
    | RetryLine
    | ReleaseLine
    | ClaimReleasedLine
    | UninstalledLine
    | AcceptLine
    | OtherLine
)
_TYPES: dict[str, Any] = {
    "plan": PlanLine,
    "operation": OperationLine,
    "pass": FailingLine | RecoveredLine,
    "policy": PolicyLine,
    "pause": PauseLine,
    "resume": ResumeLine,
    "retry": RetryLine,
    "release": ReleaseLine,
    "claim-released": ClaimReleasedLine,
    "uninstalled": UninstalledLine,
    "accept": AcceptLine,
}
_BY_PASSES = ("plan", "operation", "pass")
"""Kinds of entries that no person causes."""
_PLAIN = {
    "plan": "a decision of a pass",
    "operation": "an operation ended",
    "pass": "passes began or ceased to fail",
    "policy": "the policy was stored",
    "pause": "a pause began",
    "resume": "a pause was ended",
    "retry": "a wait was ended",
    "release": "the circuit breaker was released",
    "claim-released": "a claim on a node group was given back",
    "uninstalled": "Outscaler was taken out of the cluster",
    "accept": "a difference was accepted",
    "wake": "an event woke the passes",
    UNREADABLE: "this entry cannot be read",
}
"""Sentences for entries whose facts are missing or of another type."""


class LineKind(msgspec.Struct, frozen=True):
    """Lines that people select by a word. text: what they are. also: further words. on_page: the
    page has a link for it."""

    word: str
    text: str
    also: tuple[str, ...] = ()
    on_page: bool = False


KINDS = (
    LineKind("growth", "a group grew, or could not", ("scale-up",), on_page=True),
    LineKind("removal", "nodes were removed, or could not be", ("scale-down",), on_page=True),
    LineKind("repair", "a target, a machine or a node was repaired"),
    LineKind("failed", "an operation or passes failed", ("failure",), on_page=True),
    LineKind("people", "what a person did", ("person",), on_page=True),
    LineKind("operation", _PLAIN["operation"]),
    LineKind("plan", _PLAIN["plan"], ("decision",)),
    LineKind("pass", _PLAIN["pass"], ("passes",)),
    *(LineKind(kind, _PLAIN[kind]) for kind in _TYPES if kind not in _BY_PASSES),
)
"""The words by which the page and the command select lines. Those of the journal come last."""
EVERY_KIND = "all"
_OPERATIONS = {OperationKind.SCALE_UP: "growth", OperationKind.DELETE_NODES: "removal"}


def kind_named(word: str) -> LineKind | None:
    """Return what a word selects, None where it selects nothing."""
    return next((kind for kind in KINDS if word in (kind.word, *kind.also)), None)


def kind_of_operation(kind: OperationKind) -> str:
    """Return the word of an operation: growth, removal or repair."""
    return _OPERATIONS.get(kind, "repair")


def kinds_of(entry: JournalEntry) -> frozenset[str]:
    """Return the words of KINDS that select an entry."""
    kinds = {entry.kind}
    match line_of(entry):
        case OperationLine() as operation:
            kinds.add(kind_of_operation(operation.kind))
            if not operation.succeeded:
                kinds.add("failed")
        case FailingLine():
            kinds.add("failed")
    if entry.kind in _TYPES and entry.kind not in _BY_PASSES:
        kinds.add("people")
    return frozenset(kinds)


ERRORS = {  # by the class of the error
    "OutOfStock": "sold out",
    "QuotaExceeded": "the quota is used up",
    "InstallFailed": "a machine did not become a node",
    "Unauthorized": "the credentials are refused",
    "Throttled": "too many calls to the vendor",
    "Transient": "the vendor did not answer",
    "Conflict": "it was changed at the same time",
    "InvalidRequest": "the vendor rejects the request",
    "NotFound": "the vendor does not know it",
    "DeadlineExceeded": "it took too long",
    "timeout": "nodes did not join in time",
    "NodeNotReady": "the node did not come back",
    "NodeRecovered": "the node answers again",
}
_LONGEST = 200  # characters of a vendor's message
_REQUEST = re.compile(r"^[A-Z]{3,7} \S{1,500}: HTTP \d{3}(?:: |$)")


def line_of(entry: JournalEntry) -> JournalLine:
    """Return what an entry says; OtherLine for an unknown kind, and where a fact is
    missing or of another type."""
    kept_nodes = tuple(
        (name[5:], str(why)) for name, why in entry.facts.items() if name.startswith("kept ")
    )
    try:
        line: JournalLine = msgspec.convert(
            {**entry.facts, "kept": kept_nodes}, _TYPES.get(entry.kind, OtherLine)
        )
    except msgspec.ValidationError:
        return OtherLine(str(entry.facts.get("by", "")))
    return line


def operation_of(entry: JournalEntry) -> OperationLine | None:
    """Return the operation that an entry is about; None for any other entry."""
    line = line_of(entry) if entry.kind == "operation" else None
    return line if isinstance(line, OperationLine) else None


def sentence(entry: JournalEntry, group_name: str = "") -> str:  # noqa: C901, PLR0911, PLR0912 - a case per type
    """Return what happened, for people. group_name: what they call the entry's
    group; its id, if not given."""
    group = group_name or entry.group
    match line_of(entry):
        case PlanLine() as plan:
            return _decided(plan)
        case OperationLine() as operation:
            return _ended(operation, group)
        case FailingLine(error_class=name, message=message):
            return f"passes fail: {error_words(name, message=message)}"
        case RecoveredLine(error_class=name, failures=failures, seconds=seconds):
            return (
                f"passes succeed again, after {counted(failures, 'failure')} ({name}) in "
                f"{spoken(seconds)}"
            )
        case PolicyLine(version=version, accepted=accepted, reason=reason, by=by):
            spite = f", in spite of {accepted}: {reason}" if accepted else ""
            return f"stored version {version} of the policy{spite}{_by(by)}"
        case PauseLine(until=until, part=part, reason=reason, by=by):
            return f"paused {_part(part, group)} until {until}: {reason}{_by(by)}"
        case ResumeLine(was_until=until, part=part, reason=reason, by=by):
            return f"resumed {_part(part, group)}, paused until {until}: {reason}{_by(by)}"
        case RetryLine(kind=kind, name=name, was=was, by=by):
            return f"tried {kind} {name} again, which waited {was}{_by(by)}"
        case ReleaseLine(until=until, was_on=was_on, by=by):
            return (
                "released the circuit breaker until "
                f"{until}{', which was tripped' if was_on else ''}{_by(by)}"
            )
        case ClaimReleasedLine(claim=claim, by=by):
            return f"gave back the claim on {claim}{_by(by)}"
        case UninstalledLine(objects=objects, by=by):
            return f"uninstalled, with {counted(objects, 'object')} of the cluster cleaned{_by(by)}"
        case AcceptLine(accepted=accepted, by=by):
            return f"accepted {accepted}{_by(by)}"
        case OtherLine(by=by):
            what = _PLAIN.get(
                entry.kind,
                f"an entry of the kind {entry.kind[:_LONGEST]}, which this release does not know",
            )
            return f"{what}{f' ({group})' if group else ''}{_by(by)}"


def _decided(plan: PlanLine) -> str:
    changes = [
        counted(number, noun)
        for number, noun in (
            (plan.scale_ups, "scale-up"),
            (plan.removals, "removal"),
            (plan.repairs, "repair"),
            (plan.restarts, "restart"),
            (plan.departures, "later departure"),
        )
        if number
    ]
    rules = f" (rules {plan.rules.replace(',', ', ')})" if plan.rules else ""
    what = "no change" if plan.changes_nothing else " and ".join(changes)
    parts = [f"decided on {what}{rules} in a cluster of {counted(plan.nodes, 'node')}"]
    if not plan.healthy:
        parts.append("the cluster is unhealthy")
    if plan.unschedulable:
        parts.append(f"{counted(plan.unschedulable, 'pod')} without a place")
    if plan.unneeded:
        parts.append(f"{counted(plan.unneeded, 'node')} not needed")
    if plan.gaps:
        parts.append(f"{counted(plan.gaps, 'thing')} not read")
    return "; ".join(parts)


_SINGLE = (OperationKind.DECREASE_TARGET, OperationKind.REMOVE_GROUP)


def _ended(operation: OperationLine, group: str) -> str:
    kept_names = [name for name, _ in operation.kept]
    targets = [name for name in operation.target_names if name not in kept_names]
    listed = some(targets, 5)
    size = "" if operation.from_size is None else f" from {operation.from_size}"
    size += "" if operation.to_size is None else f" to {operation.to_size}"
    be = "was" if operation.kind in _SINGLE or len(targets) == 1 else "were"
    subject, verb, participle, rest = {
        OperationKind.SCALE_UP: (group or "a group", "grow", "", size),
        OperationKind.DELETE_NODES: (
            listed or "nodes",
            "be removed",
            "removed",
            f" from {group}" if group else "",
        ),
        OperationKind.DECREASE_TARGET: (f"the target of {group}", "be lowered", "lowered", size),
        OperationKind.DELETE_INSTANCES: (
            listed or "instances",
            "be discarded",
            "discarded",
            f" from {group}",
        ),
        OperationKind.RESTART_NODE: (
            listed or "a node",
            "be restarted",
            "restarted",
            f" in {group}" if group else "",
        ),
        OperationKind.REMOVE_GROUP: (f"empty group {group}", "be deleted", "deleted", ""),
    }[operation.kind]
    if operation.kind is OperationKind.DECREASE_TARGET and operation.from_size == operation.to_size:
        subject, verb, participle, rest = (
            "marks of old removals",
            "be taken off",
            "taken off",
            f" machines of {group}",
        )
        be = "were"
    if operation.opens:
        verb, be, participle = "be opened", "was", "opened"
        rest = f" with {operation.opens}"
        rest += f" and grew{size}" if operation.succeeded else ""
    took, error = "" if operation.seconds is None else spoken(operation.seconds), ""
    rest += _purpose(operation)
    if operation.succeeded:
        does = f"{be} {participle}" if participle else "grew"
        rest += _pods(operation)
        rest += f" for rules {operation.rules.replace(',', ', ')}" if operation.rules else ""
        rest += _replaced(operation)
        rest += f", in {took}" if took else ""
    elif operation.state is OperationState.ABANDONED:
        does, error = f"{be} not {participle}" if participle else "did not grow", operation.message
    else:
        does, error = (
            f"could not {verb}",
            error_words(operation.error_class, operation.code, operation.message),
        )
    text = ": ".join(filter(None, (f"{subject} {does}{rest}", error)))
    text += f", after {took}" if took and not operation.succeeded else ""
    text += "".join(f"; {name} stays: {why}" for name, why in operation.kept)
    return text + (f"; {operation.note}" if operation.note else "")


def _purpose(operation: OperationLine) -> str:
    """Return what a purchase replaces, and why needed nodes go. That a replacement
    saves money says its saving."""
    words = disruption_words(operation.reason)
    if operation.reason == DisruptionReason.CONSOLIDATION and (
        operation.replaces or operation.replaced_by
    ):
        words = ""
    replaced = f"to replace {operation.replaces.replace(',', ', ')}" if operation.replaces else ""
    return "".join(f" {part}" for part in (replaced, words) if part)


def _replaced(operation: OperationLine) -> str:
    """Return what replaced a node, and what its removal saves."""
    by = (
        f", replaced by {operation.replaced_by.replace(',', ', ')}" if operation.replaced_by else ""
    )
    saves = (
        f", saves {money(operation.saves, operation.currency)} an hour"
        if operation.saves > 0
        else ""
    )
    return by + saves


def _pods(operation: OperationLine) -> str:
    """Return for how many pods a group grew, or how many a removal moved; those of nodes that stay,
    or that a vendor has taken, are not known."""
    if not operation.pods or operation.kept or operation.gone:
        return ""
    if operation.kind is not OperationKind.SCALE_UP:
        return f", {counted(operation.pods, 'pod')} moved"
    more = " or more" if operation.pods >= MOST_PODS else ""
    return f" for {operation.pods}{more} pods" if operation.pods > 1 else " for 1 pod"


def error_words(error_class: str, code: str = "", message: str = "") -> str:
    """Return an error for people, such as `the quota is used up (LimitExceeded): 10 of 10 vCPU`.
    The request that a message begins with is left out: the log has it."""
    words = ERRORS.get(error_class, error_class)
    words += f" ({code})" if code else ""
    plain = _REQUEST.sub("", message, count=1).rstrip(". ")
    return ": ".join(filter(None, (words, plain[:_LONGEST])))


def spoken(seconds: float) -> str:
    """Return `4 min 25 s`, `2 h 5 min` or `0 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (0 if hours else rest, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def _part(part: str, group: str) -> str:
    what = "everything" if part == "all" else part
    return f"{what} of group {group}" if group else what


def _by(caller: str) -> str:
    """Return the caller's own name; the whole ARN is in JSON."""
    return f", by {caller.rpartition('/')[2] or caller}" if caller else ""
