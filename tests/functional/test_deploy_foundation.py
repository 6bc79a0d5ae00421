"""The foundation's template and the literal policies are equivalent to the CloudFormation
template and its policies.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from infra.aws.deploy import foundation, project
from infra.aws.deploy.chalice_resources import Graph
from infra.aws.deploy.literal_policies import documents, source_of
from infra.aws.deploy.stage import Options, Stage, load
from infra.aws.package import POLICIES
from infra.aws.template_check import lint

KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
STAGES = pytest.mark.parametrize("stage", ["dev", "prod"])

Json = dict[str, Any]


@lru_cache
def _graph(stage: str, folder: Path) -> Graph:
    return project.copied(load(stage), folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


def _with_key(stage: Stage) -> Stage:
    topic = "arn:aws:sns:us-east-1:123456789012:alarms"
    return msgspec.structs.replace(stage, options=Options(kms_key_arn=KEY, alarm_topic_arn=topic))


@STAGES
@pytest.mark.parametrize("changed", [lambda stage: stage, _with_key], ids=["plain", "key"])
def test_foundation_template_fits_a_request_and_passes_lint(stage: str, changed: Any) -> None:
    made = foundation.template(changed(load(stage)), f"outscaler-{stage}-tick-event")
    assert len(json.dumps(made, separators=(",", ":"))) < foundation.LARGEST_BODY
    assert lint(made) == []


def test_foundation_tables_are_retained_protected_and_tagged() -> None:
    made = foundation.template(load("dev"), "rule")["Resources"]
    tables = [one for one in made.values() if one["Type"] == "AWS::DynamoDB::Table"]
    assert len(tables) == 2
    for table in tables:
        assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
        assert table["Properties"]["DeletionProtectionEnabled"] is True
    for one in made.values():
        if one["Type"] in ("AWS::DynamoDB::Table", "AWS::SQS::Queue"):
            assert {"Key": "stage", "Value": "dev"} in one["Properties"]["Tags"]


def test_key_encrypts_tables_and_queues_except_that_of_undelivered_ticks() -> None:
    made = foundation.template(_with_key(load("dev")), "rule")["Resources"]
    assert {"AWS::DynamoDB::Table", "AWS::SQS::Queue"} <= {one["Type"] for one in made.values()}
    for name, one in made.items():
        if one["Type"] == "AWS::DynamoDB::Table":
            assert one["Properties"]["SSESpecification"]["KMSMasterKeyId"] == KEY
        if one["Type"] == "AWS::SQS::Queue":
            assert one["Properties"].get("KmsMasterKeyId") == (
                None if name == "TickDeadLetters" else KEY
            )


@STAGES
def test_literal_policies_equal_those_of_the_template(stage: str, folder: Path) -> None:
    made = documents(load(stage), _graph(stage, folder))
    sources = {source_of(file): document for file, document in made.items()}
    assert set(sources) == {file.stem for file in POLICIES.glob("*.json")}
    for name, document in sources.items():
        given = json.loads((POLICIES / f"{name}.json").read_text())["Statement"]
        for wanted, found in zip(given, document["Statement"], strict=False):
            actions = set(wanted["Action"])
            assert set(found["Action"]) == actions | (
                {"sqs:GetQueueUrl"}
                & {"sqs:GetQueueUrl" for action in actions if action == "sqs:SendMessage"}
            )
            assert {**found, "Action": 0, "Resource": 0} == {**wanted, "Action": 0, "Resource": 0}
            assert _count(found["Resource"]) == _count(wanted["Resource"])
        more = {"tick": ["LeaveFailedTicks"], "reconcile_large": ["LeaveFailedPasses"]}.get(
            name, []
        )
        assert [one["Sid"] for one in document["Statement"][len(given) :]] == [*more, "WriteOwnLog"]


def _count(resources: Any) -> int:
    return len(resources) if isinstance(resources, list) else 1


@STAGES
def test_literal_policy_names_only_resources_of_its_stage(stage: str, folder: Path) -> None:
    policies = documents(load(stage), _graph(stage, folder))
    assert policies
    for role, document in policies.items():
        assert document["Statement"], role
        for statement in document["Statement"]:
            resources = statement["Resource"]
            for resource in resources if isinstance(resources, list) else [resources]:
                assert resource.startswith("arn:*:")
                service, name = resource.split(":")[2], resource.split(":", 5)[5]
                if service in ("eks", "sns"):  # clusters and topics are the user's
                    continue
                assert f"outscaler-{stage}" in name or f"outscaler/{stage}/" in name, resource
                assert service in ("secretsmanager", "ssm", "logs") or "*" not in name, resource


def test_vpc_tracing_and_key_rights_are_granted_only_on_request(folder: Path) -> None:
    graph, stage = _graph("dev", folder), load("dev")
    more = msgspec.structs.replace(
        graph,
        functions=tuple(
            msgspec.structs.replace(
                one, subnet_ids=["subnet-1"], security_group_ids=["sg-1"], xray=True
            )
            for one in graph.functions
        ),
    )
    for file, document in documents(_with_key(stage), more).items():
        sids = [one["Sid"] for one in document["Statement"]]
        assert {"AttachToVpc", "LookIntoVpc", "NotByCode", "SendTraces", "UseKmsKey"} <= set(
            sids
        ), file
        [key] = [one for one in document["Statement"] if one["Sid"] == "UseKmsKey"]
        assert (key["Resource"], list(key["Condition"])) == (KEY, ["StringLike"])
        assert "Fn::" not in json.dumps(document)
    plain = json.dumps(list(documents(stage, graph).values()))
    assert not [word for word in ("ec2:", "xray:", "kms:") if word in plain]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"provider": ["exoscale"]}, "unknown field"),
        ({"providers": "exoscale"}, r"Expected `array`"),
        ({"events_rate": "many"}, r"Expected `float`"),
    ],
)
def test_unknown_stage_setting_is_named(tmp_path: Path, section: Json, said: str) -> None:
    from chalicelib.model.errors import BadInput

    (tmp_path / ".chalice").mkdir()
    (tmp_path / ".chalice" / "config.json").write_text(
        json.dumps(
            {
                "stages": {
                    "dev": {
                        "environment_variables": {"OUTSCALER_PREFIX": "outscaler-dev"},
                        "outscaler": section,
                    }
                }
            }
        )
    )
    with pytest.raises(BadInput, match=said) as raised:
        load("dev", tmp_path)
    assert raised.value.place == ".chalice/config.json: stages.dev.outscaler"
