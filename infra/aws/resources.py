"""The tables and queues of a deployment, stated once for both kinds of deployment.

In a deployment with CloudFormation, CloudFormation generates the names. A deployment with `chalice
deploy` needs names that follow from a prefix (chalicelib/model/resource_names.py) and has the same
resources in a separate stack. The emulation (infra/emulators/deployed_functions.py) uses the
queues' settings as well.

Resources have CloudFormation's form: logical id -> {"Type": …, "Properties": …}.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chalicelib.model.resource_names import queue_name, state_table_of
from chalicelib.runtime.messages import PROVIDERS
from chalicelib.store.tables import definition, policy_table_of, time_to_live

Resources = dict[str, dict[str, Any]]

DEAD_LETTERS_KEPT = 14 * 86_400
"""Seconds; SQS keeps messages for at most 14 days."""

_KEEP = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
_DELETE = {"DeletionPolicy": "Delete", "UpdateReplacePolicy": "Delete"}


class QueueSettings(msgspec.Struct, frozen=True):
    """Settings of a function's queue. visibility, retention: seconds. max_receives: before a
    message is moved to the dead letters."""

    visibility: int
    retention: int
    max_receives: int


_RECONCILE = QueueSettings(visibility=720, retention=3_600, max_receives=3)
_ACT = QueueSettings(visibility=360, retention=345_600, max_receives=5)

QUEUES: dict[str, QueueSettings] = {"reconcile": _RECONCILE} | {
    f"act_{provider}": _ACT for provider in PROVIDERS
}
"""Settings by the queue's name, which is also the name of its function."""


def logical_id(name: str) -> str:
    """Return Chalice's logical id of a function in a template: ActExoscale for `act_exoscale`."""
    return "".join(part.capitalize() for part in name.split("_"))


def dead_letters(queue: str) -> str:
    """Return the name of a queue's dead-letter queue in a deployment that has a prefix."""
    return f"{queue}-dead"


def tables(prefix: str = "") -> Resources:
    """Return StateTable and PolicyTable. prefix: of the names, e.g. `outscaler-dev`; "" lets
    CloudFormation generate names."""
    state = state_table_of(prefix) if prefix else ""
    policies = policy_table_of(state) if prefix else {"Fn::Sub": policy_table_of("${StateTable}")}
    expiry = {"TimeToLiveSpecification": time_to_live()}
    return {"StateTable": _table(state, expiry), "PolicyTable": _table(policies, {})}


def queues(prefix: str = "") -> Resources:
    """Return each function's queue with its dead-letter queue, and
    TickDeadLetters. prefix: as for tables."""
    made: Resources = {}
    for name, settings in QUEUES.items():
        dead = f"{logical_id(name)}DeadLetters"
        made[f"{logical_id(name)}Queue"] = _queue(
            queue_name(prefix, name) if prefix else "",
            {
                "VisibilityTimeout": settings.visibility,
                "MessageRetentionPeriod": settings.retention,
                "RedrivePolicy": {
                    "deadLetterTargetArn": {"Fn::GetAtt": [dead, "Arn"]},
                    "maxReceiveCount": settings.max_receives,
                },
            },
        )
        made[dead] = _dead_letters(prefix, name)
    return made | {"TickDeadLetters": _dead_letters(prefix, "tick")}


def tick_dead_letters_policy(rule: Any) -> Resources:
    """Return the policy that lets EventBridge store undeliverable ticks. rule: the
    ARN of the schedule's rule."""
    queue = {"Fn::GetAtt": ["TickDeadLetters", "Arn"]}
    statement = {
        "Sid": "TakeUndeliveredTicks",
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    return {
        "TickDeadLettersPolicy": {
            "Type": "AWS::SQS::QueuePolicy",
            "Properties": {
                "Queues": [{"Ref": "TickDeadLetters"}],
                "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
            },
        }
    }


def resources(rule: Any, prefix: str = "") -> Resources:
    """Return all tables and queues. rule: the ARN of the schedule's rule. prefix: as for tables."""
    return tables(prefix) | queues(prefix) | tick_dead_letters_policy(rule)


def _table(name: Any, more: dict[str, Any]) -> dict[str, Any]:
    properties = (
        definition("any")
        | {"TableName": name}
        | more
        | {
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
            "DeletionProtectionEnabled": True,
        }
    )
    if not name:
        del properties["TableName"]
    return {"Type": "AWS::DynamoDB::Table", **_KEEP, "Properties": properties}


def _dead_letters(prefix: str, name: str) -> dict[str, Any]:
    fixed = dead_letters(queue_name(prefix, name)) if prefix else ""
    return _queue(fixed, {"MessageRetentionPeriod": DEAD_LETTERS_KEPT})


def _queue(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "Type": "AWS::SQS::Queue",
        **_DELETE,
        "Properties": ({"QueueName": name} if name else {})
        | properties
        | {"SqsManagedSseEnabled": True},
    }
