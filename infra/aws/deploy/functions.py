"""Creates functions with queue triggers before `chalice deploy`, so that their mappings report
failures from the beginning.

A mapping without ReportBatchItemFailures treats every response of a function as success and deletes
the messages. Chalice has no setting for it, but updates an existing mapping without changing this
property. Therefore a missing function is created here, with its role and its mapping, and `chalice
deploy` then updates all three.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from infra.aws.deploy.chalice_resources import (
    ChaliceEventSource,
    ChaliceFunction,
    Graph,
    Role,
    mappings_of,
)
from infra.aws.deploy.retries import Sleep, patiently
from infra.aws.deploy.stage import Stage

REPORTING = ["ReportBatchItemFailures"]


def prepare(
    stage: Stage, graph: Graph, package: Path, session: Any, sleep: Sleep = time.sleep
) -> list[str]:
    """Create missing functions and return a line for each. Raises DeployFailed."""
    client, made = session.client("lambda"), []
    for source in graph.sources:
        function = graph.function(source.function)
        role = next(one for one in graph.roles if one.role_name == function.role)
        if not _exists(client, function.function_name):
            _create(client, function, _role(role, session.client("iam")), package, sleep)
            made.append(f"created {function.function_name}")
        if not mappings_of(client, function.function_name, source.queue):
            _map(client, stage, function, source, sleep)
            made.append(f"mapped {source.queue} to {function.function_name}")
    return made


def _exists(client: Any, name: str) -> bool:
    try:
        client.get_function_configuration(FunctionName=name)
    except client.exceptions.ResourceNotFoundException:
        return False
    return True


def _role(role: Role, client: Any) -> str:
    """Return the role's ARN. Creates the role if it does not exist, and always writes the
    policy of the file to it."""
    policy = Path(role.policy_file).read_text("utf-8")
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "",
                "Effect": "Allow",
                "Principal": {"Service": "lambda.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    try:
        found: Any = client.create_role(
            RoleName=role.role_name, AssumeRolePolicyDocument=json.dumps(trust)
        )["Role"]
    except client.exceptions.EntityAlreadyExistsException:
        found = client.get_role(RoleName=role.role_name)["Role"]
    client.put_role_policy(
        RoleName=role.role_name, PolicyName=role.role_name, PolicyDocument=policy
    )
    return str(found["Arn"])


def _create(client: Any, function: ChaliceFunction, role: str, package: Path, sleep: Sleep) -> None:
    given: dict[str, Any] = {
        "FunctionName": function.function_name,
        "Runtime": function.runtime,
        "Role": role,
        "Handler": function.handler,
        "Code": {"ZipFile": package.read_bytes()},
        "Timeout": function.timeout,
        "MemorySize": function.memory_size,
        "Architectures": [function.architecture],
        "Tags": function.tags,
        "Environment": {"Variables": function.environment_variables},
    }
    if function.subnet_ids:
        given["VpcConfig"] = {
            "SubnetIds": function.subnet_ids,
            "SecurityGroupIds": function.security_group_ids,
        }
    patiently(lambda: client.create_function(**given), function.function_name, sleep)


def _map(
    client: Any, stage: Stage, function: ChaliceFunction, source: ChaliceEventSource, sleep: Sleep
) -> None:
    queue = f"arn:{stage.partition}:sqs:{stage.region}:{stage.account}:{source.queue}"
    given = {
        "EventSourceArn": queue,
        "FunctionName": function.function_name,
        "BatchSize": source.batch_size,
        "FunctionResponseTypes": REPORTING,
        "ScalingConfig": {"MaximumConcurrency": source.maximum_concurrency},
    }
    patiently(lambda: client.create_event_source_mapping(**given), source.queue, sleep)
