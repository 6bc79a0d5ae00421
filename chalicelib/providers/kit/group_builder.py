"""What the vendors' builders of node groups do alike: gaps, the state of an instance that is a
node, and placeholders.

A placeholder stands for a machine that was requested, does not exist and will not be made. A failed
scale-up leaves no machine at a vendor, only a size. With placeholders the planner, which considers
instances in state CREATING with an error, sees the failure in the same pass, backs the group off,
and lowers the size by deleting them (sized_group.py).
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.snapshot import MissingData

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
