"""Computes a group's state from its size and the delete-machine annotations on its Machines.

A MachineSet that is scaled down deletes annotated Machines first. This package maintains one invariant:

    the size is never set below the number of living Machines without the annotation

A lower size therefore never deletes a Machine that was not selected. The difference between living Machines and size is
the number that the MachineSets are about to delete (`excess`). Further annotations were set by a change that has not
lowered the size yet, or never will. Everything is read from the cluster, so it is valid after changes by any party and
after any crash.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from chalicelib.providers.clusterapi.annotations import MARK_PREFIX, CapiAnnotations
from chalicelib.providers.clusterapi.models import CapiMachine

# Seconds after which an annotation set by Outscaler is expired: longer than any function runs between annotation and
# size.
FORGOTTEN_AFTER = 300.0
# Seconds after which the function that set it cannot be about to lower the size: it has crashed, or waits.
STALLED_AFTER = 30.0


def mark_value(operation: str, now: float) -> str:
    """Return `outscaler/<operation>/<epoch seconds>`."""
    return f"{MARK_PREFIX}{operation}/{int(now)}"


def is_forgotten(mark: str, now: float) -> bool:
    """Whether an annotation set by Outscaler is so old that its change is over. An unreadable one counts as such."""
    written = mark.rpartition("/")[2]
    return not written.isdigit() or now - int(written) > FORGOTTEN_AFTER


def has_stalled(mark: str, now: float) -> bool:
    """Whether an annotation set by Outscaler has not expired, but its function has stopped.

    The function that continues this removal will check the machine's node again, so until then no other function lowers
    the size for it."""
    written = mark.rpartition("/")[2]
    return mark.startswith(MARK_PREFIX) and not is_forgotten(mark, now) and now - int(written) > STALLED_AFTER


class Standing(msgspec.Struct, frozen=True):
    """A group's living Machines and its size. targets: the living ones to be removed now."""

    size: int
    living: tuple[CapiMachine, ...]
    targets: tuple[CapiMachine, ...]
    others: tuple[CapiMachine, ...]  # annotated, living, and not among the targets

    @property
    def excess(self) -> int:
        """The number of Machines that the MachineSets are about to delete; negative while some are still to be
        created."""
        return len(self.living) - self.size

    @property
    def others_settled(self) -> bool:
        """Whether the size already accounts for every annotation that is not on a target."""
        return not self.others or self.excess >= len(self.others)

    @property
    def goal(self) -> int:
        """The size at which exactly all annotated Machines and all targets are deleted."""
        return min(self.size, len(self.living) - len(self.targets) - len(self.others))


def standing(
    size: int, machines: Sequence[CapiMachine], handles: Collection[str], annotations: CapiAnnotations
) -> Standing:
    """Return a group's state. machines: all of the group's; handles: those to be removed."""
    living = tuple(each for each in machines if not each.leaving)
    return Standing(
        size=size,
        living=living,
        targets=tuple(each for each in living if each.handle in handles),
        others=tuple(each for each in living if each.handle not in handles and each.mark(annotations) is not None),
    )
