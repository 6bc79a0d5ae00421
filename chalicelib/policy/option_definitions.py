"""Upstream's flags, one row each: how it is read, whether it is in force here, and what it means.

Order and grouping follow upstream's areas. The defaults of options in force come from the model; the table has only
those of the other options. The meanings are for docs/policy.md.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.value_types import (
    BOOLEAN,
    ValueType,
    choice,
    duration,
    listed,
    number,
    scalar,
    text,
    total,
    whole,
)

AVAILABLE_EXPANDERS = ("random", "most-pods", "least-waste", "least-nodes", "price", "priority", "least-cost")
KNOWN_EXPANDERS = (*AVAILABLE_EXPANDERS, "grpc")
PRICED_EXPANDERS = ("price", "least-cost")  # requires spec.prices


class Status(StrEnum):
    """Effect of an option that a document sets."""

    IN_FORCE = "in force"
    ALIAS = "in force, old name"  # read into the model.Options field named by lands
    ACCEPTED = "accepted, not in force"  # known and checked; for a later version
    ALWAYS = "always so"  # an upstream switch that is always on here
    IGNORED = "read by nothing"  # parsed but not used upstream, or dropped there
    MEANINGLESS = "no meaning here"  # about a long-lived process in the cluster
    ELSEWHERE = "elsewhere"  # has another place in the document: refused with that place


class OptionDefinition(msgspec.Struct, frozen=True):
    """One flag. default: text, for options not in force. note: text added to the warning or the refusal."""

    flag: str
    kind: ValueType
    status: Status
    meaning: str
    default: str = ""
    note: str = ""
    lands: str = ""

    @property
    def name(self) -> str:
        """Return its name in the document: `scale-down-unneeded-time` -> `scaleDownUnneededTime`."""
        first, *rest = self.flag.split("-")
        return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _gpu_total(value: str) -> tuple[str, int, int]:
    parts = value.split(":")
    if len(parts) != 3 or not parts[0] or not all(part.isascii() and part.isdigit() for part in parts[1:]):
        raise BadInput("", f"{value[:60]!r} is not <type>:<min>:<max>", "write it like nvidia-tesla-t4:0:8")
    least, most = int(parts[1][:18]), int(parts[2][:18])
    if least > most:
        raise BadInput("", f"the minimum {least} is above the maximum {most}", "write it like nvidia-tesla-t4:0:8")
    return parts[0], least, most


_PRIORITY_SECONDS = re.compile(r"(-?[0-9]{1,10}):([0-9]{1,6})")


_HIGHEST_PRIORITY = 2**31 - 1


def _drain_priorities(value: str) -> tuple[tuple[int, int], ...]:
    """Parse pairs by ascending priority, which is the order of eviction (docs/reference/drain.md "Priority groups").
    Empty text means none, as upstream."""
    remedy = "write it like 0:60,2000:120"
    pairs: dict[int, int] = {}
    for part in value.split(",") if value.strip() else ():
        found = _PRIORITY_SECONDS.fullmatch(part.strip())
        if found is None:
            raise BadInput("", f"{value[:60]!r} is not priority:seconds pairs", remedy)
        priority, seconds = int(found[1]), int(found[2])
        if not -_HIGHEST_PRIORITY <= priority <= _HIGHEST_PRIORITY:
            raise BadInput(
                "",
                f"priority {priority} is out of range",
                f"write priorities from {-_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}",
            )
        if priority in pairs:
            raise BadInput("", f"{value[:60]!r} names priority {priority} twice", remedy)
        pairs[priority] = seconds
    return tuple(sorted(pairs.items()))


def _show_drain_priorities(pairs: tuple[tuple[int, int], ...]) -> str:
    return ",".join(f"{priority}:{seconds}" for priority, seconds in pairs)


DURATION = duration()
WHOLE = whole()
POSITIVE = whole(1)
RATIO = number(0.0, 1.0, "0.5")
PERCENT = number(0.0, 100.0, "45")
TEXT = text("text")
TEXTS = listed(TEXT, commas=False)
TAINT_KEY = text(
    "a taint's key", r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?", "it like node.cilium.io/agent-not-ready"
)
TAINT_PREFIX = text(
    "the beginning of a taint's key", r"[A-Za-z0-9][A-Za-z0-9._/-]{0,316}", "it like startup.example.com/"
)
LABEL_KEY = text(
    "a label's key", r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?", "it like topology.example.com/rack"
)
SCHEDULER = text("a scheduler's name", r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", "it like default-scheduler")
EXPANDERS = listed(choice(KNOWN_EXPANDERS), name="list of expanders")
CORES = total("cores", 1, (0, 320000))
MEMORY = total("GiB", 2**30, (0, 6400000))
GPUS = listed(
    ValueType("text", scalar(_gpu_total, "it like nvidia-tesla-t4:0:8"), lambda found: "{}:{}:{}".format(*found)),
    name="list of type:min:max",
)
DRAIN_PRIORITIES = ValueType(
    "priority:seconds pairs", scalar(_drain_priorities, "it like 0:60,2000:120"), _show_drain_priorities
)


def on(flag: str, value_type: ValueType, meaning: str) -> OptionDefinition:
    """Define an option in force: a field of model.Options."""
    return OptionDefinition(flag, value_type, Status.IN_FORCE, meaning)


def later(flag: str, value_type: ValueType, default: str, meaning: str, note: str = "") -> OptionDefinition:
    """Define an option that is known and checked but not in force in this version."""
    return OptionDefinition(flag, value_type, Status.ACCEPTED, meaning, default, note)


def always(flag: str, meaning: str, note: str = "") -> OptionDefinition:
    """Define a switch that is always on here; documents that turn it off get a warning."""
    return OptionDefinition(flag, BOOLEAN, Status.ALWAYS, meaning, "true", note)


def ignored(flag: str, value_type: ValueType, default: str, meaning: str, note: str = "") -> OptionDefinition:
    """Define an option that neither upstream nor Outscaler uses."""
    return OptionDefinition(flag, value_type, Status.IGNORED, meaning, default, note)


def no_meaning(flag: str, value_type: ValueType, default: str, meaning: str, note: str = "") -> OptionDefinition:
    """Define an option about a process inside the cluster, which does not apply here."""
    return OptionDefinition(flag, value_type, Status.MEANINGLESS, meaning, default, note)


def elsewhere(flag: str, meaning: str, place: str) -> OptionDefinition:
    """Define an option that has its own place in the document."""
    return OptionDefinition(flag, TEXT, Status.ELSEWHERE, meaning, "", place)


class OptionGroup(msgspec.Struct, frozen=True):
    """Options under one heading of the reference."""

    title: str
    rows: tuple[OptionDefinition, ...]


def boolean(flag: str, default: str, meaning: str, note: str = "") -> OptionDefinition:
    """Define a switch for a later version."""
    return later(flag, BOOLEAN, default, meaning, note)
