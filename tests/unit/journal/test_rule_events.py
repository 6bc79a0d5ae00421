"""Results of rules, reported on their objects; warnings that are posted once."""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.journal.events import APART, LASTING
from chalicelib.journal.journal import outcome_entry, plan_entry
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Succeeded
from chalicelib.model.plan import RuleVerdict, ScaleUp
from chalicelib.model.pod import Pod
from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.model.scaling_rules import RuleObject
from chalicelib.model.snapshot import Snapshot
from tests.unit.journal.support import NOW, RecordFixture, ended, plan

OBJECT = RuleObject("kube-system", "night", uid="uid-night")
KEY = OBJECT.key
KIND = "HorizontalNodeAutoscaler"


def seen(*objects: RuleObject, **more: Any) -> Snapshot:
    return Snapshot("c", NOW, rule_objects=objects or (OBJECT,), **more)


def reported(scene: RecordFixture) -> list[tuple[str, str, str, str]]:
    return scene.reported(KIND, "ConfigMap", "Node", "Pod")


def growing(rule: RuleVerdict) -> dict[str, Any]:
    """The parts of a plan in which a rule adds nodes and the operation is saved."""
    key = f"{rule.source}/{rule.rule}" if rule.source else rule.rule
    return {
        "rules": (rule,),
        "scale_ups": (ScaleUp("g", "p", 1, 3, 9, rules=(key,)),),
        "operations": (ended(OperationKind.SCALE_UP),),
    }


def test_CCE_A2_refused_object_gets_an_event_with_every_error() -> None:
    scene = RecordFixture()
    bad = msgspec.structs.replace(
        OBJECT, problems=("spec.a: is wrong; mend it", "spec.b: too"), warnings=("w",)
    )
    scene.passes(plan(), snapshot=seen(bad))
    [(*head, words)] = reported(scene)
    assert head == ["night", "HorizontalNodeAutoscalerInvalid", "Warning"]
    assert words == (
        "refused as a whole (a good version before it stays in force): spec.a: is wrong; mend it; "
        "spec.b: too"
    )
    [event] = scene.wall.posted
    assert (event.kind, event.namespace, event.uid) == (KIND, "kube-system", "uid-night")
    assert event.api_version == "autoscaling.cce.io/v1alpha1"


def test_CCE_2_object_without_room_for_its_rules_gets_an_event() -> None:
    scene, other = RecordFixture(), RuleObject("kube-system", "first", uid="uid-first")
    note = Reason.of(
        ReasonCode.RULE_OBJECT_INVALID, object=KEY, detail="pool p has a rule for cpu already"
    )
    scene.passes(plan(notes=(note,)), snapshot=seen(other, OBJECT))
    [(name, reason, _, words)] = reported(scene)
    assert (name, reason) == ("night", "HorizontalNodeAutoscalerInvalid")
    assert words.endswith(": pool p has a rule for cpu already")


def test_rule_events_new_error_is_posted_at_once_and_same_one_after_five_minutes() -> None:
    scene = RecordFixture()
    for at, problem in ((0.0, "a"), (60.0, "a"), (120.0, "b"), (APART + 1, "a")):
        scene.passes(
            plan(NOW + at), snapshot=seen(msgspec.structs.replace(OBJECT, problems=(problem,)))
        )
    assert [words[-1] for *_, words in reported(scene)] == ["a", "b", "a"]


def test_rule_events_ignored_fields_of_an_object_are_reported_once_a_day() -> None:
    scene = RecordFixture()
    for at in (0.0, APART + 1, LASTING - 1, LASTING + 1):
        scene.passes(
            plan(NOW + at),
            snapshot=seen(msgspec.structs.replace(OBJECT, warnings=("spec.x: no field",))),
        )
    assert [(reason, words) for _, reason, _, words in reported(scene)] == [
        ("HorizontalNodeAutoscalerWarning", "spec.x: no field")
    ] * 2


def test_rule_events_rule_adding_nodes_is_reported_on_its_object_once_saved() -> None:
    rule = RuleVerdict("evening", "pool", KEY, nodes=2, due=1795245600.0)
    unsaved = growing(rule) | {"operations": ()}
    scene = RecordFixture()
    scene.passes(plan(**unsaved), snapshot=seen())
    assert reported(scene) == []
    scene.passes(plan(**growing(rule)), snapshot=seen())
    assert [each for each in reported(scene) if each[1] == "RuleScaledUp"] == [
        (
            "night",
            "RuleScaledUp",
            "Normal",
            "Rule evening: adding 2 nodes to pool pool, due at 2026-11-21T07:20:00Z",
        )
    ]


