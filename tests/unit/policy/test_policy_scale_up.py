"""spec.scaleUp: switches and thresholds."""

from __future__ import annotations

from chalicelib.policy.load import load
from chalicelib.policy.settings.scale_up import ScaleUp
from tests.cases import each_row
from tests.unit.policy.policy_documents import GOOD, with_spec
from tests.unit.policy.test_policy_refusals import refusals


@each_row(
    ("given", "read"),
    [
        ("{}", ScaleUp()),
        ("{unschedulablePods: false}", ScaleUp(unschedulable_pods=False)),
        ("{rules: false}", ScaleUp(rules=False)),
        (
            "{cpuThreshold: 80, memoryThreshold: 75%}",
            ScaleUp(cpu_threshold=80, memory_threshold=75),
        ),
        (
            "{metricMinInterval: 90s, cronTimeZone: Asia/Shanghai}",
            ScaleUp(metric_min_interval=90.0, cron_time_zone="Asia/Shanghai"),
        ),
        ("{horizontalNodeAutoscalers: true}", ScaleUp(horizontal_node_autoscalers=True)),
        ("{horizontalNodeAutoscalers: false}", ScaleUp(horizontal_node_autoscalers=False)),
    ],
)
def test_policy_scale_up_section_is_parsed(given: str, read: ScaleUp) -> None:
    policy, reported = load(with_spec(f"scaleUp: {given}"), place="p.yaml")
    assert (policy.scale_up, reported) == (read, ())


def test_policy_scale_up_defaults_enable_all_and_read_objects_with_huaweicloud() -> None:
    assert load(GOOD, place="p.yaml")[0].scale_up == ScaleUp(True, True, 100, 100, 0.0, "UTC", None)


@each_row(
    ("given", "says"),
    [
        ("true", "p.yaml:9: spec.scaleUp: is 'true'; write a mapping"),
        ("{rules: 1}", "p.yaml:9: spec.scaleUp.rules: '1' is not true or false"),
        ("{cpuThreshold: 0}", "p.yaml:9: spec.scaleUp.cpuThreshold: '0' is out of range"),
        (
            "{memoryThreshold: 0.8}",
            "p.yaml:9: spec.scaleUp.memoryThreshold: '0.8' is not a whole percentage",
        ),
        (
            "{metricMinInterval: 25h}",
            "p.yaml:9: spec.scaleUp.metricMinInterval: '25h' is out of range",
        ),
        (
            "{cronTimeZone: shanghai}",
            "p.yaml:9: spec.scaleUp.cronTimeZone: 'shanghai' is not a time zone",
        ),
        (
            "{unschedulablepods: true}",
            "p.yaml:9: spec.scaleUp.unschedulablepods: is unknown; did you mean unschedulableP",
        ),
    ],
)
def test_policy_scale_up_errors_are_refused(given: str, says: str) -> None:
    (reported,) = refusals(with_spec(f"scaleUp: {given}"))
    assert reported.startswith(says)


def test_CCE_A1_1_both_triggers_disabled_is_reported() -> None:
    _, reported = load(
        with_spec("scaleUp: {rules: false, unschedulablePods: false}"), place="p.yaml"
    )
    assert reported == (
        "p.yaml:9: spec.scaleUp: groups grow for no pod and by no rule: both switches are false",
    )


def test_CCE_A1_1_disabled_rules_are_reported() -> None:
    rule = '{name: a, groups: [w], cron: "47 20 * * *", add: 1}'
    _, reported = load(with_spec(f"scaleUp: {{rules: false}}\nrules: [{rule}]"), place="p.yaml")
    assert reported == ("p.yaml:10: spec.rules: none of them is in force: scaleUp.rules is false",)
