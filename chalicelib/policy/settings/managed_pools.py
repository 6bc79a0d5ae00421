"""spec.managedPools: node groups that Outscaler makes itself, from the vendor's machine types."""

import re
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.label_syntax import TAINT_EFFECTS, is_label_key, is_label_value
from chalicelib.model.node import Taint
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, quote
from chalicelib.policy.schema import Required, entries_of, listed_sections, nested
from chalicelib.policy.settings.group_policy import PROVIDER
from chalicelib.policy.settings.names_and_times import MONTH
from chalicelib.policy.settings.node_prices import PRICE
from chalicelib.policy.value_types import (
    BOOLEAN,
    UNSET,
    ValueType,
    distinct,
    duration,
    listed,
    member,
    percent,
    scalar,
    share_of,
    text,
    whole,
)

MOST_POOLS = 20
MOST_OPEN = 100
MOST_TYPES = 20


class Market(StrEnum):
    """How a vendor sells a machine."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class PoolMode(StrEnum):
    """Whether a declaration buys."""

    OFF = "off"
    ACTIVE = "active"


class Range(msgspec.Struct, frozen=True):
    """From least to most, both included; None: no bound."""

    least: float | None = None
    most: float | None = None

    def __contains__(self, value: float) -> bool:
        is_enough = self.least is None or value >= self.least
        return is_enough and (self.most is None or value <= self.most)


_NUMBER = r"(?:0|[1-9][0-9]{0,6})(?:\.[0-9]{1,3})?"


def _parse_range(value: str) -> Range:
    if re.fullmatch(_NUMBER, value):
        return Range(float(value), float(value))
    match = re.fullmatch(rf"({_NUMBER})?\.\.({_NUMBER})?", value)
    if match is None or value == "..":
        problem = f"{quote(value)} is not a range"
        raise BadInput("", problem, "write it like 2..32, 2.., ..32 or 8")
    least, most = match.groups()
    if least and most and float(least) > float(most):
        raise BadInput("", f"from {least} to {most} is empty", f"write {most}..{least}")
    return Range(float(least) if least else None, float(most) if most else None)


def _show_range(value_range: Range) -> str:
    least, most = (
        "" if end is None else f"{end:.12g}" for end in (value_range.least, value_range.most)
    )
    return least if least == most else f"{least}..{most}"


RANGE = scalar("range", _parse_range, "a range, such as 2..32", _show_range)


def _names(noun: str, pattern: str, example: str) -> ValueType:
    """A list of names, none twice. noun: of one of them."""
    empty = (f"names no {noun}", f"write [{example}], or take the line out")
    return distinct(listed(text(f"a {noun}", pattern, f"it like {example}")), noun, empty)


_PATTERN = r"!?[A-Za-z0-9._*?-]{1,100}"
_ZONES = _names("zone", r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "ch-gva-2")
_MARKETS = distinct(
    listed(member(Market), name="list of markets"),
    "market",
    ("names no market", "write [on-demand]"),
)


AMD64 = "amd64"
_ARCHITECTURES = _names("processor architecture", "amd64|arm64", AMD64)


def _parse_label_value(value: str) -> str:
    if not is_label_value(value):
        problem = f"{quote(value)} is not a label's value"
        raise BadInput(
            "", problem, "write at most 63 letters, digits, dots, dashes and underscores"
        )
    return value


_LABEL_VALUE = scalar("label's value", _parse_label_value, "a label's value, such as general")


def _read_labels(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    """Return key -> value; UNSET if any is invalid."""
    entries = entries_of(node, path, diagnostics)
    if entries is None:
        return UNSET
    labels: dict[str, str] = {}
    for key, value_node in entries.items():
        place = (*path, key)
        if not is_label_key(key):
            problem = f"{quote(key)} is not a label's key"
            diagnostics.problem(place, problem, "write it like example.com/tier")
            continue
        value = _LABEL_VALUE.read(value_node, place, diagnostics)
        if value is not UNSET:
            labels[key] = value
    return labels if len(labels) == len(entries) else UNSET


_LABELS = ValueType(
    "mapping of labels to values",
    _read_labels,
    dict,
    lambda: {"type": ["object", "null"], "additionalProperties": _LABEL_VALUE.form()},
)


def _parse_taint(value: str) -> Taint:
    match = re.fullmatch(r"([^=:]+)(?:=([^=:]*))?:([A-Za-z]+)", value)
    if match is None or not is_label_key(match[1]) or not is_label_value(match[2] or ""):
        problem = f"{quote(value)} is not a taint"
        raise BadInput("", problem, "write it like dedicated=batch:NoSchedule")
    if match[3] not in TAINT_EFFECTS:
        problem = f"{quote(match[3])} is not an effect of a taint"
        raise BadInput("", problem, f"write one of {', '.join(sorted(TAINT_EFFECTS))}")
    return Taint(match[1], match[3], match[2] or "")


_TAINTS = distinct(
    listed(scalar("taint", _parse_taint, "a taint, such as dedicated=batch:NoSchedule")),
    "taint",
    ("names no taint", "write [dedicated=batch:NoSchedule], or take the line out"),
)


class Requirements(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a machine type must be. memory: GiB; max_price: an hour. Empty and None: anything."""

    types: Annotated[
        tuple[str, ...],
        _names("type", _PATTERN, "standard.large"),
        "Types by name, with `*` and `?` for any characters; one that begins with `!` is left out.",
    ] = ()
    families: Annotated[
        tuple[str, ...], _names("family", _PATTERN, "standard"), "The same for families of types."
    ] = ()
    cpu: Annotated[Range | None, RANGE, "Cores."] = None
    memory: Annotated[Range | None, RANGE, "GiB of memory."] = None
    memory_per_cpu: Annotated[Range | None, RANGE, "GiB of memory for each core."] = None
    gpus: Annotated[
        Range | None, RANGE, "GPUs; a type with GPUs is used only if this is given."
    ] = None
    architectures: Annotated[
        tuple[str, ...],
        _ARCHITECTURES,
        "amd64, arm64; types that the image of copyFrom does not run on are left out.",
    ] = (AMD64,)
    zones: Annotated[
        tuple[str, ...],
        _ZONES,
        "Zones, at cherryservers regions; those of copyFrom if not given.",
    ] = ()
    markets: Annotated[
        tuple[Market, ...],
        _MARKETS,
        "on-demand, or spot where the vendor takes machines back.",
    ] = (Market.ON_DEMAND,)
    max_price: Annotated[
        float | None, PRICE, "Most that a node may cost an hour, with its disk."
    ] = None


