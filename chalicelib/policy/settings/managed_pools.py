"""spec.managedPools: node groups that Outscaler makes itself, from the vendor's machine types."""

import re
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.schema import Required, listed_sections, nested
from chalicelib.policy.settings.mode import Mode
from chalicelib.policy.value_types import (
    BOOLEAN,
    distinct,
    duration,
    listed,
    member,
    number,
    percent,
    scalar,
    share_of,
    text,
    whole,
)

MOST_POOLS = 20
MOST_OPEN = 100
MOST_TYPES = 20
_MONTH = 31 * 86400.0
_LARGEST = 1_000_000.0


class Market(StrEnum):
    """How a vendor sells a machine."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Range(msgspec.Struct, frozen=True):
    """From least to most, both included; None: no bound."""

    least: float | None = None
    most: float | None = None

    def __contains__(self, value: float) -> bool:
        is_enough = self.least is None or value >= self.least
        return is_enough and (self.most is None or value <= self.most)


_NUMBER = r"(?:0|[1-9][0-9]{0,6})(?:\.[0-9]{1,3})?"
_RANGE = re.compile(rf"(?P<least>{_NUMBER})?\.\.(?P<most>{_NUMBER})?|>= ?(?P<from>{_NUMBER})")


def _parse_range(value: str) -> Range:
    if re.fullmatch(_NUMBER, value):
        return Range(float(value), float(value))
    match = _RANGE.fullmatch(value)
    if match is None or value == "..":
        problem = f"{quote(value)} is not a range"
        raise BadInput("", problem, "write it like 2..32, 2.., ..32 or 8")
    least, most = match["least"] or match["from"], match["most"]
    if least and most and float(least) > float(most):
        raise BadInput("", f"from {least} to {most} is empty", f"write {most}..{least}")
    return Range(float(least) if least else None, float(most) if most else None)


def _show_range(span: Range) -> str:
    least, most = ("" if end is None else f"{end:g}" for end in (span.least, span.most))
    return least if least == most else f"{least}..{most}"


RANGE = scalar("range", _parse_range, "a range, such as 2..32", _show_range)


def _patterns(noun: str, example: str) -> Any:
    """A list of names with * for any characters; those that begin with ! are left out."""
    pattern = text(f"a pattern of {noun}", r"!?[A-Za-z0-9._*?-]{1,100}", example)
    return distinct(
        listed(pattern), "pattern", (f"names no {noun}", f"write [{example}], or take the line out")
    )


def _words(noun: str, example: str) -> Any:
    word = text(f"a {noun}", r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", example)
    return distinct(
        listed(word), noun, (f"names no {noun}", f"write [{example}], or take the line out")
    )


class Requirements(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a machine type must be. memory: GiB; max_price: an hour. Empty and None: anything."""

    types: Annotated[
        tuple[str, ...], _patterns("types", "standard.large"), "Types by name, with * for any part."
    ] = ()
    families: Annotated[
        tuple[str, ...],
        _patterns("families", "standard"),
        "Families of types; one that begins with ! is left out.",
    ] = ()
    generations: Annotated[
        Range | None, RANGE, "Generations of families that have one, such as >=6."
    ] = None
    cpu: Annotated[Range | None, RANGE, "Cores."] = None
    memory: Annotated[Range | None, RANGE, "GiB of memory."] = None
    memory_per_cpu: Annotated[Range | None, RANGE, "GiB of memory for each core."] = None
    gpus: Annotated[
        Range | None, RANGE, "GPUs; a type with GPUs is used only if this is given."
    ] = None
    gpu_models: Annotated[tuple[str, ...], _words("model", "A30"), "Models of GPUs."] = ()
    architectures: Annotated[
        tuple[str, ...], _words("architecture", "amd64"), "Architectures of processors."
    ] = ("amd64",)
    zones: Annotated[
        tuple[str, ...], _words("zone", "ch-gva-2"), "Zones; those of copyFrom if not given."
    ] = ()
    markets: Annotated[
        tuple[Market, ...],
        distinct(listed(member(Market)), "market", ("names no market", "write [on-demand]")),
        "On demand, or spot where the vendor takes machines back.",
    ] = (Market.ON_DEMAND,)
    burstable: Annotated[bool, BOOLEAN, "Whether types with credits of cpu may be used."] = False
    local_disk: Annotated[bool, BOOLEAN, "Whether the type must have a disk of its own."] = False
    max_price: Annotated[
        float | None, number(0, _LARGEST, "0.8"), "Most that a machine may cost an hour."
    ] = None
    min_pods: Annotated[int, whole(1, 1000), "Least number of pods that a node takes."] = 1


