"""Emulates AWS on this machine, without Docker or an account: DynamoDB, SQS and Secrets Manager,
for `make run` and for tests.

`python -m infra.emulators.aws --port 4566` serves an empty account until Ctrl-C and prints the
environment variables to export, so that deployments can be tried without an account.

Nothing is set globally. `LocalAws.env` contains the environment variables with which
a process finds the emulation; botocore, and therefore PynamoDB, follows
AWS_ENDPOINT_URL without code changes.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import Request, urlopen

from botocore.config import Config
from botocore.session import Session, get_session

from chalicelib.model.secret import PARAMETER, parameter_name
from chalicelib.store.tables import definition, policy_table_of, time_to_live
from infra.emulators.lambda_events import REGION
from infra.tools.interruptible import run

if TYPE_CHECKING:
    from infra.emulators.aws_server import AwsServer


_CONFIG = Config(user_agent="outscaler-emulation")
"""botocore composes its own user agent for each request, which is a tenth
of a request's CPU time."""


class Queue(NamedTuple):
    """A standard queue with a dead-letter queue. visibility: seconds. max_receives: before a
    message is moved to the dead letters."""

    visibility: int = 30
    max_receives: int = 5


def environment(endpoint: str) -> dict[str, str]:
    """Return environment variables that make every AWS client of a process use only that
    endpoint."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def client(service: str, endpoint: str, region: str = REGION) -> Any:
    session, lock = _session()
    with lock:
        return session.create_client(
            service,
            region_name=region,
            endpoint_url=endpoint,
            aws_access_key_id="local",
            aws_secret_access_key="local",
            config=_CONFIG,
        )


@cache
def _session() -> tuple[Session, threading.Lock]:
    """Return the session shared by all clients. It reads service descriptions, which takes longer
    than most tests, and creates one client at a time."""
    return get_session(), threading.Lock()


def create_table(dynamodb: Any, name: str, *, expires: bool = True) -> None:
    """Create the two tables of store/tables.py as the deployment template defines them: the state
    table with this name, and its policy table. expires: False for a world whose clock is behind the
    service's, which would delete rows that have not expired there."""
    for table in (name, policy_table_of(name)):
        dynamodb.create_table(**definition(table))
        dynamodb.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})
    if expires:
        dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=time_to_live())


def drop_table(dynamodb: Any, name: str) -> None:
    for table in (name, policy_table_of(name)):
        dynamodb.delete_table(TableName=table)


class LocalAws:
    """One emulated account. Use it as a context manager, or with start and stop."""

    def __init__(self, port: int = 0) -> None:
        # Imported here because moto takes a third of a second to import, and a process that is only
        # a client does not need it.
        from infra.emulators.aws_server import AwsServer

        self._server: AwsServer = AwsServer(port)
        self._clients: dict[tuple[str, str], Any] = {}
        self.endpoint = ""

    def start(self) -> str:
        self.endpoint = self._server.start()
        return self.endpoint

    def stop(self) -> None:
        """Stop serving. The state stays in this process until `reset`."""
        self._server.stop()

    def __enter__(self) -> LocalAws:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def env(self) -> dict[str, str]:
        return environment(self.endpoint)

    def client(self, service: str) -> Any:
        """Return a botocore client for the account. A service has one, because making one takes
        longer than most requests."""
        if (service, self.endpoint) not in self._clients:
            self._clients[service, self.endpoint] = client(service, self.endpoint)
        return self._clients[service, self.endpoint]

    def reset(self) -> None:
        with urlopen(
            Request(f"{self.endpoint}/moto-api/reset", method="POST"), timeout=10
        ) as answer:
            answer.read()

    def create_table(self, name: str) -> None:
        create_table(self.client("dynamodb"), name)

    def create_queues(self, queues: Mapping[str, Queue]) -> dict[str, str]:
        """Create each queue with its dead-letter queue `<name>-dead`. Returns URLs by name,
        without the dead-letter queues."""
        sqs = self.client("sqs")
        urls: dict[str, str] = {}
        for name, queue in queues.items():
            dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
            arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])[
                "Attributes"
            ]["QueueArn"]
            redrive = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": {queue.max_receives}}}'
            urls[name] = sqs.create_queue(
                QueueName=name,
                Attributes={
                    "VisibilityTimeout": str(queue.visibility),
                    "RedrivePolicy": redrive,
                },
            )["QueueUrl"]
        return urls

    def put_secret(self, name: str, text: str) -> None:
        """Create the secret or change its value. A name that begins with
        `ssm:/` is an SSM parameter."""
        if name.startswith(PARAMETER):
            self.client("ssm").put_parameter(
                Name=parameter_name(name), Value=text, Type="SecureString", Overwrite=True
            )
            return
        secrets = self.client("secretsmanager")
        try:
            secrets.create_secret(Name=name, SecretString=text)
        except secrets.exceptions.ResourceExistsException:
            secrets.put_secret_value(SecretId=name, SecretString=text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: serve an account until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.emulators.aws", description="serve an empty emulated account"
    )
    parser.add_argument(
        "--port", type=int, default=4566, help="on 127.0.0.1; 0 is any free one (4566)"
    )
    given = parser.parse_args(arguments)
    if not 0 <= given.port <= 65535:
        sys.stderr.write(f"--port {given.port}: is no port; use 0 to 65535\n")
        return 2
    account = LocalAws(given.port)
    try:
        account.start()
    except (OSError, SystemExit):  # werkzeug prints the reason and exits
        sys.stderr.write(f"--port {given.port}: cannot be served; choose another one\n")
        return 2
    try:
        sys.stdout.write("".join(f"export {name}={value}\n" for name, value in account.env.items()))
        sys.stdout.flush()
        threading.Event().wait()
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    finally:
        account.stop()
    return 0


if __name__ == "__main__":
    run(main)
