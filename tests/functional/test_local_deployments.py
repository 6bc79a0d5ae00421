"""The emulated account accepts Chalice's calls and CloudFormation's templates
where moto alone does not.
"""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.emulators.aws import LocalAws, main
from tests.functional.artifact import artifact

TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "lambda.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
)
SWAGGER = {
    "swagger": "2.0",
    "info": {"version": "1.0", "title": "outscaler"},
    "schemes": ["https"],
    "paths": {
        "/clusters/{name}": {
            "get": {
                "responses": {"200": {"description": "200 response"}},
                "x-amazon-apigateway-integration": {
                    "type": "aws_proxy",
                    "httpMethod": "POST",
                    "uri": "arn:aws:lambda",
                },
            }
        }
    },
}


@pytest.fixture(scope="module")
def account() -> Iterator[LocalAws]:
    with LocalAws() as running:
        yield running


def _function(account: LocalAws, name: str) -> None:
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("app.py", "")
    role = account.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"][
        "Arn"
    ]
    account.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.11",
        Role=role,
        Handler="app.app",
        Code={"ZipFile": code.getvalue()},
    )


@pytest.fixture
def mapped(account: LocalAws) -> tuple[str, str, str]:
    """A function with a queue: the queue's URL and ARN, and the function's name."""
    name = f"mapped-{uuid.uuid4().hex[:8]}"
    _function(account, name)
    sqs = account.client("sqs")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"][
        "QueueArn"
    ]
    account.client("lambda").create_event_source_mapping(
        FunctionName=name, EventSourceArn=arn, BatchSize=1
    )
    return url, arn, name


def test_mapped_queue_keeps_its_messages(account: LocalAws, mapped: tuple[str, str, str]) -> None:
    sqs = account.client("sqs")
    sqs.send_message(QueueUrl=mapped[0], MessageBody="kept")
    [message] = sqs.receive_message(QueueUrl=mapped[0], AttributeNames=["All"])["Messages"]
    assert (message["Body"], message["Attributes"]["ApproximateReceiveCount"]) == ("kept", "1")


@pytest.mark.parametrize("named", ["name", "arn"])
def test_second_mapping_of_a_queue_to_a_function_is_rejected(
    account: LocalAws, mapped: tuple[str, str, str], named: str
) -> None:
    functions = account.client("lambda")
    _, queue, name = mapped
    function = (
        name
        if named == "name"
        else functions.get_function_configuration(FunctionName=name)["FunctionArn"]
    )
    with pytest.raises(ClientError, match="ResourceConflictException"):
        functions.create_event_source_mapping(FunctionName=function, EventSourceArn=queue)
    assert (
        len(functions.list_event_source_mappings(FunctionName=function)["EventSourceMappings"]) == 1
    )


def test_latest_configuration_of_asynchronous_invocations_applies(
    account: LocalAws, mapped: tuple[str, str, str]
) -> None:
    functions = account.client("lambda")
    for attempts in (2, 0):
        functions.put_function_event_invoke_config(
            FunctionName=mapped[2], MaximumRetryAttempts=attempts
        )
    assert (
        functions.get_function_event_invoke_config(FunctionName=mapped[2])["MaximumRetryAttempts"]
        == 0
    )


def test_redeployed_swagger_api_keeps_its_throttle(account: LocalAws) -> None:
    gateway = account.client("apigateway")
    api = gateway.import_rest_api(
        body=json.dumps(SWAGGER), parameters={"endpointConfigurationTypes": "REGIONAL"}
    )["id"]
    gateway.create_deployment(restApiId=api, stageName="api", tracingEnabled=False)
    gateway.update_stage(
        restApiId=api,
        stageName="api",
        patchOperations=[{"op": "replace", "path": "/*/*/throttling/rateLimit", "value": "100"}],
    )
    gateway.put_rest_api(restApiId=api, mode="overwrite", body=json.dumps(SWAGGER))
    gateway.create_deployment(restApiId=api, stageName="api")
    stage = gateway.get_stage(restApiId=api, stageName="api")
    assert stage["methodSettings"]["*/*"]["throttlingRateLimit"] == 100
    assert gateway.get_rest_api(restApiId=api)["endpointConfiguration"]["types"] == ["REGIONAL"]
    assert {one["path"] for one in gateway.get_resources(restApiId=api)["items"]} == {
        "/",
        "/clusters",
        "/clusters/{name}",
    }


