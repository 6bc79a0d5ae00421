"""The Helm chart and the kustomization: the manifests of infra/kubernetes alone, in the
form that a cluster accepts.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from infra.release.wheel_build import repository
from tests.contract.kube_api.cluster import running
from tests.go_templates import ChartFiles, NotRendered, rendered
from tests.source_trees import ROOT

CHART, MANIFESTS = ROOT / "infra" / "helm", ROOT / "infra" / "kubernetes"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
WATCHER = {
    "enabled": True,
    "image": "images.test/outscaler-watcher:1",
    "cluster": "prod",
    "address": "https://a.test/api",
}
Objects = list[dict[str, Any]]


def merged(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The values of the chart with those given in their place, as Helm joins them."""
    return values | {
        key: merged(values[key], value) if isinstance(value, dict) else value
        for key, value in given.items()
    }


def objects(**given: Any) -> Objects:
    """What the chart makes of values."""
    values = merged(VALUES, given)
    jsonschema.validate(values, SCHEMA)
    files = ChartFiles(
        {
            f"manifests/{file.name}": file.read_text("utf-8")
            for file in (CHART / "manifests").iterdir()
        }
    )
    made: Objects = []
    for template in sorted((CHART / "templates").glob("*.yaml")):
        text = rendered(template.read_text("utf-8"), values, files)
        made += [document for document in yaml.safe_load_all(text) if document]
    return made


def shipped(*names: str) -> Objects:
    return [
        document
        for name in names
        for document in yaml.safe_load_all((MANIFESTS / name).read_text("utf-8"))
    ]


def identity(made: dict[str, Any]) -> tuple[str, str, str]:
    return made["kind"], made["metadata"].get("namespace", ""), made["metadata"]["name"]


def created(made: Objects) -> Iterator[int]:
    """The answers of an API server to one request per object, at the path of its kind."""
    with running() as server:
        for document in made:
            version = document["apiVersion"]
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            listed = json.loads(server.handle("GET", root, server.headers()).body)["resources"]
            [plural] = [
                each["name"]
                for each in listed
                if each["kind"] == document["kind"] and "/" not in each["name"]
            ]
            _, namespace, _ = identity(document)
            path = f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
            yield server.handle(
                "POST", path, server.headers(), json.dumps(document).encode()
            ).status


def test_chart_without_values_makes_the_manifests_of_a_cluster_that_is_scaled() -> None:
    assert objects() == shipped("rbac-workload.yaml", "token-secret.yaml")


def test_chart_of_a_management_cluster_has_its_rights_and_token_only() -> None:
    made = objects(rbac=False, clusterApi={"scope": "management"})
    capi = shipped("rbac-capi-management.yaml", "token-secret.yaml")
    assert sorted(map(identity, made)) == sorted(map(identity, capi))
    assert all(document in made for document in capi)


def test_chart_limits_cluster_api_to_the_namespaces_that_are_named() -> None:
    made = objects(
        token=False, clusterApi={"scope": "namespaced", "namespaces": ["team-a", "team-b"]}
    )
    roles = [
        document for document in made if document["metadata"]["name"] == "outscaler-cluster-api"
    ]
    assert [identity(document)[:2] for document in roles] == [
        (kind, namespace) for namespace in ("team-a", "team-b") for kind in ("Role", "RoleBinding")
    ]
    assert not [document for document in made if document["metadata"].get("namespace") == "default"]


def test_chart_leaves_a_status_configmap_of_another_autoscaler_alone() -> None:
    lost = [document for document in objects() if document not in objects(statusConfigMap=False)]
    assert [identity(document) for document in lost] == [
        ("ConfigMap", "kube-system", "cluster-autoscaler-status")
    ]


def test_chart_writes_what_is_given_into_the_watcher() -> None:
    made = objects(watcher=WATCHER | {"memory": "1Gi"})
    plain = shipped("outscaler-watcher.yaml")
    assert [identity(document) for document in made[-len(plain) :]] == [
        identity(document) for document in plain
    ]
    [container] = made[-1]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == WATCHER["image"]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    settings = {each["name"]: each["value"] for each in container["env"]}
    assert settings["OUTSCALER_CLUSTER"] == "prod"
    assert settings["OUTSCALER_WEBHOOK"] == "https://a.test/api"


@pytest.mark.parametrize("lost", ["image", "cluster", "address"])
def test_chart_refuses_a_watcher_without_what_it_needs(lost: str) -> None:
    with pytest.raises(NotRendered, match=f"watcher.{lost}: "):
        objects(watcher=WATCHER | {lost: ""})


