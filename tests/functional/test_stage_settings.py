"""What `init`, `import`, `validate` and `apply` call right is what the
functions of the stage accept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
import yaml
from moto import mock_aws

from chalicelib.cli.main import main
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import IN_LAMBDA, Deployment, deployment_of, published
from chalicelib.policy.secret_names import named_by
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.runtime.active_policy import in_force
from chalicelib.store import Store
from chalicelib.store.tables import DEPLOYMENT_PARTITION, SETTINGS_ITEM, definition
from infra.aws.deploy.stage import load as stage_of
from infra.emulators.aws import create_table, environment
from infra.emulators.moto_gaps import close

Said = pytest.CaptureFixture[str]
TABLE = "outscaler-dev-state"
FUNCTIONS = deployment_of(
    stage_of("dev").config["environment_variables"] | {IN_LAMBDA: "outscaler-dev-reconcile"}
)
AUTOSCALER = [
    "--command",
    "cluster-autoscaler --cloud-provider=alicloud --nodes=0:3:asg-1 --cluster-name=shop",
]
ALICLOUD = [
    "--env",
    "REGION_ID=cn-hangzhou",
    "--env",
    "ACCESS_KEY_ID=x",
    "--env",
    "ACCESS_KEY_SECRET=y",
]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    """The tables of the stage `dev`, in a shell that names no deployment."""
    names = (
        "TABLE",
        "POLICY_TABLE",
        "PREFIX",
        "SECRET_PREFIX",
        "SHARED_SECRETS",
        "ALLOWED_ENDPOINTS",
    )
    for name in (*(f"OUTSCALER_{one}" for one in names), "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        environment("") | {"OUTSCALER_PROFILE": str(tmp_path / "profile.json")}
    ).items():
        if value:
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    close()
    with mock_aws():
        create_table(boto3.client("dynamodb"), TABLE)
        store = Store(TABLE, clock=lambda: 0.0)
        store.deployment_settings().publish(FUNCTIONS)
        yield store


def made_by_init(place: Path, *more: str) -> str:
    """A policy file, written by `outscaler init`."""
    answers = ("--name", "shop", "--provider", "exoscale", "--location", "ch-gva-2")
    assert main(["init", str(place / "policy.yaml"), *answers, *more]) == 0
    return str(place / "policy.yaml")


def made_by_import(place: Path, capsys: Said, *more: str) -> tuple[str, str]:
    """A policy file, printed by `outscaler import`, and its report."""
    capsys.readouterr()
    assert main(["import", *AUTOSCALER, *ALICLOUD, *more]) == 0
    printed = capsys.readouterr()
    (place / "policy.yaml").write_text(printed.out)
    return str(place / "policy.yaml"), printed.err


def read_by_functions(store: Store) -> Policy:
    """The policy as every function of the stage reads it. Raises BadInput
    where no pass would run."""
    stored = store.policies.current("shop")
    assert stored is not None
    return in_force(stored, 0.0, FUNCTIONS)


def without_row(store: Store) -> None:
    """The deployment of a release that publishes nothing."""
    store.policy_table.write(store.policy_table.delete(DEPLOYMENT_PARTITION, SETTINGS_ITEM))


def test_policy_of_init_after_login_is_accepted_by_the_functions(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    assert main(["login", "dev"]) == 0
    assert "secrets begin with outscaler/dev/" in capsys.readouterr().out
    file = made_by_init(tmp_path)
    assert main(["validate", "--strict", file]) == 0
    assert main(["apply", file]) == 0
    names = [name for _, name, _ in named_by(read_by_functions(store))]
    assert names == ["ssm:/outscaler/dev/shop/kubeconfig", "ssm:/outscaler/dev/shop/exoscale"]


def test_policy_of_import_after_login_is_accepted_by_the_functions(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    assert main(["login", "dev"]) == 0
    file, report = made_by_import(tmp_path, capsys)
    assert main(["validate", file]) == 0
    assert main(["apply", file]) == 0
    names = [name for _, name, _ in named_by(read_by_functions(store))]
    created = {
        f"ssm:{line.split(' --name ')[1].split()[0]}"
        for line in report.splitlines()
        if "put-parameter" in line
    }
    assert (
        created
        == set(names)
        == {"ssm:/outscaler/dev/shop/kubeconfig", "ssm:/outscaler/dev/shop/alicloud"}
    )


@pytest.mark.parametrize("variable", ["OUTSCALER_PREFIX", "OUTSCALER_TABLE"])
def test_import_obeys_the_environment_as_init_does(
    store: Store, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(
        variable, {"OUTSCALER_PREFIX": "outscaler-dev", "OUTSCALER_TABLE": TABLE}[variable]
    )
    file, report = made_by_import(tmp_path, capsys)
    assert "--name /outscaler/dev/shop/kubeconfig " in report
    assert main(["apply", file]) == 0
    assert read_by_functions(store).name == "shop"


def test_secret_prefix_of_import_may_be_given(store: Store, tmp_path: Path, capsys: Said) -> None:
    del store
    file, report = made_by_import(tmp_path, capsys, "--secret-prefix", "team/")
    assert yaml.safe_load(Path(file).read_text())["spec"]["kubernetes"] == {
        "kubeconfigSecret": "ssm:/team/shop/kubeconfig"
    }
    assert "--name /team/shop/alicloud " in report


def test_apply_refuses_what_the_functions_of_the_stage_refuse(
    store: Store, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = made_by_init(tmp_path)  # before any login: the names of the default prefix
    monkeypatch.setenv("OUTSCALER_TABLE", TABLE)
    # the shell's setting does not count
    monkeypatch.setenv("OUTSCALER_SECRET_PREFIX", "outscaler/")
    capsys.readouterr()
    assert main(["apply", file]) == 2
    refused = capsys.readouterr().err
    assert (
        "policy.yaml:8: spec.kubernetes.kubeconfigSecret: is not a secret of cluster shop"
        in refused
    )
    assert "name it outscaler/dev/shop/kubeconfig" in refused
    assert store.policies.names() == ()


def test_validate_refuses_what_the_functions_of_the_stage_refuse(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    del store
    file = made_by_init(tmp_path)
    assert main(["login", "dev"]) == 0
    capsys.readouterr()
    assert main(["validate", file]) == 2
    assert "name it outscaler/dev/shop/kubeconfig" in capsys.readouterr().err


def test_apply_follows_the_deployment_and_not_what_login_has_kept(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    assert main(["login", "dev"]) == 0
    file = made_by_init(tmp_path)
    store.deployment_settings().publish(Deployment(secret_prefix="moved/"))
    assert main(["apply", file]) == 2
    assert "name it moved/shop/kubeconfig" in capsys.readouterr().err


def test_apply_refuses_hosts_of_this_machine_for_functions_elsewhere(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    assert main(["login", "dev"]) == 0
    file = Path(made_by_init(tmp_path))
    document = yaml.safe_load(file.read_text())
    document["spec"]["providers"]["exoscale"]["endpoint"] = "http://127.0.0.1:8080"
    file.write_text(yaml.safe_dump(document))
    capsys.readouterr()
    assert main(["apply", str(file)]) == 2
    assert "spec.providers.exoscale.endpoint" in capsys.readouterr().err
    with pytest.raises(BadInput):
        read_by_functions_of(store, file.read_text())


def read_by_functions_of(store: Store, text: str) -> Policy:
    store.policies.put("shop", text, "d", None)
    return read_by_functions(store)


def shown(capsys: Said) -> tuple[str, dict[str, Any]]:
    """What `outscaler get` prints, as a table and as data of the only cluster."""
    capsys.readouterr()
    assert main(["get"]) == 0
    table = capsys.readouterr().out
    assert main(["get", "-o", "json"]) == 0
    [data] = json.loads(capsys.readouterr().out)
    return table, data


def test_get_says_why_no_pass_of_an_unreadable_policy_can_start(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    text = Path(made_by_init(tmp_path)).read_text()
    assert main(["login", "dev"]) == 0
    store.policies.put("shop", text, "d", None)  # by an older release of the command
    why = "spec.kubernetes.kubeconfigSecret: is not a secret of cluster shop for kubeconfig"
    table, data = shown(capsys)
    assert f"not read: {why}" in " ".join(table.split())
    assert data["health"] == "unreadable"
    assert data["problem"].startswith(why)
    assert data["problem"].endswith("(and 1 more)")
    store.policies.put("shop", text.replace("outscaler/", "outscaler/dev/"), "d", 1)
    table, data = shown(capsys)
    assert "unreadable" not in table
    assert (data["health"], data["problem"]) == ("waiting", None)


def test_get_calls_nothing_unreadable_that_unpublished_settings_may_permit(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    without_row(store)
    text = Path(made_by_init(tmp_path)).read_text()
    assert main(["login", "dev"]) == 0
    store.policies.put("shop", text.replace("outscaler/shop", "shared"), "d", None)
    assert shown(capsys)[1]["health"] == "waiting"
    store.policies.put("shop", "kind: Cluster", "d", 1)
    assert shown(capsys)[1]["health"] == "unreadable"


def test_policy_with_shared_secrets_and_hosts_of_the_deployment_is_right_everywhere(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    store.deployment_settings().publish(
        Deployment(
            "outscaler/dev/",
            frozenset({"outscaler/shared/exoscale"}),
            frozenset({"proxy.example.com"}),
        )
    )
    assert main(["login", "dev"]) == 0
    file = Path(made_by_init(tmp_path))
    document = yaml.safe_load(file.read_text())
    document["spec"]["providers"]["exoscale"] |= {
        "credentialsSecret": "outscaler/shared/exoscale",
        "endpoint": "https://proxy.example.com",
    }
    file.write_text(yaml.safe_dump(document))
    assert [main([command, str(file)]) for command in ("validate", "apply")] == [0, 0]
    assert main(["apply", str(file)]) == 0
    capsys.readouterr()
    assert main(["get", "clusters", "-o", "json"]) == 0
    assert [each["health"] for each in json.loads(capsys.readouterr().out)] == ["waiting"]


def test_deployment_that_has_published_nothing_is_judged_by_its_name(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    without_row(store)
    assert main(["login", "dev"]) == 0
    assert "dev has not published what policies may name" in capsys.readouterr().err
    file = made_by_init(tmp_path)
    capsys.readouterr()
    assert main(["validate", file]) == 0
    notice = (
        f"what the deployment of table {TABLE} permits policies to name is not known; judged by "
        "its name"
    )
    assert notice in capsys.readouterr().err
    assert main(["apply", file]) == 0
    assert capsys.readouterr().err.count(notice) == 1
    assert read_by_functions(store).name == "shop"


def test_login_keeps_the_settings_of_a_cloudformation_stack(
    store: Store, tmp_path: Path, capsys: Said
) -> None:
    del store
    stack = Stack(
        "team-a", Deployment("outscaler/team-a/", frozenset({"outscaler/shared/exoscale"}))
    )
    assert main(["login", stack.name, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["secretPrefix"] == "outscaler/team-a/"
    file = made_by_init(tmp_path)
    assert main(["validate", file]) == 0
    assert main(["apply", file]) == 0
    assert capsys.readouterr().err.count("not known") == 0


def test_apply_reads_the_settings_of_the_stack_that_made_the_table(
    store: Store, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    del store
    stack = Stack("team-b", Deployment("outscaler/team-b/"))
    file = made_by_init(tmp_path)
    monkeypatch.setenv("OUTSCALER_TABLE", stack.table)
    assert main(["apply", file]) == 2
    assert "name it outscaler/team-b/shop/kubeconfig" in capsys.readouterr().err


class Stack:
    """A CloudFormation stack with the tables and the outputs of the template."""

    def __init__(self, name: str, deployment: Deployment) -> None:
        self.name, self.table = name, f"{name}-StateTable-1A2B3C"
        settings = msgspec.to_builtins(published(deployment))
        del settings["loopback"]  # of an emulation only
        template = {
            "Resources": {
                "StateTable": _table(self.table),
                "PolicyTable": _table(f"{self.table}-policies"),
            },
            "Outputs": {
                "TableName": {"Value": {"Ref": "StateTable"}},
                "PolicyTableName": {"Value": {"Ref": "PolicyTable"}},
                "PolicySettings": {"Value": json.dumps(settings)},
            },
        }
        boto3.client("cloudformation").create_stack(
            StackName=name, TemplateBody=json.dumps(template)
        )


def _table(name: str) -> dict[str, Any]:
    return {"Type": "AWS::DynamoDB::Table", "Properties": definition(name)}
