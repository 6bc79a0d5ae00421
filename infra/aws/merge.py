"""What is laid over the template that `chalice package` makes: everything that Chalice knows nothing of.

What occurs once is in template.json. What repeats for every function or queue is made here, so that a new function is
one more name. The result is JSON, because Chalice writes a YAML merge template with anchors, which CloudFormation
refuses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chalicelib.dispatch.invoke import RECONCILE_LARGE
from chalicelib.dispatch.invoke import VARIABLE as LARGE
from infra.aws.resources import QUEUES, Resources, logical_id, resources

HERE = Path(__file__).resolve().parent

FUNCTIONS = ("api_handler", "tick", *QUEUES, RECONCILE_LARGE)
"""By the names of .chalice/config.json."""

Json = dict[str, Any]


def merge_template(stage: Json) -> Json:
    """The merge template for a stage of .chalice/config.json; stages whose readers use an API key get one."""
    merged: Json = json.loads((HERE / "template.json").read_text("utf-8"))
    merged["Globals"]["Function"]["Environment"]["Variables"] |= _queue_variables()
    merged["Resources"] |= resources({"Fn::GetAtt": ["TickTickEvent", "Arn"]}) | _queue_functions() | _log_policies()
    merged["Resources"] |= _large_function()
    merged["Resources"]["Reconcile"]["Properties"]["Environment"]["Variables"][LARGE] = {"Ref": logical_id(
        RECONCILE_LARGE)}
    merged["Resources"]["ApiAccessLog"]["Properties"]["RetentionInDays"] = stage["log_retention_in_days"]
    if stage["environment_variables"].get("OUTSCALER_READ_AUTH") == "api-key":
        with_key = json.loads((HERE / "api-key.json").read_text("utf-8"))
        for section, values in with_key.items():
            merged[section] = merged[section] | values
    return merged


def function_id(name: str) -> str:
    """A function's logical id; Chalice gives the one behind the REST API a name of its own."""
    return {"api_handler": "APIHandler"}.get(name, logical_id(name))


def _queue_variables() -> Json:
    return {f"OUTSCALER_QUEUE_{name.upper()}": {"Ref": f"{logical_id(name)}Queue"} for name in QUEUES}


def _queue_functions() -> Resources:
    """Each queue's function with the real queue in place of the placeholder, and failures reported one by one."""
    return {logical_id(name): {"Properties": {
        "Environment": {"Variables": {"OUTSCALER_BATCH_FAILURES": "reported"}},
        "Events": {f"{logical_id(name)}SqsEventSource": {"Properties": {
            "Queue": {"Fn::GetAtt": [f"{logical_id(name)}Queue", "Arn"]},
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
        }}},
    }} for name in QUEUES}


def _large_function() -> Resources:
    """How its asynchronous invocations are repeated. One that failed for good lies with the dead letters of the
    reconcile queue, in the form of that queue's messages, so that one redrive serves both."""
    return {logical_id(RECONCILE_LARGE): {"Properties": {
        "EventInvokeConfig": {"MaximumRetryAttempts": 2, "MaximumEventAgeInSeconds": 300},
        "DeadLetterQueue": {"Type": "SQS", "TargetArn": {"Fn::GetAtt": ["ReconcileDeadLetters", "Arn"]}},
    }}}


def _log_policies() -> Resources:
    """The right to write its own log, for each function; it names the log group, and the log group the function."""
    return {f"{function_id(name)}LogPolicy": {"Type": "AWS::IAM::Policy", "Properties": {
        "PolicyName": "WriteOwnLog",
        "Roles": [{"Ref": f"{logical_id(name)}Role"}],
        "PolicyDocument": {"Version": "2012-10-17", "Statement": [{
            "Sid": "WriteOwnLog", "Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": {"Fn::GetAtt": [f"{logical_id(name)}LogGroup", "Arn"]},
        }]},
    }} for name in FUNCTIONS}
