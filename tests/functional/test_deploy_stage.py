"""Contents of a deployment by Chalice: what it keeps, omits and removes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest

from chalicelib.command.main import main as outscaler
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import Deployment, deployment_of
from chalicelib.policy.load import digest
from chalicelib.store import Store
from infra.aws.deploy import __main__ as command
from infra.aws.deploy import account_settings
from infra.aws.deploy.chalice_resources import graph_of
from infra.aws.deploy.project import copied
from infra.aws.deploy.stage import ROOT, load, locate
from infra.aws.deploy.steps import Deployment as DeploymentSteps
from infra.aws.deploy.steps import graph_only
from infra.aws.package import configured_architecture
from infra.emulators.aws import LocalAws
from tests.functional.artifact import artifact
from tests.functional.deployments import SERVICES, STAGE, account, deploy, restored, small_package

TABLE = "outscaler-dev-state"
POLICY = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: shop}
spec:
  mode: active
  kubernetes: {kubeconfigSecret: outscaler/dev/shop/kubeconfig}
  providers: {exoscale: {zone: ch-gva-2, credentialsSecret: outscaler/dev/shop/exoscale}}
"""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalAws]:
    with LocalAws() as made:
        made.reset()
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def built(tmp_path: Path) -> Path:
    return small_package(tmp_path)


class Baseline:
    """The state of the account after a first deployment. Tests that only need a deployed stage share it."""

    def __init__(self) -> None:
        self.account: Any = None
        self.mappings: dict[str, Any] = {}


@pytest.fixture(scope="module")
def baseline() -> Baseline:
    return Baseline()


@pytest.fixture
def deployed(baseline: Baseline, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalAws]:
    """An account with the stage as its first deployment left it.

    The previous test's changes are undone. If the account is then not exactly the baseline, for example because
    another test has emptied it, the stage is deployed again into an empty account.
    """
    with LocalAws() as made:
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        clients = {service: made.client(service) for service in SERVICES}
        if baseline.account is not None:
            restored(clients, baseline.mappings)
        if baseline.account is None or _state(clients) != baseline.account:
            made.reset()
            assert deploy(built, tmp_path / "first") == []
            found = clients["lambda"].list_event_source_mappings()["EventSourceMappings"]
            baseline.account, baseline.mappings = _state(clients), {one["UUID"]: one for one in found}
        yield made


def _state(clients: dict[str, Any]) -> Any:
    """The account with its rows and function limits."""
    tables = clients["dynamodb"].list_tables()["TableNames"]
    functions = [one["FunctionName"] for one in clients["lambda"].list_functions()["Functions"]]
    return (
        account(clients),
        {name: clients["dynamodb"].scan(TableName=name)["Items"] for name in tables},
        {
            name: clients["lambda"].get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions")
            for name in functions
        },
    )


def _polled(aws: LocalAws) -> set[str]:
    found = aws.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    return {one["EventSourceArn"].rpartition("-")[2] for one in found if one["State"] == "Enabled"}


def _store(aws: LocalAws) -> Store:
    return Store(TABLE, clock=lambda: 0.0, client=aws.client("dynamodb"))


def test_stage_publishes_what_its_functions_permit(deployed: LocalAws, built: Path, tmp_path: Path) -> None:
    name = "outscaler-dev-reconcile"
    made = deployed.client("lambda").get_function_configuration(FunctionName=name)
    functions = deployment_of(made["Environment"]["Variables"] | {"AWS_LAMBDA_FUNCTION_NAME": name})
    settings = _store(deployed).deployment_settings()
    assert settings.read() == functions
    assert functions.secret_prefix == "outscaler/dev/"
    settings.publish(Deployment(secret_prefix="outscaler/"))  # another stage's, restored from a copy
    (wrong,) = _checked()
    assert wrong.place == f"table {TABLE}-policies: what policies may name"
    assert deploy(built, tmp_path / "again") == []
    assert settings.read() == functions


def _checked() -> list[account_settings.Setting]:
    made = DeploymentSteps(locate(load(STAGE), boto3.Session()), boto3.Session(), lambda line: None)
    return list(made.check(made.graph()))


def test_only_queues_of_providers_named_in_policies_are_polled(
    deployed: LocalAws, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _polled(deployed) == {"reconcile"}
    monkeypatch.setenv("OUTSCALER_PREFIX", "outscaler-dev")
    (tmp_path / "policy.yaml").write_text(POLICY)
    assert outscaler(["apply", str(tmp_path / "policy.yaml")]) == 0
    assert _polled(deployed) == {"reconcile", "act_exoscale"}
    assert deploy(built, tmp_path / "built") == []
    assert _polled(deployed) == {"reconcile", "act_exoscale"}


def test_queue_with_messages_is_polled_until_empty(deployed: LocalAws, built: Path, tmp_path: Path) -> None:
    client, sqs = deployed.client("lambda"), deployed.client("sqs")
    for one in client.list_event_source_mappings()["EventSourceMappings"]:
        client.update_event_source_mapping(UUID=one["UUID"], Enabled=True)
    url = sqs.get_queue_url(QueueName="outscaler-dev-act_alicloud")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="{}")
    deploy(built, tmp_path / "built")
    assert _polled(deployed) == {"reconcile", "act_alicloud"}


