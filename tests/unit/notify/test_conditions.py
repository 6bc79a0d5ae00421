"""Conditions of a cluster from what the tables say (docs/notifications.md)."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

import msgspec
import pytest

from chalicelib.cli.main import COMMANDS
from chalicelib.journal.metrics import key
from chalicelib.model.memory import (
    Backoff,
    BreakerState,
    FailedRemoval,
    GroupMemory,
    Memory,
    Replacement,
    ReplacementState,
)
from chalicelib.model.notification import NOTICE_TYPES, NoticeSeverity
from chalicelib.model.operation import OperationKind
from chalicelib.model.overview import PoolOverview
from chalicelib.model.pause import Pause
from chalicelib.model.plan import GroupVerdict, NodeVerdict, Plan, UnschedulablePods
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.snapshot import ALL_GROUPS_OF_PROVIDER, MissingData
from chalicelib.notify.conditions import ClusterFacts, conditions, workload
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.store.leases import PassFailure, ScanState
from tests.operations import new_operation

NOW = 1_795_000_000.0
PASSED = ScanState(last_pass=NOW - 20, last_success=NOW - 20)


def facts(**changes: Any) -> ClusterFacts:
    given: dict[str, Any] = {
        "name": "prod",
        "now": NOW,
        "policy": Policy(name="prod"),
        "plans": True,
        "acts": True,
        "state": PASSED,
        "gauges": {},
        "memory": Memory(),
        "pauses": (),
        "plan": Plan("p", "prod", NOW - 20),
    }
    return ClusterFacts(**given | changes)


def plan(**changes: Any) -> Plan:
    return Plan("p", "prod", NOW - 20, **changes)


def failing(cls: str, message: str = "", count: int = 3) -> ScanState:
    return msgspec.structs.replace(
        PASSED, failure=PassFailure(cls, message, NOW - 200, NOW - 20, count)
    )


def failed_replacement(times: int) -> Replacement:
    why = Reason.of(ReasonCode.UNEXPECTED, detail="sold out")
    row = Replacement("r1", ReplacementState.FAILED, ("b",), (), 0, 1.0, 1.0, NOW, NOW)
    return msgspec.structs.replace(row, gone=("a",), times=times, why=why)


MAX: dict[str, tuple[Reason, ...]] = {"web": (Reason.of(ReasonCode.GROUP_MAX_SIZE, max=5),)}
OUT_OF_STOCK = Backoff(300.0, NOW + 60, NOW - 240, "OutOfStock", "SoldOut", "none left")
SICK = Reason.of(ReasonCode.TOO_MANY_UNHEALTHY, unhealthy=3, of=4, share=0.2)
LEFT = UnschedulablePods(("ml/train-7d9f8b6c5d-abcde", "ml/train-7d9f8b6c5d-fghij"), MAX, 3)
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "quiet": ({}, []),
    "late": ({"state": ScanState(last_pass=NOW - 241)}, ["cluster.late"]),
    "late-in-mode-off": ({"state": ScanState(last_pass=NOW - 241), "plans": False}, []),
    "never-passed": ({"state": ScanState(), "applied_at": NOW - 241}, ["cluster.late"]),
    "switched-on-after-a-night": (
        {"state": ScanState(last_pass=NOW - 36_000), "was_off": True},
        [],
    ),
    "just-applied": ({"state": ScanState(), "applied_at": NOW - 240}, []),
    "two-failures": ({"state": failing("Unavailable", count=2)}, []),
    "unreachable": ({"state": failing("Unavailable", "no route")}, ["cluster.unreachable"]),
    "unauthorized": ({"state": failing("Unauthorized")}, ["cluster.unauthorized"]),
    "unhealthy": ({"gauges": {key("cluster_safe_to_autoscale"): 0.0}}, ["cluster.unhealthy"]),
    "group-unhealthy": (
        {"plan": plan(groups=(GroupVerdict("g", "x", 0, 5, 1, healthy=False),))},
        ["group.unhealthy/g"],
    ),
    "backoff": (
        {"memory": Memory(groups={"g": GroupMemory(backoff=OUT_OF_STOCK)})},
        ["group.failed/g/OutOfStock"],
    ),
    "backoff-over-but-recent": (
        {
            "memory": Memory(
                groups={
                    "g": GroupMemory(backoff=msgspec.structs.replace(OUT_OF_STOCK, until=NOW - 600))
                }
            )
        },
        ["group.failed/g/OutOfStock"],
    ),
    "backoff-long-over": (
        {
            "memory": Memory(
                groups={
                    "g": GroupMemory(
                        backoff=msgspec.structs.replace(OUT_OF_STOCK, until=NOW - 1900)
                    )
                }
            )
        },
        [],
    ),
    "grew-since": (
        {"memory": Memory(groups={"g": GroupMemory(backoff=OUT_OF_STOCK, last_add=NOW - 5)})},
        [],
    ),
    "pods-at-max": (
        {"plan": plan(unschedulable=(LEFT,))},
        ["pods.unhelped/ml/train", "group.at-max/web"],
    ),
    "removal-blocked": (
        {
            "memory": Memory(
                groups={"g": GroupMemory(failed_removals={"n": FailedRemoval(NOW, 3, "stuck")})}
            )
        },
        ["removal.blocked/n"],
    ),
    "notice-taken-back": (
        {
            "memory": Memory(
                groups={
                    "g": GroupMemory(failed_removals={"n": FailedRemoval(NOW, 3, taken_back=True)})
                }
            )
        },
        [],
    ),
    "removal-failed-twice": (
        {"memory": Memory(groups={"g": GroupMemory(failed_removals={"n": FailedRemoval(NOW, 2)})})},
        [],
    ),
    "replacement-failed": (
        {"memory": Memory(replacements={"r1": failed_replacement(3)})},
        ["replacement.failed/a,b"],
    ),
    "replacement-failed-twice": (
        {"memory": Memory(replacements={"r1": failed_replacement(2)})},
        [],
    ),
    "interruption-without-a-replacement": (
        {
            "plan": plan(
                notes=(
                    Reason.of(ReasonCode.NO_REPLACEMENT_IN_TIME, node="a", until=NOW, ready=900.0),
                )
                * 2
            )
        },
        ["interruption.unreplaced/a"],
    ),
    "node-overdue": (
        {"plan": plan(notes=(Reason.of(ReasonCode.NODE_OVERDUE, node="a", since=NOW),))},
        ["node.overdue/a"],
    ),
    "many-nodes-overdue": (
        {
            "plan": plan(
                notes=tuple(
                    Reason.of(ReasonCode.NODE_OVERDUE, node=f"n{at:02}") for at in range(30)
                )
            )
        },
        [f"node.overdue/n{at:02}" for at in range(20)],
    ),
    "repair-blocked-by-group": (
        {
            "plan": plan(
                notes=(
                    Reason.of(
                        ReasonCode.TOO_MANY_UNHEALTHY, group="g", unhealthy=3, of=4, share=0.2
                    ),
                )
            )
        },
        ["repair.blocked/g"],
    ),
    "repair-blocked": (
        {"plan": plan(unremovable=(NodeVerdict("a", SICK), NodeVerdict("b", SICK)))},
        ["repair.blocked"],
    ),
    "pool-held": (
        {"pools": (PoolOverview("general", "exoscale", held="no catalogue yet"),)},
        ["pool.held/general"],
    ),
    "pool-that-buys-other-machines": (
        {"pools": (PoolOverview("general", "exoscale", held="maxPools", next_machine="a z1"),)},
        [],
    ),
    "pool-of-an-unread-vendor": (
        {
            "pools": (PoolOverview("general", "exoscale", held="the provider was not read"),),
            "plan": plan(
                gaps=(
                    MissingData(
                        "provider/exoscale",
                        "no answer",
                        affected_decisions=(ALL_GROUPS_OF_PROVIDER,),
                    ),
                )
            ),
        },
        ["provider.unreadable/exoscale"],
    ),
    "brake": (
        {"memory": Memory(breaker=BreakerState(tripped_at=NOW - 60, wanted=9))},
        ["brake.pulled"],
    ),
    "brake-released": (
        {"memory": Memory(breaker=BreakerState(tripped_at=NOW - 60), released_until=NOW + 60)},
        [],
    ),
    "provider-throttled": (
        {"plan": plan(gaps=(MissingData("provider/exoscale", "429 Too Many Requests"),))},
        ["provider.throttled/exoscale"],
    ),
    "provider-unauthorized": (
        {"plan": plan(gaps=(MissingData("provider/exoscale", "Forbidden: wrong key"),))},
        ["provider.unauthorized/exoscale"],
    ),
    "provider-down": (
        {"plan": plan(gaps=(MissingData("provider/x", "no answer"),))},
        ["provider.unreadable/x"],
    ),
    "paused": (
        {"pauses": (Pause(NOW + 60, NOW - 60, reason="r"),)},
        [f"paused/all//{NOW - 60:.0f}"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_condition_applies_exactly_where_its_rule_says(name: str) -> None:
    changes, expected = CASES[name]
    assert [each.key for each in conditions(facts(**changes))] == expected


@pytest.mark.parametrize(
    ("weakened", "subject"),
    [(ALL_GROUPS_OF_PROVIDER, "exoscale cannot"), ("node group p1", "a part of exoscale cannot")],
)
def test_doubt_about_one_object_does_not_call_its_vendor_unreadable(
    weakened: str, subject: str
) -> None:
    gap = MissingData("provider/exoscale", "no answer", affected_decisions=(weakened,))
    [condition] = conditions(facts(plan=plan(gaps=(gap,))))
    assert condition.message == f"{subject} be read: no answer"


def test_operation_past_its_deadline_is_stuck() -> None:
    def one(created: float, **more: Any) -> Memory:
        made = new_operation("o", "prod", "x", "g", OperationKind.SCALE_UP, "p", created, **more)
        return Memory(operations=(made,))

    assert [each.key for each in conditions(facts(memory=one(NOW - 1801)))] == ["operation.stuck/o"]
    assert not conditions(facts(memory=one(NOW - 1700)))
    assert not conditions(facts(memory=one(NOW - 9000, deadline=NOW + 10)))


def test_pool_that_buys_nothing_is_a_warning_while_pods_wait() -> None:
    pools = (PoolOverview("general", "exoscale", held="no catalogue yet"),)
    [idle] = conditions(facts(pools=pools))
    waiting = conditions(facts(pools=pools, plan=plan(unschedulable=(LEFT,))))
    [held] = [condition for condition in waiting if condition.type == "pool.held"]
    assert (idle.severity, held.severity) == (NoticeSeverity.INFO, NoticeSeverity.WARNING)
    assert held.message == "managed pool general can buy no machine: no catalogue yet"


def test_group_out_of_stock_is_information_while_others_take_the_pods() -> None:
    memory = Memory(groups={"g": GroupMemory(backoff=OUT_OF_STOCK)})
    helped = conditions(facts(memory=memory))[0]
    waiting = next(
        each
        for each in conditions(facts(memory=memory, plan=plan(unschedulable=(LEFT,))))
        if each.group == "g"
    )
    assert (helped.severity, waiting.severity) == (NoticeSeverity.INFO, NoticeSeverity.WARNING)


@pytest.mark.parametrize(
    ("error_class", "severity", "words"),
    [
        ("Throttled", NoticeSeverity.INFO, "group g backs off"),
        ("Unauthorized", NoticeSeverity.WARNING, "group g cannot grow"),
    ],
)
def test_back_off_that_ends_by_itself_is_information(
    error_class: str, severity: NoticeSeverity, words: str
) -> None:
    backoff = Backoff(300.0, NOW + 60, NOW - 240, error_class)
    memory = Memory(groups={"g": GroupMemory(backoff=backoff)})
    [condition] = conditions(facts(memory=memory))
    assert (condition.severity, condition.message.startswith(words)) == (severity, True)


def test_first_pass_that_never_starts_is_reported_with_what_is_known_of_the_cause() -> None:
    state = ScanState(queued_until=NOW - 60)
    [condition] = conditions(facts(state=state, applied_at=NOW - 2040, plan=None))
    assert condition.severity is NoticeSeverity.CRITICAL
    assert condition.message.startswith("no pass since the policy was applied at ")
    assert condition.message.endswith("passes are asked for, and none begins")


def test_pods_of_one_controller_are_one_condition_and_five_are_reported() -> None:
    lefts = tuple(UnschedulablePods((f"ns/app{at}-{at}",) * (at + 1), MAX, 1) for at in range(9))
    found = [
        each
        for each in conditions(facts(plan=plan(unschedulable=lefts)))
        if each.type == "pods.unhelped"
    ]
    assert [each.key for each in found] == [f"pods.unhelped/ns/app{at}" for at in (8, 7, 6, 5, 4)]
    assert workload("a/web-7d9f8b6c5d-x2x4k") == workload("a/web-6c5d7d9f8b-aaaaa") == "a/web"
    assert workload("a/db-0") == "a/db"


def test_every_condition_has_a_known_type_and_a_next_command() -> None:
    found = [
        condition for changes, _ in CASES.values() for condition in conditions(facts(**changes))
    ]
    assert found
    for condition in found:
        assert condition.type in NOTICE_TYPES
        assert condition.command.startswith("outscaler ")


def test_command_of_each_condition_is_one_that_the_command_line_accepts() -> None:
    by_name = {command.name: command for command in COMMANDS}
    found = {each.command for changes, _ in CASES.values() for each in conditions(facts(**changes))}
    assert len(found) > 5
    for name, command, *rest in map(shlex.split, found):
        parser = argparse.ArgumentParser(exit_on_error=False)
        by_name[command].load().add_arguments(parser)
        assert (name, bool(parser.parse_args(rest))) == ("outscaler", True)


def test_names_of_a_hostile_cluster_are_quoted_in_commands() -> None:
    hostile = UnschedulablePods(("a/$(reboot); true #",), MAX, 1)
    [found] = [each for each in conditions(facts(plan=plan(unschedulable=(hostile,)))) if each.pods]
    assert shlex.split(found.command)[3] == "a/$(reboot); true #"
