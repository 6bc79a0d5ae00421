"""Rebuilds Chalice's record of a deployment from the account.

Chalice keeps it in .chalice/deployed/<stage>.json, which it writes only after a complete deployment and which stays on
that machine. Without it, Chalice creates a second API with another address and tries to create mappings that exist.
Therefore the file is rebuilt from the account before each deployment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.aws.deploy.chalice_resources import Graph
from infra.aws.deploy.stage import Stage

Json = dict[str, Any]


def deployed(stage: Stage, graph: Graph, api: str, session: Any) -> Json:
    """Return the content of Chalice's file. api: the id of the REST API."""
    functions = dict(function_arns(graph, session.client("lambda")))
    resources = [
        *_roles(graph, session.client("iam")),
        *_log_groups(graph, session.client("logs")),
        *({"name": name, "resource_type": "lambda_function", "lambda_arn": arn} for name, arn in functions.items()),
        *_rules(graph, session.client("events")),
        *_mappings(graph, functions, session.client("lambda")),
        *_apis(stage, graph, api),
    ]
    return {"resources": resources, "schema_version": "2.0", "backend": "api"}


def function_arns(graph: Graph, client: Any) -> Iterator[tuple[str, str]]:
    """Return resource name and ARN of each function that exists."""
    for function in graph.functions:
        try:
            found = client.get_function_configuration(FunctionName=function.function_name)
        except client.exceptions.ResourceNotFoundException:
            continue
        yield function.resource_name, found["FunctionArn"]


def mappings_of(client: Any, function: str, queue: str) -> list[Json]:
    """Return the mappings of the function with this name from the queue with that SQS name, oldest first."""
    pages = client.get_paginator("list_event_source_mappings").paginate(FunctionName=function)
    found = [
        one
        for page in pages
        for one in page["EventSourceMappings"]
        if str(one.get("EventSourceArn", "")).rpartition(":")[2] == queue and one.get("State") != "Deleting"
    ]
    return sorted(found, key=lambda one: (str(one.get("LastModified", "")), one["UUID"]))


def _roles(graph: Graph, client: Any) -> Iterator[Json]:
    for role in graph.roles:
        try:
            found = client.get_role(RoleName=role.role_name)["Role"]
        except client.exceptions.NoSuchEntityException:
            continue
        yield {
            "name": role.resource_name,
            "resource_type": "iam_role",
            "role_arn": found["Arn"],
            "role_name": role.role_name,
        }


def _log_groups(graph: Graph, client: Any) -> Iterator[Json]:
    for group in graph.log_groups:
        found = client.describe_log_groups(logGroupNamePrefix=group.log_group_name)["logGroups"]
        if any(one["logGroupName"] == group.log_group_name for one in found):
            yield {"name": group.resource_name, "resource_type": "log_group", "log_group_name": group.log_group_name}


def _rules(graph: Graph, client: Any) -> Iterator[Json]:
    for rule in graph.rules:
        try:
            client.describe_rule(Name=rule.rule_name)
        except client.exceptions.ResourceNotFoundException:
            continue
        yield {"name": rule.resource_name, "resource_type": "cloudwatch_event", "rule_name": rule.rule_name}


def _mappings(graph: Graph, functions: dict[str, str], client: Any) -> Iterator[Json]:
    for source in graph.sources:
        if source.function not in functions:
            continue
        for found in mappings_of(client, graph.function(source.function).function_name, source.queue)[:1]:
            yield {
                "name": source.resource_name,
                "resource_type": "sqs_event",
                "queue_arn": found["EventSourceArn"],
                "event_uuid": found["UUID"],
                "queue": source.queue,
                "lambda_arn": functions[source.function],
            }


def _apis(stage: Stage, graph: Graph, api: str) -> Iterator[Json]:
    for one in graph.apis:
        yield {
            "name": one.resource_name,
            "resource_type": "rest_api",
            "rest_api_id": api,
            "rest_api_url": f"https://{api}.execute-api.{stage.region}.{stage.suffix}/{one.stage}/",
        }
