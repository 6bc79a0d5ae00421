"""Settings that Chalice does not support: compares them with the account and corrects differences.

`settings` is one list for both commands: `finish` writes what differs, `check` only reports
it. Every `chalice deploy` resets some of them (it rewrites the schedule's target), so `make
deploy` applies them each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from chalicelib.model.policy_permissions import IN_LAMBDA, deployment_of, published
from chalicelib.model.resource_names import queue_name, state_table_of
from chalicelib.runtime.messages import PROVIDERS
from chalicelib.store import Store
from chalicelib.store.errors import StoreError
from chalicelib.store.tables import policy_table_of, time_to_live
from infra.aws.deploy.chalice_resources import Graph, mappings_of
from infra.aws.deploy.functions import REPORTING
from infra.aws.deploy.retries import Sleep, patiently
from infra.aws.deploy.stage import Stage
from infra.aws.deploy.used_providers import queue_length
from infra.aws.resources import QUEUES, dead_letters, logical_id
from infra.aws.template_overlay import merge_template

Json = dict[str, Any]

_YES = {True: "yes", False: "no"}


class Setting(msgspec.Struct, frozen=True):
    """One property of one resource. place: its description for people. write: corrects
    it; None if a person must."""

    place: str
    wanted: Any
    found: Any
    write: Callable[[], object] | None = None

    @property
    def right(self) -> bool:
        """Return whether the actual value is the wanted one."""
        return bool(self.wanted == self.found)


def settings(stage: Stage, graph: Graph, in_use: frozenset[str], session: Any) -> Iterator[Setting]:
    """Return all settings to compare. in_use: the providers whose queues must be polled."""
    yield from before_chalice(stage, graph, in_use, session)
    yield from _invocations(stage, graph, session.client("lambda"))
    yield from _rules(stage, graph, session.client("events"), session.client("lambda"))
    yield from _keys(stage, graph, session.client("lambda"))
    yield from _logs(stage, graph, session.client("logs"))
    yield _published(stage, session)


def before_chalice(
    stage: Stage, graph: Graph, in_use: frozenset[str], session: Any
) -> Iterator[Setting]:
    """Return the settings of resources that are created before `chalice deploy` and
    that it does not change."""
    yield from _tables(stage, session.client("dynamodb"))
    yield from _mappings(stage, graph, in_use, session)
    first = _published(stage, session)
    # later ones follow the functions, whose variables are changed by `chalice deploy`
    if first.found is None:
        yield first


def apply(found: Iterator[Setting], sleep: Sleep = time.sleep) -> list[str]:
    """Write the settings that differ and return a line for each. Raises
    DeployFailed if AWS refuses."""
    told = []
    for setting in found:
        if not setting.right and setting.write is not None:
            patiently(setting.write, setting.place, sleep)
            told.append(f"set {setting.place}: {shown(setting.wanted)}")
    return told


def shown(value: Any) -> str:
    """Format a value for people."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(one)}" for key, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value)) or "none"
    return "none" if value is None or value == "" else str(value)


def _tables(stage: Stage, client: Any) -> Iterator[Setting]:
    """Return settings of the tables. The stack sets them for tables it creates; an
    older table may lack them."""
    state = state_table_of(stage.prefix)
    for table in (state, policy_table_of(state)):
        described = client.describe_table(TableName=table)["Table"]
        protected = "on" if described.get("DeletionProtectionEnabled") else "off"
        yield Setting(
            f"table {table}: deletion protection",
            "on",
            protected,
            _call(client.update_table, TableName=table, DeletionProtectionEnabled=True),
        )
        recovery = client.describe_continuous_backups(TableName=table)[
            "ContinuousBackupsDescription"
        ]
        status = recovery.get("PointInTimeRecoveryDescription", {}).get(
            "PointInTimeRecoveryStatus", "DISABLED"
        )
        yield Setting(
            f"table {table}: point-in-time recovery",
            "ENABLED",
            status,
            _call(
                client.update_continuous_backups,
                TableName=table,
                PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
            ),
        )
    expiry = client.describe_time_to_live(TableName=state)["TimeToLiveDescription"].get(
        "TimeToLiveStatus", "DISABLED"
    )
    yield Setting(
        f"table {state}: time to live",
        "ENABLED",
        "ENABLED" if expiry in ("ENABLED", "ENABLING") else expiry,
        _call(client.update_time_to_live, TableName=state, TimeToLiveSpecification=time_to_live()),
    )


def _published(stage: Stage, session: Any) -> Setting:
    """Return what commands judge policies by, in the policy table: the settings that the
    functions of this stage have."""
    rows = Store(
        state_table_of(stage.prefix), clock=time.time, client=session.client("dynamodb")
    ).deployment_settings()
    wanted = deployment_of(stage.config["environment_variables"] | {IN_LAMBDA: stage.prefix})
    try:
        found = rows.read()
    except StoreError:
        found = None
    return Setting(
        f"table {policy_table_of(state_table_of(stage.prefix))}: what policies may name",
        msgspec.to_builtins(published(wanted)),
        msgspec.to_builtins(published(found)) if found is not None else None,
        lambda: rows.publish(wanted),
    )


