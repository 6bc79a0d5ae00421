"""`outscaler plan` of a live cluster whose Cluster API objects are in a separate cluster, with
files in place of secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import main
from tests.providers.clusterapi.management import Management, fill, management
from tests.unit.policy.policy_documents import GOOD, HEAD

Said = pytest.CaptureFixture[str]
Files = dict[str, str]
OFFERS = {"cpu": "2", "memory": "4Gi", "pods": "110"}
STATUS = {
    "allocatable": OFFERS,
    "capacity": OFFERS,
    "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T07:20:54Z"}
    ],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Files]:
    """Kubeconfigs: `manager` has the objects, `worker` has the Nodes and no Cluster
    API, `both` has everything."""
    folder: Path = tmp_path_factory.mktemp("clusters")
    nothing: Path = tmp_path_factory.mktemp("no-crds")

    def written(name: str, there: Management) -> str:
        (folder / name).write_text(there.server.kubeconfig(there.user))
        return str(folder / name)

    with management() as manager, management(crds=nothing) as worker, management() as both:
        fill(manager, 2)
        fill(both, 2)
        for each in manager.store.list("nodes"):
            manager.store.delete("nodes", each["metadata"]["name"])
            worker.store.load("nodes", [{**each, "status": STATUS}])
            both.store.load("nodes", [{**each, "status": STATUS}])
        yield {
            name: written(name, there)
            for name, there in (("manager", manager), ("worker", worker), ("both", both))
        }


def policy(folder: Path, access: str, clusterapi: str) -> str:
    """Writes a document with these two sections; returns its path."""
    path = folder / "policy.yaml"
    path.write_text(
        f"{HEAD}spec:\n  mode: active\n  kubernetes: {access}\n  providers: {{clusterapi: "
        f"{clusterapi}}}\n"
    )
    return str(path)


def planned(capsys: Said, *arguments: str, expected: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    code = main(["plan", *arguments, "-o", "json"])
    said = capsys.readouterr()
    assert code == expected, said.err
    answer: dict[str, Any] = json.loads(said.out)
    return answer


def sizes(answer: dict[str, Any]) -> dict[str, int]:
    return {group["group"]: group["target"] for group in answer["groups"]}


OURS = {"MachineDeployment/default/md-0": 2}


@pytest.mark.parametrize(
    ("access", "clusterapi"),
    [
        ("{kubeconfigSecret: k}", "{kubeconfigSecret: m, context: elsewhere, clusterName: c1}"),
        (
            "{kubeconfigSecret: k, inClusterKubeconfigSecret: m}",
            "{cloudConfigAuthoritative: true, clusterName: c1}",
        ),
        ("{inClusterKubeconfigSecret: k}", "{kubeconfigSecret: m, clusterName: c1}"),
        (
            "{eksCluster: k, region: eu-central-2}",
            "{kubeconfigFile: not-here, autoDiscovery: 'clusterapi:clusterName=c1'}",
        ),
    ],
)
def test_management_cluster_is_named_by_a_kubeconfig_file(
    access: str, clusterapi: str, files: Files, tmp_path: Path, capsys: Said
) -> None:
    answer = planned(
        capsys,
        "--kubeconfig",
        files["worker"],
        "--management-kubeconfig",
        files["manager"],
        "--policy",
        policy(tmp_path, access, clusterapi),
    )
    assert sizes(answer) == OURS
    assert [gap for gap in answer["gaps"] if gap["kind"].startswith("provider/")] == []


def test_kubeconfig_file_named_in_the_policy_is_accepted(
    files: Files, tmp_path: Path, capsys: Said
) -> None:
    document = policy(
        tmp_path,
        "{kubeconfigSecret: k}",
        f"{{kubeconfigFile: '{files['manager']}', clusterName: c1}}",
    )
    assert sizes(planned(capsys, "--kubeconfig", files["worker"], "--policy", document)) == OURS


@pytest.mark.parametrize("clusterapi", ["{}", "{cloudConfigAuthoritative: true}"])
def test_cluster_that_manages_itself_needs_one_kubeconfig(
    clusterapi: str, files: Files, tmp_path: Path, capsys: Said
) -> None:
    document = policy(tmp_path, "{inClusterKubeconfigSecret: i}", clusterapi)
    assert sizes(planned(capsys, "--kubeconfig", files["both"], "--policy", document)) == OURS


def test_context_alone_is_one_of_the_kubeconfig_that_kubectl_takes(
    files: Files, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", files["both"])
    document = policy(tmp_path, "{inClusterKubeconfigSecret: i}", "{}")
    context = yaml.safe_load(Path(files["both"]).read_text())["current-context"]
    assert sizes(planned(capsys, "--context", context, "--policy", document)) == OURS
    assert "elsewhere" in refused(capsys, "--context", "elsewhere", "--policy", document)


@pytest.mark.parametrize(
    ("access", "clusterapi"),
    [
        ("{kubeconfigSecret: k}", "{kubeconfigSecret: m, clusterName: c1}"),
        (
            "{kubeconfigSecret: k, inClusterKubeconfigSecret: m}",
            "{cloudConfigAuthoritative: true, clusterName: c1}",
        ),
    ],
)
def test_management_secret_is_not_read_and_missing_data_names_the_option(
    access: str, clusterapi: str, files: Files, tmp_path: Path, capsys: Said
) -> None:
    document = policy(tmp_path, access, clusterapi)
    answer = planned(capsys, "--kubeconfig", files["worker"], "--policy", document, expected=3)
    [gap] = [gap for gap in answer["gaps"] if gap["kind"] == "provider/clusterapi"]
    assert gap["detail"].startswith("secret m")
    assert (
        ": is not given; commands read no secrets: add --secret m=FILE, or --management"
        in gap["detail"]
    )
    assert "--management-kubeconfig" in gap["detail"]


def refused(capsys: Said, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["plan", *arguments, "-o", "json"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("access", "clusterapi", "place"),
    [
        ("{kubeconfigSecret: k}", "{kubeconfigSecret: m}", "clusterName"),
        ("{kubeconfigSecret: k}", "{kubeconfigSecret: m, namespace: default}", "clusterName"),
        ("{inClusterKubeconfigSecret: k}", "{kubeconfigSecret: m}", "clusterName"),
        (
            "{kubeconfigSecret: k, inClusterKubeconfigSecret: m}",
            "{cloudConfigAuthoritative: true}",
            "clusterName",
        ),
        (
            "{kubeconfigSecret: k}",
            "{kubeconfigSecret: m, autoDiscovery: 'clusterapi:namespace=default'}",
            "autoDiscovery",
        ),
    ],
)
def test_policy_with_a_management_cluster_must_name_the_cluster(
    access: str, clusterapi: str, place: str, tmp_path: Path, capsys: Said
) -> None:
    named = {
        "Secret: k": "Secret: outscaler/a/kubeconfig",
        "KubeconfigSecret: m": "KubeconfigSecret: outscaler/a/kubeconfig-m",
        "kubeconfigSecret: m": "kubeconfigSecret: outscaler/a/clusterapi",
    }
    for short, name in named.items():
        access, clusterapi = access.replace(short, name), clusterapi.replace(short, name)
    document = policy(tmp_path, access, clusterapi)
    for command in (["validate", document], ["apply", "--dry-run", "--table", "none", document]):
        assert main(command) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert f"spec.providers.clusterapi.{place}: " in line


def test_management_kubeconfig_without_a_cluster_name_is_missing_data(
    files: Files, tmp_path: Path, capsys: Said
) -> None:
    document = policy(tmp_path, "{kubeconfigSecret: k}", "{}")
    arguments = (
        "--kubeconfig",
        files["worker"],
        "--management-kubeconfig",
        files["manager"],
        "--policy",
        document,
    )
    answer = planned(capsys, *arguments, expected=3)
    assert answer["groups"] == []
    [gap] = [gap for gap in answer["gaps"] if gap["kind"] == "provider/clusterapi"]
    assert "providers.clusterapi.clusterName: is missing" in gap["detail"]


def test_management_kubeconfig_needs_a_live_cluster_and_cluster_api(
    files: Files, tmp_path: Path, capsys: Said
) -> None:
    assert refused(
        capsys, "--snapshot", str(tmp_path), "--management-kubeconfig", files["manager"]
    ).startswith("--management-kubeconfig: belongs to --kubeconfig")
    document = tmp_path / "policy.yaml"
    document.write_text(
        GOOD.replace(
            "clusterapi: {clusterName: prod-geneva}",
            "exoscale: {zone: ch-gva-2, credentialsSecret: a}",
        )
    )
    assert (
        main(
            [
                "plan",
                "--kubeconfig",
                files["worker"],
                "--management-kubeconfig",
                files["manager"],
                "--policy",
                str(document),
            ]
        )
        == 2
    )
    assert "--management-kubeconfig: belongs to the provider clusterapi" in capsys.readouterr().err
