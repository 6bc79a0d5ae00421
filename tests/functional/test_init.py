"""`outscaler init` makes a policy that validate accepts, from answers or arguments."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from chalicelib.cli.commands.init import STARTS
from chalicelib.cli.main import main
from tests.cases import each_row

Said = pytest.CaptureFixture[str]
LOCATIONS = {
    "alicloud": "cn-hangzhou 1:10:asg-bp18p2yfxow2dloq0001",
    "clusterapi": "prod",
    "cherryservers": "prod 0:10:pool1",
    "exoscale": "ch-gva-2",
    "huaweicloud": "cn-north-4 2292498e-1111-11ee-8b5e-0255ac1001ba",
}


class Keyboard(io.StringIO):
    """Standard input of a person who types these lines."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("provider", list(STARTS))
def test_init_makes_a_policy_that_validate_accepts(
    provider: str, tmp_path: Path, capsys: Said
) -> None:
    policy = tmp_path / "prod.yaml"
    arguments = [
        "--name",
        "prod",
        "--provider",
        provider,
        "--location",
        LOCATIONS[provider],
        "--max-nodes",
        "50",
    ]
    assert main(["init", str(policy), *arguments]) == 0
    assert f"outscaler validate {policy}" in capsys.readouterr().err
    assert main(["validate", "--strict", str(policy)]) == 0
    document = yaml.safe_load(policy.read_text())
    assert document["spec"]["mode"] == "shadow"
    vendors = {"scaleDownEnabled": False, "scaleDownDelayAfterDelete": "10m"}
    own = vendors if provider == "huaweicloud" else {}
    assert document["spec"]["options"] == {**own, "maxNodesTotal": 50}


@pytest.mark.parametrize("provider", list(STARTS))
def test_init_proposes_consolidation_in_shadow_that_validate_accepts(
    provider: str, tmp_path: Path
) -> None:
    policy = tmp_path / "prod.yaml"
    arguments = ["--name", "prod", "--provider", provider, "--location", LOCATIONS[provider]]
    assert main(["init", str(policy), *arguments]) == 0
    text = policy.read_text()
    assert "consolidation" not in yaml.safe_load(text)["spec"]
    for key in ("consolidation", "prices"):
        text = text.replace(f"  # {key}: ", f"  {key}: ")
    assert ("needs options.scaleDownEnabled: true" in text) == ("scaleDownEnabled: false" in text)
    text = text.replace("scaleDownEnabled: false", "scaleDownEnabled: true")
    policy.write_text(text)
    spec = yaml.safe_load(text)["spec"]
    assert (spec["consolidation"], "prices" in spec) == (
        {"mode": "shadow"},
        not STARTS[provider].priced,
    )
    assert main(["validate", "--strict", str(policy)]) == 0


@pytest.mark.parametrize("provider", list(STARTS))
def test_init_proposes_node_lifecycle_and_spot_where_there_is_any(
    provider: str, tmp_path: Path
) -> None:
    policy = tmp_path / "prod.yaml"
    arguments = ["--name", "prod", "--provider", provider, "--location", LOCATIONS[provider]]
    assert main(["init", str(policy), *arguments]) == 0
    text = policy.read_text()
    assert not {"nodeLifecycle", "spot"} & yaml.safe_load(text)["spec"].keys()
    for key in ("nodeLifecycle", "spot"):
        text = text.replace(f"  # {key}: ", f"  {key}: ")
    policy.write_text(text)
    spec = yaml.safe_load(text)["spec"]
    assert spec["nodeLifecycle"] == {"maxNodeAge": "720h", "drift": "replace"}
    assert ("spot" in spec) == (provider != "exoscale")
    assert main(["validate", str(policy)]) == 0


