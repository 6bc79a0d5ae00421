"""Compares docs/cloudformation.md with the template, and runs its commands
against the emulated account.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.aws.package import ROOT
from infra.emulators.aws import LocalAws
from tests.functional.artifact import artifact
from tests.functional.resolved_template import VPC, resolve
from tests.functional.stack import HANDLERS

PAGE = (ROOT / "docs" / "cloudformation.md").read_text("utf-8")
BY_STAGE = {"Stage": "the stage that was packaged", "LogRetention": "that of the stage"}
AWS = shutil.which("aws")


def _section(title: str) -> str:
    [found] = re.findall(rf"^#+ {title}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def _rows(title: str) -> list[tuple[str, str]]:
    """First and second cell of each row of the section's table."""
    lines = [line for line in _section(title).splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(row[0].strip("| "), row[1]) for row in cells]


def _default(name: str, stage_less: bool, given: dict[str, object]) -> str:
    if stage_less and name in BY_STAGE:
        return BY_STAGE[name]
    if "Default" not in given:
        return "required"
    return f"`{given['Default']}`" if given["Default"] != "" else "none"


def _commands(*titles: str) -> list[str]:
    """Every line of every shell block of these sections, or of the whole page without titles."""
    text = "".join(map(_section, titles)) if titles else PAGE
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_page_lists_every_parameter_with_its_default() -> None:
    parameters = artifact().sam("dev")["Parameters"]
    documented = _rows("Parameters")
    assert len(documented) == len(parameters)
    assert dict(documented) == {
        f"`{name}`": _default(name, True, one) for name, one in parameters.items()
    }


def test_page_lists_additional_parameters_of_the_published_template() -> None:
    more = artifact().published("dev")["Parameters"]
    of_both = artifact().sam("dev")["Parameters"]
    assert dict(_rows("Published template")) == {
        f"`{name}`": _default(name, False, one) for name, one in more.items() if name not in of_both
    }


def test_page_lists_every_output() -> None:
    documented = {name for cell, _ in _rows("Outputs") for name in re.findall(r"`(\w+)`", cell)}
    assert documented == set(artifact().sam("dev")["Outputs"])
    assert documented - {"ReaderKeyId"} == set(artifact().sam("prod")["Outputs"])


def test_every_wildcard_that_a_parameter_adds_is_documented() -> None:
    template = resolve(
        artifact().sam("dev"), **VPC, Tracing="on", SecretPrefix="x", EksClusters="x"
    )
    found = {
        str(text).removeprefix("arn:${AWS::Partition}:")
        for one in template["Resources"].values()
        if one["Type"] == "AWS::IAM::Role"
        for policy in one["Properties"]["Policies"]
        if policy["PolicyName"] in ("UseVpc", "SendTraces")
        for statement in policy["PolicyDocument"]["Statement"]
        for resource in _listed(statement["Resource"])
        for text in [resource.get("Fn::Sub", "") if isinstance(resource, dict) else resource]
    }
    documented = {text for _, cell in _rows("VPC") for text in re.findall(r"`([^`]+)`", cell)}
    assert found == documented
    actions = {action for cell, _ in _rows("VPC") for action in re.findall(r"`(\w+:\w+)`", cell)}
    granted = {
        action
        for one in template["Resources"].values()
        if one["Type"] == "AWS::IAM::Role"
        for policy in one["Properties"]["Policies"]
        if policy["PolicyName"] in ("UseVpc", "SendTraces")
        for statement in policy["PolicyDocument"]["Statement"]
        for action in statement["Action"]
    }
    assert actions == granted


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def test_key_policy_admits_the_two_services_without_a_role() -> None:
    [block] = re.findall(r"^```json\n(.*?)^```", _section("Key"), re.MULTILINE | re.DOTALL)
    statements = json.loads(block)
    assert {one["Principal"]["Service"] for one in statements} == {
        "events.amazonaws.com",
        "logs.REGION.amazonaws.com",
    }
    assert all(one["Condition"] for one in statements), "any account's events would do otherwise"


