"""The deployed REST API: one public stage, throttled by route, with a log that
contains nothing from callers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functional.artifact import artifact
from tests.functional.stack import HANDLERS, QUEUED

Template = dict[str, Any]
STAGES = pytest.mark.parametrize("stage", ["dev", "prod"])


def _of_type(template: Template, kind: str) -> list[Template]:
    return [one["Properties"] for one in template["Resources"].values() if one["Type"] == kind]


@STAGES
def test_api_has_exactly_one_public_stage(stage: str) -> None:
    """SAM adds a stage called Stage, without a throttle, unless the version of OpenAPI is given."""
    template = artifact().translated(stage)
    [found] = _of_type(template, "AWS::ApiGateway::Stage")
    assert found["StageName"] == "api"
    deployments = _of_type(template, "AWS::ApiGateway::Deployment")
    assert deployments
    assert all("StageName" not in one and "StageDescription" not in one for one in deployments)


@STAGES
def test_every_route_is_throttled_and_unauthenticated_ones_lower(stage: str) -> None:
    template = artifact().translated(stage)
    [found] = _of_type(template, "AWS::ApiGateway::Stage")
    numbers = {
        name: given["Default"]
        for name, given in template["Parameters"].items()
        if given["Type"] == "Number"
    }

    def number(value: int | dict[str, str]) -> int:
        return numbers[value["Ref"]] if isinstance(value, dict) else value

    limits = {
        f"{one['HttpMethod']} {one['ResourcePath']}": (
            number(one["ThrottlingRateLimit"]),
            number(one["ThrottlingBurstLimit"]),
        )
        for one in found["MethodSettings"]
    }
    # They check sessions themselves, and files of the pages need none.
    pages = (
        "",
        "~1open~1{code}",
        "~1static~1{file}",
        "~1clusters~1{name}",
        "~1clusters~1{name}~1{page}",
    )
    assert limits == {
        "* /*": (100, 200),
        "POST /~1clusters~1{name}~1events": (50, 100),
        "GET /~1healthz": (5, 10),
        **{f"GET /~1ui{page}": (10, 20) for page in pages},
    }
    paths = template["Resources"]["RestAPI"]["Properties"]["Body"]["paths"]
    open_routes = {
        f"{verb.upper()} /{path.replace('/', '~1')}"
        for path, verbs in paths.items()
        for verb, one in verbs.items()
        if not one.get("security")
    }
    assert open_routes == limits.keys() - {"* /*"}


@STAGES
def test_access_log_contains_no_query_no_header_and_no_body(stage: str) -> None:
    template = artifact().translated(stage)
    [found] = _of_type(template, "AWS::ApiGateway::Stage")
    condition, setting, nothing = found["AccessLogSetting"]["Fn::If"]
    assert (condition, nothing) == ("WithAccessLog", {"Ref": "AWS::NoValue"})
    assert setting["DestinationArn"] == {"Fn::GetAtt": ["ApiAccessLog", "Arn"]}
    fields = json.loads(setting["Format"])
    assert set(fields.values()) == {
        "$context.requestId",
        "$context.requestTime",
        "$context.identity.sourceIp",
        "$context.identity.userArn",
        "$context.httpMethod",
        "$context.resourcePath",
        "$context.status",
        "$context.responseLength",
        "$context.responseLatency",
    }, "paths as templates: nothing that a caller chose but his address"


@pytest.mark.parametrize("function", HANDLERS)
def test_only_event_sources_that_report_batch_failures_enable_it(function: str) -> None:
    template = artifact().translated("prod")
    reporting = {
        one["FunctionName"]["Ref"]
        for one in _of_type(template, "AWS::Lambda::EventSourceMapping")
        if one.get("FunctionResponseTypes") == ["ReportBatchItemFailures"]
    }
    variables = template["Resources"][function]["Properties"]["Environment"]["Variables"]
    assert (variables.get("OUTSCALER_BATCH_FAILURES") == "reported") is (function in reporting)
    assert (function in QUEUED) is (function in reporting)
