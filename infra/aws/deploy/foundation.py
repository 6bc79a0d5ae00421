"""The stack below the functions: tables, queues and dead-letter queues.

`outscaler-<stage>-foundation` contains what must outlive a deployment and what
Chalice does not support.

A table that already exists outside the stack is used as it is. A stack cannot adopt it in an
update, and it is the only resource here that cannot be recreated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import queue_name, state_table_of
from chalicelib.store.tables import definition, policy_table_of
from infra.aws.alarm_resources import Names, alarm_resources
from infra.aws.buckets import BUCKET, LISTS_BUCKET, LISTS_DAYS, bucket_resources, by_default
from infra.aws.dashboard import dashboard_resource
from infra.aws.deploy.errors import DeployFailed
from infra.aws.deploy.stage import Stage
from infra.aws.resources import dead_letters, resources
from infra.aws.template_overlay import API

Json = dict[str, Any]
Sleep = Callable[[float], None]

LARGEST_BODY = 51_200
"""Maximum size in bytes of a template in a request to CloudFormation."""
# seconds between polls of a stack, and until polling ends with an error
_POLL, _PATIENCE = 3.0, 900.0
_EMPTY = (
    "ROLLBACK_COMPLETE",
    "CREATE_FAILED",
    "ROLLBACK_FAILED",
    "REVIEW_IN_PROGRESS",
    "DELETE_FAILED",
)
_GOOD = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE")


def stack_name(stage: Stage) -> str:
    """Return the name of the stage's foundation stack."""
    return f"{stage.prefix}-foundation"


def template(stage: Stage, rule: str, absent: frozenset[str] = frozenset()) -> Json:
    """Return the stack's template. rule: name of the schedule's rule. absent: logical
    ids of tables to leave out."""
    arn = {
        "Fn::Sub": (
            f"arn:${{AWS::Partition}}:events:${{AWS::Region}}:${{AWS::AccountId}}:rule/{rule}"
        )
    }
    made = {name: one for name, one in resources(arn, stage.prefix).items() if name not in absent}
    if stage.options.alarm_topic_arn:
        made |= alarm_resources(stage.options.alarm_topic_arn, names(stage))
    if stage.options.dashboard:
        made |= dashboard_resource(stage.prefix, names(stage))
    key = stage.options.kms_key_arn
    encryption = by_default("aws:kms", key) if key else by_default("AES256")
    if stage.options.decisions_days:
        made |= bucket_resources(
            BUCKET, stage.options.decisions_days, decisions_bucket(stage), encryption
        )
    if stage.options.share_lists:
        made |= bucket_resources(LISTS_BUCKET, LISTS_DAYS, lists_bucket(stage), encryption)
    for resource in made.values():
        _encrypt(resource, stage)
        if resource["Type"] in ("AWS::DynamoDB::Table", "AWS::SQS::Queue"):
            resource["Properties"]["Tags"] = tags(stage)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": (
            f"Outscaler, stage {stage.name}: what lies under the functions (make deploy)"
        ),
        "Resources": made,
    }


def decisions_bucket(stage: Stage) -> str:
    """Return the name of the bucket of recorded decisions, "" where there is none. Names of buckets
    are global, so it contains account and region."""
    return f"{stage.prefix}-{stage.account}-{stage.region}" if stage.options.decisions_days else ""


def lists_bucket(stage: Stage) -> str:
    """Return the name of the bucket of shared lists, "" where there is none."""
    return (
        f"{stage.prefix}-{stage.account}-{stage.region}-list" if stage.options.share_lists else ""
    )


def names(stage: Stage) -> Names:
    """Return the names of the stage's resources, which follow from its prefix."""

    def function(name: str) -> str:
        return stage.prefix if name == "api_handler" else f"{stage.prefix}-{name}"

    return Names(
        function=function,
        log_group=lambda name: f"/aws/lambda/{function(name)}",
        queue=lambda name: queue_name(stage.prefix, name),
        dead_letters=lambda name: dead_letters(queue_name(stage.prefix, name)),
        table=state_table_of(stage.prefix),
        api=(API[0], stage.config["api_gateway_stage"]),
        namespace=f"Outscaler/{stage.prefix}",
        concurrency=stage.options.account_concurrency,
    )


def tags(stage: Stage) -> list[dict[str, str]]:
    """Return the stage's tags in CloudFormation's format."""
    return [
        {"Key": key, "Value": value} for key, value in sorted(stage.config.get("tags", {}).items())
    ]