def _mappings(
    stage: Stage, graph: Graph, in_use: frozenset[str], session: Any
) -> Iterator[Setting]:
    client, sqs = session.client("lambda"), session.client("sqs")
    read = {
        queue_name(stage.prefix, f"act_{provider}"): provider in in_use for provider in PROVIDERS
    }
    for source in graph.sources:
        function = graph.function(source.function).function_name
        found = mappings_of(client, function, source.queue)
        if not found:
            yield Setting(f"mapping of {source.queue}", "there", "missing")
            continue
        first, *more = found
        for extra in more:
            yield Setting(
                f"second mapping of {source.queue}",
                "none",
                extra["UUID"],
                _call(client.delete_event_source_mapping, UUID=extra["UUID"]),
            )
        yield Setting(
            f"mapping of {source.queue}: failures",
            REPORTING,
            first.get("FunctionResponseTypes") or [],
            _call(
                client.update_event_source_mapping,
                UUID=first["UUID"],
                FunctionResponseTypes=REPORTING,
            ),
        )
        enabled = first.get("State", "Enabled") in ("Enabled", "Enabling", "Creating", "Updating")
        wanted = read.get(source.queue, True) or (enabled and queue_length(sqs, source.queue) > 0)
        yield Setting(
            f"mapping of {source.queue}: polled",
            _YES[wanted],
            _YES[enabled],
            _call(client.update_event_source_mapping, UUID=first["UUID"], Enabled=wanted),
        )


def _invocations(stage: Stage, graph: Graph, client: Any) -> Iterator[Setting]:
    """Return retries and maximum age of asynchronous invocations, as the
    CloudFormation template states them."""
    resources = merge_template(stage.config)["Resources"]
    for function in graph.functions:
        given = (
            resources.get(logical_id(function.resource_name), {})
            .get("Properties", {})
            .get("EventInvokeConfig")
        )
        if not given:
            continue
        wanted = {
            key: given[key]
            for key in ("MaximumRetryAttempts", "MaximumEventAgeInSeconds")
            if key in given
        }
        destination = given.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
        if destination:
            wanted["OnFailure"] = _queue_arn(stage, destination)
        try:
            config = client.get_function_event_invoke_config(FunctionName=function.function_name)
        except client.exceptions.ResourceNotFoundException:
            config = {}
        found = {key: config.get(key) for key in wanted if key != "OnFailure"}
        if "OnFailure" in wanted:
            found["OnFailure"] = (
                config.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
            )
        to = (
            {"DestinationConfig": {"OnFailure": {"Destination": wanted["OnFailure"]}}}
            if destination
            else {}
        )
        yield Setting(
            f"function {function.function_name}: asynchronous invocations",
            wanted,
            found,
            _call(
                client.put_function_event_invoke_config,
                FunctionName=function.function_name,
                **{key: value for key, value in wanted.items() if key != "OnFailure"},
                **to,
            ),
        )


def _queue_arn(stage: Stage, destination: Any) -> str:
    """Return the ARN of the queue that a template refers to with Fn::GetAtt."""
    names = {
        f"{logical_id(name)}DeadLetters": dead_letters(queue_name(stage.prefix, name))
        for name in (*QUEUES, "tick")
    }
    return (
        f"arn:{stage.partition}:sqs:{stage.region}:{stage.account}:"
        f"{names[destination['Fn::GetAtt'][0]]}"
    )


def _rules(stage: Stage, graph: Graph, events: Any, client: Any) -> Iterator[Setting]:
    given = merge_template(stage.config)["Resources"]["Tick"]["Properties"]["Events"]["TickEvent"][
        "Properties"
    ]
    for rule in graph.rules:
        function = client.get_function_configuration(
            FunctionName=graph.function(rule.function).function_name
        )["FunctionArn"]
        targets = events.list_targets_by_rule(Rule=rule.rule_name)["Targets"]
        target = next(
            (one for one in targets if one["Arn"] == function), {"Id": "1", "Arn": function}
        )
        wanted = {
            "RetryPolicy": given["RetryPolicy"],
            "DeadLetterConfig": {"Arn": _queue_arn(stage, given["DeadLetterConfig"]["Arn"])},
        }
        yield Setting(
            f"rule {rule.rule_name}: target",
            wanted,
            {key: target.get(key) for key in wanted},
            _call(events.put_targets, Rule=rule.rule_name, Targets=[target | wanted]),
        )


def _keys(stage: Stage, graph: Graph, client: Any) -> Iterator[Setting]:
    """Return the key that encrypts variables. Without one, AWS's own key is used."""
    for function in graph.functions:
        found = client.get_function_configuration(FunctionName=function.function_name).get(
            "KMSKeyArn", ""
        )
        if found != stage.options.kms_key_arn:
            yield Setting(
                f"function {function.function_name}: key",
                stage.options.kms_key_arn,
                found,
                _call(
                    client.update_function_configuration,
                    FunctionName=function.function_name,
                    KMSKeyArn=stage.options.kms_key_arn,
                ),
            )


def _logs(stage: Stage, graph: Graph, client: Any) -> Iterator[Setting]:
    """Return log retention of every function. Chalice sets the API function's retention on a log
    group that this function never writes to."""
    for function in graph.functions:
        name, days = f"/aws/lambda/{function.function_name}", stage.config["log_retention_in_days"]
        groups = client.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        group = next((one for one in groups if one["logGroupName"] == name), None)
        found = (group or {}).get("retentionInDays")

        def write(name: str = name, days: int = days, *, there: bool = group is not None) -> None:
            if not there:
                client.create_log_group(logGroupName=name, tags=stage.config.get("tags", {}))
            client.put_retention_policy(logGroupName=name, retentionInDays=days)

        yield Setting(f"log group {name}: days", days, found, write)


def _call(method: Callable[..., object], **arguments: Any) -> Callable[[], object]:
    return lambda: method(**arguments)
