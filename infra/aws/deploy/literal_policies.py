"""The roles' policies without references, because Chalice passes the policy files to IAM unchanged.

The policies are stated once, in infra/aws/policies, where they refer to resources of a
CloudFormation stack. In a deployment with Chalice every name follows from the stage, so each
reference becomes an ARN with that name. Partition, region and account are wildcards: a role and the
resources it uses are always in one account, and the files are the same wherever they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chalicelib.cluster.watcher_post import WATCHED
from chalicelib.model.resource_names import queue_name, secret_prefix, state_table_of
from chalicelib.runtime.senders import RECONCILE_LARGE
from chalicelib.store.tables import policy_table_of
from infra.aws.deploy.chalice_resources import Graph, Role
from infra.aws.deploy.foundation import decisions_bucket, lists_bucket
from infra.aws.deploy.stage import Stage
from infra.aws.package import POLICIES
from infra.aws.permissions import (
    conditional_policies,
    decisions_policy,
    large_dead_letters_policy,
    lists_policy,
    page_key_policy,
    tick_dead_letters_policy,
    watched_policy,
)
from infra.aws.resources import QUEUES, dead_letters, logical_id
from infra.aws.template_overlay import PASS_FUNCTIONS

Document = dict[str, Any]

_FILE = re.compile(r"policy-(?P<stage>[a-z0-9-]+?)-(?P<function>[a-z_]+)\.json\Z")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def documents(stage: Stage, graph: Graph) -> dict[str, Document]:
    """Return file name in .chalice -> the policy of that role."""
    return {Path(role.policy_file).name: document(stage, graph, role) for role in graph.roles}


def document(stage: Stage, graph: Graph, role: Role) -> Document:
    """Return one role's policy with every reference replaced, and with the permissions that
    this stage's settings need."""
    function = next(one for one in graph.functions if one.role == role.role_name)
    given: Document = json.loads(
        (POLICIES / f"{source_of(Path(role.policy_file).name)}.json").read_text("utf-8")
    )
    names = _names(stage, graph)
    statements = [_with_queue_url(one) for one in given["Statement"]]
    if function.resource_name == "tick":
        statements += tick_dead_letters_policy()["PolicyDocument"]["Statement"]
    if function.resource_name == RECONCILE_LARGE:
        statements += large_dead_letters_policy()["PolicyDocument"]["Statement"]
    if function.resource_name in PASS_FUNCTIONS and stage.options.decisions_days:
        objects = f"arn:*:s3:::{decisions_bucket(stage)}/*"
        statements += decisions_policy(objects)["PolicyDocument"]["Statement"]
    if function.resource_name in PASS_FUNCTIONS and stage.options.share_lists:
        bucket = f"arn:*:s3:::{lists_bucket(stage)}"
        statements += lists_policy(bucket, f"{bucket}/*")["PolicyDocument"]["Statement"]
    if function.resource_name == "api_handler" and stage.options.share_lists:
        objects = f"arn:*:s3:::{lists_bucket(stage)}/{WATCHED}/*"
        statements += watched_policy(objects)["PolicyDocument"]["Statement"]
    if function.resource_name == "api_handler" and stage.options.hosted_page:
        # Secrets Manager ends every ARN with a hyphen and six characters of its own.
        secret = f"arn:*:secretsmanager:*:*:secret:{page_secret(stage)}-??????"
        statements += page_key_policy(secret)["PolicyDocument"]["Statement"]
    asked = {
        "WithVpc": bool(function.subnet_ids),
        "WithTracing": bool(function.xray),
        "WithKmsKey": bool(stage.options.kms_key_arn),
    }
    for condition, policy, _ in (one["Fn::If"] for one in conditional_policies()):
        statements += policy["PolicyDocument"]["Statement"] if asked[condition] else []
    made = [_literal(one, names) for one in statements]
    made.append(
        {
            "Sid": "WriteOwnLog",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": f"arn:*:logs:*:*:log-group:/aws/lambda/{function.function_name}:*",
        }
    )
    return {"Version": given["Version"], "Statement": [_with_wildcards(one) for one in made]}


def _with_queue_url(statement: Document) -> Document:
    """Add the permission to look up queue URLs. A sender with fixed names needs it; in a stack,
    variables contain the URLs."""
    if "sqs:SendMessage" not in statement["Action"]:
        return statement
    return statement | {"Action": [*statement["Action"], "sqs:GetQueueUrl"]}


def _with_wildcards(statement: Document) -> Document:
    """Use a condition operator with wildcards. StringEquals treats a
    wildcard as a plain character."""
    equal = statement.get("Condition", {}).get("StringEquals")
    if equal is None or "*" not in json.dumps(equal):
        return statement
    rest = {key: value for key, value in statement["Condition"].items() if key != "StringEquals"}
    return statement | {"Condition": rest | {"StringLike": equal}}


def source_of(file: str) -> str:
    """Return the policy in infra/aws/policies for a file of .chalice:
    `policy-dev-tick.json` is `tick`."""
    found = _FILE.match(file)
    if found is None:
        raise ValueError(f"{file}: expected policy-STAGE-FUNCTION.json")
    return found["function"]


def page_secret(stage: Stage) -> str:
    """Return the name of the secret with the keys of the stage's hosted page."""
    prefix = stage.config["environment_variables"].get(
        "OUTSCALER_SECRET_PREFIX", secret_prefix(stage.prefix)
    )
    return f"{prefix}page-key"


def _names(stage: Stage, graph: Graph) -> dict[str, str]:
    """Return the replacements of references: logical id of a resource -> ARN, variable -> text."""
    state = state_table_of(stage.prefix)
    arns = {
        "StateTable": f"arn:*:dynamodb:*:*:table/{state}",
        "PolicyTable": f"arn:*:dynamodb:*:*:table/{policy_table_of(state)}",
        "TickDeadLetters": _queue(dead_letters(queue_name(stage.prefix, "tick"))),
    }
    for name in QUEUES:
        arns[f"{logical_id(name)}Queue"] = _queue(queue_name(stage.prefix, name))
        arns[f"{logical_id(name)}DeadLetters"] = _queue(
            dead_letters(queue_name(stage.prefix, name))
        )
    for function in graph.functions:
        arns[logical_id(function.resource_name)] = (
            f"arn:*:lambda:*:*:function:{function.function_name}"
        )
    prefix = stage.config["environment_variables"].get(
        "OUTSCALER_SECRET_PREFIX", secret_prefix(stage.prefix)
    )
    return arns | {
        "AWS::Partition": "*",
        "AWS::Region": "*",
        "AWS::AccountId": "*",
        "AWS::URLSuffix": "*",
        "SecretPrefix": prefix,
        "KmsKeyArn": stage.options.kms_key_arn,
        "EksClusters": stage.config.get("environment_variables", {}).get(
            "OUTSCALER_EKS_CLUSTERS", "*"
        ),
    }


def _queue(name: str) -> str:
    return f"arn:*:sqs:*:*:{name}"


def _literal(value: Any, names: Mapping[str, str]) -> Any:
    """Return the value with every reference replaced."""
    if isinstance(value, list):
        return [_literal(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    if "Fn::GetAtt" in value:
        return names[value["Fn::GetAtt"][0]]
    if "Ref" in value:
        return names[value["Ref"]]
    if "Fn::Sub" in value:
        return _VARIABLE.sub(lambda found: names[found[1]], value["Fn::Sub"])
    return {key: _literal(one, names) for key, one in value.items()}