class PoolLimits(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Most of all nodes of a declaration together. memory: GiB. None: no limit."""

    nodes: Annotated[int, whole(0, 100_000), "Nodes."] = 100
    cpu: Annotated[int | None, whole(0, 10_000_000), "Cores."] = None
    memory: Annotated[int | None, whole(0, 100_000_000), "GiB of memory."] = None
    gpus: Annotated[int | None, whole(0, 1_000_000), "GPUs."] = None
    cost_per_hour: Annotated[
        float | None, number(0, _LARGEST, "40"), "Price of all nodes an hour."
    ] = None


class MaxShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """Largest part of a declaration's nodes that are of one type, or in one zone."""

    type: Annotated[float, share_of(percent(1, 100)), "Of one type."] = 1.0
    zone: Annotated[float, share_of(percent(1, 100)), "In one zone."] = 1.0


class ManagedPool(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One declaration. opening_factor: part of a price; keep_empty: seconds; disk: GiB, 0 for that
    of copy_from. mode, delete_empty: None: the cluster's, the vendor's usual one."""

    name: Annotated[
        str,
        text(
            "a name of small letters, digits and inner dashes, at most 30",
            r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?",
            "something like general",
        ),
        "Name of the declaration; nodes have it as label `outscaler.dev/pool`.",
        Required("name: general"),
    ]
    provider: Annotated[
        str,
        text("a provider", r"[a-z]{1,30}", "exoscale"),
        "Which of spec.providers makes the groups.",
        Required("provider: exoscale"),
    ]
    mode: Annotated[
        Mode | None, member(Mode), "As spec.mode, for this declaration; never more than it."
    ] = None
    copy_from: Annotated[
        str,
        text("a node group's id or name", r"[^\s\x00-\x1f\x7f]{1,512}"),
        "Id or name of a group of the provider, from which everything is taken that is not said "
        "here. cherryservers: a definition, `default` if not given.",
    ] = ""
    requirements: Annotated[
        Requirements, nested(Requirements), "What a machine type must be; any if not given."
    ] = Requirements()
    limits: Annotated[
        PoolLimits, nested(PoolLimits), "Most of all nodes of the declaration together."
    ] = PoolLimits()
    weight: Annotated[int, whole(0, 100), "Higher ones are used first, whatever they cost."] = 0
    max_pools: Annotated[int, whole(1, MOST_OPEN), "Most groups that exist at once."] = 16
    opening_factor: Annotated[
        float,
        share_of(percent(0, 100)),
        "So much cheaper must a mix be that needs a new group.",
    ] = 0.02
    keep_empty: Annotated[
        float, duration(0.0, _MONTH), "An empty group is deleted after so long."
    ] = 3600.0
    delete_empty: Annotated[
        bool | None,
        BOOLEAN,
        "false: empty groups stay, until their place is needed. true if not given; exoscale and "
        "huaweicloud: false.",
    ] = None
    min_types: Annotated[
        int, whole(1, MOST_TYPES), "Nodes are spread over at least so many types."
    ] = 1
    max_share: Annotated[
        MaxShare, nested(MaxShare), "Largest part of the nodes of one type, or in one zone."
    ] = MaxShare()
    strict: Annotated[
        bool, BOOLEAN, "Rather leave pods waiting than break minTypes or maxShare."
    ] = False
    disk: Annotated[
        int, whole(1, 51_200), "GiB of the system disk, if another than copyFrom's."
    ] = 0


def _allows_enough_types(pool: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    types = (pool.get("requirements") or {}).get("types", ())
    is_closed = types and not any(re.search(r"[*?]|^!", name) for name in types)
    if is_closed and pool.get("min_types", 1) > len(types):
        diagnostics.problem(
            (*path, "minTypes"),
            f"only {len(types)} types are allowed",
            f"write minTypes: {len(types)}",
        )


MANAGED_POOLS = listed_sections(
    ManagedPool,
    "managed pool",
    MOST_POOLS,
    "{name: general, provider: exoscale, copyFrom: web}",
    _allows_enough_types,
)
