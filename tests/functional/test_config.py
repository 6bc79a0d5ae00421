"""`outscaler login` is asked once; `outscaler config` shows what commands use, and
switches between deployments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from chalicelib.aws import session
from chalicelib.cli.commands import ui
from chalicelib.cli.main import main
from chalicelib.model.policy_permissions import Deployment
from chalicelib.store import Store
from infra.emulators.aws import create_table, environment
from infra.emulators.moto_gaps import close

Said = pytest.CaptureFixture[str]
DEV, FAR = "eu-central-2", "eu-west-1"
SETTINGS = {
    "dev": Deployment(
        "outscaler/dev/",
        frozenset({"outscaler/shared/exoscale"}),
        frozenset({"proxy.example.com:8443"}),
    ),
    "prod": Deployment("outscaler/prod/"),
}


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The file of login, in a shell that names no deployment, with stages dev and prod,
    and far in another region."""
    names = (
        "TABLE",
        "POLICY_TABLE",
        "PREFIX",
        "SECRET_PREFIX",
        "SHARED_SECRETS",
        "ALLOWED_ENDPOINTS",
        "API",
    )
    for name in (*(f"OUTSCALER_{one}" for one in names), "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        environment("") | {"OUTSCALER_PROFILE": str(tmp_path / "profile.json")}
    ).items():
        if value:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_REGION", DEV)
    monkeypatch.setenv("AWS_DEFAULT_REGION", DEV)
    monkeypatch.chdir(tmp_path)
    close()
    with mock_aws():
        for stage, deployment in SETTINGS.items():
            create_table(boto3.client("dynamodb", region_name=DEV), f"outscaler-{stage}-state")
            store = Store(f"outscaler-{stage}-state", clock=lambda: 0.0, region=DEV)
            store.deployment_settings().publish(deployment)
        create_table(boto3.client("dynamodb", region_name=FAR), "outscaler-far-state")
        yield tmp_path / "profile.json"


