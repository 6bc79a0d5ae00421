"""The roles' policies as Chalice needs them: literal, because Chalice hands the files to IAM as they are.

The policies are stated once, in infra/aws/policies, where they refer to resources of a CloudFormation stack. In a
deployment by Chalice every name follows from the stage, so each reference becomes an ARN with that name. Partition,
region and account are wildcards: the role and what it may use are always in one account, and the files are the same
wherever they are written.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chalicelib.model.deployed_names import queue_name, secret_prefix, state_table_of
from chalicelib.store.tables import policy_table_of
from infra.aws.deploy.graph import Graph, Role
from infra.aws.deploy.stage import Stage
from infra.aws.package import POLICIES
from infra.aws.resources import QUEUES, dead_letters, logical_id

Document = dict[str, Any]

_FILE = re.compile(r"policy-(?P<stage>[a-z0-9-]+?)-(?P<function>[a-z_]+)\.json\Z")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")

# https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html: what a function in a VPC needs; these actions
# take no resource but "*".
_IN_VPC: Document = {
    "Sid": "UseNetworkInterfaces", "Effect": "Allow", "Resource": "*",
    "Action": ["ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface",
               "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses"],
}
_TRACED: Document = {"Sid": "SendTraces", "Effect": "Allow", "Resource": "*",
                     "Action": ["xray:PutTelemetryRecords", "xray:PutTraceSegments"]}


def documents(stage: Stage, graph: Graph) -> dict[str, Document]:
    """File name in .chalice -> the policy of that role."""
    return {Path(role.policy_file).name: document(stage, graph, role) for role in graph.roles}


def document(stage: Stage, graph: Graph, role: Role) -> Document:
    """One role's policy with every reference replaced, and the rights that this stage's settings ask for."""
    function = next(one for one in graph.functions if one.role == role.role_name)
    given: Document = json.loads((POLICIES / f"{source_of(Path(role.policy_file).name)}.json").read_text("utf-8"))
    made = copy.deepcopy(given)
    names = _names(stage, graph)
    for statement in made["Statement"]:
        resources = statement["Resource"]
        statement["Resource"] = ([_literal(one, names) for one in resources] if isinstance(resources, list)
                                 else _literal(resources, names))
        if "sqs:SendMessage" in statement["Action"]:
            statement["Action"] = [*statement["Action"], "sqs:GetQueueUrl"]    # no variable names the URLs
    made["Statement"].append({
        "Sid": "WriteOwnLog", "Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
        "Resource": f"arn:*:logs:*:*:log-group:/aws/lambda/{function.function_name}:*",
    })
    made["Statement"] += [copy.deepcopy(one) for wanted, one in (
        (bool(function.subnet_ids), _IN_VPC), (bool(function.xray), _TRACED)) if wanted]
    if stage.options.kms_key_arn:
        made["Statement"].append({"Sid": "UseKey", "Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
                                  "Resource": stage.options.kms_key_arn})
    return made


def source_of(file: str) -> str:
    """The policy in infra/aws/policies that a file of .chalice is made from: `policy-dev-tick.json` is `tick`."""
    found = _FILE.match(file)
    if found is None:
        raise ValueError(f"{file}: expected policy-STAGE-FUNCTION.json")
    return found["function"]


def _names(stage: Stage, graph: Graph) -> dict[str, str]:
    """What a reference becomes: logical ids of resources -> ARN; variables -> text."""
    state = state_table_of(stage.prefix)
    arns = {"StateTable": f"arn:*:dynamodb:*:*:table/{state}",
            "PolicyTable": f"arn:*:dynamodb:*:*:table/{policy_table_of(state)}",
            "TickDeadLetters": _queue(dead_letters(queue_name(stage.prefix, "tick")))}
    for name in QUEUES:
        arns[f"{logical_id(name)}Queue"] = _queue(queue_name(stage.prefix, name))
        arns[f"{logical_id(name)}DeadLetters"] = _queue(dead_letters(queue_name(stage.prefix, name)))
    for function in graph.functions:
        arns[logical_id(function.resource_name)] = f"arn:*:lambda:*:*:function:{function.function_name}"
    prefix = stage.config["environment_variables"].get("OUTSCALER_SECRET_PREFIX", secret_prefix(stage.prefix))
    return arns | {"AWS::Partition": "*", "AWS::Region": "*", "AWS::AccountId": "*", "SecretPrefix": prefix,
                   "EksClusters": stage.config.get("environment_variables", {}).get("OUTSCALER_EKS_CLUSTERS", "*")}


def _queue(name: str) -> str:
    return f"arn:*:sqs:*:*:{name}"


def _literal(resource: str | Mapping[str, Any], names: Mapping[str, str]) -> str:
    if isinstance(resource, str):
        return resource
    if "Fn::GetAtt" in resource:
        return names[resource["Fn::GetAtt"][0]]
    return _VARIABLE.sub(lambda found: names[found[1]], resource["Fn::Sub"])
