"""The REST API: its identity, and the stage settings that Chalice does not support (limits,
access log, readers' API key).

Chalice updates an API that it finds, and otherwise creates one with a new address. Therefore an
empty API is created before `chalice deploy`. A tag records its stage, because Chalice gives the
APIs of all stages the same name. The stage's settings are compared and written like the others
(account_settings.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from chalicelib.model.resource_names import API_TAG
from infra.aws.deploy.account_settings import Setting
from infra.aws.deploy.stage import Stage
from infra.aws.template_overlay import merge_template

Json = dict[str, Any]

_API_ARN = re.compile(r"arn:[a-z-]+:execute-api:[a-z0-9-]+:[0-9]*:([a-z0-9]+)/")


class NoAccessLog(Exception):
    """The account has no role with which API Gateway may write logs."""


def find(stage: Stage, function: str, session: Any) -> str:
    """Return the id of the stage's REST API, "" if it does not exist. function: the
    function that serves its routes.

    An API without the tag is recognised by the policy of that function, which
    permits the API to call it.
    """
    client = session.client("apigateway")
    apis = [
        one for page in client.get_paginator("get_rest_apis").paginate() for one in page["items"]
    ]
    owned = [one for one in apis if one.get("tags", {}).get(API_TAG) == stage.prefix]
    named = _named_in_policy(function, session.client("lambda"))
    found = owned or [one for one in apis if one["id"] in named]
    return (
        str(min(found, key=lambda one: (str(one.get("createdDate", "")), one["id"]))["id"])
        if found
        else ""
    )


def ensure(stage: Stage, function: str, session: Any) -> str:
    """Return the id of the stage's REST API. Creates the API, or adds the
    missing tag, if necessary."""
    client, tags = (
        session.client("apigateway"),
        {**stage.config.get("tags", {}), API_TAG: stage.prefix},
    )
    found = find(stage, function, session)
    if found and client.get_rest_api(restApiId=found).get("tags", {}).get(API_TAG) == stage.prefix:
        return found
    if not found:
        return str(
            client.create_rest_api(
                name=stage.prefix,
                description=f"Outscaler, stage {stage.name}",
                tags=tags,
                endpointConfiguration={"types": ["REGIONAL"]},
            )["id"]
        )
    arn = f"arn:{stage.partition}:apigateway:{stage.region}::/restapis/{found}"
    client.tag_resource(resourceArn=arn, tags=tags)
    return found


def _named_in_policy(function: str, client: Any) -> set[str]:
    """Return the ids of the APIs that may call a function."""
    try:
        policy = json.loads(client.get_policy(FunctionName=function)["Policy"])
    except client.exceptions.ResourceNotFoundException:
        return set()
    sources = [
        str(one.get("Condition", {}).get("ArnLike", {}).get("AWS:SourceArn", ""))
        for one in policy.get("Statement", [])
    ]
    return {found[1] for source in sources if (found := _API_ARN.match(source))}


def settings(stage: Stage, api: str, client: Any, logs: Any) -> Iterator[Setting]:
    """Return the settings of the API with this id."""
    name = stage.config["api_gateway_stage"]
    found = client.get_stage(restApiId=api, stageName=name)
    yield from _throttles(stage, api, name, found, client)
    if stage.options.access_log:
        yield from _access_log(stage, api, name, found, client, logs)
    if stage.config["environment_variables"].get("OUTSCALER_READ_AUTH") == "api-key":
        yield from _readers(stage, api, name, client)


def readers_key(stage: Stage, client: Any) -> str:
    """Return the id of the readers' API key, "" if it does not exist."""
    pages = client.get_paginator("get_api_keys").paginate(nameQuery=_readers_name(stage))
    return next(
        (
            one["id"]
            for page in pages
            for one in page["items"]
            if one["name"] == _readers_name(stage)
        ),
        "",
    )


