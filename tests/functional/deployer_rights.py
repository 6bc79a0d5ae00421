"""Permissions that the deployer's calls need, and whether a policy of
literal statements grants them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from chalicelib.store.tables import PARTITION_KEY
from infra.emulators.iam import LEADING_KEYS, matches
from infra.emulators.lambda_events import ACCOUNT, REGION
from tests.functional.aws_calls import AwsCall

#: : Calls that CloudFormation makes with the deployer's rights, by type of resource.
CREATED = {
    "AWS::DynamoDB::Table": (
        "dynamodb:CreateTable",
        "dynamodb:DescribeTable",
        "dynamodb:TagResource",
        "dynamodb:UpdateTimeToLive",
        "dynamodb:UpdateContinuousBackups",
    ),
    "AWS::SQS::Queue": ("sqs:CreateQueue", "sqs:GetQueueAttributes", "sqs:TagQueue"),
    "AWS::SQS::QueuePolicy": ("sqs:SetQueueAttributes",),
    "AWS::CloudWatch::Alarm": ("cloudwatch:PutMetricAlarm", "cloudwatch:DescribeAlarms"),
    "AWS::CloudWatch::Dashboard": ("cloudwatch:PutDashboard", "cloudwatch:GetDashboard"),
    "AWS::S3::Bucket": (
        "s3:CreateBucket",
        "s3:PutBucketOwnershipControls",
        "s3:PutBucketPublicAccessBlock",
        "s3:PutEncryptionConfiguration",
        "s3:PutLifecycleConfiguration",
    ),
    "AWS::S3::BucketPolicy": ("s3:GetBucketPolicy", "s3:PutBucketPolicy"),
}
DELETED = {
    "AWS::SQS::Queue": ("sqs:DeleteQueue",),
    "AWS::CloudWatch::Alarm": ("cloudwatch:DeleteAlarms",),
    "AWS::CloudWatch::Dashboard": ("cloudwatch:DeleteDashboards",),
}
_WITHOUT_ARN = {"lambda:CreateEventSourceMapping", "lambda:ListEventSourceMappings"}


class Need(NamedTuple):
    """One permission needed by a call. context: the condition keys that AWS sets."""

    action: str
    resource: str
    context: Mapping[str, str] = {}


def arn(service: str, name: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{name}"


class DeployerRightsReader:
    """Derives permissions from calls in their order; keeps the function of each mapping
    and the contents of stacks."""

    def __init__(self) -> None:
        self._stacks: dict[str, dict[str, Any]] = {}

    def needs(self, call: AwsCall, mappings: Mapping[str, str]) -> Iterator[Need]:
        """mappings: id of an event source mapping -> the name of its function."""
        yield from _OF[call.service](self, call, mappings)

    def _dynamodb(self, call: AwsCall, _: object) -> Iterator[Need]:
        row = call.given.get("Key") or call.given.get("Item") or {}
        context = {LEADING_KEYS: row[PARTITION_KEY]["S"]} if row else {}
        tables = call.given.get("RequestItems") or (call.given["TableName"],)
        for table in tables:
            yield Need(f"dynamodb:{call.operation}", arn("dynamodb", f"table/{table}"), context)

    def _sqs(self, call: AwsCall, _: object) -> Iterator[Need]:
        name = call.given.get("QueueName") or call.given["QueueUrl"].rpartition("/")[2]
        yield Need(f"sqs:{call.operation}", arn("sqs", name))

    def _lambda(self, call: AwsCall, mappings: Mapping[str, str]) -> Iterator[Need]:
        action, given = f"lambda:{call.operation}", call.given
        if "Mapping" in call.operation:
            name = given.get("FunctionName") or mappings.get(given.get("UUID", ""), "")
            context = {"lambda:FunctionArn": _function(name)} if name else {}
            resource = (
                "*"
                if action in _WITHOUT_ARN or not given.get("UUID")
                else arn("lambda", f"event-source-mapping:{given['UUID']}")
            )
            yield Need(action, resource, context)
            return
        function = _function(given.get("FunctionName") or given["Resource"])
        yield Need(action, function)
        if given.get("Tags") and call.operation == "CreateFunction":
            yield Need("lambda:TagResource", function)
        if given.get("Role"):
            yield Need(
                "iam:PassRole", given["Role"], {"iam:PassedToService": "lambda.amazonaws.com"}
            )

    def _iam(self, call: AwsCall, _: object) -> Iterator[Need]:
        yield Need(f"iam:{call.operation}", f"arn:aws:iam::{ACCOUNT}:role/{call.given['RoleName']}")

    def _apigateway(self, call: AwsCall, _: object) -> Iterator[Need]:
        yield Need(f"apigateway:{call.verb}", f"arn:aws:apigateway:{REGION}::{call.path}")
        if call.given.get("tags"):
            yield Need("apigateway:PUT", f"arn:aws:apigateway:{REGION}::/tags/{call.path}")

    def _events(self, call: AwsCall, _: object) -> Iterator[Need]:
        yield Need(
            f"events:{call.operation}",
            arn("events", f"rule/{call.given.get('Name') or call.given['Rule']}"),
        )

    def _logs(self, call: AwsCall, _: object) -> Iterator[Need]:
        group = call.given.get("logGroupName")
        yield Need(
            f"logs:{call.operation}", arn("logs", f"log-group:{group}" if group else "log-group:*")
        )
        if call.given.get("tags"):
            yield Need("logs:TagResource", arn("logs", f"log-group:{group}"))

    def _cloudformation(self, call: AwsCall, _: object) -> Iterator[Need]:
        name = call.given["StackName"]
        yield Need(
            f"cloudformation:{call.operation}", arn("cloudformation", f"stack/{name}/some-id")
        )
        before: Mapping[str, Any] = self._stacks.get(name, {})
        if "TemplateBody" in call.given:
            self._stacks[name] = json.loads(call.given["TemplateBody"])["Resources"]
            removed = [one for logical, one in before.items() if logical not in self._stacks[name]]
            yield from (
                Need(action, _of_resource(one))
                for one in removed
                for action in DELETED.get(one["Type"], ())
            )
        done: Mapping[str, Mapping[str, tuple[str, ...]]] = {
            "CreateStack": CREATED,
            "UpdateStack": CREATED,
            "DeleteStack": DELETED,
        }
        actions = done.get(call.operation, {})
        for resource in self._stacks.get(name, {}).values():
            for action in actions.get(resource["Type"], ()):
                yield Need(action, _of_resource(resource))

    def _sts(self, call: AwsCall, _: object) -> Iterator[Need]:
        assert call.operation == "GetCallerIdentity", "needs no permission; another one would"
        yield from ()


_OF = {
    "dynamodb": DeployerRightsReader._dynamodb,
    "sqs": DeployerRightsReader._sqs,
    "lambda": DeployerRightsReader._lambda,
    "iam": DeployerRightsReader._iam,
    "apigateway": DeployerRightsReader._apigateway,
    "events": DeployerRightsReader._events,
    "logs": DeployerRightsReader._logs,
    "cloudformation": DeployerRightsReader._cloudformation,
    "sts": DeployerRightsReader._sts,
}


def _function(name: str) -> str:
    return name if name.startswith("arn:") else arn("lambda", f"function:{name}")


def _of_resource(resource: Mapping[str, Any]) -> str:
    properties = resource["Properties"]
    if resource["Type"] == "AWS::CloudWatch::Alarm":
        # CloudFormation derives its name from the stack's
        return arn("cloudwatch", "alarm:outscaler-any")
    if resource["Type"] == "AWS::CloudWatch::Dashboard":
        return f"arn:aws:cloudwatch::{ACCOUNT}:dashboard/{properties['DashboardName']}"
    if resource["Type"].startswith("AWS::S3::"):
        # a policy names its bucket by reference
        name = properties.get("BucketName", "outscaler-any")
        return f"arn:aws:s3:::{name}"
    if "TableName" in properties:
        return arn("dynamodb", f"table/{properties['TableName']}")
    # a policy names its queues by reference
    return arn("sqs", properties.get("QueueName", "outscaler-any"))


class Statements:
    """A policy without variables. used: sid and action of each granted permission."""

    def __init__(self, file: Path) -> None:
        self._statements = json.loads(file.read_text())["Statement"]
        self.used: set[tuple[str, str]] = set()

    @property
    def granted(self) -> set[tuple[str, str]]:
        """Sid and action of every permission granted."""
        return {(one["Sid"], action) for one in self._statements for action in one["Action"]}

    def allows(self, need: Need) -> bool:
        """Whether a statement grants the permission."""
        for one in self._statements:
            if (
                need.action in one["Action"]
                and any(matches(each, need.resource) for each in _many(one["Resource"]))
                and _holds(one.get("Condition", {}), need.context)
            ):
                self.used.add((one["Sid"], need.action))
                return True
        return False


def _many(value: str | list[str]) -> Iterable[str]:
    return value if isinstance(value, list) else [value]


def _holds(
    condition: Mapping[str, Mapping[str, str | list[str]]], context: Mapping[str, str]
) -> bool:
    assert condition.keys() <= {"StringEquals", "ArnLike", "ForAllValues:StringEquals", "Null"}
    assert all(absent == "false" for absent in condition.get("Null", {}).values())
    return all(
        key in context
        and (operator == "Null" or any(matches(each, context[key]) for each in _many(pattern)))
        for operator, keys in condition.items()
        for key, pattern in keys.items()
    )
