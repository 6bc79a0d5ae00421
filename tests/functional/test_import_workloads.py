"""`outscaler import` finds the autoscaler's container in a manifest, with
its variables and files.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.functional.import_runs import (
    ALICLOUD,
    GIVEN,
    Said,
    container,
    imported,
    manifest,
    workload,
    written,
)

NODES = ["1:10:asg-bp18p2yfxow2dloq0001"]
SECRET_VALUE = "not-a-real-key"
COMMAND = ["./cluster-autoscaler", *ALICLOUD]


def of_secret(variable: str, name: str, key: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def stored(kind: str, at: str, /, **data: str) -> dict[str, Any]:
    """A Secret or ConfigMap of kube-system."""
    values = (
        data
        if kind == "ConfigMap"
        else {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}
    )
    values = {key.replace("_", "-"): value for key, value in values.items()}
    return {"kind": kind, "metadata": {"name": at, "namespace": "kube-system"}, "data": values}


@pytest.mark.parametrize(
    "kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod"]
)
def test_import_reads_every_kind_that_runs_a_container(
    kind: str, tmp_path: Path, capsys: Said
) -> None:
    found = imported(
        capsys, written(tmp_path, manifest(workload(container(COMMAND), kind=kind))), *GIVEN
    )
    assert found.document["spec"]["providers"]["alicloud"]["nodes"] == NODES
    assert found.rows[0]["word"].startswith(
        f"{kind} kube-system/cluster-autoscaler, container cluster-autoscaler"
    )


def test_import_reads_lists_and_names_the_line_of_each_word(tmp_path: Path, capsys: Said) -> None:
    text = manifest({"kind": "List", "items": [workload(container(COMMAND))]})
    found = imported(capsys, written(tmp_path, text), *GIVEN)
    lines = text.splitlines()
    words = {
        row["word"]: row["line"] for row in found.rows if row["source"].endswith("deploy.yaml")
    }
    assert all(word in lines[words[word] - 1] for word in ALICLOUD)


def test_import_reads_json_without_lines(tmp_path: Path, capsys: Said) -> None:
    found = imported(capsys, written(tmp_path, json.dumps(workload(container(COMMAND)))), *GIVEN)
    assert found.code == 0
    assert {row["line"] for row in found.rows} == {0}


def test_import_leaves_pods_of_a_deployment_out(tmp_path: Path, capsys: Said) -> None:
    pod = workload(container(COMMAND), kind="Pod", name="cluster-autoscaler-1")
    pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "cluster-autoscaler"}]
    assert (
        imported(
            capsys, written(tmp_path, manifest(pod, workload(container(COMMAND)))), *GIVEN
        ).code
        == 0
    )


def test_pods_of_one_owner_are_one_autoscaler_unless_their_owner_is_a_node(
    tmp_path: Path, capsys: Said
) -> None:
    pods = [
        workload(container(COMMAND), kind="Pod", name=f"cluster-autoscaler-{at}") for at in range(2)
    ]
    for kind, code in (("ReplicaSet", 0), ("Node", 2)):
        for pod in pods:
            pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": "owner"}]
        found = imported(capsys, written(tmp_path, manifest(*pods)), *GIVEN)
        assert found.code == code, found.err


def test_an_autoscaler_without_replicas_is_told(tmp_path: Path, capsys: Said) -> None:
    deployment = workload(container(COMMAND))
    deployment["spec"]["replicas"] = 0
    found = imported(capsys, written(tmp_path, manifest(deployment)), *GIVEN)
    assert found.rows_of("replicas: 0") == [("told", "the autoscaler does not run")]


def test_IMP_18_the_autoscaler_is_found_beside_a_proxy(tmp_path: Path, capsys: Said) -> None:
    proxy = {"name": "proxy", "image": "registry.example/proxy:1", "args": ["--nodes=1:2:x"]}
    found = imported(
        capsys, written(tmp_path, manifest(workload(proxy, container(COMMAND)))), *GIVEN
    )
    assert found.document["spec"]["providers"]["alicloud"]["nodes"] == NODES
    two = written(
        tmp_path,
        manifest(workload(container(COMMAND), container([*COMMAND, "--v=1"], name="second"))),
    )
    refused = imported(capsys, two, *GIVEN)
    assert refused.code == 2
    assert (
        "2 containers of kube-system/cluster-autoscaler run an autoscaler: cluster-autoscaler, "
        "second"
    ) in refused.err
    assert imported(capsys, two, *GIVEN, "--container", "second").rows_of("--v=1")


def test_import_ignores_autoscalers_of_pods(tmp_path: Path, capsys: Said) -> None:
    other = workload(
        container(
            None, ["--target=x"], image="registry.example/cluster-proportional-autoscaler:1.8"
        )
    )
    found = imported(
        capsys, written(tmp_path, manifest(other, workload(container(COMMAND)))), *GIVEN
    )
    assert found.code == 0, found.err


def test_IMP_19_a_variable_in_a_flag_needs_a_value(tmp_path: Path, capsys: Said) -> None:
    flags = [*COMMAND, "--cluster-name=$(NAME)"]
    given = GIVEN[2:]  # without --name
    literal = workload(container(flags, env=[{"name": "NAME", "value": "orchard"}]))
    assert (
        imported(capsys, written(tmp_path, manifest(literal)), *given).document["metadata"]["name"]
        == "orchard"
    )
    secret = workload(container(flags, env=[of_secret("NAME", "names", "name")]))
    for documents in ([secret], [secret, stored("Secret", "names", name=SECRET_VALUE)]):
        path = written(tmp_path, manifest(*documents))
        refused = imported(capsys, path, *given)
        assert refused.code == 2
        assert "$(NAME) comes from kube-system/names; give --env NAME=VALUE" in refused.err
        assert SECRET_VALUE not in refused.out + refused.err
        named = imported(capsys, path, *given, "--env", "NAME=orchard")
        assert named.document["metadata"]["name"] == "orchard"


def test_IMP_20_two_dollars_are_literal_text(tmp_path: Path, capsys: Said) -> None:
    text = manifest(
        workload(
            container(
                [*COMMAND, "--cluster-name=$$(NAME)"], env=[{"name": "NAME", "value": "orchard"}]
            )
        )
    )
    refused = imported(capsys, written(tmp_path, text), *GIVEN[2:])
    assert refused.code == 2
    assert "'$(NAME)' is not a DNS label" in refused.err


def test_IMP_21_variables_of_a_config_map_have_its_prefix(tmp_path: Path, capsys: Said) -> None:
    source = {"prefix": "REGION_", "configMapRef": {"name": "cloud"}}
    text = manifest(
        workload(container(COMMAND, envFrom=[source])),
        stored("ConfigMap", "cloud", ID="cn-beijing"),
    )
    found = imported(capsys, written(tmp_path, text), "--name", "shop")
    assert found.document["spec"]["providers"]["alicloud"]["region"] == "cn-beijing"


def test_env_counts_more_than_env_from(tmp_path: Path, capsys: Said) -> None:
    both = container(
        COMMAND,
        envFrom=[{"configMapRef": {"name": "cloud"}}],
        env=[{"name": "REGION_ID", "value": "cn-$(CITY)"}],
    )
    text = manifest(workload(both), stored("ConfigMap", "cloud", REGION="x", CITY="beijing"))
    found = imported(capsys, written(tmp_path, text), "--name", "shop")
    assert found.document["spec"]["providers"]["alicloud"]["region"] == "cn-beijing"


def test_IMP_5_roles_by_oidc_keep_their_old_names(tmp_path: Path, capsys: Said) -> None:
    names = {
        "REGION_ID": "cn-hangzhou",
        "ALICLOUD_OIDC_PROVIDER_ARN": "acs:ram::1234567890123456:oidc-provider/ack-rrsa-c1",
        "ALICLOUD_ROLE_ARN": "acs:ram::1234567890123456:role/autoscaler",
        "ALICLOUD_SESSION_NAME": "autoscaler",
        "ALICLOUD_OIDC_TOKEN_FILE_PATH": "/var/run/secrets/tokens/oidc",
    }
    env = [{"name": name, "value": value} for name, value in names.items()]
    found = imported(
        capsys, written(tmp_path, manifest(workload(container(COMMAND, env=env)))), "--name", "shop"
    )
    assert found.document["spec"]["providers"]["alicloud"] == {
        "region": "cn-hangzhou",
        "oidcProviderArn": names["ALICLOUD_OIDC_PROVIDER_ARN"],
        "roleArn": names["ALICLOUD_ROLE_ARN"],
        "sessionName": "autoscaler",
        "oidcTokenSecret": "ssm:/outscaler/shop/alicloud-oidc-token",
        "nodes": NODES,
    }
    assert found.rows_of("ALICLOUD_OIDC_TOKEN_FILE_PATH")[0][0] == "not here"


def test_only_public_keys_of_a_secret_are_read(tmp_path: Path, capsys: Said) -> None:
    env = [
        of_secret("ACCESS_KEY_ID", "cloud", "access-key-id"),
        of_secret("ACCESS_KEY_SECRET", "cloud", "access-key-secret"),
        of_secret("REGION_ID", "cloud", "region-id"),
        {"name": "CHERRY_AUTH_TOKEN", "value": SECRET_VALUE},
    ]
    keys = {
        "access_key_id": SECRET_VALUE,
        "access_key_secret": SECRET_VALUE,
        "region_id": "cn-hangzhou",
    }
    text = manifest(workload(container(COMMAND, env=env)), stored("Secret", "cloud", **keys))
    report = tmp_path / "report.txt"
    found = imported(capsys, written(tmp_path, text), "--name", "shop", "--report", str(report))
    assert found.document["spec"]["providers"]["alicloud"]["region"] == "cn-hangzhou"
    said = found.out + found.err + report.read_text(encoding="utf-8")
    assert SECRET_VALUE not in said
    assert base64.b64encode(SECRET_VALUE.encode()).decode() not in said


def test_import_refuses_placeholders_all_at_once(tmp_path: Path, capsys: Said) -> None:
    words = [
        "--nodes=[min]:[max]:[ASG_ID]",
        "--cluster-name=${CLUSTER_NAME}",
        "--namespace=<namespace>",
    ]
    words += ["--status-config-map-name=YOUR_NAME", "--user-agent={Project ID}"]
    text = manifest(
        workload(container(["./cluster-autoscaler", "--cloud-provider=alicloud", *words]))
    )
    refused = imported(capsys, written(tmp_path, text), *GIVEN)
    assert refused.code == 2
    assert len(refused.err.splitlines()) == len(words)
    assert "give --env CLUSTER_NAME=VALUE" in refused.err
    assert "write it like 1:10:asg-bp18p2yfxow2dloq0001" in refused.err


def test_import_refuses_placeholders_of_objects_around_the_command(
    tmp_path: Path, capsys: Said
) -> None:
    env = [of_secret("REGION_ID", "cloud", "region-id")]
    deployment = workload(container(COMMAND, env=env, image="${IMAGE}"), name="[name]")
    deployment["metadata"]["namespace"] = "{{ namespace }}"
    secret = stored("Secret", "cloud")
    secret["metadata"]["namespace"] = "{{ namespace }}"
    secret["data"] = {"region-id": ["YOUR_BASE64_REGION_ID"]}
    path = written(tmp_path, manifest(deployment, secret))
    refused = imported(capsys, path, "--name", "shop")
    assert refused.code == 2
    for text in (
        "'{{ namespace }}'",
        "'[name]'",
        "'${IMAGE}'",
        "REGION_ID: '[YOUR_BASE64_REGION_ID]'",
    ):
        assert f"{text} is a placeholder" in refused.err
    assert "${IMAGE}" not in imported(capsys, path, "--name", "shop", "--image-version", "1.30").err


def test_import_fills_in_variables_of_a_template(tmp_path: Path, capsys: Said) -> None:
    deployment = workload(container([*COMMAND, "--cluster-name=${CLUSTER}"]))
    deployment["metadata"]["namespace"] = "${PLACE}"
    given = (*GIVEN[2:], "--env", "CLUSTER=orchard", "--env", "PLACE=tools")
    found = imported(capsys, written(tmp_path, manifest(deployment)), *given)
    assert found.document["metadata"]["name"] == "orchard"
    assert "Deployment tools/cluster-autoscaler" in found.rows[0]["word"]


def test_import_refuses_a_helm_template_with_its_lines(tmp_path: Path, capsys: Said) -> None:
    text = "kind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\n  {{- if .Values.x }}\n"
    refused = imported(capsys, written(tmp_path, text), *GIVEN)
    assert refused.code == 2
    assert [line.partition(": ")[0].rpartition(":")[2] for line in refused.err.splitlines()] == [
        "3",
        "4",
    ]
    assert refused.err.count("render it first: helm template") == 2


@pytest.mark.parametrize(
    "labels",
    [
        {"app.kubernetes.io/name": "cluster-autoscaler", "app.kubernetes.io/instance": "ca"},
        {"app.kubernetes.io/name": "clusterapi-cluster-autoscaler"},
        {"app": "cluster-autoscaler"},
    ],
)
@pytest.mark.parametrize("place", ["workload", "pods"])
def test_workload_of_a_mirrored_image_is_found_by_the_labels_of_its_chart(
    labels: dict[str, str], place: str, tmp_path: Path, capsys: Said
) -> None:
    found = imported(capsys, labelled(tmp_path, labels, place, {"name": "main"}), *GIVEN)
    assert found.code == 0
    assert found.document["spec"]["providers"]["alicloud"]["nodes"] == [
        "1:10:asg-bp18p2yfxow2dloq0001"
    ]


@pytest.mark.parametrize(
    ("labels", "containers"),
    [
        ({"app.kubernetes.io/name": "vertical-pod-autoscaler"}, ({"name": "main"},)),
        ({"app.kubernetes.io/name": "cluster-autoscaler"}, ({"name": "main"}, {"name": "proxy"})),
        (
            {"app.kubernetes.io/name": "cluster-autoscaler"},
            ({"name": "main", "command": ["/exporter"]},),
        ),
    ],
)
def test_label_makes_no_autoscaler_of_another_program(
    labels: dict[str, str], containers: tuple[dict[str, Any], ...], tmp_path: Path, capsys: Said
) -> None:
    found = imported(capsys, labelled(tmp_path, labels, "workload", *containers), *GIVEN)
    assert found.code == 2
    assert "holds no Cluster Autoscaler" in found.err


def labelled(folder: Path, labels: dict[str, str], place: str, *containers: dict[str, Any]) -> str:
    """A file with a Deployment of the release `ca`, whose image is called otherwise."""
    own = {"image": "mirror.example/tools/scaler:1.30", "args": list(ALICLOUD)}
    pod = {"metadata": {"labels": labels if place == "pods" else {}}, "spec": {"containers": []}}
    pod["spec"] = {"containers": [own | container for container in containers]}
    metadata = {
        "name": "ca",
        "namespace": "kube-system",
        "labels": labels if place == "workload" else {},
    }
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"template": pod},
    }
    return written(folder, json.dumps(document))


def test_missing_configuration_is_told_with_cluster_autoscaler_before_cce(
    capsys: Said, tmp_path: Path
) -> None:
    found = imported(capsys, written(tmp_path, '{"apiVersion": "v1", "kind": "List", "items": []}'))
    assert found.code == 2
    assert 0 < found.err.index("Cluster Autoscaler") < found.err.index("CCE")
    assert "kubectl -n kube-system get deploy,sts,ds,cm -o yaml" in found.err
