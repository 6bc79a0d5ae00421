"""What a line of the journal says: a type per kind of entry, and a sentence for people.

An entry is stored as its fields (JournalEntry.facts), whose names never change. Entries of earlier releases may lack
some of them, and those of later ones may have further kinds: an entry that has no type here is shown as it is stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.store.journal import JournalEntry


class PlanLine(msgspec.Struct, frozen=True, rename="camel"):
    """A decision that differs from the one before. rules: those that request nodes."""

    nodes: int
    healthy: bool = True
    scale_ups: int = 0
    removals: int = 0
    repairs: int = 0
    unschedulable: int = 0
    unneeded: int = 0
    gaps: int = 0
    rules: str = ""


class OperationLine(msgspec.Struct, frozen=True, rename={"from_size": "from", "to_size": "to", "error_class": "class"}):
    """An operation that is over. targets: nodes, or instances without one. kept: nodes of a removal that still exist,
    with the reason."""

    kind: OperationKind
    state: OperationState
    seconds: float | None = None
    from_size: int | None = None
    to_size: int | None = None
    targets: str = ""
    rules: str = ""
    note: str = ""
    error_class: str = ""
    code: str = ""
    message: str = ""
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def succeeded(self) -> bool:
        """Return whether it did what it was planned for."""
        return self.state is OperationState.SUCCEEDED

    @property
    def target_names(self) -> list[str]:
        """Return the targets."""
        return [name for name in self.targets.split(",") if name]


class FailingLine(msgspec.Struct, frozen=True, tag_field="state", tag="failing", rename={"error_class": "class"}):
    """The first of several passes that failed."""

    error_class: str
    message: str


class RecoveredLine(msgspec.Struct, frozen=True, tag_field="state", tag="recovered", rename={"error_class": "class"}):
    """The first pass that succeeded again. seconds: since the first failure."""

    error_class: str
    failures: int
    seconds: float


class PolicyLine(msgspec.Struct, frozen=True):
    """A version of the policy that was stored. accepted, reason: findings of the doctor in spite of which it was."""

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
    """A wait that was ended before its time. kind: group, node or operation. was: how long it would have waited."""

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
    """An entry without a type."""

    facts: dict[str, str | int | float | bool]


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


def line_of(entry: JournalEntry) -> JournalLine:
    """Return what an entry says; OtherLine for an unknown kind, and where a fact is missing or of another type."""
    kept_nodes = tuple((name[5:], str(why)) for name, why in entry.facts.items() if name.startswith("kept "))
    try:
        line: JournalLine = msgspec.convert({**entry.facts, "kept": kept_nodes}, _TYPES.get(entry.kind, OtherLine))
    except msgspec.ValidationError:
        return OtherLine(dict(entry.facts))
    return line


def operation_of(entry: JournalEntry) -> OperationLine | None:
    """Return the operation that an entry is about; None for any other entry."""
    line = line_of(entry) if entry.kind == "operation" else None
    return line if isinstance(line, OperationLine) else None


def sentence(entry: JournalEntry) -> str:  # noqa: C901, PLR0911, PLR0912 - a case per type
    """Return what happened, for people."""
    match line_of(entry):
        case PlanLine() as plan:
            return _decided(plan)
        case OperationLine() as operation:
            return _ended(operation, entry.group)
        case FailingLine(error_class=name, message=message):
            return f"passes fail: {name}: {message}"
        case RecoveredLine(error_class=name, failures=failures, seconds=seconds):
            return f"passes succeed again, after {_count(failures, 'failure')} ({name}) in {spoken(seconds)}"
        case PolicyLine(version=version, accepted=accepted, reason=reason, by=by):
            spite = f", in spite of {accepted}: {reason}" if accepted else ""
            return f"stored version {version} of the policy{spite}{_by(by)}"
        case PauseLine(until=until, part=part, reason=reason, by=by):
            return f"paused {_part(part, entry.group)} until {until}: {reason}{_by(by)}"
        case ResumeLine(was_until=until, part=part, reason=reason, by=by):
            return f"resumed {_part(part, entry.group)}, paused until {until}: {reason}{_by(by)}"
        case RetryLine(kind=kind, name=name, was=was, by=by):
            return f"tried {kind} {name} again, which waited {was}{_by(by)}"
        case ReleaseLine(until=until, was_on=was_on, by=by):
            return f"released the circuit breaker until {until}{', which was tripped' if was_on else ''}{_by(by)}"
        case ClaimReleasedLine(claim=claim, by=by):
            return f"gave back the claim on {claim}{_by(by)}"
        case UninstalledLine(objects=objects, by=by):
            return f"uninstalled, with {_count(objects, 'object')} of the cluster cleaned{_by(by)}"
        case AcceptLine(accepted=accepted, by=by):
            return f"accepted {accepted}{_by(by)}"
        case OtherLine(facts=facts):
            return ", ".join(f"{name} {value}" for name, value in facts.items())


def _decided(plan: PlanLine) -> str:
    changes = [
        _count(number, noun)
        for number, noun in ((plan.scale_ups, "scale-up"), (plan.removals, "removal"), (plan.repairs, "repair"))
        if number
    ]
    rules = f" (rules {plan.rules.replace(',', ', ')})" if plan.rules else ""
    parts = [f"decided on {' and '.join(changes) or 'no change'}{rules} for {_count(plan.nodes, 'node')}"]
    if not plan.healthy:
        parts.append("the cluster is unhealthy")
    if plan.unschedulable:
        parts.append(f"{_count(plan.unschedulable, 'pod')} without a place")
    if plan.unneeded:
        parts.append(f"{_count(plan.unneeded, 'node')} not needed")
    if plan.gaps:
        parts.append(f"{_count(plan.gaps, 'thing')} not read")
    return "; ".join(parts)


def _ended(operation: OperationLine, group: str) -> str:
    kept_names = [name for name, _ in operation.kept]
    names = [name for name in operation.target_names if name not in kept_names]
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    size = "" if operation.from_size is None else f" from {operation.from_size}"
    size += "" if operation.to_size is None else f" to {operation.to_size}"
    past, planned, change = {
        OperationKind.SCALE_UP: ("grew", "grow", f" {group}{size}"),
        OperationKind.DELETE_NODES: ("removed", "remove", f" {listed or 'nodes'} from {group}"),
        OperationKind.DECREASE_TARGET: ("lowered the target of", "lower the target of", f" {group}{size}"),
        OperationKind.DELETE_INSTANCES: ("discarded", "discard", f" {listed or 'instances'} of {group}"),
    }[operation.kind]
    took = "" if operation.seconds is None else spoken(operation.seconds)
    if operation.succeeded:
        text = f"{past}{change}"
        text += f" for rules {operation.rules.replace(',', ', ')}" if operation.rules else ""
        text += f", in {took}" if took else ""
    else:
        verb = "did not" if operation.state is OperationState.ABANDONED else "could not"
        error = ".".join(filter(None, (operation.error_class, operation.code)))
        text = ": ".join(filter(None, (f"{verb} {planned}{change}", error, operation.message)))
        text += f", after {took}" if took else ""
    text += "".join(f"; kept {name}: {why}" for name, why in operation.kept)
    return text + (f"; {operation.note}" if operation.note else "")


def spoken(seconds: float) -> str:
    """Return `4 min 25 s`, `2 h 5 min` or `0 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (0 if hours else rest, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _part(part: str, group: str) -> str:
    what = "everything" if part == "all" else part
    return f"{what} of group {group}" if group else what


def _by(caller: str) -> str:
    return f", by {caller}" if caller else ""