@pytest.mark.parametrize(
    "given",
    [
        {"rbac": "yes"},
        {"unknown": 1},
        {"clusterApi": {"scope": "all"}},
        {"clusterApi": {"namespaces": ["a: b"]}},
        {"watcher": {"address": "http://a.test"}},
        {"watcher": {"cluster": 'a"}'}},
        {"watcher": {"memory": "lots"}},
    ],
)
def test_values_that_no_manifest_can_take_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(given, SCHEMA)


_SWITCHES = list(
    itertools.product(
        (True, False),
        (True, False),
        (True, False),
        ("none", "namespaced", "management"),
        (True, False),
    )
)


def test_api_server_accepts_every_object_of_every_combination_of_values_once() -> None:
    assert len(_SWITCHES) == 48
    answers: set[int] = set()
    for rbac, token, bootstrap, scope, watched in _SWITCHES:
        made = objects(
            rbac=rbac,
            token=token,
            bootstrapTokens=bootstrap,
            clusterApi={"scope": scope},
            watcher=WATCHER if watched else {},
        )
        assert len(set(map(identity, made))) == len(made)
        answers.update(created(made))
    assert answers == {201}


def test_api_server_refuses_an_object_that_is_no_manifest() -> None:
    assert list(
        created(
            [
                shipped("token-secret.yaml")[0]
                | {"metadata": {"namespace": "kube-system", "name": "Not_A_Name"}}
            ]
        )
    ) == [422]


def test_kustomization_has_the_rights_and_the_token() -> None:
    made = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text("utf-8"))
    assert made["resources"] == ["rbac-workload.yaml", "token-secret.yaml"]
    documents = shipped(*made["resources"])
    assert len(set(map(identity, documents))) == len(documents) == 9


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_kubectl_builds_the_kustomization() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(MANIFESTS)], capture_output=True, text=True, check=True
    )
    built = sorted(yaml.safe_load_all(done.stdout), key=identity)
    assert built == sorted(shipped("rbac-workload.yaml", "token-secret.yaml"), key=identity)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_kubectl_builds_the_documented_kustomization_of_the_watcher(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "watcher.md").read_text("utf-8")
    [text] = [
        block
        for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if "kind: Kustomization" in block
    ]
    (tmp_path / "kustomization.yaml").write_text(text.replace("REGISTRY", "images.test"))
    shutil.copy(MANIFESTS / "outscaler-watcher.yaml", tmp_path)
    done = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, check=True
    )
    documents = list(yaml.safe_load_all(done.stdout))
    assert sorted(map(identity, documents)) == sorted(
        map(identity, shipped("outscaler-watcher.yaml"))
    )
    [deployment] = [document for document in documents if document["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "images.test/outscaler-watcher:RELEASE"
    values = {each["name"]: each["value"] for each in container["env"]}
    assert values["OUTSCALER_CLUSTER"] == "prod"
    assert values["OUTSCALER_WEBHOOK"].startswith("https://")


def test_chart_names_the_project_and_leaves_its_version_to_the_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (chart["version"], chart["appVersion"]) == ("0.0.0", "0.0.0")
    assert {chart["home"], *chart["sources"]} == {repository()}
    assert (CHART / "manifests").resolve() == MANIFESTS


@pytest.mark.skipif(
    shutil.which("helm") is None, reason="helm is not on PATH; no package index has it"
)
@pytest.mark.parametrize("command", ["lint", "template"])
def test_helm_accepts_the_chart(command: str) -> None:
    subprocess.run(["helm", command, str(CHART)], capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    "template",
    ["{{ if true }}", "{{ end }}", "{{ toYaml . }}", "{{ (.Values }}", '{{ eq "a" "b" c }}'],
)
def test_template_that_uses_more_than_is_known_here_is_refused(template: str) -> None:
    with pytest.raises((NotRendered, KeyError, TypeError)):
        rendered(template, {}, ChartFiles({}))


def test_template_trims_and_pipes_as_go_does() -> None:
    head = 'a \n{{- $x := "p" }}\n{{ $x | replace "p" (printf "<%s>" .Values.v) }}'
    text = head + "{{ range $y := .Values.l }}\n- {{ $y }}{{ end -}}\n\n z"
    assert rendered(text, {"v": "q", "l": ["1", "2"]}, ChartFiles({})) == "a\n<q>\n- 1\n- 2z"
