"""Adds everything that Chalice does not support to the template that `chalice package` makes.

What occurs once is in template.json. What repeats for every function, queue or provider is
generated here, so that a new function needs only one more row. The result is JSON, because Chalice
writes a YAML merge template with anchors, which CloudFormation rejects.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.cluster.watcher_post import WATCHED
from chalicelib.model.resource_names import DECISIONS, LISTS, PAGE_KEY
from chalicelib.runtime.messages import PROVIDERS, RECONCILE
from chalicelib.runtime.senders import RECONCILE_LARGE
from chalicelib.runtime.senders import VARIABLE as LARGE
from infra.aws.alarm_resources import Names, alarm_resources, filter_resources
from infra.aws.buckets import BUCKET, LISTS_BUCKET, LISTS_DAYS, bucket_resources, by_default
from infra.aws.dashboard import dashboard_resource
from infra.aws.permissions import (
    conditional_policies,
    decisions_policy,
    large_dead_letters_policy,
    lists_policy,
    own_log,
    page_key_policy,
    tick_dead_letters_policy,
    watched_policy,
)
from infra.aws.resources import QUEUES, Resources, logical_id, resources

HERE = Path(__file__).resolve().parent

Json = dict[str, Any]

_NOTHING = {"Ref": "AWS::NoValue"}
_STAGE = {"Ref": "Stage"}
_PASS_CONCURRENCY = {"Ref": "PassConcurrency"}
API = ("outscaler", "api")
"""Name and stage of the REST API in CloudWatch: Chalice gives the APIs of all
deployments the same name."""
_SECRET_PREFIX = {
    "Fn::If": ["SecretPrefixByStage", {"Fn::Sub": "outscaler/${Stage}/"}, {"Ref": "SecretPrefix"}]
}


class TemplateOverlayFunction(msgspec.Struct, frozen=True):
    """name: as in .chalice/config.json. reserved: concurrency that `Reserve=on` reserves. It is not
    less than the concurrency of the event source, because throttled invocations would use up the
    receives of the messages. provider: whose queue triggers the function."""

    name: str
    reserved: int
    provider: str = ""


FUNCTIONS = (
    TemplateOverlayFunction("api_handler", 50),
    TemplateOverlayFunction("tick", 1),
    TemplateOverlayFunction(RECONCILE, 20),
    TemplateOverlayFunction(RECONCILE_LARGE, 4),
    *(TemplateOverlayFunction(f"act_{provider}", 5, provider) for provider in PROVIDERS),
)


PAGE_SECRET = "PageKey"
"""The logical id of the secret with the key of the hosted page."""
PASS_FUNCTIONS = (RECONCILE, RECONCILE_LARGE)
"""The functions that make passes."""
PASS_ROLES = tuple(f"{logical_id(name)}Role" for name in PASS_FUNCTIONS)


def function_id(name: str) -> str:
    """Return a function's logical id. Chalice has a separate name for the
    function of the REST API."""
    return {"api_handler": "APIHandler"}.get(name, logical_id(name))


def _used(provider: str, value: Any) -> Any:
    return {"Fn::If": [_use(provider), value, _NOTHING]} if provider else value


NAMES = Names(
    function=lambda name: {"Ref": function_id(name)},
    log_group=lambda name: {"Ref": f"{logical_id(name)}LogGroup"},
    queue=lambda name: {"Fn::GetAtt": [f"{logical_id(name)}Queue", "QueueName"]},
    dead_letters=lambda name: {"Fn::GetAtt": [f"{logical_id(name)}DeadLetters", "QueueName"]},
    table={"Ref": "StateTable"},
    api=API,
    namespace={"Fn::Sub": "Outscaler/${AWS::StackName}"},
    concurrency={"Ref": "AccountConcurrency"},
    used=_used,
)
"""Names in the stack, as references."""


def merge_template(stage: Json) -> Json:
    """Return the merge template for a stage of .chalice/config.json. A stage whose readers
    use an API key gets one."""
    merged: Json = json.loads((HERE / "template.json").read_text("utf-8"))
    merged["Parameters"]["Stage"]["Default"] = stage["tags"]["stage"]
    merged["Parameters"]["LogRetention"]["Default"] = stage["log_retention_in_days"]
    merged["Parameters"] |= {
        _use(provider): {
            "Type": "String",
            "Default": "on",
            "AllowedValues": ["on", "off"],
            "Description": f"Whether operations of the provider {provider} are carried out; "
            f"its idle queue costs a little",
        }
        for provider in PROVIDERS
    }
    merged["Conditions"] |= {
        _use(provider): {"Fn::Equals": [{"Ref": _use(provider)}, "on"]} for provider in PROVIDERS
    }
    merged["Globals"]["Function"]["Environment"]["Variables"] |= _queue_variables()
    merged["Resources"] = _laid_over(merged["Resources"], _all_resources())
    if stage["environment_variables"].get("OUTSCALER_READ_AUTH") == "api-key":
        with_key = json.loads((HERE / "api-key.json").read_text("utf-8"))
        for section, values in with_key.items():
            merged[section] = merged[section] | values
    return merged


def finished(template: Json) -> Json:
    """Return the template that Chalice made with the merge template, after changes that cannot
    be merged: parts of texts and lists.

    Policy files contain `${SecretPrefix}`. An empty parameter would give a role access to all
    secrets of the account, so the prefix that follows from the stage is used then. Policies that
    depend on parameters are part of the role itself, because Lambda checks a role's permissions
    when a function is created.
    """
    made = template | {
        section: _prefixed(template[section]) for section in ("Globals", "Outputs", "Resources")
    }
    for name, one in made["Resources"].items():
        if one["Type"] == "AWS::IAM::Role":
            one["Properties"]["Policies"] += conditional_policies()
            if name in PASS_ROLES:
                one["Properties"]["Policies"].append(
                    _with_decisions(decisions_policy(_objects(BUCKET)))
                )
                shared = lists_policy({"Fn::GetAtt": [LISTS_BUCKET, "Arn"]}, _objects(LISTS_BUCKET))
                one["Properties"]["Policies"].append(_with_lists(shared))
            if name == "ApiHandlerRole":
                one["Properties"]["Policies"].append(
                    _with_page(page_key_policy({"Ref": PAGE_SECRET}))
                )
                watched = watched_policy(_objects(LISTS_BUCKET, f"{WATCHED}/*"))
                one["Properties"]["Policies"].append(_with_lists(watched))
            if name == "TickRole":
                one["Properties"]["Policies"].append(tick_dead_letters_policy())
            if name == f"{logical_id(RECONCILE_LARGE)}Role":
                one["Properties"]["Policies"].append(large_dead_letters_policy())
    return made


def encrypted(made: Resources) -> Resources:
    """Encrypt tables, queues and log groups with the key of the parameter
    KmsKeyArn, if it is given."""
    key = {"Ref": "KmsKeyArn"}
    under: Json = {
        "AWS::DynamoDB::Table": {
            "SSESpecification": _with_key(
                {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": key}
            )
        },
        "AWS::SQS::Queue": {
            "KmsMasterKeyId": _with_key(key),
            "SqsManagedSseEnabled": {"Fn::If": ["WithKmsKey", _NOTHING, True]},
        },
        "AWS::Logs::LogGroup": {"KmsKeyId": _with_key(key)},
    }
    return {
        name: one | {"Properties": one["Properties"] | under.get(one["Type"], {})}
        for name, one in made.items()
    }


def tagged(made: Resources, stage: Any) -> Resources:
    """Add the tags that Chalice gives functions to tables, queues and log groups.
    stage: a text or a reference."""
    tags = {"Tags": [{"Key": "app", "Value": "outscaler"}, {"Key": "stage", "Value": stage}]}
    kinds = ("AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup")
    return {
        name: one | {"Properties": one["Properties"] | tags} if one["Type"] in kinds else one
        for name, one in made.items()
    }


def _all_resources() -> Resources:
    shared = resources({"Fn::GetAtt": ["TickTickEvent", "Arn"]}) | _log_groups()
    rights: Resources = {}
    for each in FUNCTIONS:
        rights |= own_log(
            function_id(each.name),
            f"{logical_id(each.name)}Role",
            f"{logical_id(each.name)}LogGroup",
        )
    alarms = alarm_resources({"Ref": "AlarmTopicArn"}, NAMES) | filter_resources(NAMES)
    conditional = {name: {"Condition": "WithAlarms"} | one for name, one in alarms.items()}
    dashboard = dashboard_resource({"Ref": "AWS::StackName"}, NAMES)
    conditional |= {name: {"Condition": "WithDashboard"} | one for name, one in dashboard.items()}
    rule = {
        "Fn::If": ["WithKmsKey", by_default("aws:kms", {"Ref": "KmsKeyArn"}), by_default("AES256")]
    }
    bucket = bucket_resources(BUCKET, {"Ref": "DecisionsDays"}, encryption=rule)
    conditional |= {name: {"Condition": "WithDecisions"} | one for name, one in bucket.items()}
    bucket = bucket_resources(LISTS_BUCKET, LISTS_DAYS, encryption=rule)
    conditional |= {name: {"Condition": "WithLists"} | one for name, one in bucket.items()}
    conditional |= _page_secret()
    return (
        tagged(encrypted(shared), _STAGE)
        | rights
        | conditional
        | {function_id(each.name): _function(each) for each in FUNCTIONS}
    )


def _log_groups() -> Resources:
    """Return log groups. Chalice creates those of the functions; their type is repeated so that
    they get the settings of all log groups."""
    names = [f"{logical_id(each.name)}LogGroup" for each in FUNCTIONS] + ["ApiAccessLog"]
    return {
        name: {
            "Type": "AWS::Logs::LogGroup",
            "Properties": {"RetentionInDays": {"Ref": "LogRetention"}},
        }
        for name in names
    }


def _function(each: TemplateOverlayFunction) -> Json:
    properties: Json = {
        "Tags": {"stage": _STAGE},
        "Tracing": {"Fn::If": ["WithTracing", "Active", "PassThrough"]},
        "VpcConfig": {
            "Fn::If": [
                "WithVpc",
                {
                    "SubnetIds": {"Ref": "SubnetIds"},
                    "SecurityGroupIds": {"Ref": "SecurityGroupIds"},
                },
                _NOTHING,
            ]
        },
        "KmsKeyArn": _with_key({"Ref": "KmsKeyArn"}),
        "ReservedConcurrentExecutions": {"Fn::If": ["WithReserve", each.reserved, _NOTHING]},
    }
    if each.name == RECONCILE:
        properties["ReservedConcurrentExecutions"]["Fn::If"][1] = _PASS_CONCURRENCY
    if each.name in QUEUES:
        properties |= _queue_function(each)
    if each.name == "api_handler":
        variables = properties.setdefault("Environment", {}).setdefault("Variables", {})
        variables[PAGE_KEY] = _with_page({"Ref": PAGE_SECRET})
        variables[LISTS] = _with_lists({"Fn::Sub": f"s3://${{{LISTS_BUCKET}}}"})
    if each.name in PASS_FUNCTIONS:
        variables = properties.setdefault("Environment", {}).setdefault("Variables", {})
        variables[DECISIONS] = _with_decisions({"Fn::Sub": f"s3://${{{BUCKET}}}"})
        variables[LISTS] = _with_lists({"Fn::Sub": f"s3://${{{LISTS_BUCKET}}}"})
    if each.name == RECONCILE:
        # Only this function may refer to it: a reference from the large
        # function's role would be circular.
        properties["Environment"]["Variables"][LARGE] = {"Ref": logical_id(RECONCILE_LARGE)}
    if each.name == RECONCILE_LARGE:
        properties |= _invoked_function("ReconcileDeadLetters")
    return {"Properties": properties}


def _queue_function(each: TemplateOverlayFunction) -> Json:
    """Replace the placeholder with the real queue and report batch item failures."""
    source: Json = {
        "Queue": {"Fn::GetAtt": [f"{logical_id(each.name)}Queue", "Arn"]},
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
    }
    if each.name == RECONCILE:
        source["ScalingConfig"] = {"MaximumConcurrency": _PASS_CONCURRENCY}
    if each.provider:
        source["Enabled"] = {"Fn::If": [_use(each.provider), True, False]}
    return {
        "Environment": {"Variables": {"OUTSCALER_BATCH_FAILURES": "reported"}},
        "Events": {f"{logical_id(each.name)}SqsEventSource": {"Properties": source}},
    }


def _invoked_function(dead_letters: str) -> Json:
    """Set how asynchronous invocations are retried, and where Lambda records those
    that failed permanently."""
    return {
        "EventInvokeConfig": {
            "MaximumRetryAttempts": 2,
            "MaximumEventAgeInSeconds": 300,
            "DestinationConfig": {
                "OnFailure": {"Type": "SQS", "Destination": {"Fn::GetAtt": [dead_letters, "Arn"]}}
            },
        }
    }


def _queue_variables() -> Json:
    return {
        f"OUTSCALER_QUEUE_{name.upper()}": {"Ref": f"{logical_id(name)}Queue"} for name in QUEUES
    }


def _use(provider: str) -> str:
    """Return the parameter and the condition for one provider."""
    return f"Use{provider.capitalize()}"


def _page_secret() -> Resources:
    """Return the secret with the key of the hosted page. Deleting its value ends all sessions."""
    generated = {"PasswordLength": 64, "ExcludePunctuation": True}
    return {
        PAGE_SECRET: {
            "Type": "AWS::SecretsManager::Secret",
            "Condition": "WithPage",
            "DeletionPolicy": "Delete",
            "UpdateReplacePolicy": "Delete",
            "Properties": {
                "Description": "Signs sessions of Outscaler's status page",
                "GenerateSecretString": generated,
                "KmsKeyId": _with_key({"Ref": "KmsKeyArn"}),
            },
        }
    }


def _with_page(value: Any) -> Json:
    return {"Fn::If": ["WithPage", value, _NOTHING]}


def _with_decisions(value: Any) -> Json:
    return {"Fn::If": ["WithDecisions", value, _NOTHING]}


def _with_lists(value: Any) -> Json:
    return {"Fn::If": ["WithLists", value, _NOTHING]}


def _objects(bucket: str, path: str = "*") -> Json:
    return {"Fn::Join": ["", [{"Fn::GetAtt": [bucket, "Arn"]}, f"/{path}"]]}


def _with_key(value: Any) -> Json:
    return {"Fn::If": ["WithKmsKey", value, _NOTHING]}


def _laid_over(below: Json, above: Json) -> Json:
    """Merge two mappings recursively. For values that are not mappings, the upper one wins."""
    both = below | above
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = _laid_over(below[key], above[key])
    return both


def _prefixed(value: Any) -> Any:
    if isinstance(value, list):
        return [_prefixed(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value == {"Ref": "SecretPrefix"}:
        return _SECRET_PREFIX
    text = value.get("Fn::Sub")
    if isinstance(text, str) and "${SecretPrefix}" in text:
        return {"Fn::Sub": [text, {"SecretPrefix": _SECRET_PREFIX}]}
    return {key: _prefixed(each) for key, each in value.items()}
