"""spec.options: every upstream flag under its lowerCamelCase name, and how
this version handles each.

All flags are known, so that a document made from an existing command line loses no line silently.
Options in force are read into Options; the others are checked the same way and reported in a
warning; an option that has another place in the document, or would mean something different here,
is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chalicelib.model.quantity import format_duration
from chalicelib.policy.diagnostics import Diagnostics, Node, Path, closest
from chalicelib.policy.option_tables import (
    GROUPS,
    PRICED_EXPANDERS,
    OptionDefinition,
    Status,
)
from chalicelib.policy.schema import entries_of, text_of, unknown_key
from chalicelib.policy.settings.cluster_options import AVAILABLE_EXPANDERS, Options
from chalicelib.policy.value_types import UNSET, Form

ROWS: dict[str, OptionDefinition] = {row.name: row for rows in GROUPS.values() for row in rows}
FLAGS: dict[str, OptionDefinition] = {row.flag: row for row in ROWS.values()}
_ATTRIBUTES = {field.encode_name: field.name for field in msgspec.structs.fields(Options)}


class OptionValues(msgspec.Struct, frozen=True):
    """Content of spec.options. in_force: attribute of Options -> value; others:
    name -> value, checked only."""

    in_force: dict[str, Any] = {}
    others: dict[str, Any] = {}


def attribute(option: OptionDefinition) -> str:
    """Return the field of Options that an option is read into; empty
    for options not in force."""
    return option.alias_of or _ATTRIBUTES.get(option.name, "")


def default_text(option: OptionDefinition) -> str:
    """Return the default as a document would state it."""
    if option.status is not Status.IN_FORCE:
        return option.default
    return text_of(option.kind, getattr(Options(), attribute(option)))


def options_form() -> Form:
    """Return the JSON schema of spec.options, without the options that have
    another place in the document."""
    forms: dict[str, Form] = {}
    for row in ROWS.values():
        if row.status is not Status.ELSEWHERE:
            default = f" Default: {default_text(row)}." if default_text(row) else ""
            status = "" if row.status is Status.IN_FORCE else f" ({row.status})"
            forms[row.name] = {**row.kind.form(), "description": f"{row.meaning}{status}{default}"}
    return {"type": ["object", "null"], "properties": forms, "additionalProperties": False}


def read_options(node: Node | None, path: Path, diagnostics: Diagnostics) -> OptionValues:
    """Read the mapping; problems and warnings go to the report."""
    in_force: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value_node in (entries_of(node, path, diagnostics) or {}).items():
        row = find_row(key, path, diagnostics)
        value = (
            row.kind.read(value_node, (*path, row.name), diagnostics) if row is not None else UNSET
        )
        if row is None or value is UNSET:
            continue
        if row.status is Status.IN_FORCE:
            in_force[attribute(row)] = value
        else:
            others[row.name] = value
            warn_if_without_effect(row, value, (*path, row.name), diagnostics)
    for name, value in others.items():
        if ROWS[name].status is Status.ALIAS:
            in_force[attribute(ROWS[name])] = (*in_force.get(attribute(ROWS[name]), ()), *value)
    return OptionValues(in_force, others)


def build_options(values: OptionValues) -> Options:
    """Return the options in force of a valid document."""
    return Options(**values.in_force)


def find_row(key: str, path: Path, diagnostics: Diagnostics) -> OptionDefinition | None:
    """Return the option's definition, or None after reporting why there is none."""
    below = (*path, key)
    row = ROWS.get(key)
    if row is not None and row.status is Status.ELSEWHERE:
        diagnostics.problem(below, "has its own place in this document", f"write {row.note}")
        return None
    if row is not None:
        return row
    flag = key.lstrip("-").replace("_", "-")
    near = ROWS.get(closest(key, ROWS))
    if flag in FLAGS:
        right = FLAGS[flag].note if FLAGS[flag].status is Status.ELSEWHERE else FLAGS[flag].name
        diagnostics.problem(below, "is the command line's spelling", f"write {right}")
    elif near is not None and near.status is Status.ELSEWHERE:
        diagnostics.problem(below, "is unknown", f"did you mean {near.note}?")
    else:
        unknown_key(key, ROWS, path, diagnostics)
    return None


_WARNINGS = {
    Status.ALIAS: "is upstream's old name and still counts",
    Status.ACCEPTED: "accepted, not in force in this version",
    Status.ALWAYS: "false changes nothing: here it is always so",
    Status.IGNORED: "accepted, but nothing reads it",
    Status.MEANINGLESS: "accepted, but it has no meaning here",
}


