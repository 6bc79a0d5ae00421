"""What the delete-machine marks and the size of a group say together (clusterapi.md §4.3, D28).

A mark makes a MachineSet take that Machine first when it shrinks. So between them, marks and size have one invariant
that this package keeps:

    the size is never set below the number of living Machines without a mark

then no shrinking ever costs a Machine that nobody meant. The difference between living Machines and size is what the
MachineSets are still about to delete (`excess`); marks beyond it were set by a change that has not lowered the size
yet, or never will. Everything is read off the cluster, so it holds whoever did what, and after any crash.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from chalicelib.providers.clusterapi.annotations import MARK_PREFIX, CapiAnnotations
from chalicelib.providers.clusterapi.models import CapiMachine

# Seconds after which a mark of ours counts as forgotten: longer than any function of ours runs between mark and size.
FORGOTTEN_AFTER = 300.0
# … after which its function cannot be about to lower the size: it died, or waits for something.
STALLED_AFTER = 30.0


def mark_value(operation: str, now: float) -> str:
    """`outscaler/<operation>/<epoch seconds>`."""
    return f"{MARK_PREFIX}{operation}/{int(now)}"


def is_forgotten(mark: str, now: float) -> bool:
    """Whether a mark of ours is so old that the change it was set for is over. Unreadable ones are."""
    written = mark.rpartition("/")[2]
    return not written.isdigit() or now - int(written) > FORGOTTEN_AFTER


def has_stalled(mark: str, now: float) -> bool:
    """Whether a mark of ours, which is not forgotten, was set by a function that has not gone on from there. Whoever
    does will look at that machine's node once more, so nobody else lowers the size for it meanwhile."""
    written = mark.rpartition("/")[2]
    return mark.startswith(MARK_PREFIX) and not is_forgotten(mark, now) and now - int(written) > STALLED_AFTER


class Standing(msgspec.Struct, frozen=True):
    """A group's living Machines and its size. targets: the living ones that are to go now."""

    size: int
    living: tuple[CapiMachine, ...]
    targets: tuple[CapiMachine, ...]
    others: tuple[CapiMachine, ...]  # marked, living, and not among the targets

    @property
    def excess(self) -> int:
        """How many Machines the MachineSets are about to delete; negative while some are still to be made."""
        return len(self.living) - self.size

    @property
    def others_settled(self) -> bool:
        """Whether the size already accounts for every mark that is not on a target."""
        return not self.others or self.excess >= len(self.others)

    @property
    def goal(self) -> int:
        """The size at which all marked Machines and all targets go, and no other."""
        return min(self.size, len(self.living) - len(self.targets) - len(self.others))


def standing(size: int, machines: Sequence[CapiMachine], handles: Collection[str], keys: CapiAnnotations) -> Standing:
    """How a group stands. machines: all of the group's; handles: those to be removed."""
    living = tuple(each for each in machines if not each.leaving)
    return Standing(
        size=size,
        living=living,
        targets=tuple(each for each in living if each.handle in handles),
        others=tuple(each for each in living if each.handle not in handles and each.mark(keys) is not None),
    )
