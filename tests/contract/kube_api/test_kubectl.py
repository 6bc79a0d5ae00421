"""Drives the simulated API server with kubectl, if kubectl is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.kube_api.cluster import filled_store, running

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    home = tmp_path_factory.mktemp("kubectl")
    with running(filled_store(), tls=True) as server:
        config = home / "config"
        config.write_text(server.kubeconfig())

        def run(*arguments: str) -> str:
            done = subprocess.run(
                [str(KUBECTL), *arguments],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(home),
                    "KUBECONFIG": str(Path(config)),
                },
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


def test_kubectl_gets_nodes_and_pods(kubectl: Callable[..., str]) -> None:
    assert kubectl("get", "nodes", "-o", "name").split() == ["node/n0", "node/n1", "node/n2"]
    assert "web-0" in kubectl("get", "pods", "-A")


def test_kubectl_cordons_and_taints(kubectl: Callable[..., str]) -> None:
    kubectl("cordon", "n1")
    assert kubectl("get", "node", "n1", "-o", "jsonpath={.spec.unschedulable}") == "true"
    kubectl("uncordon", "n1")
    kubectl("taint", "nodes", "n1", "dedicated=x:NoSchedule")
    assert kubectl("get", "node", "n1", "-o", "jsonpath={.spec.taints[0].key}") == "dedicated"


def test_kubectl_labels_deletes_and_knows_custom_resources(kubectl: Callable[..., str]) -> None:
    kubectl("label", "node", "n2", "colour=red")
    assert kubectl("get", "nodes", "-l", "colour=red", "-o", "name").split() == ["node/n2"]
    kubectl("delete", "pod", "web-2", "-n", "app", "--grace-period=0", "--force")
    assert kubectl("get", "machinedeployments", "-A", "-o", "name") == ""