def test_rule_events_rule_of_the_policy_is_reported_on_the_status() -> None:
    scene = RecordFixture()
    scene.passes(plan(**growing(RuleVerdict("busy", "pool", nodes=1, rate=66.32))))
    assert (
        "cluster-autoscaler-status",
        "RuleScaledUp",
        "Normal",
        "Rule busy: adding 1 node to pool pool, its rate is 66.3%",
    ) in reported(scene)


def test_rule_events_rule_of_a_deleted_object_is_reported_on_the_status() -> None:
    scene = RecordFixture()
    scene.passes(
        plan(**growing(RuleVerdict("busy", "pool", "kube-system/gone", nodes=1))), snapshot=seen()
    )
    assert [name for name, reason, *_ in reported(scene) if reason == "RuleScaledUp"] == [
        "cluster-autoscaler-status"
    ]


def test_CCE_A4_dropped_occurrence_and_impossible_rules_cause_warnings() -> None:
    scene = RecordFixture()
    scene.passes(
        plan(
            rules=(
                RuleVerdict(
                    "late",
                    "p",
                    KEY,
                    due=1.0,
                    reason=Reason.of(ReasonCode.RULE_EXPIRED, due=1795245600.0),
                ),
                RuleVerdict(
                    "low",
                    "p",
                    KEY,
                    reason=Reason.of(ReasonCode.RULE_INVALID, rule="low", detail="40% is too low"),
                ),
                RuleVerdict(
                    "lost",
                    "q",
                    KEY,
                    reason=Reason.of(ReasonCode.RULE_NO_GROUP, rule="lost", group="q"),
                ),
                RuleVerdict(
                    "quiet", "p", KEY, reason=Reason.of(ReasonCode.RULE_NOT_DUE, until=NOW)
                ),
            )
        ),
        snapshot=seen(),
    )
    assert [(reason, type_) for _, reason, type_, _ in reported(scene)] == [
        ("RuleExpired", "Warning"),
        ("RuleInvalid", "Warning"),
        ("RuleGroupUnknown", "Warning"),
    ]
    assert reported(scene)[0][3] == (
        "Rule late, pool p: its time is over by more than half an hour; dropped (was due at "
        "2026-11-21T07:20:00Z)"
    )


def test_CCE_A10_taint_and_annotation_cause_one_warning_each() -> None:
    notes = (
        *(Reason.of(ReasonCode.AVOID_TAINT, node=name, taint="x") for name in ("n1", "n2")),
        Reason.of(ReasonCode.AVOID_ANNOTATION, pod="kube-system/agent-1"),
        Reason.of(ReasonCode.BAD_PROTECTION, pod="kube-system/agent-1", value="abc"),
    )
    pods = (Pod("kube-system", "agent-1", "uid-agent", 0, node="n1"),)
    scene = RecordFixture()
    for at in range(0, 3600, 240):
        scene.passes(plan(NOW + at, notes=notes), snapshot=Snapshot("c", NOW + at, pods=pods))
    assert [(name, reason, type_) for name, reason, type_, _ in reported(scene)] == [
        ("n1", "IgnoreTaintPrefixUsed", "Warning"),
        ("n2", "IgnoreTaintPrefixUsed", "Warning"),
        ("agent-1", "DaemonSetEvictionAnnotationUsed", "Warning"),
        ("agent-1", "DoNotDisruptInvalid", "Warning"),
    ]
    assert scene.wall.posted[-1].uid == "uid-agent"
    scene.passes(plan(NOW + LASTING + 1, notes=notes[:1]), snapshot=Snapshot("c", NOW, pods=pods))
    assert len(reported(scene)) == 5, "a day later once more"


def test_rule_events_journal_names_the_rules_of_a_pass_and_of_a_scale_up() -> None:
    facts = plan_entry(plan(**growing(RuleVerdict("evening", "pool", KEY, nodes=2)))).facts
    assert facts["rules"] == f"{KEY}/evening"
    assert "rules" not in plan_entry(plan()).facts
    operation = ended(OperationKind.SCALE_UP, data={"rules": "evening,busy"})
    assert outcome_entry(operation, Succeeded({}), NOW).facts["rules"] == "evening,busy"


def test_rule_events_changed_rule_result_is_a_new_decision() -> None:
    verdict = RuleVerdict(
        "busy", "p", reason=Reason.of(ReasonCode.RULE_BELOW, metric="cpu", rate=30.0, above=40)
    )
    other = msgspec.structs.replace(
        verdict,
        rate=31.0,
        reason=Reason.of(ReasonCode.RULE_BELOW, metric="cpu", rate=31.0, above=40),
    )
    scaling = msgspec.structs.replace(
        verdict, reason=Reason.of(ReasonCode.RULE_SCALING, pool="p", detail="x")
    )
    entries = [
        plan_entry(plan(rules=(each,))).facts["decision"] for each in (verdict, other, scaling)
    ]
    assert entries[0] == entries[1] != entries[2]
