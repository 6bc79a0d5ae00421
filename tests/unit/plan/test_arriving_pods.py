"""A plan waits while a scheduler still refuses pods, buys for refused pods alone,
and never waits for long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.operation import Operation, OperationKind, OperationSpec, OperationStatus
from chalicelib.model.plan import Plan
from chalicelib.model.pod import REFUSAL_WAIT
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.text import sentence
from tests.builders import NOW, ClusterBuilder, cluster, growth, node

UNSEEN: Mapping[str, Any] = {"scheduled": "", "scheduled_reason": ""}
GANGS = "gangs"


def burst(
    *,
    refused: int = 100,
    unseen: int = 50,
    refused_at: float = NOW - 3.0,
    age: float = 5.0,
    scheduler: str = "default-scheduler",
    build: ClusterBuilder | None = None,
    **more: Any,
) -> ClusterBuilder:
    """A group without nodes, pods that a scheduler has refused, and pods that it has not looked at.
    more: of the pods' class, or of the unseen pods."""
    if build is None:
        build = (
            cluster()
            .node("n", "1")
            .running("n", 1, "1")
            .group("g", template=node("t", "4", "64Gi"), target=0)
        )
    pod_fields = {key: more.pop(key) for key in ("nominated", "deleted") if key in more}
    began = len(build.pods)
    build.pending(refused, "1", created=NOW - age, scheduler=scheduler)
    build.pods[began:] = [
        msgspec.structs.replace(pod, refused_at=refused_at) for pod in build.pods[began:]
    ]
    began = len(build.pods)
    build.pending(unseen, "1", created=NOW - age, scheduler=scheduler, **more)
    build.pods[began:] = [
        msgspec.structs.replace(pod, **UNSEEN, **pod_fields) for pod in build.pods[began:]
    ]
    return build


def waits(build: ClusterBuilder, memory: Memory | None = None, **options: Any) -> bool:
    """Whether the plan waits for the scheduler; either it does, or it buys."""
    plan = build.plan(memory, **options)
    is_waiting = wait_of(plan) is not None
    assert is_waiting is not bool(growth(plan)), "a plan buys or waits"
    assert is_waiting is (plan.waits_for_pods > 0)
    return is_waiting


def wait_of(plan: Plan) -> Reason | None:
    """The reason of the pods that wait for the scheduler."""
    reasons = [
        pods.reason for pods in plan.ignored if pods.reason.code is ReasonCode.WAITING_FOR_SCHEDULER
    ]
    return reasons[0] if reasons else None


def purchase(age: float, **more: Any) -> Operation:
    """An open purchase that was planned so many seconds ago."""
    spec = OperationSpec(
        "o", "test", "test", "g", OperationKind.SCALE_UP, "p", NOW - age, 0, 9, **more
    )
    return Operation(spec, OperationStatus())


def test_plan_waits_while_a_scheduler_still_refuses_pods() -> None:
    plan = burst().plan()
    reason = wait_of(plan)
    assert reason is not None
    assert growth(plan) == {}
    assert reason.params == {
        "scheduler": "default-scheduler",
        "refused": 100,
        "unseen": 50,
        "longest": 5.0,
        "left": 1.0,
    }
    assert sentence(reason) == (
        "waiting a moment for the scheduler (default-scheduler has refused 100 pending pods and "
        "not looked at 50 yet; "
        "at most 5s more)"
    )


def test_nodes_are_bought_for_refused_pods_alone() -> None:
    assert growth(burst(refused_at=NOW - REFUSAL_WAIT).plan()) == {"g": (25, 100)}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, True, id="a-burst"),
        pytest.param({"unseen": 10}, True, id="a-tenth-is-unseen"),
        pytest.param({"unseen": 9}, False, id="less-than-a-tenth-is-unseen"),
        pytest.param({"unseen": 0}, False, id="all-are-refused"),
        pytest.param({"refused": 1, "unseen": 1}, True, id="one-of-two-is-refused"),
        pytest.param({"refused_at": NOW - 7.9}, True, id="just-before-the-end"),
        pytest.param({"refused_at": NOW - 8.0}, False, id="eight-seconds-after-the-first-refusal"),
        pytest.param({"refused_at": 0.0}, False, id="no-instant-of-the-refusal"),
        pytest.param({"refused_at": NOW + 1.5}, True, id="a-clock-slightly-ahead"),
        pytest.param({"refused_at": NOW + 2.5}, False, id="a-clock-far-ahead"),
        pytest.param({"age": 59.0}, True, id="unseen-for-less-than-a-minute"),
        pytest.param({"age": 60.0}, False, id="unseen-for-a-minute"),
        pytest.param({"gates": ("g",)}, False, id="gated"),
        pytest.param({"nominated": "n"}, False, id="nominated"),
        pytest.param({"deleted": NOW - 1}, False, id="being-deleted"),
        pytest.param({"priority": -11}, False, id="expendable"),
        pytest.param({"kind": "DaemonSet"}, False, id="of-a-daemonset"),
        pytest.param({"scale_up_delay": "5m"}, False, id="delayed"),
    ],
)
def test_plan_waits_only_for_pods_that_may_soon_be_pending(
    change: dict[str, Any], *, expected: bool
) -> None:
    assert waits(burst(**change)) is expected


def test_schedulers_that_refuse_nothing_are_not_waited_for() -> None:
    dead = burst(refused=0, scheduler="dead")
    assert waits(burst(unseen=0, build=dead)) is False
    both = burst(refused=1, unseen=50, refused_at=NOW - 60.0, scheduler=GANGS)
    assert waits(burst(unseen=0, build=both)) is False, "its last refusal was a minute ago"
    gathering = burst(refused=1, unseen=50, scheduler=GANGS)
    assert waits(burst(unseen=0, build=gathering)) is True