class PoolLimits(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Most of all nodes of a declaration together. memory: GiB. None: no limit."""

    nodes: Annotated[int, whole(0, 100_000), "Nodes."] = 100
    cpu: Annotated[int | None, whole(0, 10_000_000), "Cores."] = None
    memory: Annotated[int | None, whole(0, 100_000_000), "GiB of memory."] = None
    gpus: Annotated[int | None, whole(0, 1_000_000), "GPUs."] = None
    cost_per_hour: Annotated[float | None, PRICE, "What all nodes cost an hour."] = None


class MaxShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """Largest part of a declaration's nodes that are of one type, or in one zone."""

    type: Annotated[float, share_of(percent(1, 100)), "Nodes of one type."] = 1.0
    zone: Annotated[float, share_of(percent(1, 100)), "Nodes in one zone."] = 1.0


class ManagedPool(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One declaration. copy_from: "" stands for cherryservers' default definition. opening_factor:
    part of a price; keep_empty: seconds; disk: GiB, 0 for that of copy_from."""

    name: Annotated[
        str,
        text(
            "a name of small letters, digits and inner dashes, at most 30",
            r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?",
            "something like general",
        ),
        "Name of the declaration; its nodes have it as label `outscaler.dev/pool`.",
        Required("name: general"),
    ]
    provider: Annotated[
        str,
        PROVIDER,
        "Which of spec.providers makes the groups: exoscale or cherryservers.",
        Required("provider: exoscale"),
    ]
    copy_from: Annotated[
        str,
        text("a node group's id or name", r"[^\s\x00-\x1f\x7f]{1,512}"),
        "Name or id of a group that was made by hand; what is not said here is taken from it. "
        "exoscale: an SKS Nodepool, required. cherryservers: a definition of nodeGroupDefs, "
        "`default` if not given.",
    ] = ""
    mode: Annotated[
        PoolMode,
        member(PoolMode),
        "off: its groups neither grow nor are deleted, and none is opened. "
        "active: as spec.mode says.",
    ] = PoolMode.ACTIVE
    requirements: Annotated[
        Requirements, nested(Requirements), "What a machine type must be; any if not given."
    ] = Requirements()
    labels: Annotated[
        dict[str, str], _LABELS, "Further labels of the nodes. Not for cherryservers."
    ] = {}
    taints: Annotated[
        tuple[Taint, ...],
        _TAINTS,
        "Taints of the nodes, as key=value:Effect. Not for cherryservers.",
    ] = ()
    limits: Annotated[
        PoolLimits, nested(PoolLimits), "Most of all nodes of the declaration together."
    ] = PoolLimits()
    weight: Annotated[int, whole(0, 100), "Higher ones are used first, whatever they cost."] = 0
    max_pools: Annotated[int, whole(1, MOST_OPEN), "Most groups that are open at once."] = 16
    opening_factor: Annotated[
        float,
        share_of(percent(0, 100)),
        "So much cheaper must nodes be that need a new group.",
    ] = 0.02
    keep_empty: Annotated[
        float,
        duration(0.0, MONTH),
        "An empty group is deleted after so long, up to 744h. Not for cherryservers.",
    ] = 3600.0
    delete_empty: Annotated[
        bool,
        BOOLEAN,
        "Whether empty groups are deleted. exoscale deletes the machines of a group with it. "
        "Not for cherryservers.",
    ] = False
    min_types: Annotated[
        int, whole(1, MOST_TYPES), "Nodes are spread over at least so many types."
    ] = 1
    max_share: Annotated[
        MaxShare, nested(MaxShare), "Largest part of the nodes of one type, or in one zone."
    ] = MaxShare()
    strict: Annotated[
        bool, BOOLEAN, "Whether pods wait rather than minTypes or maxShare be broken."
    ] = False
    disk: Annotated[
        int,
        whole(20, 51_200),
        "GiB of the nodes' disk; copyFrom's if not given. Not for cherryservers.",
    ] = 0


def _allows_enough_types(pool: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Refuse more types than a list without patterns has."""
    types = (pool.get("requirements") or {}).get("types", ())
    is_closed = types and not any(re.search(r"[*?]|^!", name) for name in types)
    if is_closed and pool.get("min_types", 1) > len(types):
        allowed = f"{len(types)} types are" if len(types) > 1 else "1 type is"
        remedy = f"write minTypes: {len(types)}"
        diagnostics.problem((*path, "minTypes"), f"only {allowed} allowed", remedy)


MANAGED_POOLS = listed_sections(
    ManagedPool,
    "managed pool",
    MOST_POOLS,
    "{name: general, provider: exoscale, copyFrom: workers}",
    _allows_enough_types,
)
