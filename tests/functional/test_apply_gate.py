"""`outscaler apply` checks a policy before it becomes active, and refuses errors unless
a person gives a reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
import yaml
from moto import mock_aws

from chalicelib.cli.main import main
from chalicelib.model.memory import GroupMemory, Memory, ScaleUpRequest
from chalicelib.store import Store
from infra.emulators.aws import create_table
from infra.emulators.kube.crds import KARPENTER, load
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from infra.emulators.other_autoscaler import MachineDeploymentGroups
from tests.functional.role_cases import CASES, stage
from tests.functional.saved_cluster import pod
from tests.functional.test_doctor_autoscalers import lease
from tests.functional.test_doctor_karpenter import node_pool
from tests.processes import PATIENCE
from tests.providers.clusterapi.management import fill, management
from tests.scenario.policies import refusal

Said = pytest.CaptureFixture[str]
Hold = Callable[[], None]
TABLE = "outscaler-gate"


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
        yield Store(TABLE, clock=lambda: 1_795_000_000.0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[ApiServer, Path]]:
    """A cluster with one MachineDeployment of two nodes."""
    with management() as there:
        fill(there, 2)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(there.server.kubeconfig("admin"))
        yield there.server, kubeconfig


def policy(folder: Path, mode: str) -> str:
    path = folder / f"{mode}.yaml"
    document = {
        "apiVersion": "outscaler.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": "prod"},
        "spec": {
            "mode": mode,
            "kubernetes": {"kubeconfigSecret": "outscaler/prod/kubeconfig"},
            "providers": {"clusterapi": {"namespace": "default"}},
        },
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.fixture
def hold_lease(cluster: tuple[ApiServer, Path]) -> Iterator[Hold]:
    """Renews the lease of a Cluster Autoscaler until the end of the test, by the clock of this
    computer, as commands judge it."""
    ended = threading.Event()

    def renew() -> None:
        held = lease()
        held["spec"]["renewTime"] = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        cluster[0].store.load("leases", [held], "coordination.k8s.io")

    def hold() -> None:
        while not ended.wait(1.0):
            renew()

    thread = threading.Thread(target=hold, daemon=True)

    def begin() -> None:
        renew()
        thread.start()

    yield begin
    ended.set()
    if thread.ident is not None:
        thread.join(PATIENCE)


def test_active_is_stored_if_the_doctor_finds_no_error(
    store: Store, cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    file = policy(tmp_path, "active")
    assert main(["apply", file, "--kubeconfig", str(cluster[1]), "--vpc"]) == 0, (
        capsys.readouterr().err
    )
    assert capsys.readouterr().out == "prod: created, version 1\n"


def test_active_is_refused_while_another_autoscaler_holds_its_lease(
    store: Store, cluster: tuple[ApiServer, Path], hold_lease: Hold, tmp_path: Path, capsys: Said
) -> None:
    hold_lease()
    file, kubeconfig = policy(tmp_path, "active"), ("--kubeconfig", str(cluster[1]), "--vpc")
    assert main(["apply", file, *kubeconfig]) == 2
    [line] = [
        each for each in capsys.readouterr().err.splitlines() if each.startswith("mode active")
    ]
    assert "DR07: Lease kube-system/cluster-autoscaler was renewed" in line
    assert "--accept-findings REASON" in line
    assert store.policies.current("prod") is None
    assert main(["apply", file, *kubeconfig, "--accept-findings", "it scales other groups"]) == 0
    [entry] = [each for each in store.journal.recent("prod", 10) if each.kind == "policy"]
    assert entry.facts["accepted"] == "DR07"
    assert entry.facts["reason"] == "it scales other groups"


def test_active_is_refused_beside_node_pools_of_karpenter_for_the_same_pods(
    store: Store, cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    load(cluster[0].store, KARPENTER)
    cluster[0].store.load("nodepools", [node_pool()], "karpenter.sh")
    cluster[0].store.load("pods", [pod("web-1", "1")])
    file, kubeconfig = policy(tmp_path, "active"), ("--kubeconfig", str(cluster[1]), "--vpc")
    assert main(["apply", file, *kubeconfig]) == 2
    assert "DR07: NodePools of Karpenter (default) make nodes for pods" in capsys.readouterr().err
    assert main(["apply", file, *kubeconfig, "--accept-findings", "it ends today"]) == 0


def test_a_refusal_has_the_whole_remedy_of_each_finding(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    case = CASES["clusterapi here, one namespace, default group"]
    with stage(case, tmp_path) as there:
        rules = there.rules(0)
        lacking = [each for each in rules if each.resources in (("pods/eviction",), ("machines",))]
        there.permit(0, [each for each in rules if each not in lacking])
        command = ["apply", str(there.policy), *there.clusters, *there.given, "--vpc"]
        assert main(command) == 2
        lines = [
            each
            for each in capsys.readouterr().err.splitlines()
            if each.startswith("mode active: DR04")
        ]
    assert len(lines) == len(lacking) == 2
    for line, role, rule in zip(
        lines,
        ("ClusterRole outscaler", "Role outscaler-cluster-api in namespace prod"),
        lacking,
        strict=True,
    ):
        granted, _, rest = line.partition(f", which grants in {role}: ")[2].partition(
            "; or accept it: "
        )
        assert rest == "--accept-findings REASON"
        [entry] = yaml.safe_load(granted)
        assert (tuple(entry["resources"]), tuple(entry["verbs"])) == (rule.resources, rule.verbs)


def test_shadow_is_stored_beside_another_autoscaler(
    store: Store, cluster: tuple[ApiServer, Path], hold_lease: Hold, tmp_path: Path
) -> None:
    hold_lease()
    assert main(["apply", policy(tmp_path, "shadow"), "--kubeconfig", str(cluster[1])]) == 0


def test_a_policy_that_is_active_already_is_not_checked_again(
    store: Store, cluster: tuple[ApiServer, Path], hold_lease: Hold, tmp_path: Path
) -> None:
    file = policy(tmp_path, "active")
    assert main(["apply", file, "--kubeconfig", str(cluster[1]), "--vpc"]) == 0
    hold_lease()
    changed = Path(file).read_text() + "  scanInterval: 2m\n"
    Path(file).write_text(changed)
    assert main(["apply", file, "--kubeconfig", str(cluster[1]), "--vpc"]) == 0


def test_active_is_stored_with_a_warning_while_machines_are_on_their_way(
    store: Store, cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    MachineDeploymentGroups(cluster[0].store).grow("MachineDeployment/default/md-0", 2)
    assert (
        main(["apply", policy(tmp_path, "active"), "--kubeconfig", str(cluster[1]), "--vpc"]) == 0
    )
    assert (
        "2 machines are on their way (MachineDeployment/default/md-0 2)" in capsys.readouterr().err
    )


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_policy_that_ceases_to_be_active_names_own_machines_on_their_way(
    store: Store, cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said, mode: str
) -> None:
    assert (
        main(["apply", policy(tmp_path, "active"), "--kubeconfig", str(cluster[1]), "--vpc"]) == 0
    )
    assert main(["apply", policy(tmp_path, mode)]) == 0
    assert "on their way" not in capsys.readouterr().err
    assert (
        main(["apply", policy(tmp_path, "active"), "--kubeconfig", str(cluster[1]), "--vpc"]) == 0
    )
    request = ScaleUpRequest(3, 1_795_000_000.0, 1_795_000_900.0)
    memory = Memory(groups={"web": GroupMemory(target=5, request=request)})
    store.memory.save("prod", Memory(), memory, (), store.leases.acquire("prod", "test", 60))
    assert main(["apply", policy(tmp_path, mode)]) == 0
    said = capsys.readouterr().err
    assert (
        "prod: 3 machines are on their way (web 3): start another autoscaler when they are nodes"
        in said
    )


def test_a_cluster_that_cannot_be_reached_is_a_warning(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    assert main(["apply", policy(tmp_path, "active")]) == 0
    assert "not checked before mode active" in capsys.readouterr().err


def test_without_a_kubeconfig_the_deployment_s_secret_is_used(
    store: Store, cluster: tuple[ApiServer, Path], hold_lease: Hold, tmp_path: Path, capsys: Said
) -> None:
    hold_lease()
    client = boto3.client("secretsmanager")
    client.create_secret(Name="outscaler/prod/kubeconfig", SecretString=cluster[1].read_text())
    assert main(["apply", policy(tmp_path, "active"), "--vpc"]) == 2
    assert "DR07" in capsys.readouterr().err


STATUS = ("configmaps", "cluster-autoscaler-status", "kube-system")


def test_policy_that_becomes_active_makes_the_deleted_status_again(
    store: Store, cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    file, kubeconfig = policy(tmp_path, "active"), ("--kubeconfig", str(cluster[1]), "--vpc")
    assert main(["apply", policy(tmp_path, "shadow"), *kubeconfig]) == 0
    assert cluster[0].store.get(*STATUS) is None
    capsys.readouterr()
    assert main(["apply", file, *kubeconfig]) == 0
    assert (
        "ConfigMap kube-system/cluster-autoscaler-status was not there and is made again"
        in capsys.readouterr().err
    )
    made = cluster[0].store.get(*STATUS)
    assert made is not None
    assert "data" not in made
    assert main(["apply", policy(tmp_path, "shadow"), *kubeconfig]) == 0
    assert main(["apply", file, *kubeconfig]) == 0
    assert cluster[0].store.get(*STATUS) == made
    assert "is made again" not in capsys.readouterr().err


def test_status_that_the_operator_may_not_make_is_named_with_the_command(
    store: Store, cluster: tuple[ApiServer, Path], tmp_path: Path, capsys: Said
) -> None:
    cluster[0].faults.add(
        KubeFault(method="POST", path="/configmaps", times=100, **refusal(403, "no"))
    )
    assert (
        main(["apply", policy(tmp_path, "active"), "--kubeconfig", str(cluster[1]), "--vpc"]) == 0
    )
    assert (
        "kubectl -n kube-system create configmap cluster-autoscaler-status"
        in capsys.readouterr().err
    )


def test_status_is_not_made_for_a_policy_that_writes_none(
    store: Store, cluster: tuple[ApiServer, Path], tmp_path: Path
) -> None:
    file = Path(policy(tmp_path, "active"))
    document = yaml.safe_load(file.read_text())
    document["spec"]["options"] = {"writeStatusConfigmap": False}
    file.write_text(yaml.safe_dump(document))
    assert main(["apply", str(file), "--kubeconfig", str(cluster[1]), "--vpc"]) == 0
    assert cluster[0].store.get(*STATUS) is None
