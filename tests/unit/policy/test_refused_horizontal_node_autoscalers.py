"""HorizontalNodeAutoscaler objects that are refused, with their messages."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from chalicelib.policy.horizontal_node_autoscaler import read_object
from tests.cases import each_row
from tests.unit.policy.test_horizontal_node_autoscaler import POOL, SOURCE, bent

REFUSED: list[tuple[str, Callable[[Any, Any], Any], str]] = [
    (
        "two for cpu",
        lambda spec, rules: rules.append({**copy.deepcopy(rules[1]), "ruleName": "again"}),
        'spec.rules[2]: is a second rule for cpu, beside "cpu-40"; leave one',
    ),
    (
        "eleven",
        lambda spec, rules: rules.extend({**rules[0], "ruleName": f"r{n}"} for n in range(9)),
        "spec.rules: has 11 rules; write at most 10",
    ),
    (
        "a number",
        lambda spec, rules: rules[1]["metricTrigger"].update(metricValue=40),
        'spec.rules[1].metricTrigger.metricValue: 40 is a number; write it as text, "40"',
    ),
    *[
        (
            f"threshold {text}",
            lambda spec, rules, text=text: rules[1]["metricTrigger"].update(metricValue=text),
            (
                f'spec.rules[1].metricTrigger.metricValue: "{text}" is not a percentage; '
                f'write a whole number from "1" to '
                '"100", or "-1" for automatic'
            ),
        )
        for text in ("0", "101", "4.5", "040", "40%", "-2", "٤٠")
    ],
    (
        "operation",
        lambda spec, rules: rules[1]["metricTrigger"].update(metricOperation="<"),
        'spec.rules[1].metricTrigger.metricOperation: "<" is not known; write >',
    ),
    (
        "unit",
        lambda spec, rules: rules[1]["metricTrigger"].update(unit="cores"),
        'spec.rules[1].metricTrigger.unit: "cores" is not known; write Percent',
    ),
    (
        "metric",
        lambda spec, rules: rules[1]["metricTrigger"].update(metricName="Gpu"),
        'spec.rules[1].metricTrigger.metricName: "Gpu" is not known; write Cpu or Memory',
    ),
    (
        "no schedule",
        lambda spec, rules: rules[0]["cronTrigger"].clear(),
        (
            'spec.rules[0].cronTrigger.schedule: is missing; write five fields of cron, like "47 '
            '20 * * *"'
        ),
    ),
    (
        "six fields",
        lambda spec, rules: rules[0]["cronTrigger"].update(schedule="0 47 20 * * *"),
        (
            "spec.rules[0].cronTrigger.schedule: '0 47 20 * * *' is not five fields of "
            'cron; write it like "0 22 * * 1-5"'
        ),
    ),
    (
        "no trigger",
        lambda spec, rules: rules[0].pop("cronTrigger"),
        "spec.rules[0].cronTrigger: is missing; a rule of type Cron has one",
    ),
    (
        "both triggers",
        lambda spec, rules: rules[0].update(metricTrigger=rules[1]["metricTrigger"]),
        (
            "spec.rules[0].metricTrigger: belongs to another type than Cron; take it out, or write "
            "cronTrigger"
        ),
    ),
    (
        "type",
        lambda spec, rules: rules[0].update(type="Periodic"),
        'spec.rules[0].type: "Periodic" is not known; write Cron or Metric',
    ),
    (
        "scale down",
        lambda spec, rules: rules[0]["action"].update(type="ScaleDown"),
        'spec.rules[0].action.type: "ScaleDown" is not known; write ScaleUp',
    ),
    (
        "action unit",
        lambda spec, rules: rules[0]["action"].update(unit="Percent"),
        'spec.rules[0].action.unit: "Percent" is not known; write Node',
    ),
    (
        "no nodes",
        lambda spec, rules: rules[0]["action"].update(value=0),
        (
            "spec.rules[0].action.value: 0 is not such a number; write how many nodes to add, 1 or "
            "more"
        ),
    ),
    (
        "half a node",
        lambda spec, rules: rules[1]["action"].update(value=1.5),
        (
            "spec.rules[1].action.value: 1.5 is not such a number; write how many nodes "
            "to add, 1 or more; 0, -1 or nothing: "
            "as many as needed"
        ),
    ),
    (
        "cron without a number",
        lambda spec, rules: rules[0]["action"].pop("value"),
        "spec.rules[0].action.value: is missing; write how many nodes to add, 1 or more",
    ),
    (
        "no name",
        lambda spec, rules: rules[0].update(ruleName=" "),
        'spec.rules[0].ruleName: " " is not a name; name the rule',
    ),
    (
        "a name twice",
        lambda spec, rules: rules[1].update(ruleName="evening"),
        'spec.rules[1].ruleName: "evening" is there twice; give every rule a name of its own',
    ),
    (
        "a switch in words",
        lambda spec, rules: spec.update(disable="yes"),
        'spec.disable: "yes" is neither true nor false; write true or false',
    ),
    (
        "one target",
        lambda spec, rules: spec.update(targetNodepoolIds=POOL),
        f'spec.targetNodepoolIds: "{POOL}" is not a list; write the uids of node pools as a list',
    ),
    (
        "a number as target",
        lambda spec, rules: spec["targetNodepoolIds"].append(7),
        "spec.targetNodepoolIds[1]: 7 is not the uid of a node pool; write it as text",
    ),
    (
        "a crowd of targets",
        lambda spec, rules: spec.update(targetNodepoolIds=["x"] * 101),
        "spec.targetNodepoolIds: has 101 node pools; write at most 100, and another object",
    ),
    (
        "a target of any length",
        lambda spec, rules: spec.update(targetNodepoolIds=["x" * 254]),
        f'spec.targetNodepoolIds[0]: "{"x" * 60}…" is not the uid of a node pool; write it as text',
    ),
    (
        "two spellings",
        lambda spec, rules: spec.update(Rules=[]),
        "spec.rules: is there twice, in two spellings; leave one",
    ),
]


@each_row(("change", "problem"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_CCE_1_object_with_one_error_is_refused_as_a_whole(change: Any, problem: str) -> None:
    found = read_object(bent(change))
    assert found.problems == (problem,)
    assert found.rules == ()
    assert found.key == SOURCE, "it is known by its name all the same"


def test_CCE_A2_all_errors_are_reported_at_once() -> None:
    def spoil(spec: dict[str, Any], rules: list[dict[str, Any]]) -> None:
        rules[0]["cronTrigger"] = {}
        rules[1]["metricTrigger"] |= {"metricValue": 40, "metricOperation": "<"}
        rules.append({})

    places = [problem.partition(": ")[0] for problem in read_object(bent(spoil)).problems]
    assert places == [
        "spec.rules[0].cronTrigger.schedule",
        "spec.rules[1].metricTrigger.metricOperation",
        "spec.rules[1].metricTrigger.metricValue",
        "spec.rules[2].ruleName",
        "spec.rules[2].type",
    ]
