"""`outscaler import` of Helm values gives the document of the manifest that the
chart renders from them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.main import main
from tests.cases import each_row
from tests.functional.import_runs import Said, container, imported, manifest, workload, written

IMAGE = {"repository": "registry.example/cluster-autoscaler", "tag": "v1.29.0"}
GROUP = "asg-bp18p2yfxow2dloq0001"


def of_secret(name: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def rendered(
    *flags: str, env: list[dict[str, Any]] | None = None, secrets: dict[str, str] | None = None
) -> str:
    """The Deployment that the chart makes. secrets: folder -> Secret."""
    found = container(
        ["./cluster-autoscaler", *flags],
        image=f"{IMAGE['repository']}:{IMAGE['tag']}",
        env=env or [],
    )
    folders = secrets or {}
    found["volumeMounts"] = [
        {"name": name, "mountPath": folder} for folder, name in folders.items()
    ]
    deployment = workload(found)
    volumes = [{"name": name, "secret": {"secretName": name}} for name in folders.values()]
    deployment["spec"]["template"]["spec"]["volumes"] = volumes
    return manifest(deployment)


EXOSCALE = (
    {
        "cloudProvider": "exoscale",
        "autoscalingGroups": [{"name": "web", "minSize": 1, "maxSize": 10}],
        "secretKeyRefNameOverride": "exo",
        "extraArgs": {"scale-down-unneeded-time": "5m", "v": 4},
    },
    rendered(
        "--cloud-provider=exoscale",
        "--namespace=kube-system",
        "--nodes=1:10:web",
        "--scale-down-unneeded-time=5m",
        "--v=4",
        env=[
            of_secret("EXOSCALE_API_KEY", "exo", "api-key"),
            of_secret("EXOSCALE_API_SECRET", "exo", "api-secret"),
            of_secret("EXOSCALE_ZONE", "exo", "api-zone"),
        ],
    ),
)
ALICLOUD = (
    {
        "cloudProvider": "alicloud",
        "autoscalingGroups": [{"name": GROUP, "minSize": 1, "maxSize": 10}],
        "extraEnvSecrets": {
            "ACCESS_KEY_ID": {"name": "ali", "key": "access-key-id"},
            "ACCESS_KEY_SECRET": {"name": "ali", "key": "access-key-secret"},
        },
        "extraEnv": {"REGION_ID": "cn-hangzhou"},
    },
    rendered(
        "--cloud-provider=alicloud",
        "--namespace=kube-system",
        f"--nodes=1:10:{GROUP}",
        env=[
            {"name": "REGION_ID", "value": "cn-hangzhou"},
            of_secret("ACCESS_KEY_ID", "ali", "access-key-id"),
            of_secret("ACCESS_KEY_SECRET", "ali", "access-key-secret"),
        ],
    ),
)
CHERRY = (
    {
        "cloudProvider": "cherryservers",
        "autoscalingGroups": [{"name": "pool1", "minSize": 0, "maxSize": 10}],
        "extraArgs": {"cluster-name": "cluster1", "cloud-config": "/config/cloud-config"},
        "extraVolumeSecrets": {"cherry": {"mountPath": "/config"}},
        "envFromSecret": "cherry-token",
    },
    rendered(
        "--cloud-provider=cherryservers",
        "--namespace=kube-system",
        "--nodes=0:10:pool1",
        "--cloud-config=/config/cloud-config",
        "--cluster-name=cluster1",
        env=[of_secret("CHERRY_AUTH_TOKEN", "cherry-token", "CHERRY_AUTH_TOKEN")],
        secrets={"/config": "cherry"},
    ),
)
CAPI = (
    {
        "cloudProvider": "clusterapi",
        "autoDiscovery": {
            "clusterName": "purple",
            "namespace": "staging",
            "labels": [{"color": "green"}],
        },
        "clusterAPIMode": "kubeconfig-incluster",
        "clusterAPIKubeconfigSecret": "purple-kubeconfig",
        "extraArgs": {"balance-similar-node-groups": None},
    },
    rendered(
        "--cloud-provider=clusterapi",
        "--namespace=kube-system",
        "--node-group-auto-discovery=clusterapi:clusterName=purple,namespace=staging,color=green",
        "--kubeconfig=/etc/kubernetes/value",
        "--clusterapi-cloud-config-authoritative",
        "--balance-similar-node-groups",
        secrets={"/etc/kubernetes": "purple-kubeconfig"},
    ),
)


@each_row("values, deployment", [EXOSCALE, ALICLOUD, CHERRY, CAPI])
def test_IMP_22_values_and_their_rendered_manifest_give_one_document(
    values: dict[str, Any], deployment: str, tmp_path: Path, capsys: Said
) -> None:
    given = ("--name", "shop", "--region", "ch-gva-2")
    file = written(tmp_path, yaml.safe_dump(values | {"image": IMAGE}), "values.yaml")
    of_values = imported(capsys, file, *given)
    of_manifest = imported(capsys, written(tmp_path, deployment), *given)
    assert of_values.code == of_manifest.code == 0, of_values.err + of_manifest.err
    without = (
        {key: each for key, each in found.document.items() if key != "report"}
        for found in (of_values, of_manifest)
    )
    assert next(without) == next(without)
    stored = [
        sorted(
            row["text"]
            for row in found.rows
            if row["verdict"] == "secret" and "kubectl" in row["text"]
        )
        for found in (of_values, of_manifest)
    ]
    assert stored[0] == stored[1]


@each_row("values", [EXOSCALE[0], ALICLOUD[0], CHERRY[0], CAPI[0]])
def test_documents_of_values_are_valid_policies(
    values: dict[str, Any], tmp_path: Path, capsys: Said
) -> None:
    file = written(tmp_path, yaml.safe_dump({"cluster-autoscaler": values}), "values.yaml")
    assert main(["import", file, "--name", "shop", "--region", "ch-gva-2"]) == 0
    policy = written(tmp_path, capsys.readouterr().out, "shop.yaml")
    assert main(["validate", policy]) == 0
    capsys.readouterr()


def test_every_value_is_reported_with_its_line(tmp_path: Path, capsys: Said) -> None:
    text = (
        "cloudProvider: exoscale\nautoscalingGroups:\n- {name: web, minSize: 1, maxSize: 2}\n"
        "replicaCount: 2\n"
    )
    found = imported(
        capsys, written(tmp_path, text, "values.yaml"), "--name", "shop", "--region", "ch-gva-2"
    )
    lines = {row["word"]: row["line"] for row in found.rows}
    assert lines["cloudProvider: exoscale"] == 1
    assert lines["autoscalingGroups[0]: 1:2:web"] == 3
    assert lines["replicaCount"] == 4


def test_values_of_a_secret_variable_are_in_no_output(tmp_path: Path, capsys: Said) -> None:
    values = ALICLOUD[0] | {
        "extraEnv": {
            "REGION_ID": "cn-hangzhou",
            "ACCESS_KEY_SECRET": "hush-hush",
            "awsTOKEN": "hush",
        }
    }
    values |= {"awsSecretAccessKey": "hush-hush"}
    main(["import", written(tmp_path, yaml.safe_dump(values), "values.yaml"), "--name", "shop"])
    found = capsys.readouterr()
    assert "hush" not in found.out + found.err


@each_row(
    "values",
    [
        {"cloudProvider": ["a"], "autoscalingGroups": "x"},
        {"cloudProvider": None, "autoscalingGroups": [None, 1, {"name": {}}]},
        {"cloudProvider": "exoscale", "autoscalingGroups": [{}] * 2000},
        {
            "cloudProvider": "clusterapi",
            "autoDiscovery": {"clusterName": {"a": 1}, "labels": [[1], "x"]},
        },
        {"cloudProvider": "clusterapi", "autoDiscovery": {"labels": "x"}, "clusterAPIMode": {}},
        {
            "cloudProvider": "exoscale",
            "autoscalingGroups": [1],
            "extraVolumes": [1, {"secret": 1}],
            "extraEnv": [1],
        },
        {
            "cloudProvider": "exoscale",
            "autoscalingGroups": [1],
            "extraEnvSecrets": {"a": 1},
            "image": 3,
        },
        {
            "cloudProvider": "exoscale",
            "autoscalingGroups": [1],
            "expanderPriorities": 3,
            "extraArgs": {"_": 1, "": 2},
        },
        {"extraArgs": {f"a{at}\nspec": "\x07" for at in range(200)}, "autoscalingGroups": [1]},
    ],
)
def test_hostile_values_are_refused_in_plain_lines(
    values: dict[str, Any], tmp_path: Path, capsys: Said
) -> None:
    file = written(tmp_path, json.dumps(values), "values.json")
    assert main(["import", file, "--name", "shop"]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert "Traceback" not in found.err
    assert all(len(line) < 1000 for line in found.err.splitlines())


def test_the_command_reads_the_form(tmp_path: Path, capsys: Said) -> None:
    found = imported(capsys, written(tmp_path, yaml.safe_dump(CAPI[0])), "--name", "shop")
    assert found.code == 0
    assert list(found.document["spec"]["providers"]) == ["clusterapi"]


@pytest.mark.parametrize("kind", ["ClusterAutoscaler", "MachineAutoscaler"])
def test_objects_of_openshift_are_refused_with_what_to_give_instead(
    kind: str, tmp_path: Path, capsys: Said
) -> None:
    text = yaml.safe_dump({"apiVersion": "autoscaling.openshift.io/v1", "kind": kind, "spec": {}})
    refused = imported(capsys, written(tmp_path, text), "--name", "shop")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith(
        f"deploy.yaml:1: {kind} of OpenShift is not read; give the Deployment that its operator "
        "makes: "
        "kubectl -n openshift-machine-api get deploy -o yaml\n"
    )
    beside = (
        manifest(workload(container(["./cluster-autoscaler", "--cloud-provider=clusterapi"])))
        + "---\n"
        + text
    )
    assert (
        imported(capsys, written(tmp_path, beside), "--name", "shop").rows_of(kind)[0][0]
        == "no effect"
    )


def test_the_heading_of_helm_get_values_is_no_value(tmp_path: Path, capsys: Said) -> None:
    text = "USER-SUPPLIED VALUES:\n" + yaml.safe_dump(EXOSCALE[0])
    given = ("--name", "shop", "--region", "ch-gva-2")
    opened = imported(capsys, written(tmp_path, text, "values.yaml"), *given)
    assert opened.code == 0, opened.err