def answer(capsys: Said, *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: Said, *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 2
    return capsys.readouterr().err


def values(shown: Any) -> dict[str, str]:
    return {name: setting["value"] for name, setting in shown["settings"].items()}


def api_of(prefix: str) -> str:
    """An API as make deploy makes it; its address."""
    client = boto3.client("apigateway", region_name=DEV)
    client.create_rest_api(name="another")
    api = client.create_rest_api(name=prefix, tags={"outscaler:deployment": prefix})["id"]
    root = client.get_resources(restApiId=api)["items"][0]["id"]
    client.put_method(restApiId=api, resourceId=root, httpMethod="GET", authorizationType="NONE")
    client.put_integration(restApiId=api, resourceId=root, httpMethod="GET", type="MOCK")
    client.create_deployment(restApiId=api, stageName="api")
    return f"https://{api}.execute-api.{DEV}.amazonaws.com/api"


def test_one_login_tells_every_command_what_it_needs_of_the_deployment(
    profile: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    del profile
    address = api_of("outscaler-dev")
    answer(capsys, "login", "dev")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    shown = answer(capsys, "config")
    assert shown["deployment"] == shown["current"] == "dev"
    assert values(shown) == {
        "stateTable": "outscaler-dev-state",
        "policyTable": "outscaler-dev-state-policies",
        "region": DEV,
        "prefix": "outscaler-dev",
        "secretPrefix": "outscaler/dev/",
        "sharedSecrets": "outscaler/shared/exoscale",
        "allowedEndpoints": "proxy.example.com:8443",
        "page": f"{address}/ui",
    }
    asked: list[str] = []

    def post(url: str) -> bytes:
        asked.append(url)
        return b'{"link": "/ui/open/abc"}'

    monkeypatch.setattr(ui, "post", post)
    assert main(["ui", "--hosted", "--no-open"]) == 0
    assert asked == [f"{address}/ui/session"]
    assert (
        main(
            ["init", "p.yaml", "--name", "shop", "--provider", "exoscale", "--location", "ch-gva-2"]
        )
        == 0
    )
    assert "outscaler/dev/shop/kubeconfig" in Path("p.yaml").read_text()
    assert main(["validate", "--strict", "p.yaml"]) == 0
    assert main(["apply", "p.yaml"]) == 0
    assert [cluster["name"] for cluster in answer(capsys, "get", "clusters")] == ["shop"]
    # an option outweighs the login
    assert answer(capsys, "get", "clusters", "--table", "outscaler-prod-state") == []


def test_login_to_a_stack_keeps_its_tables_and_its_page(
    profile: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    del profile
    outputs = {
        "TableName": "outscaler-prod-state",
        "PolicyTableName": "of-stack",
        "EndpointURL": "https://a.example/api/",
    }
    template = {
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    boto3.client("cloudformation").create_stack(
        StackName="scaler", TemplateBody=json.dumps(template)
    )
    answer(capsys, "login", "scaler")
    # belongs to a state table that nothing names
    monkeypatch.setenv("OUTSCALER_POLICY_TABLE", "of-another")
    shown = answer(capsys, "config")
    assert (values(shown)["stateTable"], values(shown)["policyTable"]) == (
        "outscaler-prod-state",
        "of-stack",
    )
    assert shown["settings"]["page"] == {
        "value": "https://a.example/api/ui",
        "from": "outscaler login scaler",
    }
    monkeypatch.setenv("OUTSCALER_API", "https://b.example/api")
    assert answer(capsys, "config")["settings"]["page"] == {
        "value": "https://b.example/api/ui",
        "from": "OUTSCALER_API",
    }
    assert (
        values(answer(capsys, "config", "--stage", "scaler"))["page"] == "https://a.example/api/ui"
    )


def test_login_without_the_right_to_see_the_api_keeps_the_tables(
    profile: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    del profile
    made = session.client

    def refused(service: str, **options: Any) -> Any:
        if service == "apigateway":
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetRestApis")
        return made(service, **options)

    monkeypatch.setattr(session, "client", refused)
    assert answer(capsys, "login", "dev")["api"] == ""
    assert values(answer(capsys, "config"))["stateTable"] == "outscaler-dev-state"


def test_config_use_makes_another_kept_deployment_the_current_one(
    profile: Path, capsys: Said
) -> None:
    del profile
    answer(capsys, "login", "dev")
    answer(capsys, "login", "prod")
    assert values(answer(capsys, "config"))["secretPrefix"] == "outscaler/prod/"
    assert values(answer(capsys, "config", "use", "dev"))["secretPrefix"] == "outscaler/dev/"
    shown = answer(capsys, "config")
    assert (shown["current"], [kept["name"] for kept in shown["deployments"]]) == (
        "dev",
        ["dev", "prod"],
    )
    assert main(["config"]) == 0
    assert "*         dev    outscaler-dev-state    eu-central-2" in capsys.readouterr().out


def test_stage_chooses_a_kept_deployment_for_one_command(profile: Path, capsys: Said) -> None:
    del profile
    for stage in SETTINGS:
        answer(capsys, "login", stage)
    for stage in SETTINGS:
        assert (
            values(answer(capsys, "config", "--stage", stage))["stateTable"]
            == f"outscaler-{stage}-state"
        )
    assert answer(capsys, "config")["current"] == "prod"


def test_stage_outweighs_the_environment_also_its_region(
    profile: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    del profile
    answer(capsys, "login", "far", "--region", FAR)
    monkeypatch.setenv("OUTSCALER_PREFIX", "outscaler-dev")
    monkeypatch.setenv("OUTSCALER_POLICY_TABLE", "of-dev")
    shown = values(answer(capsys, "config", "--stage", "far"))
    assert (shown["stateTable"], shown["policyTable"], shown["region"]) == (
        "outscaler-far-state",
        "outscaler-far-state-policies",
        FAR,
    )
    assert answer(capsys, "get", "clusters", "--stage", "far") == []


def test_environment_outweighs_the_login(
    profile: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    del profile
    for stage in SETTINGS:
        answer(capsys, "login", stage)
    monkeypatch.setenv("OUTSCALER_PREFIX", "outscaler-dev")
    shown = answer(capsys, "config")
    assert shown["settings"]["stateTable"] == {
        "value": "outscaler-dev-state",
        "from": "OUTSCALER_PREFIX",
    }
    # as login has kept it of dev
    assert shown["settings"]["sharedSecrets"]["value"] == "outscaler/shared/exoscale"
    monkeypatch.setenv("OUTSCALER_PREFIX", "outscaler-other")
    assert answer(capsys, "config")["settings"]["secretPrefix"]["from"] == "the state table's name"
    shown = values(answer(capsys, "config"))
    assert (shown["secretPrefix"], shown["sharedSecrets"], shown["page"]) == (
        "outscaler/other/",
        "",
        "",
    )
    capsys.readouterr()
    assert main(["config", "use", "dev"]) == 0
    assert (
        "OUTSCALER_PREFIX is set and takes precedence: unset it, or give --stage dev"
        in capsys.readouterr().err
    )


def test_file_of_a_release_with_one_deployment_stays_readable(profile: Path, capsys: Said) -> None:
    profile.write_text(
        '{"stack": "dev", "table": "outscaler-dev-state", "region": "eu-central-2", "settings": '
        "null}"
    )
    shown = answer(capsys, "config")
    assert (shown["current"], values(shown)["stateTable"]) == ("dev", "outscaler-dev-state")
    answer(capsys, "login", "prod")
    assert [kept["name"] for kept in answer(capsys, "config")["deployments"]] == ["dev", "prod"]


def test_second_name_of_a_deployment_replaces_the_first(profile: Path, capsys: Said) -> None:
    del profile
    answer(capsys, "login", "dev")
    answer(capsys, "login", "outscaler-dev")
    assert [kept["name"] for kept in answer(capsys, "config")["deployments"]] == ["outscaler-dev"]


def test_unknown_stage_is_refused_with_the_nearest_name(profile: Path, capsys: Said) -> None:
    del profile
    answer(capsys, "login", "prod")
    assert "no deployment is kept as 'prd'; did you mean prod?" in refusal(
        capsys, "config", "use", "prd"
    )
    assert "known: prod; outscaler login STACK keeps another one" in refusal(
        capsys, "get", "clusters", "--stage", "x"
    )
    assert "kept: prod" in refusal(capsys, "config", "use")


def test_no_other_deployment_takes_the_place_of_a_forgotten_one(
    profile: Path, capsys: Said
) -> None:
    del profile
    for stage in SETTINGS:
        answer(capsys, "login", stage)
    assert answer(capsys, "login", "--forget") == {"removed": True}
    assert "outscaler config use NAME chooses a kept deployment" in refusal(
        capsys, "get", "clusters"
    )
    assert answer(capsys, "login", "dev", "--forget") == {"removed": True}
    assert answer(capsys, "config")["deployments"] == []
    assert "outscaler login STACK once" in refusal(capsys, "get", "clusters")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"deployments": 3}',
        '{"deployments": [], "current": "dev"}',
        '{"stack": 1, "table": []}',
    ],
)
def test_file_that_is_not_of_login_is_one_line_with_its_name(
    profile: Path, capsys: Said, text: str
) -> None:
    profile.write_text(text)
    said = refusal(capsys, "config")
    assert said.startswith(f"{profile}: cannot be read (")
    assert said.count("\n") == 1


def test_stage_may_precede_the_command(profile: Path, capsys: Said) -> None:
    del profile
    for stage in SETTINGS:
        answer(capsys, "login", stage)
    for stage in SETTINGS:
        behind = answer(capsys, "config", "--stage", stage)
        assert answer(capsys, "--stage", stage, "config") == behind
        assert answer(capsys, f"--stage={stage}", "config") == behind
        other = next(name for name in SETTINGS if name != stage)
        assert answer(capsys, "--stage", other, "config", "--stage", stage) == behind


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--stage",), "outscaler --stage: names no deployment; write --stage NAME COMMAND"),
        (("--stage", "dev"), "outscaler: no command is given"),
        (("--stage", "dev", "gett"), "outscaler: 'gett' is not a command; did you mean get?"),
    ],
)
def test_stage_without_a_command_is_refused(
    arguments: tuple[str, ...], says: str, capsys: Said
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(says)
