"""Resources that moto's CloudFormation cannot create, although its services support most of
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from moto.apigateway.models import Deployment, RestAPI, apigateway_backends
from moto.awslambda.models import Permission, lambda_backends
from moto.cloudformation import parsing
from moto.cloudwatch.models import cloudwatch_backends
from moto.core.common_models import CloudFormationModel
from moto.sqs.models import sqs_backends

from infra.emulators.moto_gaps.stacks import original, replace

Json = dict[str, Any]
Make = Callable[[str, Json, str, str], tuple[str, Json]]
"""(name, properties, account, region) -> (physical id, attributes)."""


def _noted(name: str, properties: Json, account: str, region: str) -> tuple[str, Json]:
    del properties, account, region
    return name, {}


class _Made(CloudFormationModel):
    """A resource with its physical id and attributes; each type is a subclass."""

    kind = ""
    make: Make = staticmethod(_noted)

    def __init__(self, physical: str, attributes: Mapping[str, Any]) -> None:
        self._physical, self._attributes = physical, dict(attributes)

    @property
    def physical_resource_id(self) -> str:
        return self._physical

    @staticmethod
    def cloudformation_name_type() -> str:
        """Return no property: the name is read where the resource is created."""
        return ""

    @classmethod
    def cloudformation_type(cls) -> str:
        return cls.kind

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        """Return whether Fn::GetAtt supports the attribute, which is known only after creation."""
        del attr
        return True

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        """Return the value of Fn::GetAtt; an ARN for resources that are only recorded."""
        return self._attributes.get(attribute_name, f"arn:aws:noted:::{self._physical}")

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Json,
        account_id: str,
        region_name: str,
        **named: Any,
    ) -> Any:
        del named
        return cls(
            *cls.make(resource_name, cloudformation_json["Properties"], account_id, region_name)
        )

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Json,
        account_id: str,
        region_name: str,
    ) -> Any:
        """Update a resource by creating it again with other properties, which is
        possible for all types here."""
        del new_resource_name
        return cls(
            *cls.make(
                original_resource.physical_resource_id,
                cloudformation_json["Properties"],
                account_id,
                region_name,
            )
        )

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Json, account_id: str, region_name: str
    ) -> None:
        """Do nothing: the corresponding object in a service is deleted with
        that service's own resource."""

    def is_created(self) -> bool:
        return True


def _alarm(name: str, properties: Json, account: str, region: str) -> tuple[str, Json]:
    given = properties.get("AlarmName", name)
    backend: Any = cloudwatch_backends[account][region]
    backend.put_metric_alarm(
        name=given,
        namespace=properties.get("Namespace"),
        metric_name=properties.get("MetricName"),
        comparison_operator=properties["ComparisonOperator"],
        evaluation_periods=int(properties["EvaluationPeriods"]),
        period=properties.get("Period"),
        threshold=float(properties.get("Threshold", 0)),
        statistic=properties.get("Statistic"),
        description=properties.get("AlarmDescription", ""),
        dimensions=list(properties.get("Dimensions", ())),
        alarm_actions=[action for action in properties.get("AlarmActions") or () if action],
        treat_missing_data=properties.get("TreatMissingData"),
    )
    return given, {"Arn": f"arn:aws:cloudwatch:{region}:{account}:alarm:{given}"}


def _invoke_config(name: str, properties: Json, account: str, region: str) -> tuple[str, Json]:
    config = {
        key: value for key, value in properties.items() if key not in {"FunctionName", "Qualifier"}
    }
    for number in ("MaximumRetryAttempts", "MaximumEventAgeInSeconds"):
        if number in config:
            config[number] = int(config[number])
    lambda_backends[account][region].put_function_event_invoke_config(
        properties["FunctionName"], config
    )
    return name, {}


def _queue_policy(name: str, properties: Json, account: str, region: str) -> tuple[str, Json]:
    for url in properties["Queues"]:
        sqs_backends[account][region].set_queue_attributes(
            url.rpartition("/")[2], {"Policy": json.dumps(properties["PolicyDocument"])}
        )
    return name, {}


def _stage(name: str, properties: Json, account: str, region: str) -> tuple[str, Json]:
    del name
    api: Any = apigateway_backends[account][region].get_rest_api(properties["RestApiId"])
    stage = properties["StageName"]
    known = api.stages.get(stage) or api.create_stage(
        stage,
        properties.get("DeploymentId"),
        properties.get("Variables"),
        properties.get("Description", ""),
        cacheClusterEnabled=None,
        cacheClusterSize=None,
        tags=None,
        tracing_enabled=properties.get("TracingEnabled"),
    )
    known.deployment_id = properties.get("DeploymentId", known.deployment_id)
    known.access_log_settings = properties.get("AccessLogSetting")
    for one in properties.get("MethodSettings", ()):
        path = f"{one['ResourcePath'].removeprefix('/')}/{one['HttpMethod']}"
        known.method_settings[path] = {
            key[0].lower() + key[1:]: value
            for key, value in one.items()
            if key not in {"ResourcePath", "HttpMethod"}
        }
    return stage, {}


