"""Contents of a deployment by Chalice: what it keeps, omits and removes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import boto3
import click
import msgspec
import pytest
from chalice.cli import cli

from chalicelib.cli.main import main as outscaler
from chalicelib.model.errors import BadInput
from chalicelib.model.policy_permissions import Deployment, deployment_of
from chalicelib.policy.load import digest
from chalicelib.store import Store
from infra.aws.deploy import __main__ as command
from infra.aws.deploy import account_settings
from infra.aws.deploy.chalice_command import run_in_place
from infra.aws.deploy.chalice_resources import graph_of
from infra.aws.deploy.project import copied
from infra.aws.deploy.stage import ROOT, load, locate
from infra.aws.deploy.steps import graph_only
from infra.aws.package import configured_architecture
from infra.emulators.aws import LocalAws
from tests.functional.artifact import artifact
from tests.functional.deployments import STAGE, deploy, deployment, small_package

TABLE = "outscaler-dev-state"
_BOTOCORE = frozenset({"botocore", "jmespath", "python-dateutil", "six", "urllib3"})
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


def _store(aws: LocalAws) -> Store:
    return Store(TABLE, clock=lambda: 0.0, client=aws.client("dynamodb"))


class Observed(msgspec.Struct, frozen=True):
    """The stage after one step. code: of one function. limits: concurrency of two functions."""

    code: str
    apis: list[str]
    mappings: list[str]
    policies: tuple[str, ...]
    polled: set[str]
    limits: list[int | None]
    permitted: Deployment | None

    @classmethod
    def of(cls, aws: LocalAws) -> Observed:
        """Read the account."""
        functions = aws.client("lambda")
        mappings = functions.list_event_source_mappings()["EventSourceMappings"]
        limits = [
            functions.get_function_concurrency(FunctionName=f"outscaler-dev-{name}").get(
                "ReservedConcurrentExecutions"
            )
            for name in ("act_exoscale", "tick")
        ]
        return cls(
            functions.get_function_configuration(FunctionName="outscaler-dev-tick")["CodeSha256"],
            [one["id"] for one in aws.client("apigateway").get_rest_apis()["items"]],
            sorted(one["UUID"] for one in mappings),
            _store(aws).policies.names(),
            {
                one["EventSourceArn"].rpartition("-")[2]
                for one in mappings
                if one["State"] == "Enabled"
            },
            limits,
            _store(aws).deployment_settings().read(),
        )


class StageLife(msgspec.Struct):
    """A stage from its first deployment to its last. wrong: what each deployment reports as wrong.
    checks: exit code and output of `check`, before and after the upgrade. left: functions, APIs and
    tables after `undeploy`. variables: of a function after the first deployment."""

    wrong: list[int]
    checks: list[tuple[int, list[str]]]
    first: Observed
    variables: dict[str, str]
    applied: set[str]
    upgraded: Observed
    rolled_back: Observed
    undeployed: str
    left: tuple[list[Any], list[Any], list[str]]
    again: Observed


def _ran(*arguments: str) -> tuple[int, str]:
    with redirect_stdout(StringIO()) as output:
        return command.main(list(arguments)), output.getvalue()


def _changed(aws: LocalAws) -> None:
    """Change what the next deployment must keep, and what it must correct."""
    client, events = aws.client("lambda"), aws.client("events")
    client.put_function_concurrency(
        FunctionName="outscaler-dev-act_exoscale", ReservedConcurrentExecutions=0
    )
    for one in client.list_event_source_mappings()["EventSourceMappings"]:
        client.update_event_source_mapping(UUID=one["UUID"], Enabled=True)
    [mapping] = client.list_event_source_mappings(FunctionName="outscaler-dev-reconcile")[
        "EventSourceMappings"
    ]
    client.update_event_source_mapping(UUID=mapping["UUID"], FunctionResponseTypes=[])
    url = aws.client("sqs").get_queue_url(QueueName="outscaler-dev-act_alicloud")["QueueUrl"]
    aws.client("sqs").send_message(QueueUrl=url, MessageBody="{}")
    [target] = events.list_targets_by_rule(Rule="outscaler-dev-tick-event")["Targets"]
    events.put_targets(
        Rule="outscaler-dev-tick-event", Targets=[{"Id": target["Id"], "Arn": target["Arn"]}]
    )
    # of a copy of another stage
    _store(aws).deployment_settings().publish(Deployment(secret_prefix="outscaler/"))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> StageLife:
    """Four deployments for all tests: every change that a deployment keeps or corrects
    is made before the second."""
    folder = tmp_path_factory.mktemp("life")
    older, newer = small_package(folder), folder / "newer.zip"
    with zipfile.ZipFile(newer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("app.py"), "app = 'newer'\n")
    (folder / "policy.yaml").write_text(POLICY)
    with LocalAws() as aws, pytest.MonkeyPatch.context() as patch:
        aws.reset()
        for name, value in {**aws.env, "OUTSCALER_PREFIX": "outscaler-dev"}.items():
            patch.setenv(name, value)
        wrong = [len(deploy(older, folder / "built"))]
        first = Observed.of(aws)
        reconcile = aws.client("lambda").get_function_configuration(
            FunctionName="outscaler-dev-reconcile"
        )
        assert outscaler(["apply", str(folder / "policy.yaml")]) == 0
        applied = Observed.of(aws).polled
        _changed(aws)
        checks = [_ran("check")]
        wrong.append(len(deploy(newer, folder / "built")))
        checks.append(_ran("check"))
        upgraded = Observed.of(aws)
        _store(aws).policies.put("shop", "[", digest("["), 1)
        wrong.append(len(deploy(older, folder / "built")))
        rolled_back = Observed.of(aws)
        code, undeployed = _ran("undeploy")
        assert code == 0
        left = (
            aws.client("lambda").list_functions()["Functions"],
            aws.client("apigateway").get_rest_apis()["items"],
            aws.client("dynamodb").list_tables()["TableNames"],
        )
        wrong.append(len(deploy(older, folder / "built")))
        return StageLife(
            wrong,
            [(code, output.splitlines()) for code, output in checks],
            first,
            reconcile["Environment"]["Variables"],
            applied,
            upgraded,
            rolled_back,
            undeployed,
            left,
            Observed.of(aws),
        )


def test_no_deployment_of_a_stage_leaves_a_wrong_setting(life: StageLife) -> None:
    assert life.wrong == [0, 0, 0, 0]


def test_stage_publishes_what_its_functions_permit(life: StageLife) -> None:
    functions = deployment_of(
        life.variables | {"AWS_LAMBDA_FUNCTION_NAME": "outscaler-dev-reconcile"}
    )
    assert functions.secret_prefix == "outscaler/dev/"
    assert [one.permitted for one in (life.first, life.upgraded, life.rolled_back, life.again)] == [
        functions
    ] * 4


def test_only_queues_of_providers_named_in_policies_are_polled(life: StageLife) -> None:
    assert life.first.polled == {"reconcile"}
    assert life.applied == {"reconcile", "act_exoscale"}


def test_deployment_polls_queues_with_a_policy_or_with_messages_until_empty(
    life: StageLife,
) -> None:
    assert life.upgraded.polled == {"reconcile", "act_exoscale", "act_alicloud"}


def test_unreadable_policy_leaves_every_queue_polled(life: StageLife) -> None:
    assert len(life.rolled_back.polled) == 6


def test_upgrade_and_rollback_keep_the_address_and_every_row(life: StageLife) -> None:
    seen = (life.first, life.upgraded, life.rolled_back)
    assert seen[0].code == seen[2].code != seen[1].code
    assert [(one.apis, one.mappings) for one in seen] == [(seen[0].apis, seen[0].mappings)] * 3
    assert (len(seen[0].apis), len(seen[0].mappings)) == (1, 6)
    assert [one.policies for one in seen] == [(), ("shop",), ("shop",)]


def test_function_stopped_by_a_user_stays_stopped(life: StageLife) -> None:
    assert life.first.limits == [None, None]
    assert [life.upgraded.limits, life.rolled_back.limits] == [[0, None]] * 2


def test_manual_changes_of_a_deployment_are_detected_and_reverted(life: StageLife) -> None:
    (before, lines), (after, said) = life.checks
    assert (before, after, said) == (1, 0, ["stage dev is as it should be"])
    places = sorted(line.partition(" is ")[0] for line in lines)
    assert places == [
        *(
            f"mapping of outscaler-dev-act_{name}: polled"
            for name in ("cherryservers", "clusterapi", "huaweicloud")
        ),
        "mapping of outscaler-dev-reconcile: failures",
        "rule outscaler-dev-tick-event: target",
        f"table {TABLE}-policies: what policies may name",
    ]


def test_deployment_waits_for_the_clusters_that_have_passes(aws: LocalAws, tmp_path: Path) -> None:
    aws.create_table(TABLE)
    texts = {
        "shop": POLICY,
        "resting": POLICY.replace("shop", "resting").replace("active", "off"),
        "broken": "[",
    }
    for name, text in texts.items():
        _store(aws).policies.put(name, text, digest(text), None)
    said: list[str] = []
    made = deployment(
        tmp_path / "built",
        say=said.append,
        sleep=lambda _: _store(aws).scan_states.passed("shop", 5.0),
    )
    assert made.clusters() == ["shop"]
    assert [line.partition(":")[0] for line in said] == ["broken"]
    [first] = made.first_passes(["shop"])
    assert (first.cluster, first.succeeded) == ("shop", True)


def test_undeploy_keeps_the_tables_and_the_next_deployment_uses_them(life: StageLife) -> None:
    assert f"kept table {TABLE}" in life.undeployed
    assert life.left == ([], [], [TABLE, f"{TABLE}-policies"])
    assert life.again.policies == ("shop",)


@pytest.mark.parametrize(
    ("answers", "left"),
    [([], 2), (["dev"], 2), (["prod", TABLE], 2), (["dev", "yes"], 2), (["dev", TABLE], 0)],
)
def test_tables_are_deleted_only_after_two_confirmations(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, answers: list[str], left: int
) -> None:
    from infra.aws.deploy import foundation

    session = boto3.Session()
    foundation.apply(
        locate(load(STAGE), session), "outscaler-dev-tick-event", session, lambda seconds: None
    )
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


def _chalice(
    *arguments: str, folder: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from chalice.cli import main; raise SystemExit(main())",
            *arguments,
        ],
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


def _shorten_lock(file: Path) -> None:
    """Leave botocore, whose data the package rewrites, and what it needs. Other tests
    build the whole package."""
    entries = re.findall(r"^[a-z].*(?:\n +.*)*\n", file.read_text("utf-8"), re.MULTILINE)
    shortened = [each for each in entries if each.partition("==")[0] in _BOTOCORE]
    assert len(shortened) == len(_BOTOCORE)
    file.write_text("".join(shortened), "utf-8")


def test_chalice_deploy_in_a_clone_deploys_the_package_of_make_deploy(
    aws: LocalAws, tmp_path: Path
) -> None:
    clone = _checkout(tmp_path)
    _shorten_lock(clone / "requirements.txt")
    edited = clone / "chalicelib" / "model" / "errors.py"
    edited.write_text(edited.read_text("utf-8") + "\n# edited\n", "utf-8")
    done = _chalice("deploy", "--stage", STAGE, folder=clone)
    assert (done.returncode, done.stderr) == (0, "")
    said = [
        line.split("outscaler ", 1)[1]
        for line in done.stdout.splitlines()
        if " outscaler " in line or "/outscaler " in line
    ]
    assert said[0] == "login dev"
    assert said[-2:] == ["apply NAME.yaml --wait", "get"]
    package = clone / "build" / "deploy" / STAGE / "package" / "deployment.zip"
    with zipfile.ZipFile(package) as archive:
        assert b"# edited" in archive.read("chalicelib/model/errors.py")
        names = archive.namelist()
    assert {"botocore/session.py", "botocore/data/endpoints.json"} <= set(names)
    assert not [name for name in names if name.startswith("infra/")]
    code = aws.client("lambda").get_function_configuration(FunctionName="outscaler-dev-tick")[
        "CodeSha256"
    ]
    assert code == base64.b64encode(hashlib.sha256(package.read_bytes()).digest()).decode()
    session = boto3.Session()
    stage = locate(load(STAGE), session)
    wrong = account_settings.settings(stage, graph_only(stage), frozenset(), session)
    assert [one.place for one in wrong if not one.right] == []


@pytest.mark.slow
def test_chalice_package_writes_the_template_and_zip_of_make_package(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = _chalice("package", "--stage", "prod", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((out / "sam.json").read_text("utf-8"))["Resources"]["StateTable"]
    built = artifact(configured_architecture("prod"))
    assert (out / "deployment.zip").read_bytes() == built.zip.read_bytes()


def test_chalice_package_is_make_package(tmp_path: Path) -> None:
    """The package is built by `chalice deploy` above, and is compared in the slow test."""
    clone = _checkout(tmp_path)
    module = clone / "infra" / "aws" / "package.py"
    calls = (
        "def package(*arguments):\n    sys.stderr.write(repr(arguments))\n    raise "
        "PackagingFailed('.')\n"
    )
    source = module.read_text("utf-8")
    start = 'if __name__ == "__main__":'
    assert source.count(start) == 1
    module.write_text(source.replace(start, f"{calls}\n\n{start}"), "utf-8")
    done = _chalice("package", "--stage", "prod", "out", folder=clone)
    assert (done.returncode, done.stderr) == (2, "('prod', PosixPath('out'), '').\n")


_REFUSED = (
    (
        ("deploy", "--stage", "pord"),
        "stage pord: is not in .chalice/config.json; did you mean prod?",
    ),
    (
        ("package", "--stage", "pord", "out"),
        "--stage pord: not in .chalice/config.json; use one of dev, prod",
    ),
    (
        ("deploy", "--api-gateway-stage", "v1"),
        "Error: --api-gateway-stage has no effect; the stage's settings",
    ),
    (
        ("package", "--pkg-format", "terraform", "out"),
        "Error: --pkg-format has no effect; the stage's settings",
    ),
    (("delete", "--stage", "prod"), "AWS region: is not set; set AWS_REGION"),
    (("deploy", "--stage", "prod"), "AWS region: is not set; set AWS_REGION"),
)


@pytest.mark.parametrize(("arguments", "said"), [_REFUSED[0], _REFUSED[2]])
def test_refused_chalice_command_names_the_remedy_without_a_traceback(
    arguments: tuple[str, ...], said: str
) -> None:
    done = _chalice(*arguments, AWS_REGION="", AWS_DEFAULT_REGION="", AWS_CONFIG_FILE=os.devnull)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert done.stderr.splitlines()[-1].startswith(said)


@pytest.mark.parametrize(("arguments", "said"), _REFUSED)
def test_refused_command_of_chalice_ends_with_code_2(
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What app.py calls while Chalice loads it, with the context that
    Chalice's own command line gives."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    parent = click.Context(cli, info_name="chalice")
    context = cli.commands[arguments[0]].make_context(arguments[0], list(arguments[1:]), parent)
    with pytest.raises((SystemExit, click.UsageError)) as refused:
        run_in_place(context)
    if isinstance(refused.value, click.UsageError):
        refused.value.show()
    assert getattr(refused.value, "exit_code", getattr(refused.value, "code", None)) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(said)


def test_other_chalice_commands_are_left_to_chalice() -> None:
    done = _chalice("url", "--stage", "prod", AWS_DEFAULT_REGION="eu-west-1")
    assert "Could not find a record of a Rest API in chalice stage: 'prod'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (
            ["deploy", "--stage", "pord"],
            {},
            "stage pord: is not in .chalice/config.json; did you mean prod?",
        ),
        (
            ["check"],
            {"AWS_REGION": "", "AWS_DEFAULT_REGION": ""},
            "AWS region: is not set; set AWS_REGION",
        ),
        (
            ["check"],
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"},
            "AWS credentials: are not",
        ),
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


def test_table_of_another_kind_is_not_adopted(
    aws: LocalAws, capsys: pytest.CaptureFixture[str]
) -> None:
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
    with pytest.raises(
        BadInput, match=r"OUTSCALER_PASS_CONCURRENCY.*write a number from 2 to 1000"
    ):
        load("dev", tmp_path)


def test_configuration_sets_the_concurrency_of_passes(tmp_path: Path) -> None:
    copied(
        msgspec.structs.replace(load("dev"), account="123456789012", region="us-east-1"), tmp_path
    )
    _configured(tmp_path, "64")
    sources = {each.queue: each.maximum_concurrency for each in graph_of(tmp_path, "dev").sources}
    assert sources["outscaler-dev-reconcile"] == 64
    assert sources["outscaler-dev-act_exoscale"] == 5
