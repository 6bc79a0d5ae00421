"""A manual plan with a vendor's groups: a file replaces the secret that the policy names."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.cli.main import main
from chalicelib.net.vendor_hosts import VENDORS
from infra.emulators.alicloud.attached_account import SECRET_NAME, AlicloudAccount
from infra.emulators.kube.objects import KubeObject
from infra.emulators.kube.server import ApiServer
from infra.emulators.kube.store import ObjectStore
from tests.scenario.policies import document

Said = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Kubeconfig, policy and key of a cluster with a pending pod, and an
    account with an empty group."""
    account, store = AlicloudAccount(), ObjectStore(time.time)
    account.attach(time.time, store)
    group = account.cloud.add_group("burst", most=3)
    pod: KubeObject = {
        "metadata": {
            "name": "web",
            "namespace": "default",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        },
    }
    store.load("pods", [pod])
    server = ApiServer(store, tls=False)
    server.start()
    account.start()
    try:
        texts = {
            "kubeconfig": server.kubeconfig(),
            "key": account.secret(),
            "policy": document(
                providers={"alicloud": account.settings()},
                nodeGroups=[{"provider": "alicloud", "id": group.id, "min": 0, "max": 3}],
            ),
        }
        for name, text in texts.items():
            (tmp_path / name).write_text(text, "utf-8")
        yield {name: str(tmp_path / name) for name in texts}
    finally:
        account.stop()
        server.stop()


def _plan(files: dict[str, str], *more: str) -> int:
    return main(
        [
            "plan",
            "--kubeconfig",
            files["kubeconfig"],
            "--policy",
            files["policy"],
            *more,
            "-o",
            "json",
        ]
    )


def test_groups_are_read_with_the_key_from_the_file(files: dict[str, str], capsys: Said) -> None:
    assert _plan(files, "--secret", f"{SECRET_NAME}={files['key']}") == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert [(up["from"], up["to"], up["pods"]) for up in answer["scaleUps"]] == [
        (0, 1, ["default/web"])
    ]
    assert (
        json.loads(Path(files["key"]).read_text("utf-8"))["accessKeySecret"]
        not in said.out + said.err
    )


def test_missing_secret_file_is_missing_data_that_names_the_option(
    files: dict[str, str], capsys: Said
) -> None:
    assert _plan(files) == 3
    [gap] = json.loads(capsys.readouterr().out)["gaps"]
    remedy = f"commands read no secrets: add --secret {SECRET_NAME}=FILE"
    assert gap["detail"].endswith(f"secret {SECRET_NAME} of alicloud: is not given; {remedy}")


@pytest.mark.parametrize(
    ("provider", "settings"),
    [
        ("alicloud", {"region": "cn-hangzhou", "nodes": "1:10:asg-1"}),
        (
            "cherryservers",
            {
                "projectId": "1",
                "clusterName": "prod",
                "nodes": "0:10:pool1",
                "cloudConfigSecret": "outscaler/prod/cherryservers-c",
            },
        ),
        ("exoscale", {"zone": "ch-gva-2"}),
        (
            "huaweicloud",
            {"region": "cn-north-4", "clusterId": "2292498e-1111-11ee-8b5e-0255ac1001ba"},
        ),
    ],
)
def test_secret_that_is_not_given_is_not_called_refused_and_names_its_own_provider(
    provider: str, settings: dict[str, str], files: dict[str, str], capsys: Said
) -> None:
    name = f"outscaler/prod/{provider}"
    text = document(providers={provider: settings | {"credentialsSecret": name}})
    Path(files["policy"]).write_text(text.replace("name: shop", "name: prod"), "utf-8")
    assert _plan(files) == 3
    details = [gap["detail"] for gap in json.loads(capsys.readouterr().out)["gaps"]]
    assert details
    assert [text for text in details if f" of {provider}: is not given" not in text] == []
    assert "nauthorized" not in str(details)
    assert [other for other in VENDORS if other != provider and other in str(details)] == []


@pytest.mark.parametrize(
    ("value", "said"), [("key.json", "is not NAME=FILE"), ("=x", "is not NAME=FILE")]
)
def test_invalid_secret_file_argument_is_rejected_with_one_line(
    value: str, said: str, files: dict[str, str], capsys: Said
) -> None:
    assert _plan(files, "--secret", value) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
    assert value not in line


def test_nonexistent_secret_file_is_missing_data(files: dict[str, str], capsys: Said) -> None:
    assert _plan(files, "--secret", f"{SECRET_NAME}=/nowhere") == 3
    [gap] = json.loads(capsys.readouterr().out)["gaps"]
    assert "cannot be read" in gap["detail"]


def test_plan_without_a_provider_says_so_first_and_exits_with_3(
    files: dict[str, str], capsys: Said
) -> None:
    command = ["plan", "--kubeconfig", files["kubeconfig"], "--policy", files["policy"]]
    assert main(command) == 3
    assert capsys.readouterr().out.startswith("1 provider was not read: alicloud.\nCluster ")
    assert main([*command, "--compare-option", "expander=least-nodes"]) == 3
    assert capsys.readouterr().out.startswith("1 provider was not read: alicloud.\nCluster ")
    assert main([*command, "--strict"]) == 1
    capsys.readouterr()
    assert _plan(files) == 3
    assert json.loads(capsys.readouterr().out)["unreadProviders"] == ["alicloud"]


def test_plan_with_every_provider_has_no_unread_ones(files: dict[str, str], capsys: Said) -> None:
    assert _plan(files, "--secret", f"{SECRET_NAME}={files['key']}", "--strict") == 0
    assert "unreadProviders" not in json.loads(capsys.readouterr().out)


def test_unknown_context_is_the_command_lines_and_not_the_policys(
    files: dict[str, str], capsys: Said
) -> None:
    assert _plan(files, "--context", "nope") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("--context: 'nope' is not among contexts; contexts of ")