def test_wait_of_two_schedulers_ends_after_the_first_refusal_of_either() -> None:
    first = burst(unseen=0, refused_at=NOW - 8.0)
    assert waits(burst(scheduler=GANGS, build=first)) is False


def test_pods_of_bypassed_or_excluded_schedulers_are_not_waited_for() -> None:
    assert waits(burst(), bypassed_scheduler_names=("default-scheduler",)) is False
    alone = burst(unseen=0)
    assert (
        waits(
            burst(refused=10, scheduler=GANGS, build=alone),
            allowed_scheduler_names=("default-scheduler",),
        )
        is False
    )


def test_old_refusals_do_not_end_the_wait_of_a_burst() -> None:
    stuck = burst(refused=1, unseen=0, refused_at=NOW - 3600.0, age=7200.0)
    assert waits(burst(build=stuck)) is True


def test_refusals_without_a_pause_are_one_burst() -> None:
    build = burst(unseen=0, refused=1, refused_at=NOW - 15.0)
    assert waits(burst(build=build, refused_at=NOW - 6.0)) is False


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        pytest.param(Memory(), False, id="nothing-was-bought"),
        pytest.param(Memory(operations=(purchase(4.0),)), True, id="planned"),
        pytest.param(Memory(last_scale_up=NOW - 2.5), True, id="carried-out"),
        pytest.param(
            Memory(operations=(purchase(4.0, replacement="r"),)), False, id="for-a-replacement"
        ),
    ],
)
def test_what_is_refused_after_a_purchase_gets_a_time_of_its_own(
    memory: Memory, *, expected: bool
) -> None:
    build = burst(unseen=0, refused_at=NOW - 12.0)
    build = burst(refused=90, unseen=2, refused_at=NOW - 3.0, build=build)
    plan = build.plan(memory)
    assert (wait_of(plan) is not None) is expected


def test_note_says_what_a_report_does_not_wait_for() -> None:
    plan, _ = plan_cluster(burst().snapshot(), Policy(name="test"), Memory(), NOW, 0, wait=False)
    assert growth(plan) == {"g": (25, 100)}
    assert [
        note.params["unseen"]
        for note in plan.notes
        if note.code is ReasonCode.WAITING_FOR_SCHEDULER
    ] == [50]
    assert plan.waits_for_pods == 0.0


# --- many passes


class Stream:
    """So many pods are created together every period of seconds, and looked at some seconds later;
    a pass when pods are created, when they are refused, and when a wait ends. Nodes are there as
    soon as they are bought. delays: seconds from each refusal to the purchase."""

    def __init__(self, looked_at_after: float, period: float, together: int) -> None:
        self._after, self._period, self._together = looked_at_after, period, together
        self._created: list[float] = []
        self._memory = Memory()
        self.delays: list[float] = []

    def play(self, seconds: float) -> None:
        """Run the passes; the first pods are created at NOW."""
        creations = [NOW + number * self._period for number in range(int(seconds / self._period))]
        refusals = [at + self._after for at in creations]
        changes = sorted({*creations, *refusals})
        for now, following in pairwise([*changes, math.inf]):
            self._created += [now] * self._together if now in creations else []
            at = now
            while 0.0 < (wait := self._pass(at)) < following - at:
                at += wait

    def _pass(self, now: float) -> float:
        """Run a pass, and return for how long it waits."""
        build = (
            cluster()
            .node("n", "1")
            .running("n", 1, "1")
            .group("g", template=node("t", "4", "64Gi"), target=0)
        )
        refused = [at for at in self._created if at + self._after <= now]
        for at in self._created:
            build.pending(1, "1", created=at)
            seen = {"refused_at": float(int(at + self._after))} if at in refused else UNSEEN
            build.pods[-1] = msgspec.structs.replace(build.pods[-1], **seen)
        plan, self._memory = build.decide(self._memory, now=now)
        if growth(plan):
            bought = {"g": (-(-len(refused) // 4), len(refused))}
            assert growth(plan) == bought, "for all that are refused, and only those"
            self.delays += [now - at - self._after for at in refused]
            self._created = [at for at in self._created if at not in refused]
            self._memory = msgspec.structs.replace(self._memory, last_scale_up=now + 1.0)
        return plan.waits_for_pods


@pytest.mark.parametrize(
    ("looked_at_after", "period", "together", "seconds"),
    [(0.5, 1.0, 1, 300.0), (2.0, 1.0, 1, 300.0), (20.0, 1.0, 1, 300.0), (20.0, 8.0, 4, 3600.0)],
)
def test_constant_stream_of_pods_delays_no_pod_for_long(
    looked_at_after: float, period: float, together: int, seconds: float
) -> None:
    stream = Stream(looked_at_after, period, together)
    stream.play(seconds)
    assert (
        len(stream.delays)
        > (seconds - REFUSAL_WAIT - looked_at_after) / period * together - together
    )
    assert max(stream.delays) <= REFUSAL_WAIT + 1.0


def test_pods_that_no_scheduler_looks_at_delay_no_others() -> None:
    build = burst(refused=0, unseen=300, age=30.0, scheduler="dead")
    for wait in (1.0, 5.0, 9.0, 60.0):
        assert growth(burst(unseen=0, refused_at=NOW - 1.0, build=build).plan(now=NOW + wait)) == {
            "g": (25, 100)
        }
        build.pods = [pod for pod in build.pods if not pod.refused_at]
