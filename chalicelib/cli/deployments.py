"""The AWS side of a deployment: its tables and published settings, its API, its
functions, and who the caller is.

Lambda continuously polls the queue of an enabled event source mapping, and AWS charges for each
poll. A deployment by `make deploy` therefore leaves the mappings of unused providers disabled, and
the first policy that uses a provider enables its function. The operator who stores a policy uses
their own credentials, so no function needs permission to change mappings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from chalicelib.aws import session
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.policy_permissions import PublishedSettings, published_in
from chalicelib.model.resource_names import (
    API_TAG,
    prefix_for,
    queue_name,
    stage_prefix,
    state_table_of,
)

SETTINGS = "PolicySettings"
"""The output of a stack with the settings, as JSON."""
_ENDPOINT = "EndpointURL"
"""The output of a stack with the address of its API."""
UNKNOWN = "unknown"
_CONFIG: dict[str, Any] = {
    "connect_timeout": 3,
    "read_timeout": 10,
    "retries": {"mode": "standard", "total_max_attempts": 3},
}
_LARGEST = 100_000  # bytes of an answer of the API
_SECONDS = 15


class ApiFailure(OutscalerError):
    """The API did not answer, or refused the request."""


class FoundDeployment(msgspec.Struct, frozen=True):
    """The tables of a deployment. policy_table: "" where its name follows from the other one.
    settings: what policies may name, by the outputs of a CloudFormation stack; None where they do
    not say it. api: the address of its API, "" where it has none, or where the caller may not see
    it."""

    table: str
    policy_table: str
    region: str
    settings: PublishedSettings | None = None
    api: str = ""


def find_deployment(stack: str, region: str) -> FoundDeployment:
    """Find the tables of a stage of `make deploy`, otherwise of a CloudFormation stack of this
    name. region: "" for the environment's. Raises BadInput where neither exists or AWS refuses."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        prefix = prefix_for(stack.removeprefix("outscaler-"))
        table = state_table_of(prefix)
    except BadInput:
        prefix = table = ""
    try:
        tables = session.client("dynamodb", region=region or None, **_CONFIG)
        here = str(tables.meta.region_name)
        if table and _exists(tables, table):
            return FoundDeployment(
                table=table, policy_table="", region=here, api=_api_of_stage(prefix, here)
            )
        outputs = _outputs(
            session.client("cloudformation", region=region or None, **_CONFIG), stack
        )
    except ClientError as error:
        problem = f"AWS refuses the request ({_code(error)})"
        raise BadInput(stack, problem, "use credentials that may read the table") from None
    except BotoCoreError as error:
        raise BadInput(
            stack, f"AWS cannot be asked ({error})", "set AWS_PROFILE and AWS_REGION, or --region"
        ) from None
    if "TableName" not in outputs:
        missing = f"no table {table}, and " if table else ""
        problem = f"{missing}no stack of this name with an output TableName in {here}"
        raise BadInput(stack, problem, "check the name and --region")
    return FoundDeployment(
        table=outputs["TableName"],
        policy_table=outputs.get("PolicyTableName", ""),
        region=here,
        settings=_settings(outputs),
        api=outputs.get(_ENDPOINT, ""),
    )


def _api_of_stage(prefix: str, region: str) -> str:
    """Return the address of the API that make deploy has tagged with a stage's prefix, "" where
    there is none, or where AWS refuses: the tables are what a login needs."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        client = session.client("apigateway", region=region, **_CONFIG)
        pages = client.get_paginator("get_rest_apis").paginate()
        tagged = [
            api["id"]
            for page in pages
            for api in page["items"]
            if api.get("tags", {}).get(API_TAG) == prefix
        ]
        stages = client.get_stages(restApiId=tagged[0])["item"] if tagged else ()
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        return (
            f"https://{tagged[0]}.execute-api.{region}.{suffix}/{stages[0]['stageName']}"
            if stages
            else ""
        )
    except (BotoCoreError, ClientError, ResponseParserError, LookupError):
        return ""


def _exists(client: Any, table: str) -> bool:
    from botocore.exceptions import ClientError

    try:
        client.describe_table(TableName=table)
    except ClientError as error:
        if _code(error) == "ResourceNotFoundException":
            return False
        raise
    return True


def settings_of_table(table: str) -> PublishedSettings | None:
    """Return the settings in the outputs of the CloudFormation stack that made a table, in the
    environment's region; None where no stack did, where it does not say them, or where AWS refuses.
    Raises BadInput for an output that cannot be read."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client = session.client("cloudformation", **_CONFIG)
        resources = client.describe_stack_resources(PhysicalResourceId=table).get(
            "StackResources", ()
        )
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
        return _outputs(session.client("cloudformation", region=region or None), stack).get(
            _ENDPOINT, ""
        )
    except (BotoCoreError, ClientError):
        return ""


