"""Storing a policy enables the queues of its providers' functions, in the deployment
that the state table names.
"""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from typing import Any

import pytest

from chalicelib.cli.deployments import switch_on
from infra.emulators.aws_services import in_process

TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


class MappedFunctions:
    """A deployment with a disabled mapping for the queue of each of these providers."""

    def __init__(self, *providers: str) -> None:
        self.prefix, self.client = f"outscaler-{uuid.uuid4().hex[:8]}", in_process("lambda")
        self.table, self.stage = f"{self.prefix}-state", self.prefix.removeprefix("outscaler-")
        for provider in providers:
            self.function(provider)
            queue = in_process("sqs").create_queue(QueueName=f"{self.prefix}-act_{provider}")[
                "QueueUrl"
            ]
            arn = f"arn:aws:sqs:us-east-1:123456789012:{queue.rpartition('/')[2]}"
            self.client.create_event_source_mapping(
                FunctionName=f"{self.prefix}-act_{provider}", EventSourceArn=arn, Enabled=False
            )

    def function(self, provider: str) -> None:
        """Creates a function without a mapping."""
        name, code = f"{self.prefix}-act_{provider}", io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("app.py", "")
        role = in_process("iam").create_role(
            RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST)
        )["Role"]["Arn"]
        self.client.create_function(
            FunctionName=name,
            Runtime="python3.11",
            Role=role,
            Handler="app.app",
            Code={"ZipFile": code.getvalue()},
        )

    def polled(self) -> list[str]:
        """The providers whose queues are polled."""
        listed: list[dict[str, Any]] = self.client.list_event_source_mappings()[
            "EventSourceMappings"
        ]
        names = [
            one["FunctionArn"].rpartition(":")[2] for one in listed if one["State"] == "Enabled"
        ]
        return sorted(name.partition("-act_")[2] for name in names if name.startswith(self.prefix))


def test_queues_of_the_policys_providers_are_polled_and_no_others() -> None:
    stage = MappedFunctions("alicloud", "clusterapi", "exoscale")
    assert stage.polled() == []
    assert switch_on(stage.table, ["exoscale", "alicloud"], stage.client) == []
    assert stage.polled() == ["alicloud", "exoscale"]
    assert switch_on(stage.table, ["exoscale"], stage.client) == []
    assert stage.polled() == ["alicloud", "exoscale"], "nothing is disabled"


def test_provider_without_a_function_or_a_queue_is_named_and_stops_no_other() -> None:
    stage = MappedFunctions("exoscale")
    stage.function("clusterapi")
    without_function, without_queue = switch_on(
        stage.table, ["exoscale", "clusterapi", "alicloud"], stage.client
    )
    waits = (
        f"; its operations wait in their queue until make deploy STAGE={stage.stage} has run again"
    )
    assert without_function == f"alicloud: function {stage.prefix}-act_alicloud has no queue{waits}"
    assert (
        without_queue == f"clusterapi: function {stage.prefix}-act_clusterapi has no queue{waits}"
    )
    assert stage.polled() == ["exoscale"]


@pytest.mark.parametrize(
    "table", ["Outscaler-StateTable-1ABC", "outscaler-dev-policies", "x-outscaler-dev-state"]
)
def test_mappings_of_a_deployment_that_the_table_does_not_name_are_left_alone(table: str) -> None:
    stage = MappedFunctions("exoscale")
    assert switch_on(table, ["exoscale"], stage.client) == []
    assert stage.polled() == []
