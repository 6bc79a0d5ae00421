"""The translated stack, created in the emulated account; its functions run from the artifact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from chalicelib.runtime.messages import PROVIDERS
from infra.emulators.aws import LocalAws, environment
from tests.functional.artifact import Artifact

_PROCESS = Path(__file__).with_name("lambda_process.py")

Json = dict[str, Any]

#: : Logical ids of the functions.
ACT = {f"Act{provider.capitalize()}": f"act_{provider}" for provider in PROVIDERS}
QUEUED = {"Reconcile": "reconcile", **ACT}
HANDLERS = {
    "APIHandler": "app.app",
    "Tick": "chalicelib.functions.tick.tick",
    "Reconcile": "chalicelib.functions.reconcile.reconcile",
    "ReconcileLarge": "chalicelib.functions.reconcile.reconcile_large",
    **{logical: f"chalicelib.functions.act.{name}" for logical, name in ACT.items()},
}


class Stack:
    """A deployment: the resources that CloudFormation created from the template.
    scratch: a folder for events."""

    def __init__(self, aws: LocalAws, artifact: Artifact, scratch: Path) -> None:
        self._aws, self._artifact, self._scratch = aws, artifact, scratch
        name = f"outscaler-{uuid.uuid4().hex[:6]}"
        template = artifact.translated("prod")
        self._resources: Json = template["Resources"]
        aws.client("s3").create_bucket(Bucket="outscaler-artifacts")
        aws.client("s3").put_object(
            Bucket="outscaler-artifacts", Key="deployment.zip", Body=b"not looked at"
        )
        cloud = aws.client("cloudformation")
        cloud.create_stack(
            StackName=name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"]
        )
        [made] = cloud.describe_stacks(StackName=name)["Stacks"]
        self.status: str = made["StackStatus"]
        self.ids: dict[str, str] = {
            one["LogicalResourceId"]: one["PhysicalResourceId"]
            for one in cloud.describe_stack_resources(StackName=name)["StackResources"]
            if "PhysicalResourceId" in one
        }

    def environment(self, function: str) -> dict[str, str]:
        """The function's environment after CloudFormation resolved it."""
        made = self._aws.client("lambda").get_function_configuration(
            FunctionName=self.ids[function]
        )
        variables: dict[str, str] = made["Environment"]["Variables"]
        return variables

    def invoke(self, function: str, event: Json | None) -> Json:
        """Runs a cold start and, if there is an event, an invocation, in a process that only
        has what Lambda provides."""
        file = self._scratch / "event.json"
        file.write_text("" if event is None else json.dumps(event))
        handler = self._resources[function]["Properties"]["Handler"]
        command = [
            sys.executable,
            "-I",
            "-S",
            str(_PROCESS),
            str(self._artifact.task),
            handler,
            str(file),
        ]
        given = {
            **self.environment(function),
            **environment(self._aws.endpoint),
            "PATH": os.environ["PATH"],
        }
        done = subprocess.run(
            command, env=given, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        result: Json = json.loads(done.stdout.splitlines()[-1])
        return {**result, "log": done.stdout}

    def messages(self, queue: str) -> list[Json]:
        """Messages visible in a queue now; they stay there."""
        got = self._aws.client("sqs").receive_message(
            QueueUrl=self.ids[queue], MaxNumberOfMessages=10, VisibilityTimeout=0
        )
        return [json.loads(one["Body"]) for one in got.get("Messages", [])]

    def count(self, queue: str) -> int:
        """Number of messages in a queue, including delayed ones."""
        counted = self._aws.client("sqs").get_queue_attributes(
            QueueUrl=self.ids[queue], AttributeNames=["All"]
        )
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed")
        return sum(int(counted["Attributes"][name]) for name in names)
