"""Conditions that come and go while a successor is bought
(docs/reference/node-lifecycle.md "Repair").
"""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import ReplacementState
from chalicelib.policy.settings.node_lifecycle import DriftAction, NodeLifecycle
from tests.builders import NOW
from tests.cases import each_row
from tests.unit.plan.day_of_life import DayOfLife, StoryNode
from tests.unit.plan.lifecycle_fixture import DEADLOCK

FLAP = 60.0
SICK = NodeLifecycle(
    repair=(msgspec.structs.replace(DEADLOCK, after=60.0, flap_time=FLAP),),
    max_unhealthy=1.0,
    drift=DriftAction.OFF,
)


def flapping(on: float, off: float, until: float = 1e9, scan: float = 10.0) -> DayOfLife:
    """Node old-0 has a condition for so many seconds, and then not for so many. until:
    seconds after which it ends."""

    def sickens(node: StoryNode, _: object) -> bool:
        at = story.now - NOW
        return node.name == "old-0" and at < until and at % (on + off) < on

    story = DayOfLife(SICK, 2, sickens=sickens, scan=scan)
    return story


@each_row(("on", "off"), [(20.0, 20.0), (20.0, 50.0), (50.0, 20.0)])
def test_a_node_whose_condition_flaps_is_drained_when_its_successor_is_ready(
    on: float, off: float
) -> None:
    story = flapping(on, off).play(0.5)
    assert "old-0" not in story.nodes
    assert story.bought == 1
    assert {row.state for row in story.memory.replacements.values()} <= {ReplacementState.FAILED}


def test_what_was_bought_for_a_condition_is_given_up_after_its_flap_time() -> None:
    ends = 84.0
    story = flapping(20.0, 20.0, until=ends)
    given_up = 0.0
    for _ in range(60):
        story.step()
        rows = [row.state for row in story.memory.replacements.values()]
        if ReplacementState.FAILED in rows and not given_up:
            given_up = story.now - story.scan - NOW
    assert "old-0" in story.nodes
    assert story.bought == 1
    assert ends + FLAP <= given_up <= ends + FLAP + 20.0


def test_a_pass_says_that_a_condition_pauses() -> None:
    story = flapping(20.0, 20.0, until=84.0)
    said = set[str]()
    for _ in range(14):
        story.step()
        assert story.plan is not None
        said |= {
            verdict.held.code.value for verdict in story.plan.lifecycle if verdict.held is not None
        }
    assert "NotDueAnyMore" not in said
