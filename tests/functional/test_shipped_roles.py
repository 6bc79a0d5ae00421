"""Each shipped role with its documented policy passes `outscaler doctor`, `apply` and `uninstall`;
and each rule that is taken out of one is a single finding that prints the rule and its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from chalicelib.cli.commands.manifests import manifest_name
from chalicelib.cli.deployment_settings import Login, save_login
from chalicelib.cli.doctor.finding import DoctorContext, Severity
from chalicelib.cli.doctor.permissions import check_permissions, check_superfluous
from chalicelib.cli.main import main
from chalicelib.cli.policy_files import load_document
from chalicelib.model.policy_permissions import PublishedSettings
from chalicelib.store import Store
from infra.emulators.aws import create_table
from infra.emulators.kube.auth import RbacRule, granted
from tests.functional.doctor_cases import ACCOUNT, NOW, no_secret
from tests.functional.role_cases import (
    CASES,
    EVERYWHERE,
    NAMESPACED,
    TOKENS,
    WORKLOAD,
    Manifest,
    RoleCase,
    stage,
)
from tests.providers.clusterapi.objects import GROUP, deployment
from tests.source_trees import ROOT

Said = pytest.CaptureFixture[str]
TABLE = "outscaler-roles"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": TABLE,
        "KUBECONFIG": "none",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        create_table(boto3.client("dynamodb"), TABLE)
        yield Store(TABLE, clock=lambda: 1_795_000_000.0)


def ran(capsys: Said, *words: str) -> tuple[int, Any]:
    """Run a command; return its exit code and its JSON, with what it said on standard
    error as a note of a failure."""
    capsys.readouterr()
    code = main([*words, "-o", "json"])
    said = capsys.readouterr()
    assert said.out, said.err
    return code, json.loads(said.out)


def test_every_file_with_roles_has_a_case() -> None:
    folder = ROOT / "infra" / "kubernetes"
    shipped = {
        path.name for path in folder.glob("*.yaml") if "kind: RoleBinding" in path.read_text()
    }
    shipped |= {
        path.name
        for path in folder.glob("*.yaml")
        if "kind: ClusterRoleBinding" in path.read_text()
    }
    assert shipped == {file for case in CASES.values() for file in case.files}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_shipped_role_suffices_for_doctor_apply_and_uninstall(
    case: RoleCase, store: Store, tmp_path: Path, capsys: Said
) -> None:
    with stage(case, tmp_path) as there:
        common = (*there.clusters, *there.given, "--vpc")
        code, found = ran(capsys, "doctor", "--policy", str(there.policy), *common)
        assert [each for each in found if each["severity"] == "error"] == []
        assert [
            each for each in found if each["id"] in ("DR04", "DR27") and each["severity"] == "warn"
        ] == []
        assert code == 0
        assert ran(capsys, "apply", str(there.policy), *common)[0] == 0
        there.refused()
        kept = "\n".join(
            ran(capsys, "uninstall", "prod", *there.clusters, "--keep-status")[1]["remains"]
        )
        assert "manifests rbac | kubectl delete" not in kept
        assert "delete configmap" not in kept
        assert there.refused() == []
        code, said = ran(capsys, "uninstall", "prod", *there.clusters, "--yes")
        assert code == 0, said
        left = [server.store for server in there.servers]
    assert said["failures"] == []
    [node] = left[0].list("nodes")
    assert (node["spec"].get("taints"), node["metadata"].get("annotations")) == (None, None)
    machines = left[-1].list("machines", group=case.capi_group) if case.capi_group else []
    assert [each for each in machines if each["metadata"].get("annotations")] == []
    assert [each for each in left[0].list("secrets") if "token-secret" in each["data"]] == []
    # A token may be ended with the shipped role, and not deleted.
    assert [
        each
        for each in there.refused()
        if "DELETE /api/v1/namespaces/kube-system/secrets" not in each
    ] == []
    assert {each["name"] for each in said["cluster"]} >= {"n-0"}
    assert store.policies.current("prod") is None
    commands = "\n".join(said["remains"])
    moved = NAMESPACED in case.files and case.capi_namespace != "default"
    assert ("manifests rbac-capi | kubectl" in commands) is (NAMESPACED in case.files and not moved)
    assert (
        f"-n {case.capi_namespace} delete role,rolebinding outscaler-cluster-api" in commands
    ) is moved
    assert ("kubectl --context MANAGEMENT " in commands) is bool(case.management)
    for file in case.files:
        assert [
            line
            for line in said["remains"]
            if re.search(rf"outscaler manifests {manifest_name(file)}( |$)", line)
        ], file


def without(rules: Sequence[RbacRule], number: int) -> list[RbacRule]:
    return [*rules[:number], *rules[number + 1 :]]


def is_needed(case: RoleCase, at: int, rule: RbacRule) -> bool:
    """Whether the policy needs a rule of its role: some are for options that it has
    not set, as the files say."""
    spec: Any = case.spec
    options = spec.get("options", {})
    rules = case.vendor == "huaweicloud" or spec.get("scaleUp", {}).get(
        "horizontalNodeAutoscalers", False
    )
    reads_changes = spec.get("reading") != "full" and "watcherSecret" not in spec.get(
        "kubernetes", {}
    )
    return (
        (rule.verbs != ("watch",) or reads_changes)
        and ("horizontalnodeautoscalers" not in rule.resources or rules)
        and (
            "cluster-autoscaler-priority-expander" not in rule.names
            or options.get("expander") == "priority"
        )
        and (
            not any("status" in name for name in rule.names)
            or options.get("writeStatusConfigmap", True)
        )
    )


def role_of(case: RoleCase, rule: RbacRule) -> tuple[str, str]:
    """The file and the name of the role that grants a rule."""
    if case.capi_group and rule.groups == (case.capi_group,):
        return NAMESPACED if rule.namespaces else EVERYWHERE, "outscaler-cluster-api"
    if rule.resources == ("secrets",):
        return TOKENS, "outscaler-bootstrap-tokens"
    return WORKLOAD, "outscaler-node-autoscalers" if "horizontal" in rule.resources[
        0
    ] else "outscaler"


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_each_rule_that_a_shipped_role_lacks_is_one_finding_with_its_place(
    case: RoleCase, tmp_path: Path
) -> None:
    unneeded, asked = 0, 0
    with stage(case, tmp_path) as there:
        policy, _ = load_document(there.policy.read_text(), "policy")
        clients = there.clients()
        given = DoctorContext(
            policy=policy,
            clock=lambda: NOW,
            read_secret=no_secret,
            workload=clients[0],
            management=clients[1] if len(clients) > 1 else None,
        )
        assert list(check_permissions(given)) == []
        for at in range(len(clients)):
            rules = there.rules(at)
            for number, rule in enumerate(rules):
                there.permit(at, without(rules, number))
                found = list(check_permissions(given))
                if not is_needed(case, at, rule):
                    unneeded += 1
                    assert found == []
                    continue
                asked += 1
                [finding] = found
                head, _, printed = finding.fix.partition("\n")
                [entry] = yaml.safe_load(printed)
                assert tuple(entry["apiGroups"]) == rule.groups
                assert set(entry["resources"]) == set(rule.resources)
                assert set(entry["verbs"]) == set(rule.verbs)
                assert set(entry.get("resourceNames", ())) == set(rule.names)
                role = (
                    f"Role {{}} in namespace {rule.namespaces[0]}:"
                    if rule.namespaces
                    else "ClusterRole {}:"
                )
                assert head.endswith(role.format(role_of(case, rule)[1])), head
                assert f"outscaler manifests {manifest_name(role_of(case, rule)[0])} " in head
                assert case.capi_group in ("", GROUP) or GROUP not in printed
                assert finding.evidence["place"] == ("management" if at else "workload")
            there.permit(at, rules)
    assert asked > 12


@pytest.mark.parametrize("words", ["one namespace", "all namespaces"])
def test_a_machine_template_that_may_not_be_read_is_a_finding_with_its_rule(
    words: str, tmp_path: Path, capsys: Said
) -> None:
    case = CASES[f"clusterapi here, {words}, default group"]
    with stage(case, tmp_path) as there:
        empty = deployment("empty", namespace=case.capi_namespace, replicas=0)
        empty["spec"]["template"]["spec"]["infrastructureRef"].update(
            kind="LocalMachineTemplate", name="t"
        )
        there.servers[0].store.load("machinedeployments", [empty], GROUP)
        status = {"capacity": {"cpu": "4", "memory": "8Gi"}}
        template = {
            "metadata": {"name": "t", "namespace": case.capi_namespace},
            "spec": {},
            "status": status,
        }
        there.servers[0].store.load(
            "localmachinetemplates", [template], "infrastructure.cluster.x-k8s.io"
        )
        command = ("doctor", "--policy", str(there.policy), *there.clusters, *there.given, "--vpc")

        def lacking() -> list[Any]:
            return [each for each in ran(capsys, *command)[1] if each["id"] == "DR16"]

        [finding] = lacking()
        head, _, printed = finding["fix"].partition("\n")
        role = (
            "Role outscaler-cluster-api in namespace prod:"
            if case.capi_namespace == "prod"
            else "ClusterRole"
        )
        assert role in head
        [entry] = yaml.safe_load(printed)
        space = () if "all" in words else (case.capi_namespace,)
        added = RbacRule(
            tuple(entry["verbs"]), tuple(entry["apiGroups"]), tuple(entry["resources"]), space
        )
        there.permit(0, [*there.rules(0), added])
        assert lacking() == []


def test_a_role_for_all_namespaces_is_superfluous_where_the_policy_names_one(
    tmp_path: Path,
) -> None:
    case = CASES["clusterapi elsewhere, one namespace, default group"]
    with stage(case, tmp_path) as there:
        policy, _ = load_document(there.policy.read_text(), "policy")
        workload, management = there.clients()
        given = DoctorContext(
            policy=policy,
            clock=lambda: NOW,
            read_secret=no_secret,
            workload=workload,
            management=management,
        )
        assert list(check_superfluous(given)) == []
        wide = granted(Manifest(EVERYWHERE).documents(), ACCOUNT)
        there.permit(1, wide)
        [finding] = check_superfluous(given)
        assert list(check_permissions(given)) == []
    assert (finding.id, finding.severity) == ("DR05", Severity.INFO)
    assert "the policy names prod" in finding.message
    assert "outscaler manifests rbac-capi > " in finding.fix


@pytest.mark.parametrize("kind", ["secretsmanager", "ssm"])
@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("exoscale", ("--provider", "exoscale", "--location", "ch-gva-2")),
        (
            "clusterapi here, all namespaces, default group",
            ("--provider", "clusterapi", "--location", "c1"),
        ),
    ],
)
@pytest.mark.parametrize("way", ["prefix", "login"])
def test_doctor_and_validate_accept_the_steps_of_the_readme(
    name: str,
    answers: tuple[str, ...],
    kind: str,
    way: str,
    tmp_path: Path,
    capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("OUTSCALER_TABLE", "OUTSCALER_SECRET_PREFIX", "OUTSCALER_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OUTSCALER_PROFILE", str(tmp_path / "profile.json"))
    monkeypatch.setenv("KUBECONFIG", "none")
    if way == "prefix":
        monkeypatch.setenv("OUTSCALER_PREFIX", "outscaler-dev")
    else:
        save_login(
            Login(
                "dev",
                "outscaler-dev-state",
                region="eu-central-2",
                settings=PublishedSettings("outscaler/dev/"),
            )
        )
    policy = tmp_path / "prod.yaml"
    assert main(["init", str(policy), "--name", "prod", "--secret-store", kind, *answers]) == 0
    assert "outscaler/dev/prod/kubeconfig" in policy.read_text()
    with stage(CASES[name], tmp_path, mode="shadow") as there:
        assert main(["validate", "--strict", str(policy)]) == 0
        code, found = ran(
            capsys, "doctor", "--policy", str(policy), "--kubeconfig", there.clusters[1], "--vpc"
        )
    assert [each for each in found if each["severity"] == "error"] == []
    assert code == 0
    unread = [each["message"] for each in found if each["id"] == "DR27"]
    given = "secret outscaler" if kind == "secretsmanager" else "parameter /outscaler"
    assert unread == ([f"{given}/dev/prod/exoscale is not given"] if name == "exoscale" else [])
    assert "nauthorized" not in json.dumps(found)
