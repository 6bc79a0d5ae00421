"""Every wildcard in a deployed role is documented in docs/security.md with its
reason, and no other one is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest

from chalicelib.runtime.messages import PROVIDERS
from infra.aws.package import ROOT
from tests.functional.artifact import artifact
from tests.functional.resolved_template import EVERYTHING, resolve
from tests.functional.stack import ACT

SECURITY = ROOT / "docs" / "security.md"
ROLES = {
    "ApiHandlerRole": "API",
    "TickRole": "tick",
    "ReconcileRole": "reconcile",
    "ReconcileLargeRole": "reconcile",
    **{f"{logical}Role": name for logical, name in ACT.items()},
}


def _documents(template: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(role, policy document) of every role and every policy in the template."""
    found = []
    for logical, one in template["Resources"].items():
        if one["Type"] == "AWS::IAM::Role":
            assert not one["Properties"].get("ManagedPolicyArns"), (
                "a managed policy has wildcards of its own"
            )
            found += [
                (logical, policy["PolicyDocument"]) for policy in one["Properties"]["Policies"]
            ]
        elif one["Type"] == "AWS::IAM::Policy":
            found += [
                (role["Ref"], one["Properties"]["PolicyDocument"])
                for role in one["Properties"]["Roles"]
            ]
    return found


def _texts(value: object) -> list[str]:
    """Every text in a part of a policy."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]


def _with_names(stage: str) -> dict[str, Any]:
    """The template with its parameters' defaults; names known to the
    documents are left unchanged."""
    return resolve(
        artifact().sam(stage), SecretPrefix="${SecretPrefix}", EksClusters="${EksClusters}"
    )


def _deployed(stage: str) -> dict[str, set[str]]:
    """Wildcard -> the roles that have it. The common prefix of all ARNs of this
    account and region is left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for role, document in _documents(_with_names(stage)):
        for statement in document["Statement"]:
            assert statement["Effect"] == "Allow"
            assert not statement.keys() & {"NotAction", "NotResource"}
            assert not [text for text in _texts(statement["Action"]) if "*" in text], role
            for text in _texts(statement["Resource"]):
                if "*" in text:
                    short = text.removeprefix("arn:${AWS::Partition}:")
                    found[
                        short.removeprefix("secretsmanager:${AWS::Region}:${AWS::AccountId}:")
                    ].add(ROLES[role])
    return dict(found)


def _documented() -> dict[str, set[str]]:
    """The same, of the table; PROVIDER stands for each of the providers."""
    section = SECURITY.read_text("utf-8").partition("\n## IAM\n")[2].partition("\n## ")[0]
    table = section.partition("| Resource | Roles | Reason |\n|---|---|---|\n")[2].partition(
        "\n\n"
    )[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows
    assert all(len(reason) > 5 for _, _, reason in rows)
    everyone = ", ".join(ACT.values())
    return {
        resource.replace("PROVIDER", provider): set(
            roles.replace("act (each)", everyone).replace("PROVIDER", provider).split(", ")
        )
        for resources, roles, _ in rows
        for resource in re.findall(r"`([^`]+)`", resources)
        for provider in (PROVIDERS if "PROVIDER" in resource else ("",))
    }


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_exactly_the_wildcards_of_roles_are_documented_with_reasons(stage: str) -> None:
    assert _deployed(stage) == _documented()


def test_deployed_policies_are_short_enough_for_a_role() -> None:
    """Inline policies of a role may have 10,240 characters in total, without white space."""
    found = list(_documents(resolve(artifact().sam("prod"), **EVERYTHING)))
    assert found
    for role, document in found:
        assert len(re.sub(r"\s", "", str(document))) < 6_000, role
