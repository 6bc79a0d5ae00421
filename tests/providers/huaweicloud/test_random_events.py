"""Random events between two calls: no other nodes are selected for removal, and
nothing is bought twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.operation import Operation
from chalicelib.model.outcome import Failed, InProgress, Outcome, Succeeded
from chalicelib.providers.kit.errors import Conflict, Throttled, Transient
from infra.emulators.huaweicloud.mutations import CceMutations
from infra.emulators.vendor_common.fault_injection import VendorFault, VendorRefusedError
from tests.providers.huaweicloud.emulated import (
    CLUSTER,
    FLAVOR,
    A,
    B,
    EmulatedCce,
    discard,
    grow,
    shrink,
)
from tests.providers.huaweicloud.fixture import carried

EVENTS = st.lists(
    st.sampled_from(
        [
            "step",
            "more beside",
            "more here",
            "gone beside",
            "gone here",
            "lost",
            "no answer",
            "lag",
            "stuck",
            "busy",
            "twice",
        ]
    ),
    max_size=12,
)


class Disturbed(EmulatedCce):
    """A pool of three and two nodes that others change. removed: the nodes that
    they have deleted by id."""

    def __init__(self) -> None:
        super().__init__(3, 2, most=1000)
        self.removed = set[str]()

    def disturb(self, event: str) -> None:
        """Lets one event happen. `twice` is the caller's."""
        events: dict[str, Callable[[], object]] = {
            "step": lambda: self.settle(60.0),
            "more beside": lambda: self.resize(B, self.target(B) + 2),
            "more here": lambda: self.resize(A, self.target(A) + 2),
            "gone beside": lambda: self.remove(B),
            "gone here": lambda: self.remove(A),
            "lost": lambda: self.server.faults.next(VendorFault.LOST_ANSWER, on="scale-pool"),
            "no answer": lambda: self.server.faults.next(VendorFault.HANGS_UP, on="scale-pool"),
            "lag": lambda: setattr(self.cloud, "lag", 0.0 if self.cloud.lag else 30.0),
            "stuck": lambda: self.cloud.sell_out(FLAVOR, "cn-north-4a"),
            "busy": lambda: self.server.faults.next(VendorFault.THROTTLED, on="show-pool", times=3),
        }
        with contextlib.suppress(VendorRefusedError):  # CCE refuses others, too
            events.get(event, lambda: None)()

    def remove(self, group: str) -> None:
        """Deletes the group's first node as another user does."""
        for name in self.machines(group)[:1]:
            self.removed.add(name)
            CceMutations(self.cloud).delete(
                self.cloud.clusters[CLUSTER], self.node(name), keeps_size=False
            )

    def attempt(self, operation: Operation) -> Outcome | None:
        """Makes one call; None for an error that is retried."""
        try:
            return self.step(operation)
        except (Conflict, Transient, Throttled):
            return None


@settings(max_examples=25, deadline=None)
@given(EVENTS)
def test_CCE_18_scale_up_with_random_changes_adds_at_most_the_planned_number(
    events: list[str],
) -> None:
    cce, waiting, bought = Disturbed(), list(events), 0
    operation = grow(cce, 3, 5)
    for _ in range(80):
        size = cce.target(A)
        outcome = cce.attempt(operation)
        if waiting[:1] == ["twice"]:
            outcome = cce.attempt(operation)
        bought += cce.target(A) - size
        assert bought <= 2
        if isinstance(outcome, Succeeded | Failed):
            break
        if isinstance(outcome, InProgress):
            operation = carried(operation, outcome)
        cce.disturb(waiting.pop(0) if waiting else "step")
    else:
        raise AssertionError("not over after 80 calls")
    assert cce.chosen <= cce.removed


@settings(max_examples=25, deadline=None)
@given(EVENTS, st.integers(0, 5), st.booleans())
def test_CCE_19_decrease_target_with_random_changes_costs_no_node(
    events: list[str], goal: int, placeholders: bool
) -> None:
    cce = Disturbed()
    cce.lack(2)
    operation = shrink(cce, 5, goal)
    if placeholders:
        operation = discard(cce, 5, f"{A}/placeholder-0", f"{A}/placeholder-1")
    for event in [*events, *["step"] * 20]:
        outcome = cce.attempt(operation)
        if isinstance(outcome, Succeeded | Failed):
            break
        if isinstance(outcome, InProgress):
            operation = carried(operation, outcome)
        cce.disturb(event)
    assert cce.chosen <= cce.removed