def _throttles(stage: Stage, api: str, name: str, found: Json, client: Any) -> Iterator[Setting]:
    """Return the limits of all routes, and of routes with limits of their own, as the
    CloudFormation template states them."""
    options = {"EventsRate": stage.options.events_rate, "EventsBurst": stage.options.events_burst}
    is_set = {_normal(key): value for key, value in found.get("methodSettings", {}).items()}
    for given in merge_template(stage.config)["Resources"]["RestAPI"]["Properties"][
        "MethodSettings"
    ]:
        rate, burst = (
            options[one["Ref"]] if isinstance(one, dict) else one
            for one in (given["ThrottlingRateLimit"], given["ThrottlingBurstLimit"])
        )
        route = f"{given['ResourcePath'].removeprefix('/')}/{given['HttpMethod']}"
        actual = is_set.get(_normal(route), {})
        patch = [
            {"op": "replace", "path": f"/{route}/throttling/rateLimit", "value": str(rate)},
            {"op": "replace", "path": f"/{route}/throttling/burstLimit", "value": str(burst)},
        ]

        def write(patch: list[Json] = patch) -> None:
            client.update_stage(restApiId=api, stageName=name, patchOperations=patch)

        yield Setting(
            f"API stage {name}: requests per second, at once, of {_normal(route)}",
            [float(rate), int(burst)],
            [
                _number(actual.get("throttlingRateLimit")),
                _number(actual.get("throttlingBurstLimit")),
            ],
            write,
        )


def _normal(route: str) -> str:
    """Normalize a route: API Gateway writes slashes as ~1, with or without the first one."""
    return route.replace("~1", "/").lstrip("/")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _access_log(
    stage: Stage, api: str, name: str, found: Json, client: Any, logs: Any
) -> Iterator[Setting]:
    group = f"/outscaler/{stage.name}/api-access"
    arn = f"arn:{stage.partition}:logs:{stage.region}:{stage.account}:log-group:{group}"
    days = stage.config["log_retention_in_days"]
    there = next(
        (
            one
            for one in logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]
            if one["logGroupName"] == group
        ),
        None,
    )

    def write_group() -> None:
        if there is None:
            logs.create_log_group(logGroupName=group, tags=stage.config.get("tags", {}))
        logs.put_retention_policy(logGroupName=group, retentionInDays=days)

    yield Setting(
        f"log group {group}: days", days, (there or {}).get("retentionInDays"), write_group
    )
    form = merge_template(stage.config)["Resources"]["RestAPI"]["Properties"]["AccessLogSetting"][
        "Fn::If"
    ][1]["Format"]
    patch = [
        {"op": "replace", "path": "/accessLogSettings/destinationArn", "value": arn},
        {"op": "replace", "path": "/accessLogSettings/format", "value": form},
    ]

    def write_log() -> None:
        try:
            client.update_stage(restApiId=api, stageName=name, patchOperations=patch)
        except client.exceptions.BadRequestException as error:
            raise NoAccessLog(str(error)) from None

    actual = found.get("accessLogSettings", {}).get("destinationArn", "").removesuffix(":*")
    yield Setting(f"API stage {name}: access log", arn, actual, write_log)


def _readers_name(stage: Stage) -> str:
    return f"{stage.prefix}-readers"


def _readers(stage: Stage, api: str, name: str, client: Any) -> Iterator[Setting]:
    key, named = readers_key(stage, client), _readers_name(stage)
    plans = [
        one for page in client.get_paginator("get_usage_plans").paginate() for one in page["items"]
    ]
    plan = next((one for one in plans if one["name"] == named), None)
    joined = bool(
        key
        and plan
        and any(
            one["id"] == key for one in client.get_usage_plan_keys(usagePlanId=plan["id"])["items"]
        )
    )
    covers = bool(
        plan
        and {"apiId": api, "stage": name}
        in [{"apiId": one["apiId"], "stage": one["stage"]} for one in plan.get("apiStages", [])]
    )

    def write() -> None:
        made = plan or client.create_usage_plan(
            name=named,
            description="Readers of Outscaler's routes",
            throttle={"rateLimit": 20, "burstLimit": 40},
        )
        if not covers:
            client.update_usage_plan(
                usagePlanId=made["id"],
                patchOperations=[{"op": "add", "path": "/apiStages", "value": f"{api}:{name}"}],
            )
        held = (
            key
            or client.create_api_key(
                name=named, enabled=True, description="Reads Outscaler's routes"
            )["id"]
        )
        if not joined:
            client.create_usage_plan_key(usagePlanId=made["id"], keyId=held, keyType="API_KEY")

    yield Setting(
        "API key of readers",
        "in a usage plan of this API",
        "in a usage plan of this API" if joined and covers else "missing",
        write,
    )
