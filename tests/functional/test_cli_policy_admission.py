"""Files, hosts and secrets in a policy: `apply` rejects, `validate` warns, `plan` reads files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from chalicelib.cli.main import main
from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.store import Store
from chalicelib.store.policies import DeploymentSettings
from infra.emulators.aws import create_table, environment
from tests.scenario.policies import document

Said = pytest.CaptureFixture[str]
ALI = {
    "region": "cn-hangzhou",
    "nodes": "0:5:asg-bp18p2yfxow2dloq0001",
    "credentialsSecret": "outscaler/shop/alicloud",
}


TABLE = "outscaler"


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeploymentSettings]:
    """What the deployment has published: the defaults. The shell knows nothing of it."""
    for name in (
        "OUTSCALER_SECRET_PREFIX",
        "OUTSCALER_SHARED_SECRETS",
        "OUTSCALER_ALLOWED_ENDPOINTS",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment("").items():
        if name != "AWS_ENDPOINT_URL":
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("OUTSCALER_TABLE", TABLE)
    with mock_aws():
        create_table(boto3.client("dynamodb"), TABLE)
        settings = Store(TABLE, clock=lambda: 0.0).deployment_settings()
        settings.publish(STRICT)
        yield settings


def file_of(place: Path, text: str) -> str:
    path = place / "policy.yaml"
    path.write_text(text, "utf-8")
    return str(path)


def verdict(file: str, capsys: Said) -> tuple[int, list[str], list[str]]:
    """(exit code, paths of errors, warnings) of `validate`."""
    code = main(["validate", file, "-o", "json"])
    [said] = json.loads(capsys.readouterr().out)
    return code, [each["place"].partition(": ")[2] for each in said["problems"]], said["warnings"]


FILES: list[dict[str, Any]] = [
    {"kubernetes": {"kubeconfigFile": "kubeconfig"}},
    {
        "providers": {
            "clusterapi": {
                "kubeconfigFile": "management",
                "clusterName": "shop",
                "namespace": "capi",
            }
        }
    },
    {
        "providers": {
            "alicloud": {
                "region": "cn-hangzhou",
                "nodes": ALI["nodes"],
                "oidcProviderArn": "acs:ram::1:p",
                "roleArn": "acs:ram::1:r",
                "oidcTokenFile": "/proc/self/environ",
            }
        }
    },
]


@pytest.mark.parametrize("spec", FILES, ids=["kubernetes", "clusterapi", "alicloud"])
def test_apply_rejects_local_files_and_validate_warns(
    tmp_path: Path, capsys: Said, spec: dict[str, Any]
) -> None:
    file = file_of(tmp_path, document(**spec))
    assert main(["apply", "--dry-run", file]) == 2
    refused = capsys.readouterr().err
    assert "File: names a local file, which only commands on a workstation may read" in refused
    code, problems, warnings = verdict(file, capsys)
    assert (code, problems) == (0, [])
    assert any("outscaler apply refuses this" in warning for warning in warnings)


def test_foreign_host_is_rejected_unless_the_deployment_lists_it(
    tmp_path: Path,
    capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
    settings: DeploymentSettings,
) -> None:
    file = file_of(
        tmp_path,
        document(providers={"alicloud": ALI | {"stsEndpoint": "https://sts.example.com:8443"}}),
    )
    for command in (["apply", "--dry-run", file], ["validate", file]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert (
            "spec.providers.alicloud.stsEndpoint: sts.example.com:8443 is not an API host of "
            "alicloud"
        ) in said
        assert "OUTSCALER_ALLOWED_ENDPOINTS" in said
    monkeypatch.setenv("OUTSCALER_ALLOWED_ENDPOINTS", "sts.example.com:8443")
    assert verdict(file, capsys)[:2] == (0, [])
    assert main(["apply", "--dry-run", file]) == 2, (
        "the functions have another environment than this shell"
    )
    settings.publish(Deployment(endpoints=frozenset({"sts.example.com:8443"})))
    monkeypatch.delenv("OUTSCALER_ALLOWED_ENDPOINTS")
    assert main(["apply", "--dry-run", file]) == 0


@pytest.mark.parametrize(
    ("name", "certain"),
    [
        ("outscaler/other/kubeconfig", False),
        ("team/shop/kubeconfig", False),
        ("outscaler/shop/exoscale", True),
        (
            (
                "arn:aws:secretsmanager:eu-central-2:123456789012:secret:outscaler/shop/kubeconfig-"
                "Q1w2E3"
            ),
            True,
        ),
        ("outscaler/shop/../other/kubeconfig", True),
    ],
)
def test_validate_rejects_what_no_deployment_permits_and_warns_of_the_rest(
    tmp_path: Path,
    capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    certain: bool,
) -> None:
    file = file_of(tmp_path, document(secret=name))
    code, problems, warnings = verdict(file, capsys)
    place = "spec.kubernetes.kubeconfigSecret"
    assert (code, problems) == ((2, [place]) if certain else (0, []))
    assert certain or any(
        place in warning and "unless the deployment shares it" in warning for warning in warnings
    )
    assert main(["apply", "--dry-run", file]) == 2
    assert place in capsys.readouterr().err
    # the deployment is known from here on
    monkeypatch.setenv("OUTSCALER_SECRET_PREFIX", "outscaler/")
    assert verdict(file, capsys)[:2] == (2, [place])
    monkeypatch.setenv(
        "OUTSCALER_SHARED_SECRETS", "outscaler/other/kubeconfig,team/shop/kubeconfig"
    )
    assert verdict(file, capsys)[0] == (2 if certain else 0)


def test_secret_prefix_is_read_from_the_environment(
    tmp_path: Path,
    capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = file_of(tmp_path, document(secret="team/shop/kubeconfig"))
    monkeypatch.setenv("OUTSCALER_SECRET_PREFIX", "team/")
    assert verdict(file, capsys) == (0, [], [])


def test_invalid_environment_variable_is_a_one_line_error(
    tmp_path: Path,
    capsys: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTSCALER_ALLOWED_ENDPOINTS", "https://evil.io/")
    assert main(["validate", file_of(tmp_path, document())]) == 2
    assert capsys.readouterr().err.startswith("environment: OUTSCALER_ALLOWED_ENDPOINTS")
