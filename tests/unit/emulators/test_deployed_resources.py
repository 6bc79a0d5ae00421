"""The tables and queues that both deployment methods share."""

from __future__ import annotations

from typing import Any

import pytest

from app import app
from chalicelib.store.tables import policy_table_of
from infra.aws.resources import QUEUES, logical_id, queues, resources, tables
from infra.aws.template_overlay import FUNCTIONS, function_id, merge_template
from infra.emulators import deployed_functions

RULE = "arn:aws:events:eu-central-1:123456789012:rule/outscaler-dev-tick-event"
STAGE: dict[str, Any] = {
    "log_retention_in_days": 7,
    "environment_variables": {},
    "tags": {"stage": "dev"},
}


def test_deployment_every_queue_of_the_app_has_its_settings() -> None:
    taken = {source.queue for source in deployed_functions.functions() if source.queue}
    assert set(QUEUES) == taken
    sources: list[Any] = [*app.event_sources, *app.pure_lambda_functions]
    started = {source.name for source in sources}
    assert {"api_handler", *started} == {each.name for each in FUNCTIONS}


@pytest.mark.parametrize("prefix", ["", "outscaler-dev"])
def test_deployment_queue_has_its_own_dead_letter_queue(prefix: str) -> None:
    made = queues(prefix)
    for name, settings in QUEUES.items():
        properties = made[f"{logical_id(name)}Queue"]["Properties"]
        assert properties["RedrivePolicy"] == {
            "deadLetterTargetArn": {"Fn::GetAtt": [f"{logical_id(name)}DeadLetters", "Arn"]},
            "maxReceiveCount": settings.max_receives,
        }
        assert (
            made[f"{logical_id(name)}DeadLetters"]["Properties"]["MessageRetentionPeriod"]
            == 14 * 86_400
        )


def test_deployment_resource_names_follow_from_the_prefix() -> None:
    named = {
        one["Properties"].get("TableName") or one["Properties"].get("QueueName")
        for one in (tables("outscaler-dev") | queues("outscaler-dev")).values()
    }
    assert {
        "outscaler-dev-state",
        policy_table_of("outscaler-dev-state"),
        "outscaler-dev-reconcile",
        "outscaler-dev-reconcile-dead",
        "outscaler-dev-act_exoscale",
        "outscaler-dev-tick-dead",
    } <= named
    assert all(str(name).startswith("outscaler-dev-") for name in named)


def test_deployment_resource_names_are_generated_without_a_prefix() -> None:
    made = tables() | queues()
    named = [
        name for name, one in made.items() if one["Properties"].keys() & {"TableName", "QueueName"}
    ]
    assert named == ["PolicyTable"]


def test_deployment_only_the_schedule_rule_may_send_undelivered_ticks() -> None:
    properties = resources(RULE)["TickDeadLettersPolicy"]["Properties"]
    [statement] = properties["PolicyDocument"]["Statement"]
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": RULE}}
    assert statement["Resource"] == {"Fn::GetAtt": ["TickDeadLetters", "Arn"]}


def test_deployment_merge_template_has_the_shared_tables_and_queues() -> None:
    merged = merge_template(STAGE)["Resources"]
    for name in resources(RULE):
        assert name in merged
    assert {f"{function_id(each.name)}LogPolicy" for each in FUNCTIONS} <= merged.keys()
