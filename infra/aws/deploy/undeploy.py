"""Removes a stage from the account. The tables stay unless the command says otherwise twice.

Functions are deleted before queues, so that no function starts without a place to write to. Missing
resources are skipped, so the command can be repeated. The tables keep every policy and timer, and
the next `make deploy` of the stage uses them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from chalicelib.model.resource_names import state_table_of
from chalicelib.store.tables import policy_table_of
from infra.aws.deploy import foundation, gateway
from infra.aws.deploy.chalice_resources import Graph, mappings_of
from infra.aws.deploy.errors import DeployFailed
from infra.aws.deploy.stage import Stage

Json = dict[str, Any]
Sleep = Callable[[float], None]


def remove(stage: Stage, graph: Graph, session: Any, sleep: Sleep = time.sleep) -> Iterator[str]:
    """Delete everything except the tables and return a line for each
    resource. Raises DeployFailed."""
    api = gateway.find(stage, graph.function(graph.apis[0].function).function_name, session)
    yield from _rules(graph, session.client("events"))
    client = session.client("lambda")
    for source in graph.sources:
        name = graph.function(source.function).function_name
        for one in _mappings(client, name, source.queue):
            client.delete_event_source_mapping(UUID=one["UUID"])
            yield f"mapping of {source.queue}"
    for function in graph.functions:
        if _gone(lambda name=function.function_name: client.delete_function(FunctionName=name)):  # type: ignore[misc]
            yield f"function {function.function_name}"
    yield from _roles(graph, session.client("iam"))
    yield from _readers(stage, session.client("apigateway"))
    if api:
        session.client("apigateway").delete_rest_api(restApiId=api)
        yield f"REST API {api}"
    yield from _logs(stage, graph, session.client("logs"))
    yield from _stack(stage, session.client("cloudformation"), sleep)


def tables(stage: Stage, session: Any) -> list[str]:
    """Return the names of the stage's tables that exist."""
    client, state = session.client("dynamodb"), state_table_of(stage.prefix)
    return [name for name in (state, policy_table_of(state)) if _exists(client, name)]


def _exists(client: Any, table: str) -> bool:
    return not _gone(lambda: client.describe_table(TableName=table), really=False)


def remove_table(name: str, session: Any) -> None:
    """Delete a table with its content. Its point-in-time recovery keeps a backup for 35 days."""
    client = session.client("dynamodb")
    client.update_table(TableName=name, DeletionProtectionEnabled=False)
    client.delete_table(TableName=name)


def _gone(call: Callable[[], Any], *, really: bool = True) -> bool:
    """Delete something that may not exist and return whether it was deleted. With really=False,
    only return whether it is missing."""
    from botocore.exceptions import ClientError

    missing = (
        "ResourceNotFoundException",
        "NoSuchEntity",
        "NotFoundException",
        "NoSuchEntityException",
    )
    try:
        call()
    except ClientError as error:
        if error.response["Error"]["Code"] not in missing:
            raise
        return not really
    return really


def _mappings(client: Any, function: str, queue: str) -> list[Json]:
    try:
        return mappings_of(client, function, queue)
    except client.exceptions.ResourceNotFoundException:
        return []


def _rules(graph: Graph, client: Any) -> Iterator[str]:
    for rule in graph.rules:
        try:
            targets = [
                one["Id"] for one in client.list_targets_by_rule(Rule=rule.rule_name)["Targets"]
            ]
        except client.exceptions.ResourceNotFoundException:
            continue
        if targets:
            client.remove_targets(Rule=rule.rule_name, Ids=targets)
        client.delete_rule(Name=rule.rule_name)
        yield f"rule {rule.rule_name}"


def _roles(graph: Graph, client: Any) -> Iterator[str]:
    for role in graph.roles:
        try:
            policies = client.list_role_policies(RoleName=role.role_name)["PolicyNames"]
        except client.exceptions.NoSuchEntityException:
            continue
        for policy in policies:
            client.delete_role_policy(RoleName=role.role_name, PolicyName=policy)
        for attached in client.list_attached_role_policies(RoleName=role.role_name)[
            "AttachedPolicies"
        ]:
            client.detach_role_policy(RoleName=role.role_name, PolicyArn=attached["PolicyArn"])
        client.delete_role(RoleName=role.role_name)
        yield f"role {role.role_name}"


def _readers(stage: Stage, client: Any) -> Iterator[str]:
    name = f"{stage.prefix}-readers"
    for plan in (
        one for page in client.get_paginator("get_usage_plans").paginate() for one in page["items"]
    ):
        if plan["name"] == name:
            for one in plan.get("apiStages", []):
                client.update_usage_plan(
                    usagePlanId=plan["id"],
                    patchOperations=[
                        {
                            "op": "remove",
                            "path": "/apiStages",
                            "value": f"{one['apiId']}:{one['stage']}",
                        }
                    ],
                )
            client.delete_usage_plan(usagePlanId=plan["id"])
            yield f"usage plan {name}"
    for key in (
        one
        for page in client.get_paginator("get_api_keys").paginate(nameQuery=name)
        for one in page["items"]
    ):
        if key["name"] == name:
            client.delete_api_key(apiKey=key["id"])
            yield f"API key {name}"


def _logs(stage: Stage, graph: Graph, client: Any) -> Iterator[str]:
    wanted = {f"/aws/lambda/{function.function_name}" for function in graph.functions}
    wanted |= {group.log_group_name for group in graph.log_groups} | {
        f"/outscaler/{stage.name}/api-access"
    }
    for name in sorted(wanted):
        if _gone(lambda name=name: client.delete_log_group(logGroupName=name)):  # type: ignore[misc]
            yield f"log group {name}"


def _stack(stage: Stage, cloud: Any, sleep: Sleep) -> Iterator[str]:
    name = foundation.stack_name(stage)
    if not foundation.status_of(cloud, name):
        return
    cloud.delete_stack(StackName=name)
    status = foundation.settled(cloud, name, sleep)
    if status:
        raise DeployFailed(f"stack {name}: {status}; see its events in CloudFormation")
    yield f"stack {name} (the queues; the tables are kept)"
