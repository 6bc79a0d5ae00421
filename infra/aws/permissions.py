"""Permissions of the functions' roles that are not in infra/aws/policies: those that name a
function's own log group, those that Lambda itself uses with a role, and those that depend on
a parameter of the stack.

A stack without a VPC, a key or tracing grants no permissions for them.
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
_KEY_USERS = ("dynamodb", "lambda", "s3", "secretsmanager", "sqs", "ssm")


def own_log(function: str, role: str, log_group: str) -> Resources:
    """Permit one function to write its own log. All three arguments are logical ids.

    This is a separate resource, because it names the log group, which names the
    function, which names the role.
    """
    statement = _allow(
        "WriteOwnLog",
        ["logs:CreateLogStream", "logs:PutLogEvents"],
        {"Fn::GetAtt": [log_group, "Arn"]},
    )
    return {
        f"{function}LogPolicy": {
            "Type": "AWS::IAM::Policy",
            "Properties": {**_policy("WriteOwnLog", [statement]), "Roles": [{"Ref": role}]},
        }
    }


def tick_dead_letters_policy() -> Json:
    """Return an inline policy with which Lambda, using the function's role, stores a failed tick
    in the dead-letter queue."""
    return _policy(
        "LeaveFailedTicks",
        [
            _allow(
                "LeaveFailedTicks", ["sqs:SendMessage"], {"Fn::GetAtt": ["TickDeadLetters", "Arn"]}
            )
        ],
    )


def large_dead_letters_policy() -> Json:
    """Return an inline policy with which Lambda, using the role of the large function, stores a
    permanently failed pass in the dead-letter queue of the queue it came from."""
    return _policy(
        "LeaveFailedPasses",
        [
            _allow(
                "LeaveFailedPasses",
                ["sqs:SendMessage"],
                {"Fn::GetAtt": ["ReconcileDeadLetters", "Arn"]},
            )
        ],
    )


def decisions_policy(objects: Any) -> Json:
    """Return an inline policy of the functions that make passes: they store decisions, and read
    none. objects: the ARN of the bucket's objects."""
    return _policy("RecordDecisions", [_allow("RecordDecisions", ["s3:PutObject"], objects)])


def lists_policy(bucket: Any, objects: Any) -> Json:
    """Return an inline policy of the same functions: they share lists of clusters. bucket,
    objects: ARNs of the bucket and of its objects. Listing is what makes S3 respond that
    an object does not exist."""
    return _policy(
        "ShareLists",
        [
            _allow("ShareLists", ["s3:GetObject", "s3:PutObject"], objects),
            _allow("KnowLists", ["s3:ListBucket"], bucket),
        ],
    )


def watched_policy(objects: Any) -> Json:
    """Return an inline policy of the API's function: it stores what watchers post, and reads
    nothing. objects: the ARN of those of the bucket that watchers post."""
    return _policy("StoreWatched", [_allow("StoreWatched", ["s3:PutObject"], objects)])


def page_key_policy(secret: Any) -> Json:
    """Return an inline policy of the API's function: it reads the keys of the
    hosted page. secret: an ARN."""
    return _policy(
        "ReadPageKey", [_allow("ReadPageKey", ["secretsmanager:GetSecretValue"], secret)]
    )


def conditional_policies() -> list[Json]:
    """Return inline policies of every role for a VPC, a customer-managed key and tracing,
    each under its condition."""
    traces = _allow("SendTraces", ["xray:PutTraceSegments", "xray:PutTelemetryRecords"], "*")
    made = (
        ("WithVpc", _policy("UseVpc", _vpc())),
        ("WithKmsKey", _policy("UseKmsKey", [_key()])),
        ("WithTracing", _policy("SendTraces", [traces])),
    )
    return [{"Fn::If": [condition, policy, {"Ref": "AWS::NoValue"}]} for condition, policy in made]


def _vpc() -> list[Json]:
    """Permit Lambda to attach functions to subnets using their roles. The functions'
    own code may not do this.

    EC2's Describe actions do not support resources, and Lambda requires permission to delete any
    network interface. A shared subnet has the ARN of the account that owns it.
    """
    mine = {"Fn::Sub": f"{_ARN}:ec2:{_HERE}:*/*"}
    shared = {"Fn::Sub": f"{_ARN}:ec2:${{AWS::Region}}:*:subnet/*"}
    code = {
        "ArnLike": {"lambda:SourceFunctionArn": {"Fn::Sub": f"{_ARN}:lambda:{_HERE}:function:*"}}
    }
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
    """Permit use of the key through the services that encrypt data with it, but not directly."""
    services = [
        {"Fn::Sub": f"{service}.${{AWS::Region}}.${{AWS::URLSuffix}}"} for service in _KEY_USERS
    ]
    return _allow("UseKmsKey", ["kms:Decrypt", "kms:GenerateDataKey"], {"Ref": "KmsKeyArn"}) | {
        "Condition": {"StringEquals": {"kms:ViaService": services}}
    }


def _allow(sid: str, actions: Sequence[str], resource: Any) -> Json:
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": resource}


def _policy(name: str, statements: Sequence[Json]) -> Json:
    return {
        "PolicyName": name,
        "PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)},
    }
