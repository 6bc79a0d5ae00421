"""Rights of the functions' roles that are not in infra/aws/policies: what names a function's own log group, what Lambda
itself does in the name of a role, and what only a parameter of the stack brings.

A stack without a VPC, a key or tracing grants nothing for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.aws.resources import Resources

Json = dict[str, Any]

_ARN = "arn:${AWS::Partition}"
_HERE = "${AWS::Region}:${AWS::AccountId}"
_NETWORK_WRITES = [
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
]
_NETWORK_READS = [
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeVpcs",
]
_KEY_USERS = ("dynamodb", "lambda", "secretsmanager", "sqs", "ssm")


def own_log(function: str, role: str, log_group: str) -> Resources:
    """The right of one function to write its own log. All three are logical ids.

    A resource beside the role: it names the log group, the log group the function, and the function the role.
    """
    statement = _allow("WriteOwnLog", ["logs:CreateLogStream", "logs:PutLogEvents"], {"Fn::GetAtt": [log_group, "Arn"]})
    return {
        f"{function}LogPolicy": {
            "Type": "AWS::IAM::Policy",
            "Properties": {**_policy("WriteOwnLog", [statement]), "Roles": [{"Ref": role}]},
        }
    }


def tick_dead_letters_policy() -> Json:
    """An inline policy: Lambda leaves a tick that failed in the queue of its dead letters, with the function's role."""
    return _policy(
        "LeaveFailedTicks",
        [_allow("LeaveFailedTicks", ["sqs:SendMessage"], {"Fn::GetAtt": ["TickDeadLetters", "Arn"]})],
    )


def large_dead_letters_policy() -> Json:
    """An inline policy: Lambda leaves a pass that failed for good in the dead letters of the queue it came from, with
    the role of the large function."""
    return _policy(
        "LeaveFailedPasses",
        [_allow("LeaveFailedPasses", ["sqs:SendMessage"], {"Fn::GetAtt": ["ReconcileDeadLetters", "Arn"]})],
    )


def conditional_policies() -> list[Json]:
    """Inline policies of every role: what a VPC, a key of one's own, and tracing need, each under its condition."""
    traces = _allow("SendTraces", ["xray:PutTraceSegments", "xray:PutTelemetryRecords"], "*")
    made = (
        ("WithVpc", _policy("UseVpc", _vpc())),
        ("WithKmsKey", _policy("UseKmsKey", [_key()])),
        ("WithTracing", _policy("SendTraces", [traces])),
    )
    return [{"Fn::If": [condition, policy, {"Ref": "AWS::NoValue"}]} for condition, policy in made]


def _vpc() -> list[Json]:
    """Lambda attaches functions to subnets in the name of their roles; the functions' own code never may.

    EC2's Describe actions know no resources, and Lambda demands that an interface may be deleted whatever its id is. A
    shared subnet has the ARN of the account that owns it.
    """
    mine = {"Fn::Sub": f"{_ARN}:ec2:{_HERE}:*/*"}
    shared = {"Fn::Sub": f"{_ARN}:ec2:${{AWS::Region}}:*:subnet/*"}
    code = {"ArnLike": {"lambda:SourceFunctionArn": {"Fn::Sub": f"{_ARN}:lambda:{_HERE}:function:*"}}}
    return [
        _allow("AttachToVpc", _NETWORK_WRITES, [mine, shared]),
        _allow("LookIntoVpc", _NETWORK_READS, "*"),
        {
            "Sid": "NotByCode",
            "Effect": "Deny",
            "Action": _NETWORK_WRITES + _NETWORK_READS,
            "Resource": "*",
            "Condition": code,
        },
    ]


def _key() -> Json:
    """The key may be used by way of the services that keep something under it, and not directly."""
    services = [{"Fn::Sub": f"{service}.${{AWS::Region}}.${{AWS::URLSuffix}}"} for service in _KEY_USERS]
    return _allow("UseKmsKey", ["kms:Decrypt", "kms:GenerateDataKey"], {"Ref": "KmsKeyArn"}) | {
        "Condition": {"StringEquals": {"kms:ViaService": services}}
    }


def _allow(sid: str, actions: Sequence[str], resource: Any) -> Json:
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": resource}


def _policy(name: str, statements: Sequence[Json]) -> Json:
    return {"PolicyName": name, "PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)}}
