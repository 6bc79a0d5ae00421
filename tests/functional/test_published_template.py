"""The published template: plain CloudFormation within the size limit, from
which a stack can be created.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.aws.publish import LARGEST, NotPublishable, main, publish, zip_name
from infra.aws.template_check import lint
from infra.emulators.aws import LocalAws
from tests.functional.artifact import artifact
from tests.functional.resolved_template import EVERYTHING, Template, resolve
from tests.functional.stack import HANDLERS

STAGES = pytest.mark.parametrize("stage", ["dev", "prod"])
CODE = {"CodeBucket": "artifacts", "CodePrefix": "outscaler/1/"}


def _functions(template: Template) -> dict[str, Any]:
    return {
        name: one["Properties"]
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::Lambda::Function"
    }


@STAGES
def test_published_template_is_plain_cloudformation_with_one_capability(stage: str) -> None:
    template = artifact().published(stage)
    assert "Transform" not in template
    assert not [
        one["Type"]
        for one in template["Resources"].values()
        if one["Type"].startswith("AWS::Serverless")
    ]
    named = [
        name
        for name, one in template["Resources"].items()
        if one["Type"].startswith("AWS::IAM")
        and one["Properties"].keys() & {"RoleName", "ManagedPolicyName", "UserName"}
    ]
    assert named == [], "a named role needs CAPABILITY_NAMED_IAM"


# The template of prod is that of dev without the readers' key; test_template_parameters.py
# lints it as it is deployed.
@pytest.mark.parametrize("stage", ["dev", pytest.param("prod", marks=pytest.mark.slow)])
def test_published_template_passes_cfn_lint(stage: str) -> None:
    assert lint(artifact().published(stage)) == []


@STAGES
def test_published_template_requires_only_the_bucket_of_the_code(stage: str) -> None:
    parameters = artifact().published(stage)["Parameters"]
    assert [name for name, one in parameters.items() if "Default" not in one] == ["CodeBucket"]


@pytest.mark.parametrize("architecture", ["arm64", "x86_64"])
def test_code_key_follows_from_the_processor(architecture: str) -> None:
    functions = _functions(resolve(artifact().published("dev"), **CODE, Architecture=architecture))
    assert set(functions) == set(HANDLERS)
    for one in functions.values():
        assert one["Code"] == {
            "S3Bucket": "artifacts",
            "S3Key": f"outscaler/1/{zip_name(architecture)}",
        }
        assert one["Architectures"] == [architecture]


def test_code_key_given_by_the_user_is_used_unchanged() -> None:
    functions = _functions(resolve(artifact().published("dev"), **CODE, CodeKey="a/b.zip"))
    assert {one["Code"]["S3Key"] for one in functions.values()} == {"a/b.zip"}


def test_arm64_is_the_default_processor() -> None:
    functions = _functions(resolve(artifact().published("dev"), **CODE))
    assert {tuple(one["Architectures"]) for one in functions.values()} == {("arm64",)}


@STAGES
def test_published_template_fits_cloudformations_limit_for_s3_templates(
    stage: str, tmp_path: Path
) -> None:
    sam, out = tmp_path / "sam.json", tmp_path / "deep" / "published.json"
    sam.write_text(json.dumps(artifact().sam(stage)))
    size = publish(sam, out)
    assert size == out.stat().st_size < LARGEST / 4, "room for what comes"
    assert json.loads(out.read_text()) == artifact().published(stage)
    assert publish(sam, tmp_path / "again.json") == size
    assert (tmp_path / "again.json").read_bytes() == out.read_bytes()


def test_template_above_the_size_limit_is_not_written(tmp_path: Path) -> None:
    sam, large = tmp_path / "sam.json", artifact().sam("dev")
    large["Description"] = "x" * LARGEST
    sam.write_text(json.dumps(large))
    with pytest.raises(NotPublishable, match=r"bytes; CloudFormation takes 1000000$"):
        publish(sam, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("", "is no SAM template"),
        ("{}", "is no SAM template"),
        ("[1]", "is no SAM template"),
        ('{"Resources": {}}', "is no SAM template"),
        ("\xff", "is no SAM template"),
    ],
)
def test_publishing_command_reports_an_error_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    said: str,
) -> None:
    sam = tmp_path / "sam.json"
    if text is not None:
        sam.write_bytes(text.encode("latin-1"))
    assert main([str(sam), "--out", str(tmp_path / "out.json")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    """An account with the zip in a bucket."""
    with LocalAws() as running:
        running.client("s3").create_bucket(Bucket="artifacts")
        for architecture in ("arm64", "x86_64"):
            key = f"outscaler/1/{zip_name(architecture)}"
            running.client("s3").put_object(Bucket="artifacts", Key=key, Body=b"zip")
        yield running


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("plain", {}),
        ("team-a", {"Stage": "team-a", "Architecture": "x86_64"}),
        ("full", EVERYTHING),
    ],
)
def test_stack_of_the_published_template_is_created_with_its_parameters(
    aws: LocalAws, name: str, given: dict[str, str]
) -> None:
    cloud = aws.client("cloudformation")
    cloud.create_stack(
        StackName=name,
        TemplateBody=json.dumps(artifact().published("prod")),
        Capabilities=["CAPABILITY_IAM"],
        Parameters=[
            {"ParameterKey": key, "ParameterValue": value} for key, value in (CODE | given).items()
        ],
    )
    [made] = cloud.describe_stacks(StackName=name)["Stacks"]
    assert made["StackStatus"] == "CREATE_COMPLETE"
    ids = {
        one["LogicalResourceId"]: one["PhysicalResourceId"]
        for one in cloud.describe_stack_resources(StackName=name)["StackResources"]
        if "PhysicalResourceId" in one
    }
    assert set(HANDLERS) <= set(ids)
    tick = aws.client("lambda").get_function_configuration(FunctionName=ids["Tick"])
    stage = given.get("Stage", "prod")
    assert tick["Environment"]["Variables"]["OUTSCALER_SECRET_PREFIX"] == f"outscaler/{stage}/"
    policies = aws.client("iam").list_role_policies(RoleName=ids["TickRole"])["PolicyNames"]
    brought = {"UseVpc", "UseKmsKey", "SendTraces"}
    assert brought & set(policies) == (brought if given is EVERYTHING else set())
    reading = aws.client("iam").get_role_policy(
        RoleName=ids["ReconcileRole"], PolicyName="ReconcileRolePolicy"
    )
    secrets = re.findall(r"secret:([^\"*]*)\*", json.dumps(reading["PolicyDocument"]))
    assert set(secrets) == {f"outscaler/{stage}/"}
