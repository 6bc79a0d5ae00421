"""Output of `chalice package` and the merge template: every function, queue and
permission of the deployment.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.runtime.runtime import BATCH_FAILURES, REPORTED
from chalicelib.store.tables import definition, policy_table_of, time_to_live
from infra.aws.package import ROOT, PackagingFailed, copy_sources, package
from infra.aws.package import template as write_template
from infra.aws.template_check import lint
from infra.emulators.iam import policy_files
from tests.functional.artifact import artifact
from tests.functional.resolved_template import resolve
from tests.functional.stack import ACT, HANDLERS, QUEUED

Template = dict[str, Any]

#: Statements that no policy file has: infra/aws/permissions.py.
BESIDE = {"WriteOwnLog", "LeaveFailedTicks", "LeaveFailedPasses"}
STAGES = pytest.mark.parametrize("stage", ["dev", "prod"])


def _properties(template: Template, logical: str) -> Template:
    properties: Template = template["Resources"][logical]["Properties"]
    return properties


def _of_type(template: Template, kind: str) -> dict[str, Template]:
    return {name: one for name, one in template["Resources"].items() if one["Type"] == kind}


@pytest.mark.slow  # test_published_template.py lints the same resources in the published template
@STAGES
def test_translated_template_passes_cfn_lint(stage: str) -> None:
    assert lint(artifact().translated(stage)) == []


def test_cfn_lint_detects_an_error_in_the_template() -> None:
    """Of a queue and of what reads it, because the whole template takes ten times as long."""
    template = artifact().translated("prod")
    names = ("Reconcile", "ReconcileQueue", "ReconcileReconcileSqsEventSource")
    template["Resources"] = {name: template["Resources"][name] for name in names}
    assert not any("E3505" in finding for finding in lint(template))
    _properties(template, "ReconcileQueue")["VisibilityTimeout"] = 10
    assert any("E3505" in finding for finding in lint(template))


def test_variables_of_the_shell_do_not_change_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    copy_sources(project)
    (project / "requirements.txt").write_text("")
    monkeypatch.setenv("OUTSCALER_PREFIX", "outscaler-other")
    made = write_template("dev", tmp_path, project)
    assert "outscaler-other" not in json.dumps(made)
    sources = [
        event["Properties"]["Queue"]
        for function in _of_type(made, "AWS::Serverless::Function").values()
        for event in function["Properties"].get("Events", {}).values()
        if event["Type"] == "SQS"
    ]
    assert [list(queue) for queue in sources] == [["Fn::GetAtt"]] * len(QUEUED)


@STAGES
def test_every_function_is_in_the_template_with_its_handler(stage: str) -> None:
    functions = _of_type(artifact().sam(stage), "AWS::Serverless::Function")
    assert {name: one["Properties"]["Handler"] for name, one in functions.items()} == HANDLERS


@STAGES
def test_every_function_has_the_names_of_tables_and_queues(stage: str) -> None:
    wanted = {
        "OUTSCALER_TABLE": {"Ref": "StateTable"},
        "OUTSCALER_POLICY_TABLE": {"Ref": "PolicyTable"},
        "OUTSCALER_QUEUE_RECONCILE": {"Ref": "ReconcileQueue"},
    } | {
        f"OUTSCALER_QUEUE_{name.upper()}": {"Ref": f"{logical}Queue"}
        for logical, name in ACT.items()
    }
    translated = artifact().translated(stage)
    for function in HANDLERS:
        variables = _properties(translated, function)["Environment"]["Variables"]
        assert wanted.items() <= variables.items(), function
        assert variables["POWERTOOLS_SERVICE_NAME"] == "outscaler"


@STAGES
@pytest.mark.parametrize("function", QUEUED)
def test_queue_function_has_its_own_queue_and_a_dead_letter_queue(
    stage: str, function: str
) -> None:
    template = artifact().translated(stage)
    [source] = [
        one["Properties"]
        for one in _of_type(template, "AWS::Lambda::EventSourceMapping").values()
        if one["Properties"]["FunctionName"] == {"Ref": function}
    ]
    queue = f"{function}Queue"
    assert source["EventSourceArn"] == {"Fn::GetAtt": [queue, "Arn"]}
    assert (source["BatchSize"], source["FunctionResponseTypes"]) == (
        1,
        ["ReportBatchItemFailures"],
    )
    assert _properties(template, function)["Environment"]["Variables"][BATCH_FAILURES] == REPORTED
    properties = _properties(template, queue)
    assert properties["VisibilityTimeout"] >= 6 * _properties(template, function)["Timeout"]
    assert properties["RedrivePolicy"]["deadLetterTargetArn"] == {
        "Fn::GetAtt": [f"{function}DeadLetters", "Arn"]
    }
    kept = properties["RedrivePolicy"]["maxReceiveCount"] * properties["VisibilityTimeout"]
    assert properties["MessageRetentionPeriod"] > kept, (
        "a message would expire before it is given up"
    )
    assert _properties(template, f"{function}DeadLetters")["MessageRetentionPeriod"] == 14 * 86400


@STAGES
def test_tick_is_never_retried(stage: str) -> None:
    template = artifact().translated(stage)
    [rule] = _of_type(template, "AWS::Events::Rule").values()
    [target] = rule["Properties"]["Targets"]
    assert rule["Properties"]["ScheduleExpression"] == "rate(1 minute)"
    assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0
    assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": ["TickDeadLetters", "Arn"]}}
    assert _properties(template, "TickEventInvokeConfig")["MaximumRetryAttempts"] == 0


@STAGES
def test_log_groups_have_a_retention_and_the_functions_names(stage: str) -> None:
    groups = _of_type(resolve(artifact().sam(stage)), "AWS::Logs::LogGroup")
    kept = {7 if stage == "dev" else 30}
    assert {groups.pop("ApiAccessLog")["Properties"]["RetentionInDays"]} == kept
    names = sorted(one["Properties"]["LogGroupName"]["Fn::Sub"] for one in groups.values())
    assert names == sorted(f"/aws/lambda/${{{function}}}" for function in HANDLERS)
    assert {one["Properties"]["RetentionInDays"] for one in groups.values()} == kept


@STAGES
@pytest.mark.parametrize(
    ("table", "more"),
    [
        ("StateTable", {"TimeToLiveSpecification": time_to_live()}),
        ("PolicyTable", {"TableName": {"Fn::Sub": policy_table_of("${StateTable}")}}),
    ],
)
def test_template_tables_have_the_stores_schema_and_are_retained(
    stage: str, table: str, more: Template
) -> None:
    resource = resolve(artifact().sam(stage))["Resources"][table]
    shape = definition("any")
    del shape["TableName"]
    assert resource["Properties"] == shape | more | {
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "DeletionProtectionEnabled": True,
        "Tags": [{"Key": "app", "Value": "outscaler"}, {"Key": "stage", "Value": stage}],
    }
    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain")


@STAGES
def test_outputs_name_both_tables(stage: str) -> None:
    outputs = artifact().sam(stage)["Outputs"]
    assert {name: outputs[name]["Value"] for name in ("TableName", "PolicyTableName")} == {
        "TableName": {"Ref": "StateTable"},
        "PolicyTableName": {"Ref": "PolicyTable"},
    }


@STAGES
def test_every_function_has_its_own_role_with_its_policy_file(stage: str) -> None:
    template = _with_names(stage)
    roles = [_properties(template, function)["Role"]["Fn::GetAtt"][0] for function in HANDLERS]
    assert len(set(roles)) == len(HANDLERS)
    files = policy_files()
    for function, role in zip(HANDLERS, roles, strict=True):
        others = {"APIHandler": "api_handler", "Tick": "tick", "ReconcileLarge": "reconcile_large"}
        file = files[(QUEUED | others)[function]]
        assert [
            one for one in _statements(template, role) if one["Sid"] not in BESIDE
        ] == json.loads(file.read_text("utf-8"))["Statement"]
        for statement in _statements(template, role):
            resources = statement["Resource"]
            for resource in resources if isinstance(resources, list) else [resources]:
                assert isinstance(resource, dict), (
                    f"{role}: ARNs are made from the stack's own resources"
                )


@pytest.mark.parametrize("function", ["Reconcile", "ReconcileLarge", *ACT])
def test_eks_cluster_may_be_in_any_region_but_must_be_allowed_by_name(function: str) -> None:
    """A policy gives the region of its cluster (spec.kubernetes.region); the deployment
    gives the allowed names."""
    template = _with_names("prod")
    role = _properties(template, function)["Role"]["Fn::GetAtt"][0]
    [found] = [one for one in _statements(template, role) if one["Sid"] == "FindEksClusters"]
    assert found["Action"] == ["eks:DescribeCluster"]
    assert found["Resource"] == {
        "Fn::Sub": "arn:${AWS::Partition}:eks:*:${AWS::AccountId}:cluster/${EksClusters}"
    }


@STAGES
def test_no_function_reserves_concurrency_by_default(stage: str) -> None:
    template = resolve(artifact().translated(stage))
    for function in HANDLERS:
        assert "ReservedConcurrentExecutions" not in _properties(template, function)


@STAGES
def test_every_function_has_memory_and_a_timeout(stage: str) -> None:
    template = artifact().translated(stage)
    for function in HANDLERS:
        properties = _properties(template, function)
        assert properties["MemorySize"] >= 512
        assert 15 <= properties["Timeout"] <= 120


def test_configuration_has_every_setting_of_every_function() -> None:
    stages = json.loads((ROOT / ".chalice" / "config.json").read_text())["stages"]
    assert stages
    for stage, settings in stages.items():
        named = settings["lambda_functions"]
        assert set(named) == {"api_handler", "tick", "reconcile_large", *QUEUED.values()}, stage
        for function, given in named.items():
            more = {"environment_variables"} if function in QUEUED.values() else set()
            assert (
                set(given) == {"lambda_memory_size", "lambda_timeout", "iam_policy_file"} | more
            ), function


def _with_names(stage: str) -> Template:
    """The template with the parameters' defaults, except for the names that the policy
    files leave to parameters."""
    return resolve(
        artifact().sam(stage), SecretPrefix="${SecretPrefix}", EksClusters="${EksClusters}"
    )


def _statements(template: Template, role: str) -> list[Template]:
    """Statements of the role's own policies and of those that name the role."""
    beside = [
        one["Properties"]
        for one in _of_type(template, "AWS::IAM::Policy").values()
        if one["Properties"]["Roles"] == [{"Ref": role}]
    ]
    return [
        statement
        for policy in [*_properties(template, role)["Policies"], *beside]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


@pytest.mark.parametrize("function", HANDLERS)
def test_function_receives_only_from_its_own_queue_and_sends_where_needed(function: str) -> None:
    template = _with_names("prod")
    role = _properties(template, function)["Role"]["Fn::GetAtt"][0]
    statements = {one["Sid"]: one for one in _statements(template, role)}
    taken = statements.get("TakeMessages", {}).get("Resource")
    assert taken == ({"Fn::GetAtt": [f"{function}Queue", "Arn"]} if function in QUEUED else None)
    sent = {one["Fn::GetAtt"][0] for one in statements["SendMessages"]["Resource"]}
    every = {f"{one}Queue" for one in QUEUED}
    assert sent == {
        "APIHandler": {"ReconcileQueue"},
        "Tick": every,
        "Reconcile": every,
        "ReconcileLarge": every,
    }.get(function, {"ReconcileQueue", f"{function}Queue"})
    secrets = json.dumps(statements["ReadSecrets"]["Resource"])
    assert ("/notifications*" in secrets) is (function == "Tick")
    assert ("/kubeconfig*" in secrets) is (function not in {"Tick", "APIHandler"})
    log, attribute = statements["WriteOwnLog"]["Resource"]["Fn::GetAtt"]
    assert attribute == "Arn"
    assert _properties(template, log)["LogGroupName"] == {"Fn::Sub": f"/aws/lambda/${{{function}}}"}


@STAGES
def test_only_reconcile_invokes_the_large_function_and_failures_are_kept(stage: str) -> None:
    template = _with_names(stage)
    large = {"Fn::GetAtt": ["ReconcileLarge", "Arn"]}
    for function in HANDLERS:
        statements = _statements(template, _properties(template, function)["Role"]["Fn::GetAtt"][0])
        invoked = [
            one["Resource"] for one in statements if "lambda:InvokeFunction" in one["Action"]
        ]
        assert invoked == ([large] if function == "Reconcile" else [])
        named = _properties(template, function)["Environment"]["Variables"].get(
            "OUTSCALER_RECONCILE_LARGE"
        )
        assert named == ({"Ref": "ReconcileLarge"} if function == "Reconcile" else None)
    translated = artifact().translated(stage)
    config = _properties(translated, "ReconcileLargeEventInvokeConfig")
    assert config["DestinationConfig"] == {
        "OnFailure": {"Destination": {"Fn::GetAtt": ["ReconcileDeadLetters", "Arn"]}}
    }
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (2, 300)
    sizes = {
        function: _properties(template, function)["MemorySize"]
        for function in ("Reconcile", "ReconcileLarge")
    }
    assert sizes == {"Reconcile": 512, "ReconcileLarge": 3008}


def _security(stage: str) -> dict[str, list[Any]]:
    paths = artifact().sam(stage)["Resources"]["RestAPI"]["Properties"]["DefinitionBody"]["paths"]
    return {
        f"{verb} {path}": one.get("security", [])
        for path, verbs in paths.items()
        for verb, one in verbs.items()
    }


def test_read_routes_need_a_signed_request_in_prod_and_a_key_in_dev() -> None:
    reads = (
        "get /metrics",
        "get /clusters",
        "get /clusters/{name}",
        "get /clusters/{name}/decisions",
    )
    sessions = ("post /ui/session", "post /clusters/{name}/session")
    below = ("/open/{code}", "/static/{file}", "/clusters/{name}", "/clusters/{name}/{page}")
    pages = ("get /ui", *(f"get /ui{path}" for path in below))
    for stage, scheme in (("prod", "sigv4"), ("dev", "api_key")):
        security = _security(stage)
        assert set(security) == {
            *reads,
            *sessions,
            *pages,
            "post /clusters/{name}/events",
            "get /healthz",
        }
        assert [security[each] for each in sessions] == [[{"sigv4": []}]] * 2
        # the function checks their cookie, and files need none
        assert [security[each] for each in pages] == [[]] * 5
        for read in reads:
            assert security[read] == [{scheme: []}]
        assert security["get /healthz"] == security["post /clusters/{name}/events"] == []
    keys = {
        stage: len(_of_type(artifact().sam(stage), "AWS::ApiGateway::ApiKey"))
        for stage in ("prod", "dev")
    }
    assert keys == {"prod": 0, "dev": 1}


def test_unconfigured_stage_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        PackagingFailed, match=r"--stage test: not in \.chalice/config\.json; use one of dev, prod"
    ):
        package("test", tmp_path)
