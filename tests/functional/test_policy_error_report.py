"""`validate` and `apply` report every error of a policy together, whichever module finds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.cli.main import main
from tests.scenario.policies import document

Said = pytest.CaptureFixture[str]
COMMANDS = [["validate"], ["apply", "--dry-run"]]
FOREIGN = "outscaler/other/{}"  # a secret of another cluster
GROUP = "0:5:asg-bp18p2yfxow2dloq0001"

# The settings of one provider, and the keys that the output must name once each.
MISTAKES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "a-foreign-secret-and-no-cluster-name": (
        "clusterapi",
        {"kubeconfigSecret": FOREIGN.format("clusterapi")},
        {"kubeconfigSecret", "clusterName"},
    ),
    "a-foreign-secret-and-a-spec-without-cluster-name": (
        "clusterapi",
        {
            "kubeconfigSecret": FOREIGN.format("clusterapi"),
            "autoDiscovery": ["clusterapi:namespace=capi"],
        },
        {"kubeconfigSecret", "autoDiscovery"},
    ),
    "an-unreadable-duration-and-no-cluster-name": (
        "clusterapi",
        {"kubeconfigSecret": "outscaler/shop/clusterapi", "stuckAfter": "soon"},
        {"stuckAfter", "clusterName"},
    ),
    "an-unknown-key-and-no-cluster-name": (
        "clusterapi",
        {"kubeconfigSecret": "outscaler/shop/clusterapi", "colour": "red"},
        {"colour", "clusterName"},
    ),
    "a-misspelt-key-is-not-missing-as-well": (
        "clusterapi",
        {"kubeconfigSecret": "outscaler/shop/clusterapi", "clustername": "shop"},
        {"clustername"},
    ),
    "an-observe-secret-without-the-other-and-no-cluster-name": (
        "clusterapi",
        {"kubeconfigFile": "management", "observeSecret": FOREIGN.format("clusterapi")},
        {"kubeconfigFile", "observeSecret", "clusterName"},
    ),
    "a-foreign-host-and-no-credentials": (
        "alicloud",
        {"region": "cn-hangzhou", "nodes": GROUP, "stsEndpoint": "https://sts.example.com"},
        {"stsEndpoint", "credentialsSecret"},
    ),
    "a-foreign-secret-and-a-group-twice": (
        "alicloud",
        {
            "region": "cn-hangzhou",
            "nodes": [GROUP, GROUP],
            "credentialsSecret": FOREIGN.format("alicloud"),
        },
        {"credentialsSecret", "nodes"},
    ),
    "a-foreign-secret-and-a-host-named-twice": (
        "exoscale",
        {
            "zone": "ch-gva-2",
            "environment": "api",
            "endpoint": "https://api-ch-gva-2.exoscale.com",
            "credentialsSecret": FOREIGN.format("exoscale"),
        },
        {"credentialsSecret", "environment"},
    ),
    "a-foreign-secret-and-half-an-agency": (
        "huaweicloud",
        {
            "region": "cn-north-4",
            "clusterId": "2292498e-1111-11ee-8b5e-0255ac1001ba",
            "agencyName": "scaler",
            "credentialsSecret": FOREIGN.format("huaweicloud"),
        },
        {"credentialsSecret", "agencyDomain"},
    ),
    "a-foreign-secret-and-a-token-from-two-places": (
        "cherryservers",
        {
            "nodes": "0:5:pool1",
            "clusterName": "shop",
            "createBootstrapTokens": True,
            "cloudConfigSecret": "outscaler/shop/cherryservers-config",
            "bootstrapTokenSecret": "outscaler/shop/cherryservers-bootstrap",
            "credentialsSecret": FOREIGN.format("cherryservers"),
        },
        {"credentialsSecret", "createBootstrapTokens"},
    ),
    "a-foreign-secret-and-no-definitions": (
        "cherryservers",
        {
            "nodes": "0:5:pool1",
            "clusterName": "shop",
            "credentialsSecret": FOREIGN.format("cherryservers"),
        },
        {"credentialsSecret", "cloudConfig"},
    ),
}


@pytest.fixture(autouse=True)
def _deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTSCALER_SECRET_PREFIX", "outscaler/")
    for name in ("OUTSCALER_SHARED_SECRETS", "OUTSCALER_ALLOWED_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OUTSCALER_TABLE", "not-there")


def places(command: list[str], tmp_path: Path, capsys: Said, **spec: Any) -> list[str]:
    """Paths of the errors below spec, as printed by the command, one per line."""
    path = tmp_path / "policy.yaml"
    path.write_text(document(**spec), "utf-8")
    assert main([*command, str(path)]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    assert all(line.startswith(str(path)) for line in lines), lines
    return sorted(
        line.partition(": ")[2].partition(": ")[0].removeprefix("spec.") for line in lines
    )


@pytest.mark.parametrize("command", COMMANDS, ids=["validate", "apply"])
@pytest.mark.parametrize(("provider", "settings", "keys"), MISTAKES.values(), ids=MISTAKES)
def test_rejected_secret_or_host_hides_no_other_policy_error(
    tmp_path: Path,
    capsys: Said,
    command: list[str],
    provider: str,
    settings: dict[str, Any],
    keys: set[str],
) -> None:
    if command == ["validate"]:
        keys = {key for key in keys if not key.endswith("File")}  # reported as a warning there
    found = places(command, tmp_path, capsys, providers={provider: settings})
    assert found == sorted(f"providers.{provider}.{key}" for key in keys)


@pytest.mark.parametrize("command", COMMANDS, ids=["validate", "apply"])
@pytest.mark.parametrize(
    ("spec", "elsewhere"),
    [
        ({"scanInterval": "1s"}, "scanInterval"),
        (
            {"kubernetes": {"kubeconfigSecret": "outscaler/other/kubeconfig"}},
            "kubernetes.kubeconfigSecret",
        ),
        ({"kubernetes": {"kubeconfigSecret": "has blanks"}}, "kubernetes.kubeconfigSecret"),
        ({"options": {"maxNodesTotal": "many"}}, "options.maxNodesTotal"),
        ({"webhook": {"secret": "outscaler/other/webhook"}}, "webhook.secret"),
        (
            {"nodeGroups": [{"provider": "alicloud", "id": "asg-1", "min": 5, "max": 1}]},
            "nodeGroups[0].provider",
        ),
    ],
    ids=["interval", "foreign-kubeconfig", "unreadable-kubeconfig", "option", "webhook", "group"],
)
def test_error_elsewhere_hides_no_provider_error(
    tmp_path: Path,
    capsys: Said,
    command: list[str],
    spec: dict[str, Any],
    elsewhere: str,
) -> None:
    providers = {
        "exoscale": {"zone": "ch-gva-2"},
        "clusterapi": {"kubeconfigSecret": "outscaler/shop/clusterapi"},
    }
    found = places(command, tmp_path, capsys, providers=providers, **spec)
    assert {
        elsewhere,
        "providers.exoscale.credentialsSecret",
        "providers.clusterapi.clusterName",
    } <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    "groups",
    [
        [{"provider": "alicloud", "id": "asg-1", "min": "few", "max": 3}],
        [{"provider": "alicoud", "id": "asg-1"}],
        "asg-1",
    ],
    ids=["unreadable-bound", "unknown-provider", "no-list"],
)
def test_unreadable_groups_are_not_also_reported_as_missing(
    tmp_path: Path, capsys: Said, groups: Any
) -> None:
    providers = {
        "alicloud": {"region": "cn-hangzhou", "credentialsSecret": "outscaler/shop/alicloud"}
    }
    found = places(["validate"], tmp_path, capsys, providers=providers, nodeGroups=groups)
    assert all(place.startswith("nodeGroups") for place in found)


@pytest.mark.parametrize("command", COMMANDS, ids=["validate", "apply"])
def test_cluster_with_an_invalid_name_gets_no_secret_errors(
    tmp_path: Path,
    capsys: Said,
    command: list[str],
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(document().replace("shop", "Shop of mine", 1), "utf-8")
    assert main([*command, str(path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "metadata.name" in line
