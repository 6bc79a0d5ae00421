"""`outscaler import` turns Cluster Autoscaler's manifest into a policy that validate accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from chalicelib.cli.main import main

Said = pytest.CaptureFixture[str]
KEY = "not-a-real-key"


def manifest(*flags: str, image: str = "registry.example/autoscaler:v1.3.1.2") -> str:
    """One Deployment of the autoscaler with keys of a Secret, and the Secret."""
    keys = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": "cloud-config", "key": key}}}
        for name, key in (
            ("ACCESS_KEY_ID", "access-key-id"),
            ("ACCESS_KEY_SECRET", "access-key-secret"),
        )
    ]
    container = {
        "name": "cluster-autoscaler",
        "image": image,
        "command": ["./cluster-autoscaler", *flags],
        "env": keys,
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cluster-autoscaler", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cloud-config", "namespace": "kube-system"},
        "stringData": {"access-key-id": KEY, "access-key-secret": KEY},
    }
    return yaml.safe_dump_all([deployment, secret])


ALICLOUD = ("--cloud-provider=alicloud", "--nodes=1:10:asg-bp18p2yfxow2dloq0001", "--v=4")
ARGUMENTS = ("--name", "shop", "--region", "cn-hangzhou")


def file_of(folder: Path, text: str) -> str:
    path = folder / "deploy.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_IMP_2_a_manifest_becomes_a_policy_that_validate_accepts(
    tmp_path: Path, capsys: Said
) -> None:
    assert main(["import", file_of(tmp_path, manifest(*ALICLOUD)), *ARGUMENTS]) == 0
    said = capsys.readouterr()
    policy = tmp_path / "shop.yaml"
    policy.write_text(said.out, encoding="utf-8")
    assert main(["validate", "--strict", str(policy)]) == 0
    document = yaml.safe_load(said.out)
    assert list(document["spec"]) == ["mode", "kubernetes", "providers", "options"]
    assert list(document["spec"]["options"].items()) == [
        ("expander", "random"),
        ("expendablePodsPriorityCutoff", 0),
        ("scaleDownDelayAfterDelete", "10s"),
        ("cordonNodeBeforeTerminating", False),
    ]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_IMP_3_no_output_has_a_key_of_the_secret(output: str, tmp_path: Path, capsys: Said) -> None:
    report = tmp_path / "report.txt"
    file = file_of(tmp_path, manifest(*ALICLOUD))
    arguments = [
        "import",
        file,
        *ARGUMENTS,
        "--report",
        str(report),
        *(["-o", "json"] if output == "json" else []),
    ]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert KEY not in said.out + said.err + report.read_text(encoding="utf-8")


def test_json_output_has_the_report_beside_the_document(tmp_path: Path, capsys: Said) -> None:
    assert main(["import", file_of(tmp_path, manifest(*ALICLOUD)), *ARGUMENTS, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["apiVersion", "kind", "metadata", "spec", "report"]
    assert set(found["report"][0]) == {"line", "source", "word", "verdict", "path", "text"}


def test_strict_import_ends_with_1_where_something_is_not_here(
    tmp_path: Path, capsys: Said
) -> None:
    file = file_of(tmp_path, manifest(*ALICLOUD, "--kube-client-qps=50"))
    assert main(["import", file, *ARGUMENTS, "--strict"]) == 1
    assert "kubeClientQps: 50" in capsys.readouterr().out


def last_lines(said: str) -> list[str]:
    """Return the lines from the counts to the next command."""
    lines = said.splitlines()
    first = next(
        at for at, line in enumerate(lines) if line.endswith(("missing:", "nothing is missing."))
    )
    return lines[first:]


def test_what_is_missing_is_listed_with_its_remedy(tmp_path: Path, capsys: Said) -> None:
    file = file_of(tmp_path, manifest(*ALICLOUD, "--kube-client-qps=50", "--nonsense=1"))
    assert main(["import", file, *ARGUMENTS, "--skip-unknown"]) == 0
    said = capsys.readouterr()
    counts, *missing, following = last_lines(said.err)
    assert "1 not here" in counts
    assert "1 unknown" in counts
    assert "nothing is missing" not in said.err + said.out
    assert missing == [
        "- unknown: --nonsense=1",
        (
            "- not here: --kube-client-qps=50: this version does not use it: Requests per second "
            "to the cluster's API."
        ),
        (
            "- create the secrets ssm:/outscaler/shop/kubeconfig, ssm:/outscaler/shop/alicloud: "
            "rows `secret` have the commands"
        ),
    ]
    assert following.startswith("Next: outscaler validate shop.yaml")
    assert [f"# {line}" for line in missing] == [
        line for line in said.out.splitlines() if line.startswith("# - ")
    ]


def test_the_role_of_a_node_is_missing_a_key_that_must_be_created(capsys: Said) -> None:
    command = f"REGION_ID=cn-hangzhou cluster-autoscaler {' '.join(ALICLOUD)}"
    assert main(["import", "--command", command, "--name", "shop"]) == 0
    missing = "\n".join(last_lines(capsys.readouterr().err))
    assert "create an access key of a RAM user with infra/alicloud/ram-policy.json" in missing
    assert "ssm:/outscaler/shop/alicloud" in missing


def test_strict_import_ends_with_1_where_a_value_is_missing(capsys: Said) -> None:
    command = (
        "CHERRY_AUTH_TOKEN=x cluster-autoscaler --cloud-provider=cherryservers --nodes=0:3:a "
        "--cloud-config=/c"
    )
    assert main(["import", "--command", command, "--name", "shop", "--strict"]) == 1
    missing = "\n".join(last_lines(capsys.readouterr().err))
    assert "missing: no --cluster-name" in missing
    assert "add clusterName" in missing
    assert (
        main(["import", "--command", f"{command} --cluster-name=a", "--name", "shop", "--strict"])
        == 0
    )


def test_import_refuses_all_unknown_flags_at_once(tmp_path: Path, capsys: Said) -> None:
    file = file_of(tmp_path, manifest(*ALICLOUD, "--expanders=random", "--nonsense=1"))
    assert main(["import", file, *ARGUMENTS]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "did you mean --expander?" in said.err
    assert "--nonsense" in said.err
