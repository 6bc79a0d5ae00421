"""The deployer's policy grants exactly what `make deploy` and `make undeploy` need."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from chalicelib.store import Store
from infra.aws.deploy.__main__ import main
from infra.aws.deploy.stage import Options
from infra.emulators.aws import LocalAws
from tests.functional.aws_calls import AwsCall, recorded
from tests.functional.deployer_rights import DeployerRightsReader, Need, Statements
from tests.functional.deployments import STAGE, deploy, deployment, small_package

POLICY = Path(__file__).resolve().parents[2] / "infra" / "aws" / "deployer-policy.json"
EVERY_OPTION = Options(
    alarm_topic_arn="arn:aws:sns:us-east-1:123456789012:alarms",
    dashboard=True,
    decisions_days=30,
    share_lists=True,
    hosted_page=True,
)
LIMIT = 6144  # characters of a managed policy, without white space

#: : Permissions without a call in these tests, each with its reason.
UNSEEN = {
    "cloudformation:DescribeStackEvents": "a stack that failed is explained",
    "dynamodb:DescribeContributorInsights": "CloudFormation reads a table before it changes it",
    "dynamodb:DescribeKinesisStreamingDestination": (
        "CloudFormation reads a table before it changes it"
    ),
    "dynamodb:GetResourcePolicy": "CloudFormation reads a table before it changes it",
    "dynamodb:ListTagsOfResource": "CloudFormation reads a table before it changes it",
    "dynamodb:UntagResource": "tags of the stage were taken away",
    "ec2:DescribeSecurityGroups": (
        "Lambda asks with the deployer's rights where functions run in a VPC"
    ),
    "ec2:DescribeSubnets": "Lambda asks with the deployer's rights where functions run in a VPC",
    "ec2:DescribeVpcs": "Lambda asks with the deployer's rights where functions run in a VPC",
    "iam:DetachRolePolicy": "a person has attached a policy to a role, and the stage is undeployed",
    "lambda:PutFunctionConcurrency": "the stage reserves concurrency, or a function stays stopped",
    "lambda:UntagResource": "tags of the stage were taken away",
    "sqs:ListQueueTags": "CloudFormation reads a queue before it changes it",
    "sqs:UntagQueue": "tags of the stage were taken away",
}


class Recording:
    """The calls of a deployment with every option, one without, and an undeployment, and the
    function of each mapping."""

    def __init__(self, folder: Path) -> None:
        with LocalAws() as aws, pytest.MonkeyPatch.context() as patched:
            aws.reset()
            with recorded(aws.endpoint) as (endpoint, self.calls):
                for name, value in {**aws.env, "AWS_ENDPOINT_URL": endpoint}.items():
                    patched.setenv(name, value)
                package = small_package(folder)
                assert deploy(package, folder / "built", EVERY_OPTION) == []
                assert deploy(package, folder / "built") == []
                self._wait_for_a_pass(aws, folder / "built")
                self.mappings = {
                    one["UUID"]: one["FunctionArn"].rpartition(":")[2]
                    for one in aws.client("lambda").list_event_source_mappings()[
                        "EventSourceMappings"
                    ]
                }
                patched.setattr("sys.stdin", io.StringIO(f"{STAGE}\noutscaler-{STAGE}-state\n"))
                assert main(["undeploy", "--stage", STAGE, "--with-table"]) == 0

    @staticmethod
    def _wait_for_a_pass(aws: LocalAws, folder: Path) -> None:
        """Waits as `make deploy` does where a policy is in force."""
        store = Store(f"outscaler-{STAGE}-state", clock=lambda: 0.0, client=aws.client("dynamodb"))
        made = deployment(folder, sleep=lambda _: store.scan_states.passed("shop", 1.0))
        assert made.clusters() == []
        [first] = made.first_passes(["shop"])
        assert first.succeeded

    def needs(self) -> list[Need]:
        reader = DeployerRightsReader()
        return [need for call in self.calls for need in reader.needs(call, self.mappings)]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(tmp_path_factory.mktemp("deployer"))


def test_no_call_of_a_deployment_or_undeployment_is_denied(recording: Recording) -> None:
    policy = Statements(POLICY)
    assert len(recording.calls) > 300
    assert {
        (need.action, need.resource) for need in recording.needs() if not policy.allows(need)
    } == set()


def test_deployer_policy_grants_nothing_unused(recording: Recording) -> None:
    policy = Statements(POLICY)
    assert all([policy.allows(need) for need in recording.needs()])  # noqa: C419 - every one is to be asked
    assert {action for _, action in policy.granted - policy.used} == UNSEEN.keys()


def test_missing_deployer_permission_is_detected(recording: Recording, tmp_path: Path) -> None:
    document = json.loads(POLICY.read_text())
    for left_out in (
        "iam:PassRole",
        "sqs:CreateQueue",
        "lambda:UpdateEventSourceMapping",
        "apigateway:PUT",
    ):
        statements = [
            {**one, "Action": [each for each in one["Action"] if each != left_out]}
            for one in document["Statement"]
        ]
        (tmp_path / "less.json").write_text(json.dumps({"Statement": statements}))
        policy = Statements(tmp_path / "less.json")
        assert {need.action for need in recording.needs() if not policy.allows(need)} == {left_out}


@pytest.mark.parametrize(
    "need",
    [
        Need("lambda:UpdateFunctionCode", "arn:aws:lambda:us-east-1:123456789012:function:payroll"),
        Need(
            "lambda:UpdateEventSourceMapping",
            "arn:aws:lambda:us-east-1:123456789012:event-source-mapping:1",
            {"lambda:FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:payroll"},
        ),
        Need("iam:PutRolePolicy", "arn:aws:iam::123456789012:role/admin"),
        Need(
            "iam:PassRole",
            "arn:aws:iam::123456789012:role/outscaler-dev-tick",
            {"iam:PassedToService": "ec2.amazonaws.com"},
        ),
        Need("iam:PassRole", "arn:aws:iam::123456789012:role/outscaler-dev-tick"),
        Need("dynamodb:DeleteTable", "arn:aws:dynamodb:us-east-1:123456789012:table/orders"),
        Need(
            "dynamodb:PutItem",
            "arn:aws:dynamodb:us-east-1:123456789012:table/outscaler-dev-state-policies",
            {"dynamodb:LeadingKeys": "!policies"},
        ),
        Need(
            "logs:DeleteLogGroup",
            "arn:aws:logs:us-east-1:123456789012:log-group:/aws/lambda/payroll",
        ),
        Need("iam:CreateUser", "arn:aws:iam::123456789012:user/outscaler-dev"),
    ],
    ids=lambda need: need.action,
)
def test_deployer_policy_denies_resources_outside_outscaler(need: Need) -> None:
    assert not Statements(POLICY).allows(need)


def test_deployer_policy_fits_into_a_managed_policy() -> None:
    document: dict[str, Any] = json.loads(POLICY.read_text())
    assert len(json.dumps(document, separators=(",", ":"))) <= LIMIT
    assert all(re.fullmatch(r"[A-Za-z0-9]+", one["Sid"]) for one in document["Statement"])
    assert not [
        action for one in document["Statement"] for action in one["Action"] if "*" in action
    ]


def test_every_recorded_aws_call_has_a_service_and_an_operation(recording: Recording) -> None:
    assert all(
        isinstance(call, AwsCall) and call.service and call.operation for call in recording.calls
    )
