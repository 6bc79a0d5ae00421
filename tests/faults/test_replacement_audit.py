"""The audit of replacements detects each invariant when a forged history breaks it, and accepts
the history that is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chalicelib.model.disruption_reason import DisruptionReason
from chalicelib.model.memory import PurchasedNodes, Replacement, ReplacementState
from infra.emulators.controllers.clock import ManualClock
from tests.faults.replacement_audit import AuditedNode, ReplacementAudit, ReplacementLimits

START = 1_000_000.0
GROUP = "MachineDeployment/default/{}"


class ForgedHistory:
    """A cluster with the old nodes `old-1` and `old-2` of large and the new one `new-1` of small,
    and the rows that it stores, which a test changes as it likes."""

    def __init__(self) -> None:
        self.clock, self.faults, self.counts = ManualClock(START), list[str](), list[str]()
        self.rows: dict[str, Replacement] = {}
        self.nodes = {
            "old-1": AuditedNode("large", START - 3600.0, ready=True),
            "old-2": AuditedNode("large", START - 3600.0, ready=True),
        }
        limits = ReplacementLimits(surge=2, min_node_age=90.0, moves=2)
        self.audit = ReplacementAudit(
            self.clock,
            self.faults.append,
            self.counts.append,
            limits,
            lambda: (dict(self.rows), dict(self.nodes)),
        )
        self.audit.note_prices({"small": 10, "large": 20})

    def row(
        self, name: str = "r", state: str = "buying", *nodes: str, buys: int = 1, **more: Any
    ) -> None:
        """Stores a row."""
        purchase = PurchasedNodes(GROUP.format("small"), buys, 10, names=more.pop("names", ()))
        made = Replacement(
            name,
            ReplacementState(state),
            nodes,
            (purchase,),
            20,
            1.0,
            1.0,
            START,
            START,
            bought_at=START,
        )
        self.rows[name] = msgspec.structs.replace(made, **more)
        self.audit.look()

    def arrives(self, name: str = "new-1", *, ready: bool = True) -> None:
        """Lets a node of small join now."""
        self.nodes[name] = AuditedNode("small", self.clock(), ready=ready)
        self.audit.look()

    def bought(self) -> None:
        """Buys one node for the row `r`, which replaces `old-1`, and lets it join."""
        self.row("r", "buying", "old-1")
        self.audit.bought("r", "small", 1)
        self.clock.advance(60.0)
        self.arrives()

    def waits(self) -> None:
        """As `bought`; the row waits and knows its new node."""
        self.bought()
        self.row("r", "waiting", "old-1", names=("new-1",))

    def drained(self) -> None:
        """As `waits`; `old-1` has been drained and has gone."""
        self.waits()
        self.row("r", "draining", "old-1", names=("new-1",), removals={"old-1": "remove-1"})
        self.audit.tainted("r", "old-1", self.clock())
        self.audit.moved("ReplicaSet/web", 1)
        self.clock.advance(60.0)
        del self.nodes["old-1"]


def finished(history: ForgedHistory) -> None:
    history.drained()
    del history.rows["r"]
    history.audit.look()


def drained_early(history: ForgedHistory) -> None:
    history.bought()
    history.row("r", "waiting", "old-1")
    history.audit.tainted("r", "old-1", history.clock())


def drained_though_not_ready(history: ForgedHistory) -> None:
    history.row("r", "buying", "old-1")
    history.arrives(ready=False)
    history.row("r", "waiting", "old-1", names=("new-1",))
    history.audit.tainted("r", "old-1", history.clock())


def drained_long_after_it_was_ready(history: ForgedHistory) -> None:
    history.waits()
    history.nodes["new-1"] = AuditedNode("small", START, ready=False)
    history.clock.advance(600.0)
    history.audit.tainted("r", "old-1", history.clock())


def bought_twice(history: ForgedHistory) -> None:
    history.bought()
    history.audit.bought("r", "small", 1)


def bought_of_another_group(history: ForgedHistory) -> None:
    history.row("r", "buying", "old-1")
    history.audit.bought("r", "large", 1)


def bought_for_no_row(history: ForgedHistory) -> None:
    history.audit.bought("r", "small", 1)


def old_node_of_two(history: ForgedHistory) -> None:
    history.row("r", "buying", "old-1")
    history.row("s", "buying", "old-1", "old-2")


def new_node_of_two(history: ForgedHistory) -> None:
    history.waits()
    history.row("s", "waiting", "old-2", names=("new-1",))


def ends_with_a_node_left(history: ForgedHistory) -> None:
    history.waits()
    del history.rows["r"]
    history.audit.look()


def ends_after_it_has_bought(history: ForgedHistory) -> None:
    history.bought()
    del history.rows["r"]
    history.audit.look()


def ends_dearer(history: ForgedHistory) -> None:
    history.audit.note_prices({"small": 20, "large": 20})
    history.clock.advance(600.0)
    history.row("r", "draining", "old-1", bought_at=history.clock())
    del history.nodes["old-1"], history.rows["r"]
    history.audit.look()


def bought_and_drained_by_another(history: ForgedHistory) -> None:
    history.waits()
    del history.nodes["old-1"], history.rows["r"]
    history.row("s", "waiting", "new-1", names=("new-2",))
    history.arrives("new-2")
    history.clock.advance(30.0)
    history.audit.tainted("s", "new-1", history.clock())


def too_many_at_once(history: ForgedHistory) -> None:
    history.row("r", "buying", "old-1", buys=2)
    history.row("s", "buying", "old-2", buys=1)


def moved_too_often(history: ForgedHistory) -> None:
    for _ in range(5):
        history.audit.moved("ReplicaSet/web", 2)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (drained_early, "of 1 nodes of MachineDeployment/default/small only 0 have been ready"),
        (drained_though_not_ready, "only 0 have been ready"),
        (drained_long_after_it_was_ready, "only 0 have been ready"),
        (bought_twice, "bought 2 nodes of small, and its row says 1"),
        (bought_of_another_group, "bought 1 nodes of large, and its row says 0"),
        (bought_for_no_row, "a replacement r that is not stored"),
        (old_node_of_two, "node old-1 is in the replacements r and s"),
        (new_node_of_two, "node new-1 is in the replacements r and s"),
        (ends_with_a_node_left, "was waiting and has ended, and old-1 stays"),
        (ends_after_it_has_bought, "was buying and has ended, and old-1 stays"),
        (ends_dearer, "has ended and did not lower the price"),
        (
            bought_and_drained_by_another,
            "node new-1 was bought by replacement r, and s drains it already",
        ),
        (too_many_at_once, "3 nodes of MachineDeployment/default/small are bought by replacements"),
        (moved_too_often, "pods of ReplicaSet/web were moved 5 times within a day"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_forged_history_of_a_replacement_is_detected(
    history: Callable[[ForgedHistory], None], words: str
) -> None:
    forged = ForgedHistory()
    history(forged)
    assert [fault for fault in forged.faults if words in fault], forged.faults


def paid_back_in_part(history: ForgedHistory) -> None:
    history.row("r", "draining", "old-1", buys=2, gone=("x",))
    history.row("s", "buying", "old-2", buys=1)


def moved_on_the_next_day(history: ForgedHistory) -> None:
    for _ in range(5):
        history.audit.moved("ReplicaSet/web", 2)
        history.clock.advance(43_200.0)


def failed_and_kept(history: ForgedHistory) -> None:
    history.waits()
    history.row("r", "failed", "old-1", names=("new-1",))
    del history.rows["r"]
    history.audit.look()


def forgotten_before_it_bought(history: ForgedHistory) -> None:
    history.row("r", "buying", "old-1", ends={"": "not begun"})
    del history.rows["r"]
    history.audit.look()


def drained_by_another_when_old_enough(history: ForgedHistory) -> None:
    history.waits()
    del history.nodes["old-1"], history.rows["r"]
    history.row("s", "waiting", "new-1", names=("new-2",))
    history.clock.advance(90.0)
    history.arrives("new-2")
    history.audit.tainted("s", "new-1", history.clock())


def dearer_because_its_nodes_were_too_old(history: ForgedHistory) -> None:
    history.audit.note_prices({"small": 30, "large": 20})
    history.clock.advance(600.0)
    history.row(
        "r", "draining", "old-1", bought_at=history.clock(), reason=DisruptionReason.EXPIRED
    )
    del history.nodes["old-1"], history.rows["r"]
    history.audit.look()


def sick_soon_after_it_was_bought(history: ForgedHistory) -> None:
    history.waits()
    del history.nodes["old-1"], history.rows["r"]
    history.row("s", "waiting", "new-1", names=("new-2",), reason=DisruptionReason.REPAIR)
    history.arrives("new-2")
    history.clock.advance(30.0)
    history.audit.tainted("s", "new-1", history.clock())


@pytest.mark.parametrize(
    "history",
    [
        finished,
        dearer_because_its_nodes_were_too_old,
        sick_soon_after_it_was_bought,
        paid_back_in_part,
        moved_on_the_next_day,
        failed_and_kept,
        forgotten_before_it_bought,
        drained_by_another_when_old_enough,
    ],
)
def test_right_history_of_a_replacement_is_accepted(
    history: Callable[[ForgedHistory], None],
) -> None:
    right = ForgedHistory()
    history(right)
    assert right.faults == []
