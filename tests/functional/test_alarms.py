"""The alarms of both kinds of deployment watch resources that exist, within CloudWatch's limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.runtime.messages import PROVIDERS
from infra.aws.alarm_resources import filters
from infra.aws.alarms import ALARMS, DEAD_LETTERS, FILTERS, FUNCTIONS, PERMANENT, metrics_charged
from infra.aws.deploy import foundation, project
from infra.aws.deploy.stage import Options, Stage, load
from infra.emulators.cloudwatch_alarms import evaluate
from tests.cases import each_row
from tests.functional.artifact import artifact
from tests.functional.resolved_template import EVERYTHING, Template, resolve

ONLY_CLUSTER_API = dict.fromkeys(
    ("UseAlicloud", "UseCherryservers", "UseExoscale", "UseHuaweicloud"), "off"
)
MOST_METRICS = 10  # of an alarm with an expression
TOPIC = EVERYTHING["AlarmTopicArn"]


def _stage() -> Stage:
    return msgspec.structs.replace(
        load("prod"), options=Options(alarm_topic_arn=TOPIC, account_concurrency=50)
    )


def _resources(**given: str) -> dict[str, Any]:
    template: Template = resolve(artifact().translated("prod"), AlarmTopicArn=TOPIC, **given)
    return dict(template["Resources"])


def _alarms(resources: dict[str, Any]) -> dict[str, Any]:
    return {
        name: one["Properties"]
        for name, one in resources.items()
        if one["Type"] == "AWS::CloudWatch::Alarm"
    }


def _dimensions(alarms: dict[str, Any]) -> list[tuple[str, Any]]:
    metrics = [
        metric
        for alarm in alarms.values()
        for metric in [
            alarm,
            *(
                one["MetricStat"]["Metric"]
                for one in alarm.get("Metrics", ())
                if "MetricStat" in one
            ),
        ]
    ]
    return [
        (one["Name"], one["Value"]) for metric in metrics for one in metric.get("Dimensions", ())
    ]


def test_alarms_of_the_template_watch_resources_of_the_template() -> None:
    resources = _resources()
    kinds = {
        "FunctionName": "AWS::Lambda::Function",
        "QueueName": "AWS::SQS::Queue",
        "TableName": "AWS::DynamoDB::Table",
    }
    seen = set()
    for dimension, value in _dimensions(_alarms(resources)):
        if dimension in kinds:
            name = value.get("Ref") or value["Fn::GetAtt"][0]
            assert resources[name]["Type"] == kinds[dimension], name
            seen.add(dimension)
    assert seen == set(kinds)


def test_alarms_of_make_deploy_watch_resources_that_chalice_deploys(tmp_path: Path) -> None:
    stage = _stage()
    graph = project.copied(stage, tmp_path)
    made = foundation.template(stage, "rule")["Resources"]
    names = {
        "FunctionName": {one.function_name for one in graph.functions},
        "QueueName": {
            one["Properties"]["QueueName"]
            for one in made.values()
            if one["Type"] == "AWS::SQS::Queue"
        },
        "TableName": {
            one["Properties"]["TableName"]
            for one in made.values()
            if "TableName" in one["Properties"]
        },
        "Stage": {stage.config["api_gateway_stage"]},
        "ApiName": {"outscaler"},
        "Operation": {"GetItem", "Query", "UpdateItem", "TransactWriteItems"},
    }
    for dimension, value in _dimensions(_alarms(made)):
        assert value in names[dimension], value
    watched = {
        value for dimension, value in _dimensions(_alarms(made)) if dimension == "FunctionName"
    }
    assert watched == names["FunctionName"]
    assert {properties["LogGroupName"] for _, properties in filters(foundation.names(stage))} <= {
        f"/aws/lambda/{name}" for name in names["FunctionName"]
    }


def test_both_deployments_have_the_same_alarms_under_the_same_names() -> None:
    stack, stage = (
        _alarms(_resources()),
        _alarms(foundation.template(_stage(), "rule")["Resources"]),
    )
    wanted = {f"{alarm.name}Alarm" for alarm in ALARMS} | {
        f"{name.title().replace('_', '')}DeadLettersAlarm" for name in DEAD_LETTERS
    }
    assert set(stack) == set(stage) == wanted
    same = (
        "EvaluationPeriods",
        "DatapointsToAlarm",
        "Threshold",
        "ComparisonOperator",
        "TreatMissingData",
    )
    for name in wanted:
        assert [stack[name].get(key) for key in same] == [stage[name].get(key) for key in same]
        assert stack[name]["AlarmActions"] == stack[name]["OKActions"] == [TOPIC]


def test_no_alarm_and_no_filter_exists_without_a_topic() -> None:
    template = resolve(artifact().translated("dev"))
    assert not [
        one for one in template["Resources"].values() if one["Type"].startswith("AWS::CloudWatch")
    ]
    assert not [
        one for one in template["Resources"].values() if one["Type"] == "AWS::Logs::MetricFilter"
    ]
    assert not _alarms(foundation.template(load("dev"), "rule")["Resources"])


def test_alarm_leaves_out_metrics_of_a_provider_that_is_not_used() -> None:
    def watched(**given: str) -> str:
        return json.dumps(_alarms(_resources(**given))["ActErrorsAlarm"])

    assert "ActExoscale" in watched()
    assert "ActExoscale" not in watched(UseExoscale="off")
    off = dict.fromkeys(
        ("UseAlicloud", "UseCherryservers", "UseClusterapi", "UseExoscale", "UseHuaweicloud"), "off"
    )
    left = json.loads(watched(**off))["Metrics"]
    assert [one["Id"] for one in left] == ["errors_logged", "steps", "result"]


def test_account_concurrency_is_part_of_the_expression_in_both_deployments() -> None:
    stack = _alarms(_resources(AccountConcurrency="50"))["ConcurrencyAlarm"]["Metrics"][-1][
        "Expression"
    ]
    stage = _alarms(foundation.template(_stage(), "rule")["Resources"])["ConcurrencyAlarm"][
        "Metrics"
    ][-1]["Expression"]
    assert stack == stage == "100 * claimed / 50"


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.name)
def test_alarm_expression_uses_its_metrics_and_tolerates_missing_values(alarm: Any) -> None:
    assert len(alarm.sources) <= MOST_METRICS
    assert alarm.breaching <= alarm.periods
    assert bool(alarm.expression) == (len(alarm.sources) > 1) or alarm.name == "Concurrency"
    if not alarm.expression:
        return
    text = alarm.expression.replace("{concurrency}", "1000")
    ids = [source.id for source in alarm.sources]
    assert len(set(ids)) == len(ids)
    evaluate(text, dict.fromkeys(ids))
    assert evaluate(text, dict.fromkeys(ids, 10.0)) is not None
    for source in alarm.sources:
        others = dict.fromkeys(ids, 7.0)
        results = {
            evaluate(text, others | {source.id: value}) for value in (None, 0.0, 3.0, 1000.0)
        }
        assert len(results) > 1, f"{source.id} does not matter"


@each_row("given, providers", [({}, PROVIDERS), (ONLY_CLUSTER_API, ("clusterapi",))])
def test_cost_counts_the_metrics_of_all_alarms(
    given: dict[str, str], providers: tuple[str, ...]
) -> None:
    metrics = [
        [one for one in alarm.get("Metrics", [{"MetricStat": alarm}]) if "MetricStat" in one]
        for alarm in _alarms(_resources(**given)).values()
    ]
    assert sum(map(len, metrics)) == metrics_charged(providers)


def test_metric_filters_are_made_for_functions_that_exist() -> None:
    assert {name for each in FILTERS for name in each.functions} < set(FUNCTIONS)
    assert set(PERMANENT) < {each.metric for each in FILTERS}