def test_init_asks_five_questions_and_asks_again(
    monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    answers = ["Prod!", "prod", "aws", "exoscale", "ch-gva-2", "", "many", ""]
    monkeypatch.setattr("sys.stdin", Keyboard("\n".join(answers) + "\n"))
    assert main(["init"]) == 0
    said = capsys.readouterr()
    assert yaml.safe_load(said.out)["spec"] == {
        "mode": "shadow",
        "kubernetes": {"kubeconfigSecret": "ssm:/outscaler/prod/kubeconfig"},
        "providers": {
            "exoscale": {"zone": "ch-gva-2", "credentialsSecret": "ssm:/outscaler/prod/exoscale"}
        },
    }
    assert "'Prod!' is not a cluster's name" in said.err
    assert "'aws' is not a provider; write one of alicloud" in said.err
    assert "'many' is not a number of nodes" in said.err


@each_row(
    "arguments, says",
    [
        ((), "--name: is not given, and standard input is not a terminal"),
        (("--name", "A b"), "--name: 'A b' is not a cluster's name"),
        (("--name", "a", "--provider", "gcp"), "--provider: 'gcp' is not a provider"),
        (
            ("--name", "a", "--provider", "huaweicloud", "--location", "x"),
            "--location: 'x' is not 2 words",
        ),
        (("--name", "a", "--provider", "exoscale", "--location", "no_zone"), "zone"),
    ],
)
def test_init_refuses_answers_that_cannot_be_used(arguments: tuple[str, ...], says: str) -> None:
    import contextlib

    heard = io.StringIO()
    with contextlib.redirect_stderr(heard):
        assert main(["init", *arguments]) == 2
    assert says in heard.getvalue()


def test_init_names_secrets_of_the_deployment(
    monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setenv("OUTSCALER_PREFIX", "outscaler-dev")
    assert main(["init", "--name", "prod", "--provider", "exoscale", "--location", "ch-gva-2"]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["spec"]["kubernetes"] == {"kubeconfigSecret": "ssm:/outscaler/dev/prod/kubeconfig"}


@each_row(
    "location, settings",
    [
        ("prod", {"clusterName": "prod"}),
        ("teams/prod", {"clusterName": "prod", "namespace": "teams"}),
    ],
)
def test_init_takes_the_namespace_of_a_cluster_api_cluster(
    location: str, settings: dict[str, str], capsys: Said
) -> None:
    arguments = ("--name", "prod", "--provider", "clusterapi", "--location", location)
    assert main(["init", *arguments]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["spec"]["providers"] == {"clusterapi": settings}


@each_row(
    "arguments, prefix, command",
    [
        (
            (),
            "ssm:/",
            (
                "aws ssm put-parameter --type SecureString --tier Intelligent-Tiering --name "
                "/outscaler/{} --value"
            ),
        ),
        (
            ("--secret-store", "secretsmanager"),
            "",
            "aws secretsmanager create-secret --name outscaler/{} --secret-string",
        ),
    ],
)
def test_init_proposes_parameters_and_says_how_to_store_them(
    arguments: tuple[str, ...], prefix: str, command: str, capsys: Said
) -> None:
    assert (
        main(
            [
                "init",
                "--name",
                "prod",
                "--provider",
                "exoscale",
                "--location",
                "ch-gva-2",
                *arguments,
            ]
        )
        == 0
    )
    made = capsys.readouterr()
    spec = yaml.safe_load(made.out)["spec"]
    names = [
        spec["kubernetes"]["kubeconfigSecret"],
        spec["providers"]["exoscale"]["credentialsSecret"],
    ]
    assert names == [f"{prefix}outscaler/prod/kubeconfig", f"{prefix}outscaler/prod/exoscale"]
    stored = [
        line.removeprefix("Store: ") for line in made.err.splitlines() if line.startswith("Store: ")
    ]
    assert stored == [
        f"{command.format(use)} file://FILE" for use in ("prod/kubeconfig", "prod/exoscale")
    ]


def test_init_does_not_replace_a_file(tmp_path: Path, capsys: Said) -> None:
    policy = tmp_path / "prod.yaml"
    policy.write_text("mine")
    assert main(["init", str(policy)]) == 2
    assert policy.read_text() == "mine"
    assert "exists already" in capsys.readouterr().err


def test_empty_answer_is_the_default_or_is_told_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    lines = ["", "prod", "", "exoscale", "", "ch-gva-2", "", ""]
    monkeypatch.setattr("sys.stdin", Keyboard("\n".join(lines) + "\n"))
    assert main(["init"]) == 0
    said = capsys.readouterr()
    assert "maxNodesTotal" not in said.out
    needed = [line for line in said.err.splitlines() if "An answer is needed: " in line]
    assert len(needed) == 3
    assert "Name of the cluster (small letters, digits, dashes)." in needed[0]
    assert "exoscale" in needed[1]
    assert "Zone, such as ch-gva-2." in needed[2]
