"""The buckets exist only on request and are private. The functions that make passes use them; the
API's function stores what watchers post, and reads nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.model.resource_names import DECISIONS, LISTS, prefix_for
from infra.aws.buckets import BUCKET, LISTS_BUCKET, LISTS_DAYS
from infra.aws.deploy import foundation
from infra.aws.deploy.project import copied
from infra.aws.deploy.stage import Options, Stage, load
from infra.aws.template_overlay import PASS_FUNCTIONS, function_id
from tests.functional.artifact import artifact
from tests.functional.resolved_template import resolve

KEY = "arn:aws:kms:us-east-1:123456789012:key/k"


class RequestedBucket(msgspec.Struct, frozen=True):
    """A bucket, and how it is requested: options of a stage, parameters of a stack. right: the
    action that only this one needs. writers: other functions that know it; they may only store
    objects below `watched`."""

    logical: str
    variable: str
    options: dict[str, Any]
    parameters: dict[str, str]
    right: str
    name: str
    days: int
    writers: frozenset[str] = frozenset()


BUCKETS = (
    RequestedBucket(
        BUCKET,
        DECISIONS,
        {"decisions_days": 30},
        {"DecisionsDays": "30"},
        "s3:PutObject",
        "outscaler-dev-123456789012-us-east-1",
        30,
    ),
    RequestedBucket(
        LISTS_BUCKET,
        LISTS,
        {"share_lists": True},
        {"ShareLists": "on"},
        "s3:GetObject",
        "outscaler-dev-123456789012-us-east-1-list",
        LISTS_DAYS,
        frozenset({"api_handler"}),
    ),
)
each_bucket = pytest.mark.parametrize("bucket", BUCKETS, ids=lambda each: each.logical)


def _stage(**options: Any) -> Stage:
    return msgspec.structs.replace(
        load("dev"), options=Options(**options), account="123456789012", region="us-east-1"
    )


def _stack(**given: str) -> dict[str, Any]:
    return resolve(artifact().translated("dev"), **given)


@each_bucket
def test_bucket_exists_only_on_request(bucket: RequestedBucket) -> None:
    assert bucket.logical not in foundation.template(_stage(), "rule")["Resources"]
    assert bucket.logical not in _stack()["Resources"]
    assert bucket.logical in foundation.template(_stage(**bucket.options), "rule")["Resources"]
    assert bucket.logical in _stack(**bucket.parameters)["Resources"]


@each_bucket
def test_only_functions_that_need_the_bucket_know_it_and_only_passes_read_it(
    bucket: RequestedBucket,
) -> None:
    made = _stack(**bucket.parameters)["Resources"]
    knows = {
        name
        for name, one in made.items()
        if one["Type"] == "AWS::Lambda::Function"
        and bucket.variable in one["Properties"]["Environment"]["Variables"]
    }
    uses = {
        name
        for name, one in made.items()
        if one["Type"] == "AWS::IAM::Role" and bucket.right in json.dumps(one)
    }
    assert knows == {"Reconcile", "ReconcileLarge"} | {function_id(each) for each in bucket.writers}
    assert uses == {"ReconcileRole", "ReconcileLargeRole"}
    assert bucket.variable not in json.dumps(_stack())


@each_bucket
@pytest.mark.parametrize("requested", [False, True])
def test_stage_gives_the_variable_and_the_right_to_the_same_functions(
    bucket: RequestedBucket, requested: bool, tmp_path: Path
) -> None:
    copied(_stage(**bucket.options if requested else {}), tmp_path)
    functions = json.loads((tmp_path / ".chalice" / "config.json").read_text())["stages"]["dev"][
        "lambda_functions"
    ]
    knows = {
        name
        for name, one in functions.items()
        if bucket.variable in one.get("environment_variables", {})
    }
    uses = {
        name
        for name, one in functions.items()
        if bucket.right in (tmp_path / ".chalice" / one["iam_policy_file"]).read_text()
    }
    assert uses == (set(PASS_FUNCTIONS) if requested else set())
    assert knows == (uses | bucket.writers if requested else set())


@each_bucket
def test_bucket_takes_no_connection_without_tls(bucket: RequestedBucket) -> None:
    made = foundation.template(_stage(**bucket.options), "rule")["Resources"]
    policy = made[f"{bucket.logical}Policy"]["Properties"]["PolicyDocument"]
    assert [(one["Effect"], one["Condition"]) for one in policy["Statement"]] == [
        ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    ]


@each_bucket
def test_bucket_is_private_and_forgets(bucket: RequestedBucket) -> None:
    made = foundation.template(_stage(**bucket.options), "rule")["Resources"][bucket.logical][
        "Properties"
    ]
    assert made["BucketName"] == bucket.name
    assert set(made["PublicAccessBlockConfiguration"].values()) == {True}
    assert made["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    [rule] = made["LifecycleConfiguration"]["Rules"]
    assert (rule["Status"], rule["ExpirationInDays"]) == ("Enabled", bucket.days)


@each_bucket
@pytest.mark.parametrize(
    ("key", "algorithm"), [("", "AES256"), (KEY, "aws:kms")], ids=["own key", "given key"]
)
def test_bucket_is_encrypted_with_the_key_of_the_deployment(
    bucket: RequestedBucket, key: str, algorithm: str
) -> None:
    stage = _stage(**bucket.options, kms_key_arn=key)
    made = foundation.template(stage, "rule")["Resources"][bucket.logical]["Properties"][
        "BucketEncryption"
    ]
    [rule] = made["ServerSideEncryptionConfiguration"]
    used = rule["ServerSideEncryptionByDefault"]
    assert (used["SSEAlgorithm"], used.get("KMSMasterKeyID", "")) == (algorithm, key)


def test_longest_name_of_a_bucket_is_one_that_s3_accepts() -> None:
    stage = msgspec.structs.replace(
        _stage(share_lists=True, decisions_days=1),
        prefix=prefix_for("s" * 20),
        region="ap-northeast-1",
    )
    assert max(len(foundation.lists_bucket(stage)), len(foundation.decisions_bucket(stage))) <= 63


def test_function_of_the_api_may_only_store_what_watchers_post(tmp_path: Path) -> None:
    copied(_stage(share_lists=True), tmp_path)
    settings = tmp_path / ".chalice"
    functions = json.loads((settings / "config.json").read_text())["stages"]["dev"][
        "lambda_functions"
    ]
    own = json.loads((settings / functions["api_handler"]["iam_policy_file"]).read_text())[
        "Statement"
    ]
    [stage] = ((each["Action"], each["Resource"]) for each in own if "s3:" in json.dumps(each))
    assert stage == (
        ["s3:PutObject"],
        "arn:*:s3:::outscaler-dev-123456789012-us-east-1-list/watched/*",
    )
    policies = _stack(ShareLists="on")["Resources"]["ApiHandlerRole"]["Properties"]["Policies"]
    [stack] = (
        each["PolicyDocument"]["Statement"] for each in policies if "s3:" in json.dumps(each)
    )
    assert [each["Action"] for each in stack] == [["s3:PutObject"]]
    assert "/watched/*" in json.dumps(stack)
