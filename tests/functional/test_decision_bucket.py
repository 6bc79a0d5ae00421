"""The bucket of recorded decisions exists only on request, is private, and is written by pass functions only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.model.resource_names import DECISIONS
from infra.aws.decision_bucket import BUCKET
from infra.aws.deploy import foundation
from infra.aws.deploy.project import copied
from infra.aws.deploy.stage import Options, Stage, load
from infra.aws.template_check import translate
from infra.aws.template_overlay import PASS_FUNCTIONS
from tests.functional.artifact import artifact
from tests.functional.resolved_template import resolve


def _stage(days: int) -> Stage:
    options = Options(decisions_days=days)
    return msgspec.structs.replace(load("dev"), options=options, account="123456789012", region="us-east-1")


def _stack(**given: str) -> dict[str, Any]:
    return resolve(translate(artifact().sam("dev")), **given)


def test_bucket_exists_only_on_request() -> None:
    assert BUCKET not in foundation.template(_stage(0), "rule")["Resources"]
    assert BUCKET not in _stack()["Resources"]
    assert BUCKET in foundation.template(_stage(30), "rule")["Resources"]
    assert BUCKET in _stack(DecisionsDays="30")["Resources"]


def test_only_functions_that_make_passes_know_the_bucket_and_may_write_it() -> None:
    made = _stack(DecisionsDays="30")["Resources"]
    knows = {
        name
        for name, one in made.items()
        if one["Type"] == "AWS::Lambda::Function" and DECISIONS in one["Properties"]["Environment"]["Variables"]
    }
    writes = {name for name, one in made.items() if one["Type"] == "AWS::IAM::Role" and "s3:" in json.dumps(one)}
    assert knows == {"Reconcile", "ReconcileLarge"}
    assert writes == {"ReconcileRole", "ReconcileLargeRole"}
    assert DECISIONS not in json.dumps(_stack())


@pytest.mark.parametrize("days", [0, 30])
def test_stage_gives_the_variable_and_the_right_to_the_same_functions(days: int, tmp_path: Path) -> None:
    copied(_stage(days), tmp_path)
    functions = json.loads((tmp_path / ".chalice" / "config.json").read_text())["stages"]["dev"]["lambda_functions"]
    knows = {name for name, one in functions.items() if DECISIONS in one.get("environment_variables", {})}
    writes = {
        name
        for name, one in functions.items()
        if "s3:PutObject" in (tmp_path / ".chalice" / one["iam_policy_file"]).read_text()
    }
    assert knows == writes == (set(PASS_FUNCTIONS) if days else set())


def test_bucket_takes_no_connection_without_tls() -> None:
    policy = foundation.template(_stage(30), "rule")["Resources"][f"{BUCKET}Policy"]["Properties"]["PolicyDocument"]
    assert [(one["Effect"], one["Condition"]) for one in policy["Statement"]] == [
        ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    ]


def test_bucket_is_private_and_forgets() -> None:
    made = foundation.template(_stage(30), "rule")["Resources"][BUCKET]["Properties"]
    assert made["BucketName"] == "outscaler-dev-123456789012-us-east-1"
    assert set(made["PublicAccessBlockConfiguration"].values()) == {True}
    assert made["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    [rule] = made["LifecycleConfiguration"]["Rules"]
    assert (rule["Status"], rule["ExpirationInDays"]) == ("Enabled", 30)


@pytest.mark.parametrize(
    ("key", "algorithm"), [("", "AES256"), ("arn:aws:kms:us-east-1:123456789012:key/k", "aws:kms")]
)
def test_bucket_is_encrypted_with_the_key_of_the_deployment(key: str, algorithm: str) -> None:
    stage = msgspec.structs.replace(_stage(30), options=Options(decisions_days=30, kms_key_arn=key))
    made = foundation.template(stage, "rule")["Resources"][BUCKET]["Properties"]["BucketEncryption"]
    [rule] = made["ServerSideEncryptionConfiguration"]
    used = rule["ServerSideEncryptionByDefault"]
    assert (used["SSEAlgorithm"], used.get("KMSMasterKeyID", "")) == (algorithm, key)
