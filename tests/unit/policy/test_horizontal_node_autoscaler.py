"""HorizontalNodeAutoscaler objects: accepted and refused fields with their
messages; parsing never raises.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.model.scaling_rules import Metric, Rule
from chalicelib.policy.horizontal_node_autoscaler import MOST_SENTENCES, obeyed, read_object
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.cases import each_row

POOL = "7d48eca7-3419-11ea-bc29-0255ac1001a8"
INTACT = f"""
apiVersion: autoscaling.cce.io/v1alpha1
kind: HorizontalNodeAutoscaler
metadata: {{name: pool-a-policy, namespace: kube-system, uid: u-1, creationTimestamp: \
"2026-11-21T07:20:54Z"}}
spec:
  disable: false
  targetNodepoolIds: [{POOL}]
  rules:
    - {{ruleName: evening, type: Cron, disable: false, cronTrigger: {{schedule: "47 20 * * *"}},
       action: {{type: ScaleUp, unit: Node, value: 1}}}}
    - {{ruleName: cpu-40, type: Metric, disable: false,
       metricTrigger: {{metricName: Cpu, metricOperation: ">", metricValue: "40", unit: Percent}},
       action: {{type: ScaleUp, unit: Node, value: 2}}}}
"""
SOURCE = "kube-system/pool-a-policy"
EVENING = Rule("evening", (POOL,), cron="47 20 * * *", add=1, source=SOURCE)
BUSY = Rule("cpu-40", (POOL,), metric=Metric.CPU, above=40, add=2, source=SOURCE)


def intact() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(INTACT)
    return made


def bent(change: Callable[[dict[str, Any], list[dict[str, Any]]], Any]) -> dict[str, Any]:
    """Returns the object after a change to its spec and its rules."""
    made = intact()
    change(made["spec"], made["spec"]["rules"])
    return made


def lowered(value: Any, *, words: bool = True) -> Any:
    """Returns the object in lower case, as the vendor's page shows it: keys and enumerations."""
    if isinstance(value, dict):
        return {key.lower(): lowered(each, words=words) for key, each in value.items()}
    if isinstance(value, list):
        return [lowered(each, words=words) for each in value]
    return value.lower() if words and isinstance(value, str) else value


def test_CCE_A2_vendors_own_example_is_accepted_unchanged() -> None:
    found = read_object(intact())
    assert (found.key, found.uid, found.created, found.disabled) == (
        SOURCE,
        "u-1",
        1795245654.0,
        False,
    )
    assert found.rules == (EVENING, BUSY)
    assert (found.problems, found.warnings) == ((), ())


def test_CCE_A2_lowercase_example_is_equivalent() -> None:
    found = read_object(lowered(intact()))
    assert (found.rules, found.problems, found.warnings) == ((EVENING, BUSY), (), ())


def test_CCE_1_other_spellings_of_unit_are_accepted() -> None:
    def spell(_: Any, rules: list[dict[str, Any]]) -> None:
        trigger = rules[1]["metricTrigger"]
        del trigger["unit"]
        trigger["Unit"] = "%"

    assert read_object(bent(spell)).rules == (EVENING, BUSY)


def test_rule_object_in_a_list_has_no_kind_of_its_own() -> None:
    raw = intact()
    del raw["kind"], raw["apiVersion"]
    assert read_object(raw).rules == (EVENING, BUSY)


@each_row("value", [0, -1, None])
def test_CCE_A2_metric_rule_without_a_number_adds_as_many_as_needed(value: int | None) -> None:
    found = read_object(bent(lambda spec, rules: rules[1]["action"].update(value=value)))
    assert (found.rules[1].add, found.problems) == (0, ())


def test_CCE_A3_6_threshold_of_minus_one_makes_threshold_and_action_automatic() -> None:
    found = read_object(
        bent(lambda spec, rules: rules[1]["metricTrigger"].update(metricValue="-1"))
    )
    assert (found.rules[1].above, found.rules[1].add, found.problems) == (0, 0, ())
    [warning] = found.warnings
    assert warning == (
        "spec.rules[1].action.value: is passed over: with metricValue -1 as many nodes as needed "
        "are added"
    )


@each_row(
    ("change", "rules", "warning"),
    [
        (
            lambda spec, rules: rules[0].update(disable=True),
            ("cpu-40",),
            "spec.rules[0].disable: is true, so that the rule is passed over",
        ),
        (
            lambda spec, rules: spec.update(targetNodepoolIds=[]),
            ("evening", "cpu-40"),
            "spec.targetNodepoolIds: is empty, so that the rules act on nothing",
        ),
        (
            lambda spec, rules: spec.pop("rules"),
            (),
            "spec.rules: is empty, so that nothing is done",
        ),
        (
            lambda spec, rules: rules[0].update(colour="red"),
            ("evening", "cpu-40"),
            "spec.rules[0].colour: is no field of it, and passed over",
        ),
        (
            lambda spec, rules: rules[1]["metricTrigger"].pop("unit"),
            ("evening", "cpu-40"),
            "spec.rules[1].metricTrigger.unit: is missing, and taken as Percent",
        ),
    ],
)
def test_CCE_A2_harmless_deviations_are_warnings(
    change: Any, rules: tuple[str, ...], warning: str
) -> None:
    found = read_object(bent(change))
    assert (found.problems, found.warnings) == ((), (warning,))
    assert tuple(rule.name for rule in found.rules) == rules


