"""`outscaler explain group` finds a group by the names that users know: its id, or an alias
that its provider gives.
"""

from __future__ import annotations

import pytest

from chalicelib.cli import explain_group
from chalicelib.cli.explain_view import ExplainContext
from chalicelib.cli.plan_inputs import PlanInputs, PlannedCase
from chalicelib.model.errors import BadInput
from chalicelib.model.group import NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.plan import GroupVerdict, Plan
from chalicelib.model.snapshot import Snapshot
from chalicelib.policy.settings.cluster_policy import Policy
from tests.cases import each_row

AT = 1795245654.0
GROUPS = (
    NodeGroup("7d48/default", "test", aliases=("7d48", "web", "web/default")),
    NodeGroup("7d48/az2", "test", aliases=("7d48", "web", "web/az2")),
    NodeGroup("9e1f/default", "test", aliases=("9e1f", "own", "own/default")),
)


def explained(name: str) -> str:
    plan = Plan(
        "plan-1",
        "test",
        AT,
        groups=tuple(GroupVerdict(each.id, "test", 0, 10, 2) for each in GROUPS),
    )
    case = PlanInputs(
        Snapshot("test", AT, groups=GROUPS), Policy("test"), Memory(), AT, 0, None, (), 0.0
    )
    return explain_group.answer(ExplainContext(case, PlannedCase(plan, Memory(), {})), name).name


@each_row(
    ("name", "group"),
    [
        ("7d48/az2", "7d48/az2"),
        ("web/az2", "7d48/az2"),
        ("own", "9e1f/default"),
        ("9e1f", "9e1f/default"),
    ],
)
def test_explain_finds_a_group_by_its_id_and_by_an_alias(name: str, group: str) -> None:
    assert explained(name) == group


def test_explain_refuses_a_name_shared_by_several_groups_and_lists_them() -> None:
    with pytest.raises(BadInput, match="is 2 node groups; write one of 7d48, az2"):
        explained("web")


def test_explain_refuses_an_unknown_group_and_suggests_similar_names() -> None:
    with pytest.raises(BadInput, match="no node group is called 'wob'"):
        explained("wob")
