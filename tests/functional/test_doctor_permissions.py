"""`outscaler doctor` asks for the rights that Outscaler uses, and names
exactly the missing rule.
"""

from __future__ import annotations

import json

import msgspec
import pytest
import yaml

from chalicelib.cli.doctor.finding import Severity
from chalicelib.cli.doctor.needed_rules import ALL_FILES, needed_rules
from chalicelib.cli.doctor.permissions import (
    check_admission,
    check_permissions,
    check_superfluous,
    rule_yaml,
)
from chalicelib.cli.doctor.registry import examine
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairRule
from infra.emulators.kube.auth import RbacRule
from infra.emulators.kube.faults import KubeFault
from tests.cases import each_row
from tests.functional.doctor_cases import (
    ACTIVE,
    SHADOW,
    cluster,
    context,
    rules_of,
    told,
    with_options,
)
from tests.functional.saved_cluster import node

EVERYTHING = msgspec.structs.replace(
    with_options(ACTIVE, expander=("priority",)),
    providers={
        "clusterapi": {},
        "cherryservers": {"createBootstrapTokens": "true"},
        "huaweicloud": {},
    },
    node_lifecycle=NodeLifecycle(repair=(RepairRule("KernelDeadlock", 600.0),)),
)


# Everything at once: rbac-capi-management.yaml is the only file of Cluster
# API that this policy needs.
FILES = tuple(file for file in ALL_FILES if file != "rbac-capi-namespaced.yaml")


def test_DOC_1_exactly_our_rights_have_no_finding() -> None:
    with cluster(rules=rules_of(*FILES)) as (server, kube):
        given = context(kube, EVERYTHING)
        before = len(server.requests)
        assert list(check_permissions(given)) == []
        asked = [
            each
            for each in list(server.requests)[before:]
            if "selfsubjectaccessreviews" in each.path
        ]
        rules = needed_rules(EVERYTHING)
        assert len(asked) == sum(
            len(r.resources) * len(r.verbs) * max(1, len(r.names)) for r in rules
        )
        assert list(check_superfluous(given)) == []


def test_rows_are_the_rules_of_the_manifests() -> None:
    rules = needed_rules(EVERYTHING)
    rows = {
        (r.group, frozenset(r.resources), frozenset(r.verbs), frozenset(r.names), r.namespace)
        for r in rules
    }
    shipped = {
        (
            r.groups[0],
            frozenset(r.resources),
            frozenset(r.verbs),
            frozenset(r.names),
            "".join(r.namespaces),
        )
        for r in rules_of(*FILES)
    }
    assert rows == shipped
    assert len(rows) > 20
    for rule in rules:
        assert yaml.safe_load(rule_yaml(rule))[0]["verbs"] == list(rule.verbs)


def test_right_to_list_health_checks_is_optional_and_only_asked_for_repairs() -> None:
    for lifecycle, needed in (
        (None, False),
        (NodeLifecycle(), False),
        (EVERYTHING.node_lifecycle, True),
    ):
        rules = needed_rules(msgspec.structs.replace(EVERYTHING, node_lifecycle=lifecycle))
        found = [rule for rule in rules if rule.resources == ("machinehealthchecks",)]
        assert [rule.required for rule in found] == [False] * needed


def test_rights_to_change_are_a_warning_before_mode_active() -> None:
    lists = [rule for rule in rules_of("rbac-workload.yaml") if rule.verbs == ("list",)]
    with cluster(rules=lists) as (_, kube):
        assert set(told(check_permissions, context(kube, SHADOW))) == {"DR04 warn"}
        assert "DR04 error" in told(check_permissions, context(kube, ACTIVE))


def test_a_rule_that_the_policy_does_not_use_is_not_asked_for() -> None:
    kept = [
        rule
        for rule in rules_of("rbac-workload.yaml")
        if "horizontalnodeautoscalers" not in rule.resources
    ]
    with cluster(rules=kept) as (_, kube):
        assert list(check_permissions(context(kube, ACTIVE))) == []


def test_DOC_5_create_by_name_only_is_not_enough() -> None:
    rules = [
        rule
        for rule in rules_of(*FILES)
        if rule.verbs != ("create",) or rule.resources != ("secrets",)
    ]
    named = RbacRule(
        verbs=("create",), groups=("",), resources=("secrets",), names=("bootstrap-token-outsc0",)
    )
    with cluster(rules=[*rules, named]) as (_, kube):
        [finding] = check_permissions(context(kube, EVERYTHING, snapshot=None))
    assert "RBAC cannot limit create to names" in finding.message


def test_DOC_3_an_authoriser_that_cannot_list_its_rules_gives_the_same_answer() -> None:
    incomplete = json.dumps({"status": {"resourceRules": [], "incomplete": True}}).encode()
    with cluster(rules=rules_of(*FILES)) as (server, kube):
        server.faults.add(
            KubeFault("POST", "selfsubjectrulesreviews", status=201, body=incomplete, times=100)
        )
        assert list(check_permissions(context(kube, EVERYTHING))) == []


def test_superfluous_rights_are_told() -> None:
    with cluster() as (_, kube):
        [finding] = check_superfluous(context(kube))
    assert (finding.id, finding.severity) == ("DR05", Severity.INFO)
    assert "delete pods" in finding.message
    assert "list secrets" in finding.message


@each_row("status, words", [(401, "Unauthorized"), (404, "not found"), (500, "")])
def test_DOC_4_reviews_that_fail_are_unknown_and_never_good(status: int, words: str) -> None:
    body = json.dumps({"kind": "Status", "message": words, "code": status}).encode()
    with cluster([node("a", "g")]) as (server, kube):
        given = context(kube)
        server.faults.add(
            KubeFault("POST", "selfsubjectaccessreviews", status=status, body=body, times=1000)
        )
        assert set(told(check_permissions, given)) == {"DR04 unknown"}


def test_DOC_4_an_unreachable_cluster_is_one_error_and_the_rest_unknown() -> None:
    found = examine(context(None, snapshot=None, unreachable=(("workload", "no route to host"),)))
    errors = [each for each in found if each.severity is Severity.ERROR]
    assert [each.message for each in errors] == ["workload: no route to host"]
    unasked = {each.id for each in found if each.severity is Severity.UNASKED}
    assert {"DR04", "DR07", "DR15", "DR18", "DR21", "DR25"} <= unasked


@pytest.mark.parametrize("probe", [False, True])
def test_DOC_6_admission_is_asked_with_a_dry_run_only_if_wanted(probe: bool) -> None:
    refusal = json.dumps(
        {
            "kind": "Status",
            "message": 'admission webhook "taints.test" denied: no taints',
            "code": 403,
        }
    ).encode()
    with cluster([node("a", "g")]) as (server, kube):
        given = context(kube, probe=probe)
        server.faults.add(KubeFault("PATCH", "nodes/a", status=403, body=refusal, times=10))
        [finding] = check_admission(given)
        if probe:
            assert finding.severity is Severity.ERROR
            assert "no taints" in finding.message
        else:
            assert finding.severity is Severity.UNASKED
            assert not [each for each in server.requests if each.method == "PATCH"]


def test_a_dry_run_of_a_taint_changes_nothing() -> None:
    with cluster([node("a", "g")]) as (server, kube):
        given = context(kube, probe=True)
        before = server.store.list("nodes")
        assert list(check_admission(given)) == []
        assert server.store.list("nodes") == before
