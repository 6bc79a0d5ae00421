"""Asks Chalice for the names and settings of the resources it deploys.

Chalice's naming rules are not repeated here, because a second copy could be wrong after the
next release of Chalice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from infra.aws.deploy.stage import Stage
from infra.aws.package import PackagingFailed

Json = dict[str, Any]
_SCRIPT = Path(__file__).with_name("chalice_graph.py")


class Role(msgspec.Struct, frozen=True):
    """policy_file: the file with the role's policy, as Chalice reads it."""

    resource_name: str
    role_name: str
    policy_file: str


class ChaliceFunction(msgspec.Struct, frozen=True):
    """One function with the settings that Chalice gives it. role: the name of its role."""

    resource_name: str
    function_name: str
    environment_variables: dict[str, str]
    runtime: str
    handler: str
    tags: dict[str, str]
    timeout: int
    memory_size: int
    security_group_ids: list[str]
    subnet_ids: list[str]
    xray: bool | None
    architecture: str
    role: str


class ChaliceEventSource(msgspec.Struct, frozen=True):
    """A queue that triggers a function. queue: its SQS name. function:
    resource name of the function."""

    resource_name: str
    queue: str
    batch_size: int
    maximum_concurrency: int
    function: str


class ChaliceRule(msgspec.Struct, frozen=True):
    """A schedule that triggers a function."""

    resource_name: str
    rule_name: str
    function: str


class ChaliceApi(msgspec.Struct, frozen=True):
    """The REST API. stage: of API Gateway, the first part of every path."""

    resource_name: str
    stage: str
    function: str


class LogGroup(msgspec.Struct, frozen=True):
    """A log group that Chalice creates to set its retention."""

    resource_name: str
    log_group_name: str


class Graph(msgspec.Struct, frozen=True):
    """Everything that Chalice deploys for one stage. package: the file in which it
    looks for a prebuilt zip."""

    roles: tuple[Role, ...]
    functions: tuple[ChaliceFunction, ...]
    sources: tuple[ChaliceEventSource, ...]
    rules: tuple[ChaliceRule, ...]
    apis: tuple[ChaliceApi, ...]
    log_groups: tuple[LogGroup, ...]
    package: str

    def function(self, resource_name: str) -> ChaliceFunction:
        """Return the function with that resource name."""
        return next(one for one in self.functions if one.resource_name == resource_name)


def graph_of(project: Path, stage: str) -> Graph:
    """Read a project with Chalice. Raises PackagingFailed with Chalice's message."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    command: list[Any] = [sys.executable, str(_SCRIPT), str(project.resolve()), stage]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, cwd=project
    )
    if done.returncode:
        raise PackagingFailed(f"chalice cannot read {project}:\n{done.stderr}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Graph)


def deployed(stage: Stage, graph: Graph, api: str, session: Any) -> Json:
    """Return the content of Chalice's file. api: the id of the REST API."""
    functions = dict(function_arns(graph, session.client("lambda")))
    resources = [
        *_roles(graph, session.client("iam")),
        *_log_groups(graph, session.client("logs")),
        *(
            {"name": name, "resource_type": "lambda_function", "lambda_arn": arn}
            for name, arn in functions.items()
        ),
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
    """Return the mappings of the function with this name from the queue with
    that SQS name, oldest first."""
    pages = client.get_paginator("list_event_source_mappings").paginate(FunctionName=function)
    found = [
        one
        for page in pages
        for one in page["EventSourceMappings"]
        if str(one.get("EventSourceArn", "")).rpartition(":")[2] == queue
        and one.get("State") != "Deleting"
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
            yield {
                "name": group.resource_name,
                "resource_type": "log_group",
                "log_group_name": group.log_group_name,
            }


def _rules(graph: Graph, client: Any) -> Iterator[Json]:
    for rule in graph.rules:
        try:
            client.describe_rule(Name=rule.rule_name)
        except client.exceptions.ResourceNotFoundException:
            continue
        yield {
            "name": rule.resource_name,
            "resource_type": "cloudwatch_event",
            "rule_name": rule.rule_name,
        }


def _mappings(graph: Graph, functions: dict[str, str], client: Any) -> Iterator[Json]:
    for source in graph.sources:
        if source.function not in functions:
            continue
        for found in mappings_of(
            client, graph.function(source.function).function_name, source.queue
        )[:1]:
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