def _api_key(name: str, properties: Json, account: str, region: str) -> tuple[str, Json]:
    backend = apigateway_backends[account][region]
    key = backend.keys.get(name) or backend.create_api_key(
        {"name": properties.get("Name", name), "enabled": bool(properties.get("Enabled", True))}
    )
    return key.id, {"APIKeyId": key.id}


def _usage_plan(name: str, properties: Json, account: str, region: str) -> tuple[str, Json]:
    backend = apigateway_backends[account][region]
    stages = [
        {"apiId": one["ApiId"], "stage": one["Stage"]} for one in properties.get("ApiStages", ())
    ]
    throttle = (
        {
            "burstLimit": properties["Throttle"].get("BurstLimit"),
            "rateLimit": properties["Throttle"].get("RateLimit"),
        }
        if "Throttle" in properties
        else None
    )
    plan = backend.usage_plans.get(name) or backend.create_usage_plan(
        {"name": properties.get("UsagePlanName", name), "apiStages": stages, "throttle": throttle}
    )
    return plan.id, {"Id": plan.id}


def _usage_plan_key(name: str, properties: Json, account: str, region: str) -> tuple[str, Json]:
    del name
    backend, plan, key = (
        apigateway_backends[account][region],
        properties["UsagePlanId"],
        properties["KeyId"],
    )
    if key not in backend.usage_plan_keys.get(plan, {}):
        backend.create_usage_plan_key(
            plan, {"keyId": key, "keyType": properties.get("KeyType", "API_KEY")}
        )
    return f"{key}:{plan}", {}


_MADE: Mapping[str, Make] = {
    "AWS::CloudWatch::Alarm": _alarm,
    "AWS::Lambda::EventInvokeConfig": _invoke_config,
    "AWS::SQS::QueuePolicy": _queue_policy,
    "AWS::ApiGateway::Stage": _stage,
    "AWS::ApiGateway::ApiKey": _api_key,
    "AWS::ApiGateway::UsagePlan": _usage_plan,
    "AWS::ApiGateway::UsagePlanKey": _usage_plan_key,
}


def install() -> None:
    classes = {
        kind: type(kind.replace("::", ""), (_Made,), {"kind": kind, "make": staticmethod(make)})
        for kind, make in _MADE.items()
    }
    known = parsing.resource_class_from_type

    def resource_class_from_type(resource_type: str) -> Any:
        if resource_type in classes:
            return classes[resource_type]
        if resource_type.startswith("Custom::") or resource_type in parsing.get_model_map():
            return known(resource_type)
        return _Made

    replace(parsing, resource_class_from_type=resource_class_from_type)
    _rest_api_with_a_body()
    replace(
        Permission, physical_resource_id=property(lambda permission: f"permission-{id(permission)}")
    )
    replace(Deployment, physical_resource_id=property(lambda deployment: deployment.id))


def _rest_api_with_a_body() -> None:
    """Add a name, which moto requires. SAM leaves it to the document's title,
    and moto reads no document."""
    create = original(RestAPI, "create_from_cloudformation_json")

    def made(
        cls: Any,
        /,
        resource_name: str,
        cloudformation_json: Json,
        account_id: str,
        region_name: str,
        **named: Any,
    ) -> Any:
        properties = cloudformation_json["Properties"]
        if "Body" not in properties:
            return create(cls, resource_name, cloudformation_json, account_id, region_name, **named)
        api = apigateway_backends[account_id][region_name].import_rest_api(
            properties["Body"], fail_on_warnings=False
        )
        kinds = properties.get("EndpointConfiguration", {}).get("Types")
        if kinds:
            api.endpoint_configuration = {"types": list(kinds)}
        return api

    def changed(
        cls: Any,
        /,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Json,
        account_id: str,
        region_name: str,
    ) -> Any:
        del cls, new_resource_name
        body = cloudformation_json["Properties"].get("Body")
        if body:
            apigateway_backends[account_id][region_name].put_rest_api(
                original_resource.id, body, fail_on_warnings=False, mode="overwrite"
            )
        return original_resource

    replace(
        RestAPI,
        create_from_cloudformation_json=classmethod(made),
        update_from_cloudformation_json=classmethod(changed),
    )
