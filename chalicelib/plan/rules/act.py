"""All rules of one pass, after the pending pods have been served (huaweicloud-cce.md A5)."""

from __future__ import annotations

import msgspec

from chalicelib.model.memory import RuleMemory
from chalicelib.model.plan import RuleVerdict
from chalicelib.model.reason import Reason
from chalicelib.model.rules import RuleObject
from chalicelib.plan.grow import Search


class Acted(msgspec.Struct, frozen=True):
    """What rules came to. memory, objects: for the next pass, whole; by_group: group -> keys of the rules that want
    nodes of it; notes: for Plan.notes."""

    verdicts: tuple[RuleVerdict, ...] = ()
    memory: dict[str, RuleMemory] = {}
    objects: dict[str, RuleObject] = {}
    by_group: dict[str, tuple[str, ...]] = {}
    notes: tuple[Reason, ...] = ()


def act(search: Search, *, served: bool) -> Acted:
    """Add what rules want (search.add). served: pending pods got nodes in this pass (A5.1)."""
    del served
    memory = search.world.memory
    return Acted(memory=memory.rules, objects=memory.rule_objects)
