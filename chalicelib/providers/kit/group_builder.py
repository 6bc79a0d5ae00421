"""What the vendors' builders of node groups do alike: gaps, the state of an instance that is a
node, placeholders, and options of one group in tags or annotations.

A placeholder stands for a machine that was requested, does not exist and will not be made. A failed
scale-up leaves no machine at a vendor, only a size. With placeholders the planner, which considers
instances in state CREATING with an error, sees the failure in the same pass, backs the group off,
and lowers the size by deleting them (sized_group.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions, Instance, InstanceError, InstanceState
from chalicelib.model.quantity import parse_duration
from chalicelib.model.snapshot import MissingData
from chalicelib.policy.schema import fields_of
from chalicelib.policy.settings.cluster_options import DURATION, RATIO, Options
from chalicelib.policy.value_types import BOOLEAN, ValueType

MOST_PLACEHOLDERS = 1000  # of one group: a pass lowers its size by these, the next by the others
_PLACEHOLDER = "placeholder-"


class GroupBuilder:
    """Builds one group after another and collects the gaps. provider: its name in the policy."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self.gaps: list[MissingData] = []

    def warn(self, group: str, detail: str) -> None:
        """Add a gap about one group or entry, or about the settings if none is named."""
        entry = f"spec.nodeGroups[provider={self._provider}, id={group}]"
        place = entry if group else f"spec.providers.{self._provider}"
        self.gaps.append(MissingData("NodeGroup", detail, name=group, place=place))

    def warn_of_denied(self, kind: str, denied: str) -> None:
        """Add a gap about prices or rates that the key may not read. denied: "" if it may."""
        if denied:
            text = f"{denied}; grant it, or write readPrices: false"
            place = f"spec.providers.{self._provider}.readPrices"
            self.gaps.append(MissingData(kind, text, place=place))


def instance_state(reported_state: InstanceState, *, is_node: bool) -> InstanceState:
    """Return the state of an instance. reported_state: by the vendor. A node has been created,
    whatever the vendor says; its readiness is judged by the planner."""
    if is_node and reported_state is InstanceState.CREATING:
        return InstanceState.RUNNING
    return reported_state


# -- placeholders


def placeholder_handle(group: str, number: int) -> str:
    """Return `placeholder-<group>-<number>`, a handle that no machine of a vendor has."""
    return f"{_PLACEHOLDER}{group}-{number}"


def placeholder_group(handle: str) -> str | None:
    """Return the group in a placeholder's handle; None for a machine's."""
    if not handle.startswith(_PLACEHOLDER):
        return None
    return handle.removeprefix(_PLACEHOLDER).rpartition("-")[0]


def placeholders(
    missing: int,
    error: InstanceError,
    handle_of: Callable[[int], str],
    id_of: Callable[[str], str] = str,
) -> tuple[Instance, ...]:
    """Return a placeholder for each missing machine. error: why they are missing; handle_of: number
    -> handle; id_of: handle -> provider id, which no machine has."""
    handles = [handle_of(number) for number in range(min(missing, MOST_PLACEHOLDERS))]
    return tuple(
        Instance(id_of(handle), InstanceState.CREATING, error, handle=handle) for handle in handles
    )


# -- options of a group; the end of their key names them as on AWS: `scaledownunneededtime`

OptionReader = Callable[[str], float | bool]
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?\Z")


def _read_share(text: str) -> float:
    value = float(text) if _NUMBER.match(text) else math.nan
    if not math.isfinite(value):
        raise BadInput("option", f"{text!r} is not a number", "write a share such as 0.5")
    return value


def _read_seconds(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0 or not math.isfinite(seconds):
        raise BadInput("option", f"{text[:40]!r} is not a duration", "write a duration such as 10m")
    return seconds


def read_flag(text: str) -> bool:
    """Read `true` or `false`. Raises BadInput."""
    if text not in {"true", "false"}:
        raise BadInput("option", f"{text!r} is neither true nor false", "write true or false")
    return text == "true"


def _readers() -> Mapping[str, tuple[str, OptionReader]]:
    reader_of: dict[ValueType, OptionReader] = {
        RATIO: _read_share,
        DURATION: _read_seconds,
        BOOLEAN: read_flag,
    }
    own_fields = GroupOptions.__struct_fields__
    shared = [field for field in fields_of(Options) if field.attribute in own_fields]
    return {
        field.attribute.replace("_", ""): (field.attribute, reader_of[field.kind])
        for field in shared
    }


OPTION_READERS = _readers()
"""The end of a key -> (field of GroupOptions, reader of the lower-cased value)."""