def _outputs(client: Any, stack: str) -> dict[str, str]:
    from botocore.exceptions import ClientError

    try:
        stacks = client.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if _code(error) == "ValidationError":  # CloudFormation's word for "not found"
            return {}
        raise
    return {output["OutputKey"]: output["OutputValue"] for output in stacks[0].get("Outputs", ())}


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "ClientError"))


def caller() -> str:
    """Return the ARN of the caller, UNKNOWN where AWS does not say it within seconds: no act of an
    operator waits for its own record. Every identity may ask for its own name."""
    from botocore.exceptions import BotoCoreError, ClientError

    retries = {"mode": "standard", "total_max_attempts": 2}
    try:
        client = session.client("sts", connect_timeout=2, read_timeout=3, retries=retries)
        return str(client.get_caller_identity()["Arn"])[:2048]
    except (BotoCoreError, ClientError, KeyError):
        return UNKNOWN


def switch_on(table: str, providers: Iterable[str], client: Any = None) -> list[str]:
    """Enable the mappings of these providers; return a line for each provider whose
    queue may not be polled yet.

    table: the state table, whose name identifies the deployment. Any other name belongs to a
    CloudFormation stack, whose template enables the mappings; then nothing is done.
    """
    prefix, problems = stage_prefix(table), []
    for provider in sorted(providers) if prefix else ():
        problem = _switch_on(queue_name(prefix, f"act_{provider}"), client)
        if problem:
            stage = prefix.removeprefix("outscaler-")
            wait = (
                f"its operations wait in their queue until make deploy STAGE={stage} has run again"
            )
            problems.append(f"{provider}: {problem}; {wait}")
    return problems


def _switch_on(function: str, client: Any | None) -> str:
    """Return "" where the function's queue is polled. The function has the same name as its
    queue."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client = client or session.client("lambda", **_CONFIG)
        mappings = client.list_event_source_mappings(FunctionName=function)["EventSourceMappings"]
        if not mappings:
            return f"function {function} has no queue"
        for mapping in mappings:
            if mapping.get("State") in ("Disabled", "Disabling"):
                client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
    except ClientError as error:
        return f"function {function} cannot be enabled ({_code(error)})"
    except BotoCoreError as error:
        return f"function {function} cannot be enabled ({type(error).__name__})"
    return ""


def post(url: str) -> bytes:
    """Return the body of the answer to an empty POST. url: HTTPS. A host of API Gateway names its
    region; a custom domain needs a configured one. Raises ApiFailure, BadInput."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import BotoCoreError
    from botocore.httpsession import URLLib3Session

    host = urlsplit(url).hostname or ""
    labels = host.split(".")
    named = labels[2] if len(labels) > 3 and labels[1] == "execute-api" else ""
    where = named or session.configured_region()
    credentials = session.credentials()
    if credentials is None:
        raise BadInput(
            "AWS credentials", "are missing", "set AWS_PROFILE or the variables of a role"
        )
    if not where:
        raise BadInput(url, "does not name its region", "set AWS_REGION")
    request = AWSRequest("POST", url, {"Content-Type": "application/json"}, b"{}")
    try:
        SigV4Auth(credentials.get_frozen_credentials(), "execute-api", where).add_auth(request)
        answer = URLLib3Session(timeout=_SECONDS).send(request.prepare())
    except BotoCoreError as error:
        raise ApiFailure(f"{host}: no answer ({type(error).__name__})") from None
    if answer.status_code != 200:
        raise ApiFailure(
            f"{host} answers {answer.status_code}: "
            f"{answer.content[:200].decode('utf-8', 'replace')}"
        )
    return bytes(answer.content[:_LARGEST])