def test_unreadable_policy_leaves_every_queue_polled(deployed: LocalAws, built: Path, tmp_path: Path) -> None:
    _store(deployed).policies.put("shop", "[", digest("["), None)
    deploy(built, tmp_path / "built")
    assert len(_polled(deployed)) == 6


def test_upgrade_and_rollback_keep_the_address_and_every_row(deployed: LocalAws, built: Path, tmp_path: Path) -> None:
    _store(deployed).policies.put("shop", POLICY, digest(POLICY), None)
    newer = tmp_path / "newer.zip"
    with zipfile.ZipFile(newer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("app.py"), "app = 'newer'\n")
    seen = []
    for package in (built, newer, built):
        assert deploy(package, tmp_path / "built") == []
        code = deployed.client("lambda").get_function_configuration(FunctionName="outscaler-dev-tick")["CodeSha256"]
        apis = [one["id"] for one in deployed.client("apigateway").get_rest_apis()["items"]]
        mappings = [
            one["UUID"] for one in deployed.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        ]
        seen.append((code, apis, sorted(mappings), _store(deployed).policies.names()))
    assert seen[0] == seen[2]
    assert seen[0][0] != seen[1][0]
    assert seen[0][1:] == seen[1][1:]


def test_function_stopped_by_a_user_stays_stopped(deployed: LocalAws, built: Path, tmp_path: Path) -> None:
    client = deployed.client("lambda")
    client.put_function_concurrency(FunctionName="outscaler-dev-act_exoscale", ReservedConcurrentExecutions=0)
    deploy(built, tmp_path / "built")
    limits = [
        client.get_function_concurrency(FunctionName=f"outscaler-dev-{name}").get("ReservedConcurrentExecutions")
        for name in ("act_exoscale", "tick")
    ]
    assert limits == [0, None]


def test_manual_changes_of_a_deployment_are_detected_and_reverted(
    deployed: LocalAws, built: Path, tmp_path: Path
) -> None:
    client, events = deployed.client("lambda"), deployed.client("events")
    [mapping] = client.list_event_source_mappings(FunctionName="outscaler-dev-reconcile")["EventSourceMappings"]
    client.update_event_source_mapping(UUID=mapping["UUID"], FunctionResponseTypes=[])
    [target] = events.list_targets_by_rule(Rule="outscaler-dev-tick-event")["Targets"]
    events.put_targets(Rule="outscaler-dev-tick-event", Targets=[{"Id": target["Id"], "Arn": target["Arn"]}])
    assert command.main(["check"]) == 1
    assert deploy(built, tmp_path / "built") == []
    assert command.main(["check"]) == 0


def test_undeploy_keeps_the_tables_and_the_next_deployment_uses_them(
    deployed: LocalAws, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _store(deployed).policies.put("shop", POLICY, digest(POLICY), None)
    assert command.main(["undeploy"]) == 0
    assert f"kept table {TABLE}" in capsys.readouterr().out
    assert deployed.client("lambda").list_functions()["Functions"] == []
    assert deployed.client("apigateway").get_rest_apis()["items"] == []
    assert deployed.client("dynamodb").list_tables()["TableNames"] == [TABLE, f"{TABLE}-policies"]
    assert deploy(built, tmp_path / "built") == []
    assert _store(deployed).policies.names() == ("shop",)


@pytest.mark.parametrize(
    ("answers", "left"), [([], 2), (["dev"], 2), (["prod", TABLE], 2), (["dev", "yes"], 2), (["dev", TABLE], 0)]
)
def test_tables_are_deleted_only_after_two_confirmations(
    aws: LocalAws, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str], left: int
) -> None:
    from infra.aws.deploy import foundation

    session = boto3.Session()
    foundation.apply(locate(load(STAGE), session), "outscaler-dev-tick-event", session, lambda seconds: None)
    given = iter(answers)

    def answered(question: str) -> str:
        assert question
        try:
            return next(given)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answered)
    assert command.main(["undeploy", "--with-table"]) == (0 if left == 0 else 2)
    assert len(aws.client("dynamodb").list_tables()["TableNames"]) == left


