"""Effect of each parameter of the stack, and that nothing of it exists without the parameter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

from chalicelib.model.policy_permissions import (
    IN_LAMBDA,
    deployment_of,
    deployment_published,
    published_in,
)
from infra.aws.resources import QUEUES, logical_id
from infra.aws.template_check import REGIONS, lint, translate
from infra.aws.template_overlay import FUNCTIONS, function_id
from tests.functional.artifact import artifact
from tests.functional.resolved_template import EVERYTHING, VPC, Template, resolve
from tests.functional.stack import ACT, HANDLERS, QUEUED

STAGES = pytest.mark.parametrize("stage", ["dev", "prod"])
KEY = EVERYTHING["KmsKeyArn"]
SCENARIOS: dict[str, dict[str, str]] = {
    "nothing": {},
    "everything": EVERYTHING,
    "vpc": VPC,
    "key": {"KmsKeyArn": KEY},
    "providers off": {f"Use{name.removeprefix('Act')}": "off" for name in ACT}
    | {"AccessLog": "off"},
}


def _translated(stage: str = "dev", **given: str) -> Template:
    return resolve(artifact().translated(stage), **given)


def _of_type(template: Template, kind: str) -> dict[str, Any]:
    return {
        name: one["Properties"]
        for name, one in template["Resources"].items()
        if one["Type"] == kind
    }


def _actions(template: Template) -> set[str]:
    """Every action that any role is allowed."""
    documents = [
        policy["PolicyDocument"]
        for role in _of_type(template, "AWS::IAM::Role").values()
        for policy in role["Policies"]
    ]
    documents += [one["PolicyDocument"] for one in _of_type(template, "AWS::IAM::Policy").values()]
    return {
        action
        for document in documents
        for statement in document["Statement"]
        if statement["Effect"] == "Allow"
        for action in statement["Action"]
    }


@pytest.mark.parametrize(
    ("scenario", "stage"),
    [
        pytest.param(
            scenario, stage, marks=() if scenario in ("nothing", "everything") else pytest.mark.slow
        )
        for scenario, stage in zip(SCENARIOS, cycle(("prod", "dev")))
    ],
)
def test_every_combination_of_parameters_passes_cfn_lint(scenario: str, stage: str) -> None:
    """The stages differ in settings that no parameter changes: each choice on one
    stage, both stages in turn. The slow ones are parts of `everything`, or of `nothing`
    with fewer queues polled."""
    resolved = resolve(artifact().translated(stage), **SCENARIOS[scenario])
    assert len(REGIONS) >= 6
    assert lint({"AWSTemplateFormatVersion": "2010-09-09", **resolved}) == []


@pytest.mark.parametrize(
    ("service", "given"),
    [
        ("ec2", VPC),
        ("kms", {"KmsKeyArn": KEY}),
        ("xray", {"Tracing": "on"}),
    ],
)
def test_rights_on_an_optional_service_need_its_parameter(
    service: str, given: dict[str, str]
) -> None:
    without, with_it = _actions(_translated()), _actions(_translated(**given))
    brought = with_it - without
    assert brought
    assert {action.partition(":")[0] for action in brought} == {service}
    assert not [action for action in without if action.startswith(f"{service}:")]


def test_vpc_rights_apply_to_lambda_and_not_to_the_code() -> None:
    roles = _of_type(_translated(**VPC), "AWS::IAM::Role")
    assert len(roles) == len(FUNCTIONS)
    for name, role in roles.items():
        [policy] = [
            one["PolicyDocument"] for one in role["Policies"] if one["PolicyName"] == "UseVpc"
        ]
        allowed = {
            action
            for one in policy["Statement"]
            if one["Effect"] == "Allow"
            for action in one["Action"]
        }
        [denied] = [one for one in policy["Statement"] if one["Effect"] == "Deny"]
        assert set(denied["Action"]) == allowed, name
        assert denied["Condition"]["ArnLike"].keys() == {"lambda:SourceFunctionArn"}
        everywhere = {
            action
            for one in policy["Statement"]
            if one["Effect"] == "Allow" and one["Resource"] == "*"
            for action in one["Action"]
        }
        assert all(action.startswith("ec2:Describe") for action in everywhere)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, None),
        (
            VPC,
            {
                "SubnetIds": VPC["SubnetIds"].split(","),
                "SecurityGroupIds": [VPC["SecurityGroupIds"]],
            },
        ),
        ({"SubnetIds": "subnet-1"}, {"SubnetIds": ["subnet-1"], "SecurityGroupIds": [""]}),
    ],
)
def test_functions_are_in_a_vpc_only_if_subnets_are_given(
    given: dict[str, str], wanted: Any
) -> None:
    """An incomplete VPC configuration is passed on to Lambda, which rejects it; silently running
    outside the VPC would be worse."""
    functions = _of_type(_translated(**given), "AWS::Lambda::Function")
    assert functions
    for name, one in functions.items():
        assert one.get("VpcConfig") == wanted, name


def test_key_parameter_encrypts_tables_queues_logs_and_variables() -> None:
    template = _translated(KmsKeyArn=KEY)
    fields: dict[str, Callable[[Any], Any]] = {
        "AWS::DynamoDB::Table": lambda one: one["SSESpecification"]["KMSMasterKeyId"],
        "AWS::SQS::Queue": lambda one: one["KmsMasterKeyId"],
        "AWS::Logs::LogGroup": lambda one: one["KmsKeyId"],
        "AWS::Lambda::Function": lambda one: one["KmsKeyArn"],
    }
    for kind, field in fields.items():
        found = _of_type(template, kind)
        assert found
        assert {field(one) for one in found.values()} == {KEY}, kind
    assert not [
        name
        for name, one in _of_type(template, "AWS::SQS::Queue").items()
        if "SqsManagedSseEnabled" in one
    ]


def test_queues_are_encrypted_without_a_key_parameter() -> None:
    template = _translated()
    assert {
        one["SqsManagedSseEnabled"] for one in _of_type(template, "AWS::SQS::Queue").values()
    } == {True}
    assert KEY.partition(":key/")[0] not in json.dumps(template)


def test_role_uses_the_key_only_through_services() -> None:
    roles = _of_type(_translated(KmsKeyArn=KEY), "AWS::IAM::Role")
    assert roles
    for name, role in roles.items():
        [policy] = [
            one["PolicyDocument"] for one in role["Policies"] if one["PolicyName"] == "UseKmsKey"
        ]
        [statement] = policy["Statement"]
        assert statement["Resource"] == KEY, name
        services = {
            text["Fn::Sub"].partition(".")[0]
            for text in statement["Condition"]["StringEquals"]["kms:ViaService"]
        }
        assert services == {"dynamodb", "lambda", "s3", "secretsmanager", "sqs", "ssm"}


@STAGES
def test_reserved_concurrency_is_at_least_that_of_the_event_source(stage: str) -> None:
    template = _translated(stage, Reserve="on")
    functions = _of_type(template, "AWS::Lambda::Function")
    reserved = {name: one["ReservedConcurrentExecutions"] for name, one in functions.items()}
    assert {name: reserved[name] for name in ("APIHandler", "Tick", "Reconcile", *ACT)} == {
        "APIHandler": 50,
        "Tick": 1,
        "Reconcile": 20,
        **dict.fromkeys(ACT, 5),
    }
    for source in _of_type(template, "AWS::Lambda::EventSourceMapping").values():
        assert (
            reserved[source["FunctionName"]["Ref"]] >= source["ScalingConfig"]["MaximumConcurrency"]
        )
    assert not [
        one
        for one in _of_type(_translated(stage), "AWS::Lambda::Function").values()
        if "ReservedConcurrentExecutions" in one
    ]


@pytest.mark.parametrize("function", ACT)
def test_queue_of_a_disabled_provider_is_not_polled(function: str) -> None:
    template = _translated(**{f"Use{function.removeprefix('Act')}": "off"})
    enabled = {
        one["FunctionName"]["Ref"]: one.get("Enabled", True)
        for one in _of_type(template, "AWS::Lambda::EventSourceMapping").values()
    }
    assert enabled == dict.fromkeys(QUEUED, True) | {function: False}
    everyone = _of_type(_translated(), "AWS::Lambda::EventSourceMapping")
    assert all(one.get("Enabled", True) for one in everyone.values())


def test_every_dead_letter_queue_has_an_alarm_only_with_a_topic() -> None:
    assert not _of_type(_translated(), "AWS::CloudWatch::Alarm")
    alarms = _of_type(
        _translated(AlarmTopicArn=EVERYTHING["AlarmTopicArn"]), "AWS::CloudWatch::Alarm"
    )
    watched = {
        one["Dimensions"][0]["Value"]["Fn::GetAtt"][0]
        for name, one in alarms.items()
        if name.endswith("DeadLettersAlarm")
    }
    assert watched == {f"{logical_id(name)}DeadLetters" for name in ("tick", *QUEUES)}
    assert all(one["AlarmActions"] == [EVERYTHING["AlarmTopicArn"]] for one in alarms.values())


@pytest.mark.parametrize(("given", "mode"), [({}, "PassThrough"), ({"Tracing": "on"}, "Active")])
def test_functions_are_traced_only_if_tracing_is_enabled(given: dict[str, str], mode: str) -> None:
    functions = _of_type(_translated(**given), "AWS::Lambda::Function")
    assert {one["TracingConfig"]["Mode"] for one in functions.values()} == {mode}


@STAGES
@pytest.mark.parametrize(
    ("given", "prefix"),
    [
        ({}, ""),
        ({"Stage": "team-a"}, "outscaler/team-a/"),
        ({"SecretPrefix": "outscaler/"}, "outscaler/"),
        ({"SecretPrefix": "elsewhere/", "Stage": "team-a"}, "elsewhere/"),
    ],
)
def test_secrets_have_the_stages_prefix_unless_one_is_given(
    stage: str, given: dict[str, str], prefix: str
) -> None:
    wanted = prefix or f"outscaler/{stage}/"
    template = _translated(stage, **given)
    for name, one in _of_type(template, "AWS::Lambda::Function").items():
        known = one["Environment"]["Variables"]["OUTSCALER_SECRET_PREFIX"]
        assert known in (wanted, {"Fn::Sub": wanted}), name
    found = re.findall(
        r":(?:secret:|parameter/)([^\"]*)", json.dumps(_of_type(template, "AWS::IAM::Role"))
    )
    assert found
    assert all(text.startswith(f"{wanted}*/") for text in found)


@STAGES
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"SecretPrefix": "elsewhere/"},
        {
            "Stage": "team-a",
            "SharedSecrets": "outscaler/shared/exoscale",
            "AllowedEndpoints": "proxy.example.com:8443",
        },
    ],
    ids=["defaults", "prefix", "lists"],
)
def test_stack_publishes_the_settings_of_its_functions(stage: str, given: dict[str, str]) -> None:
    template = _translated(stage, **given)
    [output] = _texts(template["Outputs"]["PolicySettings"]["Value"])
    functions = list(_of_type(template, "AWS::Lambda::Function").values())
    assert functions
    for one in functions:
        variables = {
            name: _texts(value)[0] for name, value in one["Environment"]["Variables"].items()
        }
        assert deployment_published(published_in(output)) == deployment_of(
            variables | {IN_LAMBDA: "any"}
        )


def _texts(value: Any) -> list[str]:
    """A text as CloudFormation makes it of a substitution without references; other
    values are not settings."""
    text = value.get("Fn::Sub", "") if isinstance(value, dict) else value
    return [text if isinstance(text, str) else ""]


@STAGES
def test_all_billed_resources_are_tagged_with_the_stage(stage: str) -> None:
    template = _translated(stage, Stage="team-a")
    for kind in (
        "AWS::DynamoDB::Table",
        "AWS::SQS::Queue",
        "AWS::Logs::LogGroup",
        "AWS::Lambda::Function",
    ):
        assert _of_type(template, kind), kind
        for name, one in _of_type(template, kind).items():
            tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
            assert {"app": "outscaler", "stage": "team-a"}.items() <= tags.items(), name


@STAGES
def test_default_stage_is_the_packaged_one(stage: str) -> None:
    parameters = artifact().sam(stage)["Parameters"]
    assert parameters["Stage"]["Default"] == stage
    assert parameters["LogRetention"]["Default"] == {"dev": 7, "prod": 30}[stage]
    assert not [name for name, one in parameters.items() if "Default" not in one], (
        "a stack needs no parameter"
    )


def test_log_retention_parameter_applies_to_every_log_group() -> None:
    groups = _of_type(_translated(LogRetention="90"), "AWS::Logs::LogGroup")
    assert len(groups) == len(HANDLERS) + 1
    assert {one["RetentionInDays"] for one in groups.values()} == {"90"}


@STAGES
def test_crashing_tick_leaves_its_event_in_the_dead_letter_queue(stage: str) -> None:
    template = _translated(stage)
    [config] = [
        one
        for one in _of_type(template, "AWS::Lambda::EventInvokeConfig").values()
        if one["FunctionName"] == {"Ref": "Tick"}
    ]
    queue = {"Fn::GetAtt": ["TickDeadLetters", "Arn"]}
    assert config["FunctionName"] == {"Ref": "Tick"}
    assert config["DestinationConfig"] == {"OnFailure": {"Destination": queue}}
    senders = {
        name
        for name, role in _of_type(template, "AWS::IAM::Role").items()
        for policy in role["Policies"]
        for one in policy["PolicyDocument"]["Statement"]
        if one["Resource"] == queue
    }
    assert senders == {"TickRole"}


@STAGES
def test_api_is_regional_and_has_one_stage(stage: str) -> None:
    template = _translated(stage)
    [api] = _of_type(template, "AWS::ApiGateway::RestApi").values()
    assert api["EndpointConfiguration"] == {"Types": ["REGIONAL"]}
    assert len(_of_type(template, "AWS::ApiGateway::Stage")) == 1


def test_template_translation_is_equal_in_every_region() -> None:
    sam = artifact().sam("dev")
    assert [
        region for region in REGIONS if translate(sam, region) != artifact().translated("dev")
    ] == []


@pytest.mark.parametrize(
    ("parameter", "refused"),
    [
        ("Stage", ["", "Prod", "a_b", "-a", "a" * 21, "a/../b"]),
        ("SecretPrefix", ["*", "a?", "outscaler/*/", "a b/"]),
        ("KmsKeyArn", ["alias/mine", "arn:aws:kms:us-east-1:123456789012:alias/mine", "*"]),
        ("AlarmTopicArn", ["mine", "arn:aws:sqs:us-east-1:123456789012:mine", "*"]),
    ],
)
def test_parameter_values_with_excessive_grants_are_rejected(
    parameter: str, refused: list[str]
) -> None:
    pattern = artifact().sam("dev")["Parameters"][parameter]["AllowedPattern"]
    assert [text for text in refused if re.fullmatch(pattern, text)] == []
    assert re.fullmatch(pattern, EVERYTHING.get(parameter, "team-a"))


def test_parameter_sets_the_concurrency_of_passes() -> None:
    template = _translated("prod", Reserve="on", PassConcurrency="64")
    functions, sources = (
        _of_type(template, f"AWS::Lambda::{kind}") for kind in ("Function", "EventSourceMapping")
    )
    [source] = [one for one in sources.values() if one["FunctionName"]["Ref"] == "Reconcile"]
    assert int(functions["Reconcile"]["ReservedConcurrentExecutions"]) == 64
    assert int(source["ScalingConfig"]["MaximumConcurrency"]) == 64


def test_reserved_concurrency_in_total_fits_a_quota_of_200() -> None:
    assert sum(each.reserved for each in FUNCTIONS) <= 100
    assert {function_id(each.name) for each in FUNCTIONS} == set(HANDLERS)