def _alarm(name: str) -> dict[str, Any]:
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmName": name,
            "Namespace": "AWS/SQS",
            "MetricName": "ApproximateNumberOfMessagesVisible",
            "ComparisonOperator": "GreaterThanThreshold",
            "EvaluationPeriods": 1,
            "Period": 60,
            "Threshold": 0,
            "Statistic": "Maximum",
            "Dimensions": [{"Name": "QueueName", "Value": "dead"}],
        },
    }


def _created(
    account: LocalAws, stage: str, address: str, alarm: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Physical ids by logical ids, and the outputs, of a stack of the
    artifact's template and an alarm."""
    template = artifact().sam(stage)
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = "s3://artifacts/deployment.zip"
    template["Resources"]["DeadAlarm"] = _alarm(alarm)
    store, cloud = account.client("s3"), account.client("cloudformation")
    store.create_bucket(Bucket="artifacts")
    store.put_object(Bucket="artifacts", Key="deployment.zip", Body=artifact().zip.read_bytes())
    store.put_object(
        Bucket="artifacts", Key=f"{stage}.template", Body=json.dumps(template).encode()
    )
    name = f"outscaler-{stage}-{uuid.uuid4().hex[:6]}"
    made = cloud.create_change_set(
        StackName=name,
        ChangeSetName="first",
        ChangeSetType="CREATE",
        Capabilities=["CAPABILITY_IAM"],
        TemplateURL=f"{address}/artifacts/{stage}.template",
    )
    cloud.execute_change_set(ChangeSetName=made["Id"])
    [stack] = cloud.describe_stacks(StackName=name)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    ids = {
        one["LogicalResourceId"]: one["PhysicalResourceId"]
        for one in cloud.describe_stack_resources(StackName=name)["StackResources"]
    }
    return ids, {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}


@pytest.mark.parametrize(("stage", "amazon"), [("dev", True), ("prod", False)])
def test_packaged_template_in_s3_creates_its_stack(
    account: LocalAws, stage: str, amazon: bool
) -> None:
    """As `aws cloudformation deploy --s3-bucket` sends it: by a change set, with the
    transformation still to be run."""
    alarm = f"dead-{uuid.uuid4().hex[:6]}"
    address = "https://s3.us-east-1.amazonaws.com" if amazon else account.endpoint
    ids, outputs = _created(account, stage, address, alarm)
    assert "execute-api.us-east-1" in outputs["WebhookURL"]
    assert account.client("cloudwatch").describe_alarms(AlarmNames=[alarm])["MetricAlarms"]
    functions = account.client("lambda")
    [mapping] = functions.list_event_source_mappings(FunctionName=ids["Reconcile"])[
        "EventSourceMappings"
    ]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert (
        functions.get_function_event_invoke_config(FunctionName=ids["Tick"])["MaximumRetryAttempts"]
        == 0
    )
    settings = account.client("apigateway").get_stage(restApiId=ids["RestAPI"], stageName="api")[
        "methodSettings"
    ]
    assert settings["*/*"]["throttlingRateLimit"] == 100
    [target] = account.client("events").list_targets_by_rule(Rule=ids["TickTickEvent"])["Targets"]
    assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0


@pytest.mark.parametrize("port", ["65536", "-1", "taken"])
def test_unusable_port_is_named_in_one_line(
    account: LocalAws, port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = account.endpoint.rpartition(":")[2] if port == "taken" else port
    assert main(["--port", given]) == 2
    assert f"--port {given}: " in capsys.readouterr().err