def test_CCE_A2_disabled_rule_leaves_its_place_to_another() -> None:
    def two(_: Any, rules: list[dict[str, Any]]) -> None:
        rules.append({**copy.deepcopy(rules[1]), "ruleName": "other"})
        rules[1]["disable"] = True

    assert [rule.name for rule in read_object(bent(two)).rules] == ["evening", "other"]


def test_CCE_A2_disabled_object_is_off_whatever_its_errors() -> None:
    def off(spec: dict[str, Any], rules: list[dict[str, Any]]) -> None:
        spec["disable"] = True
        rules[1]["metricTrigger"]["metricValue"] = 40

    found = read_object(bent(off))
    assert (found.disabled, found.rules, found.problems) == (True, (), ())
    assert found.warnings == (
        'spec.rules[1].metricTrigger.metricValue: 40 is a number; write it as text, "40"',
    )


@each_row(
    ("key", "value", "problem"),
    [
        (
            "apiVersion",
            "autoscaling.cce.io/v2",
            ('apiVersion: "autoscaling.cce.io/v2" is not known; write autoscaling.cce.io/v1alpha1'),
        ),
        ("kind", "Pod", 'kind: "Pod" is something else; write HorizontalNodeAutoscaler'),
        (
            "metadata",
            {"namespace": "kube-system"},
            "metadata.name: is missing; give the object a name",
        ),
        (
            "metadata",
            {"name": "x", "namespace": "shop"},
            'metadata.namespace: "shop" is not looked at; put the object into kube-system',
        ),
    ],
)
def test_rule_object_api_version_and_kind_are_checked(key: str, value: Any, problem: str) -> None:
    found = read_object({**intact(), key: value})
    assert (found.problems, found.rules) == ((problem,), ())


_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["Cron", "metric", "-1", "40", ">", "47 20 * * *", "ScaleUp", "Node", "Cpu"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "metadata",
                    "name",
                    "rules",
                    "ruleName",
                    "type",
                    "disable",
                    "cronTrigger",
                    "schedule",
                    "metricTrigger",
                    "metricName",
                    "metricValue",
                    "metricOperation",
                    "unit",
                    "action",
                    "value",
                    "targetNodepoolIds",
                    "Rules",
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(_VALUES, st.sampled_from(["spec", "metadata", "rules", "rule", "trigger", "action"]))
def test_CCE_A2_invalid_input_is_refused_with_a_message_and_never_raises(
    rubbish: Any, where: str
) -> None:
    raw = intact()
    spec = raw["spec"]
    match where:
        case "rules":
            spec["rules"] = rubbish
        case "rule":
            spec["rules"][0] = rubbish
        case "trigger":
            spec["rules"][1]["metricTrigger"] = rubbish
        case "action":
            spec["rules"][1]["action"] = rubbish
        case _:
            raw[where] = rubbish
    for found in (read_object(raw), read_object(rubbish)):
        assert not (found.problems and found.rules)
        assert len(found.problems) <= MOST_SENTENCES + 1
        assert all(rule.cron or rule.metric for rule in found.rules)
        assert all(rule.add >= 1 or rule.metric for rule in found.rules)
        assert all(0 <= rule.above <= 100 for rule in found.rules)


def test_rule_object_number_too_long_for_python_does_not_crash() -> None:
    found = read_object(
        bent(lambda spec, rules: rules[0]["action"].update({"value": 10**5000, 10**5000: 1}))
    )
    [problem] = found.problems
    assert problem.startswith(
        "spec.rules[0].action.value: a very long number is not such a number; write how many"
    )
    assert found.warnings == (
        "spec.rules[0].action.a very long number: is no field of it, and passed over",
    )


def test_rule_object_long_list_of_errors_is_truncated() -> None:
    found = read_object(bent(lambda spec, rules: spec.update(targetNodepoolIds=[1] * 100)))
    assert len(found.problems) == MOST_SENTENCES + 1
    assert found.problems[-1] == f"and {100 - MOST_SENTENCES} more"


@each_row(
    ("said", "providers", "answer"),
    [
        (None, {}, False),
        (None, {"huaweicloud": {}}, True),
        (True, {}, True),
        (False, {"huaweicloud": {}}, False),
    ],
)
def test_rule_objects_count_by_policy_setting_or_by_the_vendors_provider(
    said: bool | None, providers: dict[str, dict[str, str]], *, answer: bool
) -> None:
    policy = Policy("c", providers=providers, scale_up=ScaleUp(horizontal_node_autoscalers=said))
    assert obeyed(policy) is answer
