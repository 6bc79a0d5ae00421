"""Lambda's limits around a function in the emulation: time, folders, environment, permissions."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError
from botocore.session import get_session

from infra.emulators.aws import LocalAws
from infra.emulators.iam import literal_statements
from infra.emulators.lambda_events import REGION
from infra.emulators.lambda_runtime.permission_proxy import Door
from infra.emulators.lambda_runtime.process import Configuration, Folders, Process, without_rights

SOURCE = """
import json, os, sys, time

def echo(event, context):
    print("seen", event["word"])
    return {"word": event["word"], "request": context.aws_request_id, "left": \
context.get_remaining_time_in_millis()}

def environment(event, context):
    return dict(os.environ)

def modules(event, context):
    return sorted({getattr(one, "__file__", None) or "" for one in sys.modules.values()})

def write(event, context):
    for place in (os.environ["LAMBDA_TASK_ROOT"], os.getcwd()):
        try:
            open(os.path.join(place, "new"), "w")
        except OSError as error:
            return type(error).__name__
    return "written"

def clock(event, context):
    return time.time()

def fail(event, context):
    raise ValueError("no such thing")

def hang(event, context):
    time.sleep(60)

def leave(event, context):
    os._exit(3)
"""
BASE = Configuration(
    "fn",
    f"arn:aws:lambda:{REGION}:123456789012:function:fn",
    "fn",
    "work.echo",
    1,
    128,
    {"OUTSCALER_PREFIX": "outscaler-dev"},
)
ACCESS = {
    "AWS_ACCESS_KEY_ID": "fn",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_SESSION_TOKEN": "local",
    "AWS_REGION": REGION,
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folders]:
    place = tmp_path_factory.mktemp("lambda")
    with zipfile.ZipFile(place / "code.zip", "w") as archive:
        archive.writestr("work.py", SOURCE)
        archive.writestr("broken.py", "import nothing_of_this_name\n")
        archive.writestr("certifi/cacert.pem", "")
    made = Folders(place, place / "code.zip")
    yield made
    made.remove()
    assert not made.task.exists()


@pytest.fixture
def function(folders: Folders, tmp_path: Path) -> Iterator[Any]:
    """Starts a process for a handler; all of them end with the test."""
    made: list[Process] = []

    def of(handler: str, timeout: int = 20) -> Process:
        configuration = msgspec.structs.replace(BASE, handler=handler, timeout=timeout)
        made.append(
            Process(configuration, folders, ACCESS, lambda: 1000.0, tmp_path / f"{len(made)}.log")
        )
        return made[-1]

    yield of
    for process in made:
        process.stop()


def test_event_is_answered_and_the_process_is_reused(function: Any) -> None:
    process = function("work.echo")
    first, second = process.invoke({"word": "a"}), process.invoke({"word": "b"})
    assert (first.answer["word"], first.cold, first.log) == ("a", True, "seen a\n")
    assert (second.answer["word"], second.cold, second.log) == ("b", False, "seen b\n")
    assert first.answer["request"] != second.answer["request"]
    assert process.peak_megabytes() > 1
    assert process.init_seconds > 0


def test_function_that_times_out_is_killed_and_restarted(function: Any) -> None:
    process = function("work.hang", timeout=1)
    for _ in range(2):
        made = process.invoke({})
        assert (made.error, made.cold) == ("Task timed out after 1.00 seconds", True)


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        ("work.fail", "ValueError: no such thing"),
        ("work.leave", "Runtime exited with error: exit status 3"),
        ("broken.handler", "init: "),
        ("work.missing", "init: "),
    ],
)
def test_failure_of_a_function_is_reported_with_its_cause(
    function: Any, handler: str, error: str
) -> None:
    assert function(handler).invoke({}).error.startswith(error)


def test_function_has_only_lambdas_environment_and_its_own_variables(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTSCALER_TABLE", "of-this-process")
    given = function("work.environment").invoke({}).answer
    assert given["OUTSCALER_PREFIX"] == "outscaler-dev"
    lambdas = {name for name in given if name.startswith(("AWS_", "LAMBDA_", "_"))}
    assert given.keys() - lambdas <= {
        "OUTSCALER_PREFIX",
        "PATH",
        "LANG",
        "LC_CTYPE",
        "TZ",
        "PYTHONPATH",
    }
    assert given["AWS_LAMBDA_FUNCTION_NAME"] == "fn"
    assert given["_HANDLER"] == "work.environment"


def test_function_loads_only_the_task_the_runtime_and_the_standard_library(
    function: Any, folders: Folders
) -> None:
    places = function("work.modules").invoke({}).answer
    assert str(folders.task / "work.py") in places
    assert [
        place
        for place in places
        if "site-packages" in place
        and "/awslambdaric/" not in place
        and "runtime_client" not in place
        and "simplejson" not in place
    ] == []


def test_function_cannot_write_to_its_own_folder(function: Any) -> None:
    if os.geteuid() == 0 and not without_rights():
        pytest.skip(
            "the superuser may write everything, and there is no setpriv to take that right away"
        )
    assert function("work.write").invoke({}).answer in {"PermissionError", "OSError"}


def test_clock_of_a_running_function_can_be_advanced(function: Any, folders: Folders) -> None:
    process = function("work.clock")
    before = process.invoke({}).answer
    folders.ahead(3600.0)
    assert 3600 <= process.invoke({}).answer - before < 3700
    folders.ahead(0.0)


POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Sid": "Send",
            "Effect": "Allow",
            "Action": "sqs:SendMessage",
            "Resource": "arn:*:sqs:*:*:mine",
        },
        {
            "Sid": "Mark",
            "Effect": "Allow",
            "Action": ["dynamodb:PutItem"],
            "Resource": ["arn:*:dynamodb:*:*:table/t"],
            "Condition": {
                "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["!web"]},
                "Null": {"dynamodb:LeadingKeys": "false"},
            },
        },
    ],
}


@pytest.fixture
def door() -> Iterator[Door]:
    with LocalAws() as aws:
        made = Door(aws.endpoint, "123456789012")
        made.judge.roles = {"fn": literal_statements(POLICY)}
        aws.create_queues({})
        for name in ("mine", "other"):
            aws.client("sqs").create_queue(QueueName=name)
        yield made
        made.stop()


def _client(door: Door, service: str, key: str = "fn") -> Any:
    return get_session().create_client(
        service,
        region_name=REGION,
        endpoint_url=door.url,
        aws_access_key_id=key,
        aws_secret_access_key="local",
    )


def _send(door: Door, queue: str, key: str = "fn") -> None:
    _client(door, "sqs", key).send_message(
        QueueUrl=f"https://sqs.example/123456789012/{queue}", MessageBody="a"
    )


def test_permitted_call_succeeds_and_is_recorded(door: Door) -> None:
    _send(door, "mine")
    [(function, sid, asked)] = door.judge.used
    assert (function, sid, asked.resource) == (
        "fn",
        "Send",
        f"arn:aws:sqs:{REGION}:123456789012:mine",
    )


@pytest.mark.parametrize(
    ("queue", "key"), [("other", "fn"), ("mine", "stranger"), ("mine-not", "fn")]
)
def test_call_without_permission_is_denied_as_by_aws(door: Door, queue: str, key: str) -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        _send(door, queue, key)
    assert len(door.judge.denied) + len(door.strange) == 1
    assert door.judge.used == set()


@pytest.mark.parametrize("partition", ["!web", "shop"])
def test_partition_condition_is_evaluated_by_the_item(door: Door, partition: str) -> None:
    with pytest.raises(ClientError) as refused:
        _client(door, "dynamodb").put_item(
            TableName="t", Item={"cluster": {"S": partition}, "item": {"S": "x"}}
        )
    denied = refused.value.response["Error"]["Code"] == "AccessDeniedException"
    assert denied is (partition == "shop"), (
        "the table does not exist, which is asked after the permission"
    )


def test_unknown_call_is_rejected(door: Door) -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        _client(door, "kms").list_keys()
    assert len(door.strange) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"Effect": "Deny"},
        {"NotAction": ["sqs:SendMessage"]},
        {"Action": ["sqs:*"]},
        {"Condition": {"StringEquals": {"aws:SourceVpc": "vpc-1"}}},
    ],
)
def test_unsupported_policy_element_is_rejected(change: dict[str, Any]) -> None:
    statement = json.loads(json.dumps(POLICY["Statement"][0])) | change
    with pytest.raises(AssertionError):
        literal_statements({"Statement": [statement]})