def test_every_command_that_sends_the_template_names_a_bucket() -> None:
    sent = [
        command
        for command in _commands()
        if re.match(r"aws cloudformation (deploy|package) ", command)
    ]
    assert len(sent) >= 5
    for command in sent:
        assert " --s3-bucket BUCKET " in command
        assert "deploy" not in command.split()[2] or " --capabilities CAPABILITY_IAM" in command
    parameters = artifact().published("dev")["Parameters"]
    given = {
        word.partition("=")[0]
        for command in sent
        for word in command.split()
        if re.match(r"[A-Z]\w+=", word)
    }
    assert given <= set(parameters)


def test_every_stack_command_names_the_same_stack() -> None:
    named = [
        re.findall(r"--stack-name (\S+)", command)
        for command in _commands()
        if re.match(r"aws cloudformation (?!package)", command)
    ]
    assert named
    assert all(names == ["outscaler-dev"] for names in named)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalAws, Path]]:
    """An emulated account with a bucket, and a folder with the output of `make package`."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "build").mkdir()
    (folder / "build" / "sam.json").write_text(json.dumps(artifact().sam("dev")))
    shutil.copy(artifact().zip, folder / "build" / "deployment.zip")
    with LocalAws() as aws:
        aws.client("s3").create_bucket(Bucket="artifacts")
        yield aws, folder


def _run(desk: tuple[LocalAws, Path], command: str, table: str = "") -> str:
    aws, folder = desk
    words = command.replace("BUCKET", "artifacts").replace("TABLE", table).split()
    if words[0] == ".venv/bin/python":
        words[0] = sys.executable
    environment = os.environ | aws.env | {"PYTHONPATH": str(ROOT), "AWS_PAGER": ""}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _status(aws: LocalAws) -> str:
    [stack] = aws.client("cloudformation").describe_stacks(StackName="outscaler-dev")["Stacks"]
    return str(stack["StackStatus"])


@pytest.mark.skipif(
    AWS is None, reason="the AWS CLI is not installed: the documented commands cannot be run"
)
def test_documented_commands_create_upgrade_and_remove_a_stack(desk: tuple[LocalAws, Path]) -> None:
    aws, _ = desk
    deploying = [command for command in _commands("Deploy") if "aws cloudformation" in command]
    outputs = [_run(desk, command) for command in deploying][-1]
    assert _status(aws) == "CREATE_COMPLETE"
    assert {"TableName", "PolicyTableName"} <= set(re.findall(r"\w+", outputs))
    [stack] = aws.client("cloudformation").describe_stacks(StackName="outscaler-dev")["Stacks"]
    given = {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}
    assert given["AccessLog"] == "off"
    names = {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}

    upgrade = [
        command for command in _commands("Upgrade") if "--no-execute-changeset" not in command
    ]
    packaged, deploy = upgrade
    _run(desk, packaged)
    _run(desk, f"{deploy} --parameter-overrides LogRetention=14")
    [stack] = aws.client("cloudformation").describe_stacks(StackName="outscaler-dev")["Stacks"]
    kept = {one["ParameterKey"]: one["ParameterValue"] for one in stack["Parameters"]}
    assert (kept["AccessLog"], kept["LogRetention"]) == ("off", "14"), (
        "what is not given keeps its value"
    )

    delete, wait, unprotect, drop = _commands("Remove")
    _run(desk, delete)
    _run(desk, wait)
    for table in (names["PolicyTableName"], names["TableName"]):
        # moto does not support Retain
        if table in aws.client("dynamodb").list_tables()["TableNames"]:
            _run(desk, unprotect, table)
            _run(desk, drop, table)
    left = aws.client("dynamodb").list_tables()["TableNames"]
    assert not {names["TableName"], names["PolicyTableName"]} & set(left)


@pytest.mark.skipif(
    AWS is None, reason="the AWS CLI is not installed: the documented commands cannot be run"
)
def test_documented_commands_create_a_stack_of_the_published_template(
    desk: tuple[LocalAws, Path],
) -> None:
    aws, _ = desk
    for command in _commands("Published template"):
        _run(desk, command)
    assert _status(aws) == "CREATE_COMPLETE"
    made = {one["Handler"] for one in aws.client("lambda").list_functions()["Functions"]}
    assert set(HANDLERS.values()) <= made
