"""`outscaler uninstall` leaves nothing of Outscaler in a cluster, and nothing of
anybody else is touched.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from chalicelib.cli.commands.uninstall import LONGEST, UninstallClock, add_arguments, uninstall
from chalicelib.cli.main import main
from chalicelib.cli.policy_files import load_document
from chalicelib.model.errors import BadInput
from chalicelib.model.memory import GroupMemory, Memory
from chalicelib.model.node import DELETION_CANDIDATE, LEAVING_MARKS, TO_BE_DELETED
from chalicelib.model.operation import (
    CORDONED_ANNOTATION,
    OPERATION_ANNOTATION,
    Operation,
    OperationKind,
)
from chalicelib.model.policy_permissions import Deployment
from chalicelib.policy.load import load
from chalicelib.providers.cherryservers.tokens import LABEL, TYPE
from chalicelib.providers.clusterapi.models import DEFAULT_GROUP as CAPI
from chalicelib.providers.clusterapi.models import MARK_PREFIX, CapiAnnotations
from chalicelib.store import Store
from infra.emulators.aws import create_table
from infra.emulators.kube.auth import RbacRule
from infra.emulators.kube.server import ApiServer
from tests.functional.captured_clusters import served
from tests.operations import new_operation
from tests.unit.policy.policy_documents import AMBIGUOUS, GOOD

Said = pytest.CaptureFixture[str]
NOW = 1_795_000_000.0
TABLE = "outscaler-uninstall"
NAME = "prod-geneva"
MARK = CapiAnnotations().delete_machine
SOFT = {"key": DELETION_CANDIDATE, "value": "1794999000", "effect": "PreferNoSchedule"}
HARD = {"key": TO_BE_DELETED, "value": "1794999000", "effect": "NoSchedule"}
MARKS = [{"key": key, "value": "h1", "effect": "PreferNoSchedule"} for key in LEAVING_MARKS]
OTHER = {"key": "team.test/gpu", "value": "a", "effect": "NoSchedule"}


class Clock:
    """Virtual time, which sleeping advances."""

    def __init__(self) -> None:
        self.now = NOW

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def node(name: str, *taints: dict[str, str], cordon: bool = False, **notes: str) -> dict[str, Any]:
    annotations = {
        "node.alpha.test/ttl": "0",
        **{key.replace("__", "/"): value for key, value in notes.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"taints": list(taints), "unschedulable": cordon},
    }


def ours(name: str, *, cordoned: bool) -> dict[str, Any]:
    made = node(name, OTHER, HARD, cordon=True)
    made["metadata"]["annotations"] |= {OPERATION_ANNOTATION: "op-1"}
    if cordoned:
        made["metadata"]["annotations"] |= {CORDONED_ANNOTATION: "true"}
    return made


NODES = (
    ours("cordoned-by-us", cordoned=True),
    ours("cordoned-by-a-person", cordoned=False),
    node("soft", SOFT),
    node("marked", SOFT, OTHER, *MARKS),
    node("of-another-autoscaler", HARD),
    node("untouched", OTHER, cordon=True),
)


def growth() -> Operation:
    """An open operation."""
    return new_operation(
        id="op-7",
        cluster=NAME,
        provider="exoscale",
        group="web",
        kind=OperationKind.SCALE_UP,
        plan="plan-1",
        created_at=NOW,
        from_size=1,
        to_size=2,
    )


def token(name: str, labels: dict[str, str]) -> dict[str, Any]:
    meta = {"name": f"bootstrap-token-{name}", "namespace": "kube-system", "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "type": TYPE, "metadata": meta}


def machine(name: str, mark: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "capi", "annotations": {MARK: mark}}
    return {
        "apiVersion": f"{CAPI}/v1beta2",
        "kind": "Machine",
        "metadata": meta,
        "spec": {
            "clusterName": "prod",
            "bootstrap": {"dataSecretName": "boot"},
            "infrastructureRef": {
                "apiGroup": "infrastructure.test",
                "kind": "TestMachine",
                "name": name,
            },
        },
    }


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in {
        "AWS_DEFAULT_REGION": "eu-central-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "OUTSCALER_TABLE": TABLE,
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        create_table(boto3.client("dynamodb"), TABLE)
        store = Store(TABLE, clock=lambda: NOW)
        store.policies.put(NAME, GOOD, "d", None)
        yield store


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[ApiServer, Path]]:
    with served(tmp_path, NODES) as (server, kubeconfig):
        yield server, kubeconfig


def run(kubeconfig: Path, *more: str, clock: Clock | None = None) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args([NAME, "--kubeconfig", str(kubeconfig), *more])
    args.output = "json"
    clock = clock or Clock()
    return uninstall(args, UninstallClock(lambda: clock.now, clock.sleep))


def state(server: ApiServer, name: str) -> tuple[list[str], bool, dict[str, str]]:
    """(keys of taints, cordoned, annotations) of a node."""
    found = next(each for each in server.store.list("nodes") if each["metadata"]["name"] == name)
    taints = [taint["key"] for taint in found["spec"].get("taints") or ()]
    return (
        taints,
        bool(found["spec"].get("unschedulable")),
        found["metadata"].get("annotations") or {},
    )


def test_printed_next_command_uninstalls_what_was_shown(
    store: Store,
    cluster: tuple[ApiServer, Path],
    capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    store.deployment_settings().publish(Deployment(secret_prefix="outscaler/dev/"))
    monkeypatch.delenv("OUTSCALER_TABLE")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "another-cluster"))
    given = ("--kubeconfig", str(cluster[1]), "--table", TABLE, "--keep-soft-taints")
    assert main(["uninstall", NAME, *given]) == 0
    shown = capsys.readouterr().out
    assert f"Key=name,Values=outscaler/dev/{NAME}/" in shown
    [line] = [line for line in shown.splitlines() if "Next: outscaler " in line]
    assert main(shlex.split(line.split("Next: outscaler ")[1])) == 0
    assert "version 2 of the policy is archived" in capsys.readouterr().out
    assert state(cluster[0], "cordoned-by-us") == (
        [OTHER["key"]],
        False,
        {"node.alpha.test/ttl": "0"},
    )
    assert DELETION_CANDIDATE in state(cluster[0], "soft")[0], "it was to be kept"


def test_without_yes_uninstall_shows_everything_and_changes_nothing(
    store: Store, cluster: tuple[ApiServer, Path], capsys: Said
) -> None:
    before = json.dumps(cluster[0].store.list("nodes"), sort_keys=True)
    assert run(cluster[1]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in shown["cluster"]} == {
        "cordoned-by-us",
        "cordoned-by-a-person",
        "soft",
        "marked",
    }
    assert not shown["done"]
    assert json.dumps(cluster[0].store.list("nodes"), sort_keys=True) == before
    stored = store.policies.current(NAME)
    assert stored is not None
    assert stored.version == 1


@pytest.mark.parametrize("watched", [False, True])
def test_uninstall_names_the_watcher_where_there_is_one(
    watched: bool, store: Store, cluster: tuple[ApiServer, Path], capsys: Said
) -> None:
    document = yaml.safe_load(GOOD)
    document["spec"]["kubernetes"] |= (
        {"watcherSecret": f"outscaler/{NAME}/kubeconfig-watcher"} if watched else {}
    )
    store.policies.put(NAME, json.dumps(document), "w", 1)
    assert run(cluster[1]) == 0
    assert ("outscaler manifests watcher | kubectl delete" in capsys.readouterr().out) is watched


def test_uninstall_removes_what_is_ours_and_nothing_else(
    store: Store, cluster: tuple[ApiServer, Path]
) -> None:
    store.group_ownership.claim_groups(NAME, [("exoscale", "a")])
    store.group_ownership.claim_groups("other", [("exoscale", "b")])
    assert run(cluster[1], "--yes") == 0
    server = cluster[0]
    kept = {"node.alpha.test/ttl": "0"}
    assert state(server, "cordoned-by-us") == (["team.test/gpu"], False, kept)
    assert state(server, "cordoned-by-a-person") == (["team.test/gpu"], True, kept)
    assert state(server, "soft") == ([], False, kept)
    assert state(server, "of-another-autoscaler") == ([TO_BE_DELETED], False, kept)
    assert state(server, "untouched") == (["team.test/gpu"], True, kept)
    assert store.policies.current(NAME) is None
    assert store.group_ownership.owners() == {("exoscale", "b"): "other"}
    assert [each.version for each in store.policies.history(NAME)] == [2, 1]
    assert "mode: 'off'" in store.policies.history(NAME)[0].text


def test_uninstall_keeps_the_values_of_the_policy(
    store: Store, cluster: tuple[ApiServer, Path]
) -> None:
    store.policies.put(NAME, GOOD + AMBIGUOUS, "d2", 1)
    assert run(cluster[1], "--yes") == 0
    stored = store.policies.history(NAME)[0]
    assert stored.version == 3
    assert (
        load(stored.text, place="")[0]
        == load((GOOD + AMBIGUOUS).replace("mode: active", "mode: off"), place="")[0]
    )


def test_foreign_removes_taints_that_another_autoscaler_left(
    store: Store, cluster: tuple[ApiServer, Path]
) -> None:
    assert run(cluster[1], "--yes", "--foreign") == 0
    assert state(cluster[0], "of-another-autoscaler")[0] == []


def test_soft_taints_can_be_left_to_another_autoscaler(
    store: Store, cluster: tuple[ApiServer, Path]
) -> None:
    assert run(cluster[1], "--yes", "--keep-soft-taints") == 0
    assert state(cluster[0], "soft")[0] == [DELETION_CANDIDATE]


@pytest.mark.parametrize(
    ("options", "soft"),
    [((), []), (("--keep-soft-taints",), [DELETION_CANDIDATE])],
    ids=["all", "soft taints kept"],
)
def test_steer_7_uninstall_removes_marks_always_and_says_so(
    store: Store,
    cluster: tuple[ApiServer, Path],
    capsys: Said,
    options: tuple[str, ...],
    soft: list[str],
) -> None:
    assert run(cluster[1], *options) == 0
    assert state(cluster[0], "marked")[0] == [DELETION_CANDIDATE, OTHER["key"], *LEAVING_MARKS]
    shown = json.loads(capsys.readouterr().out)
    assert run(cluster[1], "--yes", *options) == 0
    removed = json.loads(capsys.readouterr().out)
    assert state(cluster[0], "marked")[0] == [*soft, OTHER["key"]]
    for said in (shown, removed):
        [marked] = [each for each in said["cluster"] if each["name"] == "marked"]
        assert [key for key in marked["what"] if key in LEAVING_MARKS] == list(LEAVING_MARKS)


def test_uninstall_can_be_repeated_and_applied_again(
    store: Store, cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    assert run(cluster[1], "--yes") == 0
    assert run(cluster[1], "--yes") == 0
    policy = tmp_path / "policy.yaml"
    policy.write_text(GOOD)
    capsys.readouterr()
    assert main(["apply", str(policy)]) == 0
    assert capsys.readouterr().out == f"{NAME}: created, version 3\n"


def test_uninstall_without_rights_keeps_the_policy_and_names_the_nodes(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    reading = RbacRule(verbs=("get", "list"), groups=("",), resources=("nodes", "secrets"))
    with served(tmp_path, NODES, [reading]) as (_, kubeconfig):
        assert run(kubeconfig, "--yes") == 1
    said = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in said["failures"]} >= {
        "cordoned-by-us",
        "cordoned-by-a-person",
        "soft",
    }
    stored = store.policies.current(NAME)
    assert stored is not None
    assert "mode: 'off'" in stored.text


def test_uninstall_waits_for_operations_that_the_vendor_was_told(
    store: Store, cluster: tuple[ApiServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    lease = store.leases.acquire(NAME, "pass", 60)
    before = store.memory.load(NAME)
    store.memory.save(NAME, before, before, (growth(),), lease)
    store.leases.release(lease)
    with pytest.raises(BadInput, match="1 operations are still open: op-7"):
        run(cluster[1], "--yes", clock=clock)
    assert clock.now >= NOW + LONGEST
    stored = store.policies.current(NAME)
    assert stored is not None
    assert "mode: 'off'" in stored.text
    assert OPERATION_ANNOTATION in state(cluster[0], "cordoned-by-us")[2]


def with_cherry(*, tokens: bool) -> str:
    """The policy with Cherry Servers, which has bootstrap tokens made or
    names a secret with one."""
    document = yaml.safe_load(GOOD)
    kept = {"bootstrapTokenSecret": f"outscaler/{NAME}/cherryservers-token"}
    place = {
        "projectId": "1",
        "region": "LT-Siauliai",
        "plan": "e5_1620v4",
        "os": "ubuntu_24_04_64bit",
    }
    document["spec"]["providers"]["cherryservers"] = {
        "credentialsSecret": f"outscaler/{NAME}/cherryservers",
        "clusterName": "prod",
        "nodes": ["0:3:web"],
        "nodeGroupDefs": {
            "default": {**place, "apiServerEndpoint": "203.0.113.1:6443", "cloudInit": "#!/bin/sh"}
        },
        **({"createBootstrapTokens": True} if tokens else kept),
    }
    text = json.dumps(document)
    load_document(text, "policy")
    return text


def test_uninstall_removes_bootstrap_tokens_of_ours_only(store: Store, tmp_path: Path) -> None:
    store.policies.put(NAME, with_cherry(tokens=True), "w", 1)
    with served(tmp_path, NODES) as (server, kubeconfig):
        server.store.load("secrets", [token("outsc0", {LABEL: "true"}), token("outsc1", {})])
        assert run(kubeconfig, "--yes") == 0
        assert [each["metadata"]["name"] for each in server.store.list("secrets")] == [
            "bootstrap-token-outsc1"
        ]


def test_uninstall_asks_for_no_secret_where_the_policy_makes_no_tokens(
    store: Store, tmp_path: Path
) -> None:
    store.policies.put(NAME, with_cherry(tokens=False), "w", 1)
    with served(tmp_path, NODES) as (server, kubeconfig):
        assert run(kubeconfig, "--yes") == 0
        assert [each.path for each in server.requests if "/secrets" in each.path] == []


def test_uninstall_removes_delete_marks_of_ours_only(store: Store, tmp_path: Path) -> None:
    with served(tmp_path, NODES) as (server, kubeconfig):
        server.store.load(
            "machines", [machine("a", f"{MARK_PREFIX}op-1"), machine("b", "by a person")], CAPI
        )
        assert run(kubeconfig, "--yes") == 0
        marks = [
            each["metadata"].get("annotations")
            for each in server.store.list("machines", group=CAPI)
        ]
        assert marks == [None, {MARK: "by a person"}]


def test_uninstall_of_an_unknown_cluster_is_refused(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    assert main(["uninstall", "nowhere", "--without-cluster"]) == 2
    assert (
        capsys.readouterr().err == "nowhere: no such cluster; outscaler get clusters lists them\n"
    )


def test_uninstall_of_a_lost_cluster_archives_the_policy(store: Store, capsys: Said) -> None:
    assert main(["uninstall", NAME, "--without-cluster", "--yes"]) == 0
    assert store.policies.current(NAME) is None
    assert "version 2 of the policy is archived" in capsys.readouterr().out


OWN_GROUP = "osc-c5f524-general-bc37acc1c6"


def remember_group(store: Store, nodes: int) -> None:
    """A pass has seen a group that Outscaler has made."""
    lease = store.leases.acquire(NAME, "pass", 60)
    before = store.memory.load(NAME)
    memory = Memory(groups={OWN_GROUP: GroupMemory(target=nodes, first_seen=NOW)})
    store.memory.save(NAME, before, memory, (), lease)
    store.leases.release(lease)


def test_pool_55_uninstall_with_live_groups_asks_what_becomes_of_them(
    store: Store, cluster: tuple[ApiServer, Path], capsys: Said
) -> None:
    _, kubeconfig = cluster
    remember_group(store, 3)
    with pytest.raises(BadInput, match="1 node groups that Outscaler has made have 3 nodes"):
        run(kubeconfig, "--yes")
    assert store.policies.current(NAME) is not None
    words = ("uninstall", NAME, "--kubeconfig", str(kubeconfig), "--managed", "hand-over")
    assert main([*words, "--yes"]) == 0
    assert f"- {{id: {OWN_GROUP}, min: 0, max: 3}}" in capsys.readouterr().out


def test_uninstall_asks_nothing_about_groups_without_nodes(
    store: Store, cluster: tuple[ApiServer, Path]
) -> None:
    _, kubeconfig = cluster
    remember_group(store, 0)
    assert run(kubeconfig, "--yes") == 0
