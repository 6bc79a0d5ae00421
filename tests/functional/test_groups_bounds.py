"""Bounds of Cluster API's node groups in the draft of `outscaler groups`, from the
management cluster's objects.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.cli.main import main
from chalicelib.cluster.node_decoding import OWNER_KIND, OWNER_NAME, OWNER_NAMESPACE
from infra.emulators.kube.faults import KubeFault
from infra.emulators.kube.server import ApiServer
from tests.functional.captured_clusters import SECRET, served
from tests.functional.doctor_cases import rules_of
from tests.functional.saved_cluster import node

Said = pytest.CaptureFixture[str]
GROUP = "cluster.x-k8s.io"
BOUND = f"{GROUP}/cluster-api-autoscaler-node-group-"

NAMESPACED_POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: prod}
spec:
  mode: shadow
  kubernetes: {kubeconfigSecret: outscaler/prod/kubeconfig}
  providers: {clusterapi: {namespace: prod, clusterName: prod}}
"""


def _worker(name: str, machine_set: str) -> dict[str, Any]:
    made = node(name, "")
    made["spec"]["providerID"] = f"docker:////{name}"
    made["metadata"]["annotations"] = {
        OWNER_KIND: "MachineSet",
        OWNER_NAME: machine_set,
        OWNER_NAMESPACE: "prod",
    }
    return made


NODES = [_worker("n-0", "md-0-x7f2k"), _worker("n-1", "md-1-x7f2k"), _worker("n-2", "md-2-x7f2k")]


def _fill(server: ApiServer) -> None:
    """md-0 has bounds, md-1 has none, md-2 has invalid ones."""
    for name, bounds in (
        ("md-0", {"min-size": "2", "max-size": "7"}),
        ("md-1", {}),
        ("md-2", {"max-size": "many"}),
    ):
        annotations = {f"{BOUND}{key}": value for key, value in bounds.items()} | {
            "team.test/note": SECRET
        }
        meta = {"name": name, "namespace": "prod", "annotations": annotations}
        spec = {"template": {"spec": {"bootstrap": {"dataSecretName": SECRET}}}}
        server.store.load("machinedeployments", [{"metadata": meta, "spec": spec}], GROUP)


def _bounds(folder: Path, capsys: Said, *more: str) -> dict[str, tuple[int, int]]:
    capsys.readouterr()
    assert main(["groups", str(folder), *more]) == 0
    entries = json.loads(capsys.readouterr().out)["nodeGroups"]
    return {entry["id"].rpartition("/")[2]: (entry["min"], entry["max"]) for entry in entries}


def test_draft_has_the_bounds_of_the_management_cluster(tmp_path: Path, capsys: Said) -> None:
    (tmp_path / "manager").mkdir()
    folder = tmp_path / "capture"
    with (
        served(tmp_path, NODES) as (_, worker),
        served(tmp_path / "manager", ()) as (manager, management),
    ):
        _fill(manager)
        command = [
            "capture",
            str(folder),
            "--kubeconfig",
            str(worker),
            "--management-kubeconfig",
            str(management),
        ]
        assert main(command) == 0
    assert _bounds(folder, capsys) == {"md-0": (2, 7), "md-1": (0, 10), "md-2": (0, 10)}
    (folder / "manifest.json").write_text('{"nodeGroups": []}')
    assert main(["plan", str(folder)]) == 0, "plan ignores the lists of Cluster API"


def test_draft_has_the_bounds_of_a_cluster_that_manages_itself(
    tmp_path: Path, capsys: Said
) -> None:
    with served(tmp_path, NODES) as (server, kubeconfig):
        _fill(server)
        assert main(["capture", str(tmp_path / "capture"), "--kubeconfig", str(kubeconfig)]) == 0
    assert _bounds(tmp_path / "capture", capsys)["md-0"] == (2, 7)
    packed = (tmp_path / "capture" / "machinedeployments.json.gz").read_bytes()
    assert SECRET not in gzip.decompress(packed).decode()


def test_capture_without_access_to_cluster_api_warns_and_goes_on(
    tmp_path: Path, capsys: Said
) -> None:
    with served(tmp_path, NODES) as (server, kubeconfig):
        server.faults.add(KubeFault("GET", "/machinesets", status=403, body=b"{}"))
        assert main(["capture", str(tmp_path / "capture"), "--kubeconfig", str(kubeconfig)]) == 0
        server.faults.add(KubeFault("GET", f"^/apis/{GROUP}$", status=404, body=b"{}"))
        assert main(["capture", str(tmp_path / "capture"), "--kubeconfig", str(kubeconfig)]) == 0
    assert list((tmp_path / "capture").glob("machine*")) == []
    [warning] = capsys.readouterr().err.splitlines()
    assert "machinesets" in warning
    assert "will guess the bounds" in warning


@pytest.mark.parametrize("way", ["option", "policy"])
def test_capture_with_the_role_of_one_namespace_has_its_bounds(
    way: str, tmp_path: Path, capsys: Said
) -> None:
    rules = rules_of("rbac-workload.yaml", "rbac-capi-namespaced.yaml")
    rules = [
        msgspec.structs.replace(each, namespaces=("prod",))
        if "default" in each.namespaces
        else each
        for each in rules
    ]
    policy = tmp_path / "policy.yaml"
    policy.write_text(NAMESPACED_POLICY)
    named = {"option": ("--management-namespace", "prod"), "policy": ("--policy", str(policy))}[way]
    folder = tmp_path / "capture"
    with served(tmp_path, NODES, rules) as (server, kubeconfig):
        _fill(server)
        command = ["capture", str(folder), "--kubeconfig", str(kubeconfig)]
        assert main(command) == 0
        assert "--management-namespace names" in capsys.readouterr().err
        assert main([*command, *named]) == 0
        assert "machine" not in capsys.readouterr().err
        assert [
            each.path for each in server.requests if each.status == 403 and "prod" in each.path
        ] == []
    assert _bounds(folder, capsys, *named) == {"md-0": (2, 7), "md-1": (0, 10), "md-2": (0, 10)}
    assert _bounds(folder, capsys, "--management-namespace", "other")["md-0"] == (0, 10)


def test_capture_with_a_policy_reads_what_the_policy_uses(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    providers = "{exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/prod/exoscale}}"
    text = NAMESPACED_POLICY.replace(
        "{clusterapi: {namespace: prod, clusterName: prod}}", providers
    )
    policy.write_text(f"{text}  options: {{namespace: scaling}}\n")
    with served(tmp_path, NODES) as (server, kubeconfig):
        _fill(server)
        command = [
            "capture",
            str(tmp_path / "capture"),
            "--kubeconfig",
            str(kubeconfig),
            "--policy",
            str(policy),
        ]
        assert main(command) == 0
        paths = [each.path for each in server.requests]
    assert [each for each in paths if GROUP in each] == []
    assert [each for each in paths if "configmaps" in each] == [
        "/api/v1/namespaces/scaling/configmaps/cluster-autoscaler-priority-expander"
    ]


def test_damaged_list_of_cluster_api_is_a_one_line_error(tmp_path: Path, capsys: Said) -> None:
    with served(tmp_path, NODES) as (_, kubeconfig):
        assert main(["capture", str(tmp_path / "capture"), "--kubeconfig", str(kubeconfig)]) == 0
    path = tmp_path / "capture" / "machinedeployments.json.gz"
    for damaged in (path.read_bytes()[:-20], b"no gzip"):
        path.write_bytes(damaged)
        capsys.readouterr()
        assert main(["groups", str(tmp_path / "capture")]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
