"""Finds the tables and the published settings of a deployment, for `outscaler login` and for commands that judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.aws import session
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import PublishedSettings, published_in
from chalicelib.model.resource_names import prefix_for, state_table_of


class FoundDeployment(msgspec.Struct, frozen=True):
    """The tables of a deployment. policy_table: "" where its name follows from the other one. settings: what policies
    may name, by the outputs of a CloudFormation stack; None where they do not say it."""

    table: str
    policy_table: str
    region: str
    settings: PublishedSettings | None = None


SETTINGS = "PolicySettings"
"""The output of a stack with the settings, as JSON."""
_CONFIG: dict[str, Any] = {
    "connect_timeout": 3,
    "read_timeout": 10,
    "retries": {"mode": "standard", "total_max_attempts": 3},
}


def find_deployment(stack: str, region: str) -> FoundDeployment:
    """Find the tables of a stage of `make deploy`, otherwise of a CloudFormation stack of this name. region: "" for the
    environment's. Raises BadInput where neither exists or AWS refuses."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        tables = session.client("dynamodb", region=region or None, **_CONFIG)
        here = str(tables.meta.region_name)
        table = _stage_table(stack)
        if table and _exists(tables, table):
            return FoundDeployment(table=table, policy_table="", region=here)
        outputs = _outputs(session.client("cloudformation", region=region or None, **_CONFIG), stack)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "ClientError")
        raise BadInput(stack, f"AWS refuses the request ({code})", "use credentials that may read the table") from None
    except BotoCoreError as error:
        raise BadInput(stack, f"AWS cannot be asked ({error})", "set AWS_PROFILE and AWS_REGION, or --region") from None
    if "TableName" not in outputs:
        wanted = f"no table {table}, and " if table else ""
        raise BadInput(
            stack, f"{wanted}no stack of this name with an output TableName in {here}", "check the name and --region"
        )
    return FoundDeployment(
        table=outputs["TableName"],
        policy_table=outputs.get("PolicyTableName", ""),
        region=here,
        settings=_settings(outputs),
    )


def settings_of_table(table: str) -> PublishedSettings | None:
    """Return the settings in the outputs of the CloudFormation stack that made a table, in the environment's region;
    None where no stack did, where it does not say them, or where AWS refuses. Raises BadInput for an output that cannot
    be read."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client = session.client("cloudformation", **_CONFIG)
        resources = client.describe_stack_resources(PhysicalResourceId=table).get("StackResources", ())
        outputs = _outputs(client, resources[0]["StackName"]) if resources else {}
    except (BotoCoreError, ClientError):
        return None
    return _settings(outputs)


def _settings(outputs: Mapping[str, str]) -> PublishedSettings | None:
    return published_in(outputs[SETTINGS]) if SETTINGS in outputs else None


def endpoint_of(stack: str, region: str) -> str:
    """Return the address of the API of a CloudFormation stack, "" where there is none."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return _outputs(session.client("cloudformation", region=region or None), stack).get("EndpointURL", "")
    except (BotoCoreError, ClientError):
        return ""


def _stage_table(stack: str) -> str:
    try:
        return state_table_of(prefix_for(stack.removeprefix("outscaler-")))
    except BadInput:
        return ""


def _exists(client: Any, table: str) -> bool:
    from botocore.exceptions import ClientError

    try:
        client.describe_table(TableName=table)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "ResourceNotFoundException":
            return False
        raise
    return True


def _outputs(client: Any, stack: str) -> dict[str, str]:
    from botocore.exceptions import ClientError

    try:
        stacks = client.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "ValidationError":  # CloudFormation's word for "not found"
            return {}
        raise
    return {each["OutputKey"]: each["OutputValue"] for each in stacks[0].get("Outputs", ())}
