"""Deployments into the emulated account, and what is in the account afterwards."""

from __future__ import annotations

import json
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

from infra.aws.deploy.account_settings import Setting
from infra.aws.deploy.stage import load, locate
from infra.aws.deploy.steps import Deployment
from tests.functional.forwarding_endpoint import passing_on

Json = dict[str, Any]

STAGE = "dev"


def small_package(folder: Path) -> Path:
    """A zip that stands for the real one where only its way into the account matters."""
    place = folder / "deployment.zip"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(zipfile.ZipInfo("app.py"), "app = None\n")
    return place


def deploy(package: Path, folder: Path) -> list[Setting]:
    """As `make deploy` does after the package is built; what is not as it should be. folder: where it may write."""
    return _deployment(folder).deploy(package)


def _deployment(folder: Path) -> Deployment:
    session = boto3.Session()
    made = Deployment(locate(load(STAGE), session), session, lambda line: None, lambda seconds: None)
    made.folder = folder
    return made


@contextmanager
def cut_after(endpoint: str, requests: int) -> Iterator[str]:
    """An endpoint before that one whose line is cut after so many requests, for good."""
    left, lock = [requests], threading.Lock()

    def admit(*request: Any) -> bool:
        with lock:
            left[0] -= 1
            return left[0] >= 0

    with passing_on(endpoint, admit) as cut:
        yield cut


def account(client: Mapping[str, Any]) -> Json:
    """Everything of the stage in the account, without the ids that AWS makes up. client: clients by service."""
    return {
        "queues": _queues(client["sqs"]),
        "tables": _tables(client["dynamodb"]),
        "functions": _functions(client["lambda"]),
        "mappings": _mappings(client["lambda"]),
        "rules": _rules(client["events"]),
        "roles": _roles(client["iam"]),
        "apis": _apis(client["apigateway"]),
        "logs": {
            one["logGroupName"]: one.get("retentionInDays") for one in client["logs"].describe_log_groups()["logGroups"]
        },
        "stacks": [one["StackName"] for one in client["cloudformation"].describe_stacks()["Stacks"]],
    }


SERVICES = ("sqs", "dynamodb", "lambda", "events", "iam", "apigateway", "logs", "cloudformation")


def _queues(client: Any) -> Json:
    urls = client.list_queues().get("QueueUrls", [])
    made = {}
    for url in urls:
        attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        made[url.rpartition("/")[2]] = {key: value for key, value in attributes.items() if "Timestamp" not in key}
    return made


def _tables(client: Any) -> Json:
    made = {}
    for name in client.list_tables()["TableNames"]:
        table = client.describe_table(TableName=name)["Table"]
        made[name] = {
            "key": table["KeySchema"],
            "protected": table.get("DeletionProtectionEnabled"),
            "expiry": client.describe_time_to_live(TableName=name)["TimeToLiveDescription"],
        }
    return made


def _functions(client: Any) -> Json:
    made = {}
    for one in client.list_functions()["Functions"]:
        shown = ("Runtime", "Handler", "MemorySize", "Timeout", "Environment", "Role", "CodeSha256", "Architectures")
        policy = _policy(client, one["FunctionName"])
        made[one["FunctionName"]] = {key: one.get(key) for key in shown} | {"may be called by": policy}
    return made


def _policy(client: Any, function: str) -> list[str]:
    try:
        statements = json.loads(client.get_policy(FunctionName=function)["Policy"])["Statement"]
    except client.exceptions.ResourceNotFoundException:
        return []
    return sorted(
        {
            re.sub(
                r"execute-api:([^:]*):([^:]*):[^/]*",
                r"execute-api:\1:\2:ID",
                json.dumps({key: value for key, value in one.items() if key != "Sid"}, sort_keys=True),
            )
            for one in statements
        }
    )


def _mappings(client: Any) -> list[Json]:
    found = client.list_event_source_mappings()["EventSourceMappings"]
    shown = ("EventSourceArn", "FunctionArn", "BatchSize", "ScalingConfig", "FunctionResponseTypes", "State")
    return sorted(({key: one.get(key) for key in shown} for one in found), key=str)


def _rules(client: Any) -> Json:
    return {
        rule["Name"]: {
            "schedule": rule.get("ScheduleExpression"),
            "targets": client.list_targets_by_rule(Rule=rule["Name"])["Targets"],
        }
        for rule in client.list_rules()["Rules"]
    }


def _roles(client: Any) -> Json:
    made = {}
    for role in (one["RoleName"] for one in client.list_roles()["Roles"]):
        made[role] = {
            name: client.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            for name in client.list_role_policies(RoleName=role)["PolicyNames"]
        }
    return made


def _apis(client: Any) -> list[Json]:
    made = []
    for api in client.get_rest_apis()["items"]:
        stages = {one["stageName"]: one.get("methodSettings") for one in client.get_stages(restApiId=api["id"])["item"]}
        resources = client.get_resources(restApiId=api["id"])["items"]
        made.append(
            {
                "stages": stages,
                "tags": api.get("tags"),
                "plans": len(client.get_usage_plans()["items"]),
                "keys": len(client.get_api_keys()["items"]),
                "routes": sorted((one["path"], *sorted(one.get("resourceMethods", {}))) for one in resources),
            }
        )
    return made
