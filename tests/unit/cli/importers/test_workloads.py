"""The autoscaler's container is found with its variables, files and further objects of the
input.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from chalicelib.cli.migrate.autoscaler_input import AutoscalerInput, VariableOrigin
from chalicelib.cli.migrate.read_autoscaler import read_autoscaler
from chalicelib.model.errors import BadInput
from tests.cases import each_row

KEY = "not-a-real-key"


def read(
    *documents: dict[str, Any],
    workload: str = "",
    container: str = "",
    image_version: str = "",
    **given: str,
) -> AutoscalerInput | None:
    text = yaml.safe_dump_all(documents, sort_keys=False)
    return read_autoscaler(
        {"deploy.yaml": text},
        workload=workload,
        container=container,
        environment=given,
        image_version=image_version,
    )


def found(*documents: dict[str, Any], **given: Any) -> AutoscalerInput:
    one = read(*documents, **given)
    assert one is not None
    return one


def deployment(name: str = "autoscaler", volumes: Any = (), **container: Any) -> dict[str, Any]:
    first = {"name": "main", "image": "x/cluster-autoscaler:v1.30.2", "args": ["--v=4"]} | container
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "tools"},
        "spec": {"template": {"spec": {"containers": [first], "volumes": list(volumes)}}},
    }


def stored(kind: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    part = "stringData" if kind == "Secret" else "data"
    return {"kind": kind, "metadata": {"name": name, "namespace": "tools"}, part: data}


def test_a_workload_has_its_namespace_container_image_and_release() -> None:
    one = found(deployment())
    assert (one.place, one.kind, one.namespace, one.name) == (
        "deploy.yaml:1",
        "Deployment",
        "tools",
        "autoscaler",
    )
    assert (one.container, one.image, one.version) == (
        "main",
        "x/cluster-autoscaler:v1.30.2",
        (1, 30),
    )


@each_row(
    "image, given, version",
    [
        ("x/autoscaler:v1.3.1.2", "", (1, 3)),
        ("x:5000/autoscaler:1.29", "", (1, 29)),
        ("x:5000/autoscaler", "", None),
        ("x/autoscaler:latest", "", None),
        ("x/autoscaler@sha256:1.2", "", None),
        ("x/autoscaler:v1.28.0@sha256:00", "", (1, 28)),
        ("x/autoscaler:v1.28.0", "1.30", (1, 30)),
        ("x/autoscaler:v1.28.0", "v1.31.2", (1, 31)),
        ("x/autoscaler:v20240101", "", None),
    ],
)
def test_the_release_is_that_of_the_tag_or_the_given_one(
    image: str, given: str, version: tuple[int, int] | None
) -> None:
    assert found(deployment(image=image), image_version=given).version == version


def test_a_given_release_that_is_not_one_is_refused() -> None:
    with pytest.raises(BadInput, match="--image-version: 'new' is not a release"):
        read(deployment(), image_version="new")


@each_row(
    "workload, place",
    [("tools/b", "b"), ("b", "b"), ("tools/a#1", "a"), ("tools/a#2", "a")],
)
def test_one_of_several_workloads_is_chosen(workload: str, place: str) -> None:
    one = found(
        deployment("a"), deployment("a", args=["--v=5"]), deployment("b"), workload=workload
    )
    assert one.name == place
    assert one.arguments[0].value == ("5" if workload.endswith("#2") else "4")


@each_row("workload", ["other/a", "c", "tools/a#3", "a/b/c", "#1", "a#x"])
def test_a_workload_that_is_not_in_the_input_is_refused(workload: str) -> None:
    with pytest.raises(BadInput, match="--workload"):
        read(deployment("a"), deployment("b"), workload=workload)


def test_variables_say_where_they_come_from() -> None:
    env: list[dict[str, Any]] = [
        {"name": "LITERAL", "value": "1"},
        {"name": "REPLACED", "value": "x-$(LITERAL)-$(UNKNOWN)"},
        {"name": "ZONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "api-zone"}}},
        {"name": "HIDDEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "other"}}},
        {"name": "MAPPED", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "HERE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    objects = (
        stored("Secret", "s", {"api-zone": "z", "other": KEY}),
        stored("ConfigMap", "c", {"k": "v"}),
    )
    one = found(deployment(env=env), *objects, NODE="n", MORE="m")
    assert [(each.name, each.value, each.origin) for each in one.variables] == [
        ("LITERAL", "1", VariableOrigin.LITERAL),
        ("REPLACED", "x-1-$(UNKNOWN)", VariableOrigin.LITERAL),
        ("ZONE", "z", VariableOrigin.OF_SECRETS),
        ("HIDDEN", None, VariableOrigin.OF_SECRETS),
        ("MAPPED", "v", VariableOrigin.OF_CONFIG_MAP),
        ("HERE", "tools", VariableOrigin.FIELD),
        ("NODE", "n", VariableOrigin.FIELD),
        ("MORE", "m", VariableOrigin.LITERAL),
    ]
    assert {each.object for each in one.variables} == {"", "tools/s", "tools/c"}


def test_IMP_33_mounted_files_are_read_without_their_secrets() -> None:
    config = (
        f'[Global]\napi-server=10.0.0.1:6443\ncloudinit={KEY}\n[nodegroupdef "pool1"]\nplan=e5\n'
    )
    volumes = [
        {
            "name": "config",
            "secret": {"secretName": "s", "items": [{"key": "conf", "path": "cloud.conf"}]},
        },
        {"name": "map", "configMap": {"name": "c"}},
        {
            "name": "token",
            "projected": {
                "sources": [{"serviceAccountToken": {"path": "t", "audience": "sts.aliyuncs.com"}}]
            },
        },
        {"name": "node", "hostPath": {"path": "/etc/ssl"}},
        {"name": "absent", "secret": {"secretName": "absent"}},
    ]
    mounts = [
        {"name": name, "mountPath": f"/{name}"}
        for name in ("config", "map", "token", "node", "absent", "nowhere")
    ]
    mounts.append({"name": "map", "mountPath": "/one/file", "subPath": "k"})
    objects = (
        stored("Secret", "s", {"conf": config, "other": KEY}),
        stored("ConfigMap", "c", {"k": "v", "l": "w"}),
    )
    one = found(deployment(volumes=volumes, volumeMounts=mounts), *objects)
    assert [(each.path, each.object, each.key, each.audience) for each in one.mounts] == [
        ("/config/cloud.conf", "tools/s", "conf", ""),
        ("/map/k", "tools/c", "k", ""),
        ("/map/l", "tools/c", "l", ""),
        ("/token/t", "", "", "sts.aliyuncs.com"),
        ("/absent", "tools/absent", "", ""),
        ("/one/file", "tools/c", "k", ""),
    ]
    assert (
        one.mounts[0].text
        == '[Global]\napi-server=10.0.0.1:6443\n\n[nodegroupdef "pool1"]\nplan=e5'
    )
    unused = ["/config/cloud.conf", "/map/k", "/map/l", "/absent", "/one/file"]
    assert [each.word for each in one.remarks] == [
        "mount '/node'",
        "mount '/nowhere'",
        *(f"file '{path}'" for path in unused),
    ]


def test_objects_beside_the_autoscaler_are_handed_on_or_named() -> None:
    machines = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineDeployment",
        "metadata": {"name": "m"},
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "r"},
    }
    priorities = stored(
        "ConfigMap", "cluster-autoscaler-priority-expander", {"priorities": "1: [a]"}
    )
    status = stored("ConfigMap", "cluster-autoscaler-status", {"status": "x"})
    one = found(machines, role, priorities, status, deployment(), stored("Secret", "s", {"a": KEY}))
    assert [document["metadata"]["name"] for _, document in one.objects] == [
        "m",
        "cluster-autoscaler-priority-expander",
    ]
    assert [(each.word, each.verdict) for each in one.remarks] == [
        ("ConfigMap cluster-autoscaler-status", "told"),
        ("ClusterRole r", "no effect"),
    ]


@each_row(
    "status, flags, says",
    [
        (
            "NodeGroups:\n  Name:        a\n  Health: x\n\n  Name:  b\n",
            ["--nodes=1:2:a"],
            "2 groups; no --nodes names 'b'",
        ),
        (
            "nodeGroups:\n- health: {}\n  name: a\n- name: b\n",
            ["--nodes=1:2:a", "--nodes=0:1:b"],
            "saw 2 groups.",
        ),
        (
            "nodeGroups:\n- name: MachineDeployment/x/a\n",
            ["--v=4"],
            "saw 1 group: 'MachineDeployment/x/a'.",
        ),
        ("", [], "saw 0 groups."),
        (5, [], "saw 0 groups."),
    ],
)
def test_groups_of_the_status_are_compared_with_the_flags(
    status: Any, flags: list[str], says: str
) -> None:
    stored_status = stored("ConfigMap", "cluster-autoscaler-status", {"status": status})
    one = found(deployment(args=flags), stored_status)
    assert says in one.remarks[-1].text


def test_a_variable_that_no_flag_needs_may_be_unknown() -> None:
    hidden = {"name": "HIDDEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    one = found(deployment(env=[hidden, {"name": "OTHER", "value": "db://$(HIDDEN)@host"}]))
    assert [each.value for each in one.variables] == [None, None]
    with pytest.raises(BadInput, match=r"\$\(OTHER\) has no value that is read"):
        read(
            deployment(
                env=[hidden, {"name": "OTHER", "value": "$(HIDDEN)"}],
                args=["--cluster-name=$(OTHER)"],
            )
        )


def test_an_aliased_container_is_read_with_its_merge_keys() -> None:
    text = """
