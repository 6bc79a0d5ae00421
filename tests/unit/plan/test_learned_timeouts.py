"""A group that is usually fast is given up sooner; a time-out makes it wait in full until it is
known again (docs/reference/learning.md "Learnt time-outs")."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.model.group import GroupOptions
from chalicelib.model.join_summary import learnt_timeout
from chalicelib.model.memory import GroupMemory, JoinStatistics, Memory, ScaleUpRequest
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.timeouts import PROVISION
from tests.builders import NOW, OLD, cluster, node
from tests.unit.plan.instances_builder import group_verdict
from tests.unit.plan.join_story import JoinStory, instance, new_node

OLD_NODE = new_node("old", OLD, OLD)


def known(*times: int, since_timeout: int | None = None) -> JoinStatistics:
    """Return the statistics of a group with these times, whose other fields do not matter here."""
    since_timeout = len(times) if since_timeout is None else since_timeout
    return JoinStatistics(
        ready=times,
        joined=float(len(times)),
        counted_at=NOW,
        seen_until=OLD,
        since_timeout=since_timeout,
    )


def story(statistics: JoinStatistics, *, learned: bool = True) -> JoinStory:
    """Return a story in which one node was requested at NOW + 10 and became an instance."""
    told = JoinStory(scale_up=ScaleUp(learned_timeouts=learned))
    told.memory = Memory(groups={"g": GroupMemory(target=2, joins=statistics)})
    told.request(1, NOW + 10)
    told.see(20, OLD_NODE, instances=[instance("x", NOW + 15)])
    return told


@pytest.mark.parametrize(
    ("statistics", "longest", "timeout"),
    [
        (None, 900.0, 900.0),
        (known(*[100] * 19), 900.0, 900.0),
        (known(*[100] * 20), 900.0, 150.0),
        (known(*[101] * 20), 900.0, 152.0),
        (known(*[100] * 99, 400), 900.0, 150.0),  # p99 of a hundred leaves the slowest out
        (known(*[100] * 98, 400, 400), 900.0, 600.0),
        (known(*[10] * 20), 900.0, 120.0),
        (known(*[700] * 20), 900.0, 900.0),
        (known(*[10] * 20), 60.0, 60.0),
        (known(*[100] * 50, since_timeout=19), 900.0, 900.0),
    ],
)
def test_timeout_is_half_above_p99_within_its_bounds(
    statistics: JoinStatistics | None, longest: float, timeout: float
) -> None:
    assert learnt_timeout(statistics, longest) == timeout


@pytest.mark.parametrize(("learned", "late"), [(True, 1), (False, 0)])
def test_instance_of_a_fast_group_is_late_sooner(learned: bool, late: int) -> None:
    told = story(known(*[100] * 20), learned=learned)
    plan = told.see(180, OLD_NODE, instances=[instance("x", NOW + 15)])
    assert group_verdict(plan).long_unregistered == late


def test_group_waits_in_full_after_a_time_out_until_twenty_have_joined_again() -> None:
    told = story(known(*[100] * 20))
    told.see(180, OLD_NODE, instances=[instance("x", NOW + 15)])
    assert (told.joins.since_timeout, len(told.joins.ready), told.joins.failed) == (0, 20, 1)
    told.request(1, NOW + 200)
    told.see(210, OLD_NODE, instances=[instance("y", NOW + 205)])
    plan = told.see(900, OLD_NODE, instances=[instance("y", NOW + 205)])
    assert group_verdict(plan).long_unregistered == 0


def test_own_provision_time_of_a_group_is_the_longest() -> None:
    told = JoinStory(scale_up=ScaleUp(learned_timeouts=True))
    told.memory = Memory(groups={"g": GroupMemory(target=2, joins=known(*[1000] * 20))})
    told.request(1, NOW + 10, takes=1500)
    own: dict[str, Any] = {"options": GroupOptions(max_node_provision_time=2700.0)}
    told.see(20, OLD_NODE, instances=[instance("x")], **own)
    late = [
        group_verdict(told.see(now, OLD_NODE, instances=[instance("x")], **own)).long_unregistered
        for now in (1000, 1500, 1540)
    ]
    assert late == [0, 0, 1]


def test_scale_up_carries_the_learnt_time_to_its_executor() -> None:
    build = cluster().node("old", group="g").pending(2, "1").group("g", template=node("t"))
    memory = Memory(groups={"g": GroupMemory(joins=known(*[100] * 20))})
    data = {}
    for learned in (True, False):
        policy = Policy(name="test", scale_up=ScaleUp(learned_timeouts=learned))
        plan, _ = plan_cluster(build.snapshot(), policy, memory, NOW, 0)
        assert len(plan.operations) == 1
        data[learned] = plan.operations[0].status.data.get(PROVISION)
    assert data == {True: "150.0", False: None}


def test_request_with_a_learnt_time_is_no_longer_than_it_was_made() -> None:
    told = story(known(*[100] * 20))
    request = ScaleUpRequest(1, NOW + 10, NOW + 160)
    told.memory = msgspec.structs.replace(
        told.memory, groups={"g": msgspec.structs.replace(told.group, request=request)}
    )
    told.see(170, OLD_NODE, target=2)
    assert told.group.request is None
    assert (told.joins.failed, told.joins.since_timeout) == (1, 0)
