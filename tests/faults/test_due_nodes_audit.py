"""The audit of nodes that are due detects each removal that was not, and
accepts those that were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from infra.emulators.controllers.clock import ManualClock
from tests.faults.due_nodes_audit import DueNodesAudit, DueNodesLimits
from tests.faults.replacement_audit import AuditedNode

START, HOUR = 1_000_000.0, 3600.0
DEADLOCK = "KernelDeadlock"


class ForgedNodes:
    """Nodes `a` and `b` of a group, which a test changes as it likes; `a` is
    looked at when it is drained."""

    def __init__(self) -> None:
        self.clock, self.faults = ManualClock(START), list[str]()
        limits = DueNodesLimits("shop", HOUR, 0.5, {DEADLOCK: (frozenset({"True"}), 60.0)}, 0.5)
        self.nodes = {name: AuditedNode("large", START - 100.0, ready=True) for name in ("a", "b")}
        self.audit = DueNodesAudit(self.clock, self.faults.append, limits, lambda: dict(self.nodes))
        self.audit.look()

    def change(self, name: str = "a", **more: Any) -> None:
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], **more)
        self.audit.look()

    def sick(self, name: str = "a", status: str = "True") -> None:
        """The condition changes now."""
        self.change(name, conditions={DEADLOCK: (status, self.clock())})

    def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.audit.look()

    def drained(self, reason: str) -> None:
        self.audit.planned(reason, "a", self.clock())


def limit_of_a() -> float:
    """By the documentation's formula, with maxNodeAge of an hour and jitter 50%."""
    return HOUR * (1 - 0.5 * int.from_bytes(hashlib.sha256(b"shop/a").digest()[:8], "big") / 2**64)


def without_notice(nodes: ForgedNodes) -> None:
    nodes.drained("interrupted")


def long_after_the_notice(nodes: ForgedNodes) -> None:
    nodes.change(noticed=True)
    nodes.change(noticed=False)
    nodes.passes(300.0)
    nodes.drained("interrupted")


def never_sick(nodes: ForgedNodes) -> None:
    nodes.drained("repair")


def not_sick_long_enough(nodes: ForgedNodes) -> None:
    nodes.sick()
    nodes.passes(30.0)
    nodes.drained("repair")


def sick_again_after_a_long_pause(nodes: ForgedNodes) -> None:
    nodes.sick()
    nodes.passes(30.0)
    nodes.sick(status="False")
    nodes.passes(90.0)
    nodes.sick()
    nodes.passes(30.0)
    nodes.drained("repair")


def well_again_for_long(nodes: ForgedNodes) -> None:
    nodes.sick()
    nodes.passes(100.0)
    nodes.sick(status="False")
    nodes.passes(300.0)
    nodes.drained("repair")


def among_too_many_sick_ones(nodes: ForgedNodes) -> None:
    nodes.sick("a")
    nodes.sick("b")
    nodes.passes(300.0)
    nodes.drained("repair")


def too_young(nodes: ForgedNodes) -> None:
    nodes.change(created=START - limit_of_a() + 30.0)
    nodes.drained("expired")


def as_its_group_is_defined(nodes: ForgedNodes) -> None:
    nodes.drained("drifted")


def long_after_the_template_was_taken_back(nodes: ForgedNodes) -> None:
    nodes.change(outdated=True)
    nodes.change(outdated=False)
    nodes.passes(300.0)
    nodes.drained("drifted")


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (without_notice, "as interrupted, and no notice has held since"),
        (long_after_the_notice, "no notice has held since"),
        (never_sick, "had no condition when that was planned"),
        (not_sick_long_enough, "had KernelDeadlock for 30 s when that was planned"),
        (sick_again_after_a_long_pause, "had KernelDeadlock for 30 s"),
        (well_again_for_long, "had no condition"),
        (among_too_many_sick_ones, "too many nodes of large were sick"),
        (too_young, "its limit is"),
        (as_its_group_is_defined, "is as its group is defined"),
        (long_after_the_template_was_taken_back, "is as its group is defined"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_removal_of_a_node_that_is_not_due_is_detected(
    history: Callable[[ForgedNodes], None], words: str
) -> None:
    forged = ForgedNodes()
    history(forged)
    assert [fault for fault in forged.faults if words in fault], forged.faults


def with_a_notice(nodes: ForgedNodes) -> None:
    nodes.change(noticed=True)
    nodes.drained("interrupted")


def not_ready_since_a_notice(nodes: ForgedNodes) -> None:
    nodes.change(noticed=True)
    nodes.change(noticed=False, ready=False)
    nodes.passes(600.0)
    nodes.drained("interrupted")
    assert nodes.audit.at_risk == {"a"}


def sick_for_long(nodes: ForgedNodes) -> None:
    nodes.sick()
    nodes.passes(60.0)
    nodes.drained("repair")
    assert nodes.audit.sick_since("a") == START + 60.0


def sick_with_a_short_pause(nodes: ForgedNodes) -> None:
    nodes.sick()
    nodes.passes(30.0)
    nodes.sick(status="False")
    nodes.passes(20.0)
    nodes.sick()
    nodes.passes(20.0)
    nodes.drained("repair")


def well_since_a_moment(nodes: ForgedNodes) -> None:
    nodes.sick()
    nodes.passes(100.0)
    nodes.sick(status="False")
    assert nodes.audit.sick_since("a") is None
    nodes.drained("repair")


def planned_before_the_second_became_sick(nodes: ForgedNodes) -> None:
    nodes.sick("a")
    nodes.passes(100.0)
    nodes.sick("b")
    nodes.passes(100.0)
    nodes.drained("repair")


def old_enough(nodes: ForgedNodes) -> None:
    nodes.change(created=START - limit_of_a())
    nodes.drained("expired")


def outdated(nodes: ForgedNodes) -> None:
    nodes.change(outdated=True)
    nodes.drained("drifted")


def with_another_reason(nodes: ForgedNodes) -> None:
    nodes.drained("consolidation")


@pytest.mark.parametrize(
    "history",
    [
        with_a_notice,
        not_ready_since_a_notice,
        sick_for_long,
        sick_with_a_short_pause,
        well_since_a_moment,
        planned_before_the_second_became_sick,
        old_enough,
        outdated,
        with_another_reason,
    ],
)
def test_removal_of_a_due_node_is_accepted(history: Callable[[ForgedNodes], None]) -> None:
    right = ForgedNodes()
    history(right)
    assert right.faults == []
