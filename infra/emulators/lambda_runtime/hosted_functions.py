"""Hosts the functions of an emulated account as Lambda does: with the account's configuration,
triggers and permissions.

It has no knowledge of the deployment. Functions, their variables and roles come from Lambda and
IAM; their triggers come from the event source mappings, the rules and the function of the API. As
Lambda does, it uses the function's role to receive and delete messages and to write the log; these
calls are checked as well.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from botocore.session import get_session
from moto.sqs.models import sqs_backends

from infra.emulators.aws import LocalAws
from infra.emulators.iam import Statement, literal_statements
from infra.emulators.lambda_events import (
    REGION,
    failed_messages,
    schedule_event,
    sqs_event,
    sqs_record,
)
from infra.emulators.lambda_runtime.permission_proxy import Door
from infra.emulators.lambda_runtime.process import PATIENCE, Configuration, Folders, Made, Process
from infra.emulators.moto_gaps.event_sources import queues_on

_REPORTS = ["ReportBatchItemFailures"]
_ROUNDS = 60  # maximum batches of one poll of the queues


class Ahead:
    """A clock `seconds` ahead of the wall clock: epoch seconds when called."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.seconds


class Hosted:
    """A context manager. archive: the deployed zip. place: a separate folder. authority:
    of the emulated vendors.

    clock: of functions and queues. made: every invocation, by function.
    """

    def __init__(
        self, aws: LocalAws, archive: Path, place: Path, clock: Ahead, authority: bytes = b""
    ) -> None:
        self._aws, self._place, self.clock = aws, place, clock
        self.account = aws.client("sts").get_caller_identity()["Account"]
        self.configurations = {one.name: one for one in _configurations(aws.client("lambda"))}
        self.folders = Folders(place, archive, authority)
        self.door = Door(aws.endpoint, self.account)
        self.door.judge.roles = {
            one.name: _statements(aws.client("iam"), one.role)
            for one in self.configurations.values()
        }
        self.processes = {
            name: Process(
                one, self.folders, self._access(name), self.clock, place / f"{name}.log", PATIENCE
            )
            for name, one in self.configurations.items()
        }
        self.made: dict[str, list[Made]] = {name: [] for name in self.configurations}
        self._clients: dict[tuple[str, str], Any] = {}
        self._session = get_session()  # shared, because it reads the descriptions of the services
        self._logged: set[str] = set()
        self._queues = queues_on(self.clock)

    def __enter__(self) -> Hosted:
        self._queues.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes.values():
            process.stop()
        self.door.stop()
        self.folders.remove()
        self._queues.__exit__(None, None, None)

    def pass_time(self, seconds: float) -> None:
        """Advance the time of the functions, the queues, and all users of `clock`
        by this number of seconds."""
        self.clock.seconds += seconds
        self.folders.ahead(self.clock.seconds)

    def invoke(self, name: str, event: Mapping[str, Any]) -> Made:
        """Invoke with one event. Its log output is written to the function's log group."""
        made = self.processes[name].invoke(event)
        self.made[name].append(made)
        self._log(name, made)
        return made

    def tick(self) -> Made:
        events, made = self._aws.client("events"), []
        for rule in events.list_rules()["Rules"]:
            for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]:
                name = target["Arn"].rpartition(":")[2]
                made.append(self.invoke(name, schedule_event("tick", self.clock())))
        [one] = made
        return one

    def deliver(self) -> int:
        """Deliver messages until nothing in the queues is due. Returns the
        number of delivered messages."""
        count = 0
        for _ in range(_ROUNDS):
            handed = sum(self._batch(mapping) for mapping in self._mappings())
            if not handed:
                return count
            count += handed
        raise RuntimeError(f"the queues did not come to rest in {_ROUNDS} rounds")

    # -- event sources

    def _mappings(self) -> Iterator[Mapping[str, Any]]:
        for mapping in self._aws.client("lambda").list_event_source_mappings()[
            "EventSourceMappings"
        ]:
            if mapping["State"] == "Enabled":
                yield mapping

    def _batch(self, mapping: Mapping[str, Any]) -> int:
        name, queue = (mapping[key].rpartition(":")[2] for key in ("FunctionArn", "EventSourceArn"))
        # Lambda's polls are made without permission checks, so that only batches are checked
        if not self.waiting(queue):
            return 0
        sqs = self._client("sqs", name)
        url = f"{self._aws.endpoint}/{self.account}/{queue}"
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])
        batch = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=min(mapping["BatchSize"], 10), AttributeNames=["All"]
        ).get("Messages", [])
        if not batch:
            return 0
        made = self.invoke(
            name,
            sqs_event(
                *(
                    sqs_record(
                        queue,
                        one["MessageId"],
                        one["ReceiptHandle"],
                        one["Body"],
                        one["Attributes"],
                    )
                    for one in batch
                )
            ),
        )
        reports = mapping.get("FunctionResponseTypes") == _REPORTS
        failed = failed_messages(made.answer) if reports else ()
        for one in batch if not made.error else ():
            if one["MessageId"] not in failed:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
        return len(batch)

    def waiting(self, queue: str) -> int:
        """Return the messages of a queue that can be received now. Read from moto,
        because most polls find none."""
        return int(sqs_backends[self.account][REGION].queues[queue].approximate_number_of_messages)

    # -- account

    def _access(self, name: str) -> dict[str, str]:
        """Return the credentials of a function's role. Their key identifies the function."""
        return {
            "AWS_ACCESS_KEY_ID": name,
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_SESSION_TOKEN": "local",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.door.url,
        }

    def _client(self, service: str, name: str) -> Any:
        if (service, name) not in self._clients:
            self._clients[service, name] = self._session.create_client(
                service,
                region_name=REGION,
                endpoint_url=self.door.url,
                aws_access_key_id=name,
                aws_secret_access_key="local",
            )
        return self._clients[service, name]

    def _log(self, name: str, made: Made) -> None:
        """Write to the log. A missing log group is not created, because Lambda's
        roles here may not create it."""
        group, logs = self.configurations[name].log_group, self._client("logs", name)
        lines = [
            {"timestamp": int(time.time() * 1000), "message": line}
            for line in made.log.splitlines()
            if line
        ]
        try:
            if name not in self._logged:
                self._logged.add(name)
                # a deployment before this one may have made it
                with suppress(logs.exceptions.ResourceAlreadyExistsException):
                    logs.create_log_stream(logGroupName=group, logStreamName="local")
            if lines:
                logs.put_log_events(
                    logGroupName=group, logStreamName="local", logEvents=lines[:1000]
                )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise


def _configurations(functions: Any) -> Iterator[Configuration]:
    for listed in functions.list_functions()["Functions"]:
        one = functions.get_function_configuration(FunctionName=listed["FunctionName"])
        yield Configuration(
            one["FunctionName"],
            one["FunctionArn"],
            one["Role"].rpartition("/")[2],
            one["Handler"],
            one["Timeout"],
            one["MemorySize"],
            one.get("Environment", {}).get("Variables", {}),
        )


def _statements(iam: Any, role: str) -> tuple[Statement, ...]:
    """Return all permissions of a role. Managed policies are not evaluated,
    so a role must have none."""
    assert not iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"], role
    read = (
        iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    )
    # moto keeps the documents of CloudFormation's roles as Python's text of them
    documents = (ast.literal_eval(given) if isinstance(given, str) else given for given in read)
    return tuple(statement for given in documents for statement in literal_statements(given))