def _chalice(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from chalice.cli import main; raise SystemExit(main())", *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _checkout(folder: Path) -> Path:
    """Copy what `chalice deploy` reads of a fresh clone."""
    for name in ("app.py", "requirements.txt"):
        shutil.copy(ROOT / name, folder)
    for name in ("chalicelib", "infra"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".chalice").mkdir()
    shutil.copy(ROOT / ".chalice" / "config.json", folder / ".chalice")
    return folder


def test_chalice_deploy_in_a_clone_deploys_the_package_of_make_deploy(aws: LocalAws, tmp_path: Path) -> None:
    clone = _checkout(tmp_path)
    edited = clone / "chalicelib" / "model" / "errors.py"
    edited.write_text(edited.read_text("utf-8") + "\n# edited\n", "utf-8")
    done = _chalice("deploy", "--stage", STAGE, folder=clone)
    assert (done.returncode, done.stderr) == (0, "")
    assert "outscaler apply policy.yaml" in done.stdout
    package = clone / "build" / "deploy" / STAGE / "package" / "deployment.zip"
    with zipfile.ZipFile(package) as archive:
        assert b"# edited" in archive.read("chalicelib/model/errors.py")
        assert not [name for name in archive.namelist() if name.startswith("infra/")]
    code = aws.client("lambda").get_function_configuration(FunctionName="outscaler-dev-tick")["CodeSha256"]
    assert code == base64.b64encode(hashlib.sha256(package.read_bytes()).digest()).decode()
    session = boto3.Session()
    stage = locate(load(STAGE), session)
    wrong = account_settings.settings(stage, graph_only(stage), frozenset(), session)
    assert [one.place for one in wrong if not one.right] == []
    assert package.stat().st_size <= 27 * 10**6


def test_chalice_package_writes_the_template_and_zip_of_make_package(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = _chalice("package", "--stage", "prod", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((out / "sam.json").read_text("utf-8"))["Resources"]["StateTable"]
    built = artifact(configured_architecture("prod"))
    assert (out / "deployment.zip").read_bytes() == built.zip.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("deploy", "--stage", "pord"), "stage pord: is not in .chalice/config.json; did you mean prod?"),
        (("package", "--stage", "pord", "out"), "--stage pord: not in .chalice/config.json; use one of dev, prod"),
        (("deploy", "--api-gateway-stage", "v1"), "Error: --api-gateway-stage has no effect; the stage's settings"),
        (("package", "--pkg-format", "terraform", "out"), "Error: --pkg-format has no effect; the stage's settings"),
        (("delete", "--stage", "prod"), "AWS region: is not set; set AWS_REGION"),
        (("deploy", "--stage", "prod"), "AWS region: is not set; set AWS_REGION"),
    ],
)
def test_refused_chalice_command_names_the_remedy_without_a_traceback(arguments: tuple[str, ...], said: str) -> None:
    done = _chalice(*arguments, AWS_REGION="", AWS_DEFAULT_REGION="", AWS_CONFIG_FILE=os.devnull)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert done.stderr.splitlines()[-1].startswith(said)


def test_other_chalice_commands_are_left_to_chalice() -> None:
    done = _chalice("url", "--stage", "prod", AWS_DEFAULT_REGION="eu-west-1")
    assert "Could not find a record of a Rest API in chalice stage: 'prod'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["deploy", "--stage", "pord"], {}, "stage pord: is not in .chalice/config.json; did you mean prod?"),
        (["check"], {"AWS_REGION": "", "AWS_DEFAULT_REGION": ""}, "AWS region: is not set; set AWS_REGION"),
        (["check"], {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"}, "AWS credentials: are not"),
        (["check"], {}, "stage dev is not deployed in us-east-1; run make deploy"),
    ],
)
def test_deployment_error_is_one_line_with_the_remedy(
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    environment: dict[str, str],
    said: str,
) -> None:
    assert aws.endpoint
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert command.main(arguments) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(said)
    assert len(shown.splitlines()) == 1


def test_table_of_another_kind_is_not_adopted(aws: LocalAws, capsys: pytest.CaptureFixture[str]) -> None:
    aws.client("dynamodb").create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    from infra.aws.deploy import foundation

    session = boto3.Session()
    with pytest.raises(BadInput, match=f"table {TABLE}: exists, and its key is not"):
        foundation.apply(locate(load(STAGE), session), "rule", session, lambda seconds: None)
    assert json.dumps(capsys.readouterr().err) == '""'


def _configured(folder: Path, concurrency: str) -> None:
    """Write a configuration whose stage `dev` has this concurrency of passes."""
    config = json.loads((ROOT / ".chalice" / "config.json").read_text("utf-8"))
    config["stages"]["dev"]["environment_variables"]["OUTSCALER_PASS_CONCURRENCY"] = concurrency
    (folder / ".chalice").mkdir(exist_ok=True)
    (folder / ".chalice" / "config.json").write_text(json.dumps(config), "utf-8")


@pytest.mark.parametrize("given", ["", "abc", "1", "1001", "\u0664"])
def test_impossible_concurrency_of_passes_is_named(given: str, tmp_path: Path) -> None:
    _configured(tmp_path, given)
    with pytest.raises(BadInput, match=r"OUTSCALER_PASS_CONCURRENCY.*write a number from 2 to 1000"):
        load("dev", tmp_path)


def test_configuration_sets_the_concurrency_of_passes(tmp_path: Path) -> None:
    copied(msgspec.structs.replace(load("dev"), account="123456789012", region="us-east-1"), tmp_path)
    _configured(tmp_path, "64")
    sources = {each.queue: each.maximum_concurrency for each in graph_of(tmp_path, "dev").sources}
    assert sources["outscaler-dev-reconcile"] == 64
    assert sources["outscaler-dev-act_exoscale"] == 5