base: &base {name: main, image: x/cluster-autoscaler:v1.30.0}
---
kind: Pod
metadata: {name: a}
spec:
  containers:
    - <<: &image {image: x/cluster-autoscaler:v1.30.0}
      name: main
      args: ["--v=4",
        "--max-nodes-total=5"]
"""
    one = read_autoscaler(
        {"p.yaml": text}, workload="", container="", environment={}, image_version=""
    )
    assert one is not None
    assert one.version == (1, 30)
    assert [each.place for each in one.arguments] == ["p.yaml:10", "p.yaml:11"]


@each_row(
    "text",
    [
        "",
        "kind: ConfigMap",
        "just words",
        "[1, 2]",
        "kind: Pod\nspec: {containers: [{name: web, image: web}]}",
        "5",
    ],
)
def test_a_text_without_an_autoscaler_has_no_configuration(text: str) -> None:
    assert (
        read_autoscaler({"f": text}, workload="", container="", environment={}, image_version="")
        is None
    )


def test_two_configurations_are_refused_with_their_places() -> None:
    texts = {"a.yaml": yaml.safe_dump(deployment()), "run.sh": "cluster-autoscaler --v=4"}
    with pytest.raises(
        BadInput, match=r"2 configurations: command line in run.sh, Deployment in a.yaml"
    ):
        read_autoscaler(texts, workload="", container="", environment={}, image_version="")