def warn_if_without_effect(
    option: OptionDefinition, value: Any, path: Path, diagnostics: Diagnostics
) -> None:
    """Warn of an option that is not simply in force; a behaviour that is always on is reported only
    to documents that disable it."""
    if option.status is not Status.ALWAYS or value is False:
        diagnostics.warn(
            path, f"{_WARNINGS[option.status]}{': ' if option.note else ''}{option.note}"
        )


def check_options(option_values: OptionValues, path: Path, diagnostics: Diagnostics) -> None:
    """Validate combinations of options (docs/policy.md "spec.options")."""
    in_force, defaults = option_values.in_force, Options()
    if "expander" in in_force:
        _check_expanders(in_force["expander"], (*path, "expander"), diagnostics)
    allowed = in_force.get("allowed_scheduler_names", ())
    for name in in_force.get("bypassed_scheduler_names", ()):
        if allowed and name not in allowed:
            problem = f"{name} is not among allowedSchedulerNames"
            diagnostics.problem(
                (*path, "bypassedSchedulerNames"), problem, "add it there too, or take it out here"
            )
    first, longest = (
        in_force.get(name, getattr(defaults, name))
        for name in ("initial_node_group_backoff_duration", "max_node_group_backoff_duration")
    )
    if first > longest:
        # Upstream accepts this and the next one, and an existing command line may contain them.
        name = "initial" if "initial_node_group_backoff_duration" in in_force else "max"
        diagnostics.warn(
            (*path, f"{name}NodeGroupBackoffDuration"),
            (
                f"the first back-off, {format_duration(first)}, is longer than the longest, "
                f"{format_duration(longest)}"
            ),
        )
    if in_force.get("balancing_label") and in_force.get("balancing_ignore_label"):
        diagnostics.warn(
            (*path, "balancingIgnoreLabel"),
            "has no effect together with balancingLabel, which alone decides similarity",
        )
    types = [name for name, _, _ in in_force.get("gpu_total", ())]
    for name in dict.fromkeys(types):
        if types.count(name) > 1:
            diagnostics.problem((*path, "gpuTotal"), f"names {name} twice", "name each type once")
    grace = in_force.get("max_graceful_termination_sec", defaults.max_graceful_termination_sec)
    if in_force.get("drain_priority_config") and grace != defaults.max_graceful_termination_sec:
        diagnostics.problem(
            (*path, "drainPriorityConfig"),
            "cannot be combined with a changed maxGracefulTerminationSec",
            "give the times in drainPriorityConfig alone",
        )
    if option_values.others.get("enableDynamicResourceAllocation") is False:
        diagnostics.problem(
            (*path, "enableDynamicResourceAllocation"),
            "false is refused, as upstream refuses it",
            "take the line out",
        )


def _check_expanders(chain: Sequence[str], path: Path, diagnostics: Diagnostics) -> None:
    available = f"available: {', '.join(AVAILABLE_EXPANDERS)}"
    if not chain:
        diagnostics.problem(path, "names no expander", available)
    for name in dict.fromkeys(chain):
        if chain.count(name) > 1:
            diagnostics.problem(path, f"names {name} twice", "name each expander once")
    if "grpc" in chain:
        diagnostics.problem(
            path, "grpc asks a server of yours, which this version cannot", available
        )
    if "random" in chain[:-1]:
        diagnostics.problem(
            path,
            "names another expander after random",
            "random leaves nothing to choose: put it last",
        )


def check_prices(
    chain: Sequence[str],
    *,
    listed: bool,
    unpriced: Sequence[str] | None,
    path: Path,
    diagnostics: Diagnostics,
) -> None:
    """Check that expanders that use prices have them. listed: whether there are
    spec.prices; unpriced: the policy's providers that do not state what their nodes
    cost, None where none does."""
    wanting = " and ".join(name for name in dict.fromkeys(chain) if name in PRICED_EXPANDERS)
    if not wanting or listed:
        return
    if unpriced is None:
        diagnostics.problem(
            (*path, "expander"),
            f"{wanting} cannot work without prices",
            "add spec.prices, such as prices: {cpu: 0.03, memory: 0.004, gpu: 0.9} or "
            "prices: {instanceTypes: {m5.large: 0.096}}",
        )
    elif unpriced:
        diagnostics.warn(
            (*path, "expander"),
            f"the groups of {', '.join(unpriced)} have no price and are not chosen by "
            f"{wanting}; add spec.prices for them",
        )