def _encrypt(resource: Json, stage: Stage) -> None:
    key = stage.options.kms_key_arn
    if key and resource["Type"] == "AWS::DynamoDB::Table":
        resource["Properties"]["SSESpecification"] = {
            "SSEEnabled": True,
            "SSEType": "KMS",
            "KMSMasterKeyId": key,
        }
    # EventBridge cannot write to a queue that is encrypted with a key whose policy
    # does not allow EventBridge.
    if (
        key
        and resource["Type"] == "AWS::SQS::Queue"
        and "-tick-" not in resource["Properties"]["QueueName"]
    ):
        del resource["Properties"]["SqsManagedSseEnabled"]
        resource["Properties"]["KmsMasterKeyId"] = key


def apply(stage: Stage, rule: str, session: Any, sleep: Sleep = time.sleep) -> None:
    """Create or update the stack. Raises DeployFailed, and BadInput if an existing
    table has another schema."""
    cloud = session.client("cloudformation")
    name = stack_name(stage)
    status = settled(cloud, name, sleep)
    if status in _EMPTY:
        cloud.delete_stack(StackName=name)
        status = settled(cloud, name, sleep)
    held = physical(cloud, name) if status else {}
    absent = frozenset(
        logical
        for logical, table in _tables(stage).items()
        if logical not in held and _is_there(session.client("dynamodb"), table)
    )
    body = json.dumps(template(stage, rule, absent), separators=(",", ":"))
    if len(body) > LARGEST_BODY:
        raise DeployFailed(
            f"stack {name}: the template has {len(body)} bytes, more than {LARGEST_BODY}"
        )
    _write(cloud, name, body, exists=bool(status))
    status = settled(cloud, name, sleep)
    if status not in _GOOD or status == "UPDATE_ROLLBACK_COMPLETE":
        raise DeployFailed(f"stack {name}: {status}; {_why(cloud, name)}")


def physical(cloud: Any, name: str) -> dict[str, str]:
    """Return logical id -> physical id of the stack's resources, {} if the stack does not exist."""
    try:
        pages = cloud.get_paginator("list_stack_resources").paginate(StackName=name)
        return {
            one["LogicalResourceId"]: one["PhysicalResourceId"]
            for page in pages
            for one in page["StackResourceSummaries"]
            if one["ResourceStatus"] != "DELETE_COMPLETE"
        }
    except cloud.exceptions.ClientError as error:
        if _is_missing(error):
            return {}
        raise


def _write(cloud: Any, name: str, body: str, *, exists: bool) -> None:
    given: Json = {"StackName": name, "TemplateBody": body}
    if not exists:
        cloud.create_stack(**given)
        return
    try:
        cloud.update_stack(**given)
    except cloud.exceptions.ClientError as error:
        if "No updates are to be performed" not in str(error):
            raise


def settled(cloud: Any, name: str, sleep: Sleep) -> str:
    """Wait until no change of the stack is in progress and return its status, "" if it does not
    exist. Raises DeployFailed after a timeout."""
    waited = 0.0
    while True:
        status = status_of(cloud, name)
        if not status.endswith("_IN_PROGRESS") or status == "REVIEW_IN_PROGRESS":
            return "" if status == "DELETE_COMPLETE" else status
        if waited >= _PATIENCE:
            raise DeployFailed(
                f"stack {name}: still {status} after {_PATIENCE:.0f} s; run the command again later"
            )
        sleep(_POLL)
        waited += _POLL


def status_of(cloud: Any, name: str) -> str:
    """Return CloudFormation's status of the stack, "" if it does not exist."""
    try:
        [found] = cloud.describe_stacks(StackName=name)["Stacks"]
    except cloud.exceptions.ClientError as error:
        if _is_missing(error):
            return ""
        raise
    return str(found["StackStatus"])


def _is_missing(error: Any) -> bool:
    return "does not exist" in str(error)


def _why(cloud: Any, name: str) -> str:
    """Return the first reason that CloudFormation gives for a failure."""
    events = cloud.describe_stack_events(StackName=name)["StackEvents"]
    reasons = [
        f"{one['LogicalResourceId']}: {one['ResourceStatusReason']}"
        for one in reversed(events)
        if one["ResourceStatus"].endswith("_FAILED") and one.get("ResourceStatusReason")
    ]
    return reasons[0] if reasons else "see its events in CloudFormation"


def _tables(stage: Stage) -> dict[str, str]:
    state = state_table_of(stage.prefix)
    return {"StateTable": state, "PolicyTable": policy_table_of(state)}


def _is_there(dynamodb: Any, table: str) -> bool:
    """Return whether the table exists. Raises BadInput if it is not one of Outscaler's tables."""
    try:
        found = dynamodb.describe_table(TableName=table)["Table"]
    except dynamodb.exceptions.ResourceNotFoundException:
        return False
    wanted = definition(table)["KeySchema"]
    if sorted(map(str, found["KeySchema"])) != sorted(map(str, wanted)):
        raise BadInput(
            f"table {table}",
            "exists, and its key is not that of Outscaler's tables",
            "rename or delete it, or deploy another stage",
        )
    return True
