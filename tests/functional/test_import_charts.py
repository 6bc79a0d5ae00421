"""`outscaler import` opens the objects of tools that install the autoscaler's chart.

The document is that of the values themselves, or the field and the command that takes them out are
named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.cli.migrate.chart_input import PLACEHOLDER
from tests.functional.import_runs import Imported, Said, imported, manifest, workload, written

VALUES: dict[str, Any] = {
    "cloudProvider": "clusterapi",
    "autoDiscovery": {"clusterName": "purple", "namespace": "staging"},
    "extraArgs": {"expander": "least-waste", "scale-down-unneeded-time": "5m"},
    "image": {"tag": "v1.33.0"},
}
TEXT = yaml.safe_dump(VALUES)
FLUX, ARGO, CATTLE = "helm.toolkit.fluxcd.io/v2", "argoproj.io/v1alpha1", "helm.cattle.io/v1"
ADDONS, PACKAGES = "addons.cluster.x-k8s.io/v1alpha1", "packages.eks.amazonaws.com/v1alpha1"


def custom(
    api: str, kind: str, spec: Mapping[str, Any], name: str = "cluster-autoscaler"
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "tools"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def flux(**spec: Any) -> dict[str, Any]:
    chart = {"spec": {"chart": "cluster-autoscaler", "version": "9.46.0"}}
    return custom(FLUX, "HelmRelease", {"chart": chart, "targetNamespace": "kube-system", **spec})


def argo(**helm: Any) -> dict[str, Any]:
    source = {"chart": "cluster-autoscaler", "repoURL": "https://charts.test", "helm": helm}
    destination = {"namespace": "kube-system"}
    return custom(ARGO, "Application", {"source": source, "destination": destination})


def cattle(kind: str = "HelmChart", **spec: Any) -> dict[str, Any]:
    target = {"chart": "cluster-autoscaler", "targetNamespace": "kube-system"}
    return custom(CATTLE, kind, {**(target if kind == "HelmChart" else {}), **spec})


def proxy(kind: str = "HelmChartProxy", **spec: Any) -> dict[str, Any]:
    return custom(
        ADDONS, kind, {"chartName": "cluster-autoscaler", "namespace": "kube-system", **spec}
    )


def package(**spec: Any) -> dict[str, Any]:
    return custom(
        PACKAGES,
        "Package",
        {"packageName": "cluster-autoscaler", "targetNamespace": "kube-system", **spec},
    )


def data(kind: str, values: Mapping[str, str], name: str = "values") -> dict[str, Any]:
    key = "stringData" if kind == "Secret" else "data"
    metadata = {"name": name, "namespace": "tools"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, key: dict(values)}


def run(capsys: Said, folder: Path, *documents: dict[str, Any], given: Any = ()) -> Imported:
    return imported(capsys, written(folder, manifest(*documents)), "--name", "shop", *given)


@pytest.fixture
def expected(tmp_path: Path, capsys: Said) -> dict[str, Any]:
    """What the values themselves become."""
    own = imported(capsys, written(tmp_path, TEXT, "own.yaml"), "--name", "shop")
    assert own.code == 0
    spec: dict[str, Any] = own.document["spec"]
    return spec


PARTS = {
    "a": {key: VALUES[key] for key in ("cloudProvider", "image")},
    "b": {key: VALUES[key] for key in ("autoDiscovery", "extraArgs")},
}
A, B = (yaml.safe_dump(PARTS[part]) for part in "ab")
PARAMETERS = [
    {"name": "autoDiscovery.clusterName", "value": "purple"},
    {"name": "autoDiscovery.namespace", "value": "staging", "forceString": True},
    {"name": "extraArgs.expander", "value": "least-waste"},
    {"name": "extraArgs.scale-down-unneeded-time", "value": "5m"},
]
CARRIERS: dict[str, list[dict[str, Any]]] = {
    "flux values": [flux(values=VALUES)],
    "flux config map": [
        flux(valuesFrom=[{"kind": "ConfigMap", "name": "values"}], values=PARTS["b"]),
        data("ConfigMap", {"values.yaml": A}),
    ],
    "flux secret and key": [
        flux(
            valuesFrom=[
                {"kind": "Secret", "name": "values", "valuesKey": "a.yaml"},
                {
                    "kind": "ConfigMap",
                    "name": "name",
                    "valuesKey": "name",
                    "targetPath": "autoDiscovery.clusterName",
                },
            ],
            values={
                "autoDiscovery": {"namespace": "staging"},
                "extraArgs": VALUES["extraArgs"],
            },
        ),
        data("Secret", {"a.yaml": A}),
        data("ConfigMap", {"name": "purple"}, "name"),
    ],
    "flux chart by reference": [
        flux(chart=None, chartRef={"kind": "OCIRepository", "name": "autoscaler"}, values=VALUES)
    ],
    "helm operator": [
        custom(
            "helm.fluxcd.io/v1",
            "HelmRelease",
            {
                "chart": {"name": "cluster-autoscaler"},
                "valuesFrom": [{"configMapKeyRef": {"name": "values", "key": "a"}}],
                "values": PARTS["b"],
                "targetNamespace": "kube-system",
            },
        ),
        data("ConfigMap", {"a": A}),
    ],
    "argo text": [argo(values=TEXT)],
    "argo object": [argo(valuesObject=VALUES)],
    "argo object before text": [argo(valuesObject=VALUES, values="cloudProvider: aws\n")],
    "argo parameters": [argo(values=A, parameters=PARAMETERS)],
    "argo sources": [
        custom(
            ARGO,
            "Application",
            {
                "destination": {"namespace": "kube-system"},
                "sources": [
                    {"repoURL": "https://git.test", "ref": "values"},
                    {"chart": "ingress", "helm": {"values": "a: 1\n"}},
                    {"chart": "cluster-autoscaler", "helm": {"values": TEXT}},
                ],
            },
        )
    ],
    "argo set": [
        custom(
            ARGO,
            "ApplicationSet",
            {"template": {"spec": argo(values=TEXT)["spec"]}, "generators": []},
        )
    ],
    "k3s text": [cattle(valuesContent=TEXT)],
    "k3s and config": [
        cattle(valuesContent=A + "autoDiscovery: {clusterName: green}\n"),
        cattle("HelmChartConfig", valuesContent=B),
    ],
    "k3s set": [
        cattle(
            chart="https://charts.test/cluster-autoscaler-9.46.0.tgz",
            valuesContent=A,
            set={
                "autoDiscovery.clusterName": "purple",
                "autoDiscovery.namespace": "staging",
                "extraArgs.expander": "least-waste",
                "extraArgs.scale-down-unneeded-time": "5m",
            },
        )
    ],
    "k3s secret": [
        cattle(values=PARTS["b"], valuesSecrets=[{"name": "values", "keys": ["a"]}]),
        data("Secret", {"a": A}),
    ],
    "chart proxy": [proxy(valuesTemplate=TEXT)],
    "release proxy": [proxy("HelmReleaseProxy", values=TEXT)],
    "release proxy of a chart proxy": [
        proxy(valuesTemplate="cloudProvider: aws\n"),
        proxy("HelmReleaseProxy", values=TEXT),
    ],
    "package": [package(config=TEXT)],
    "package with an object": [package(config=VALUES)],
    "package without its default": [
        package(config=yaml.safe_dump({k: v for k, v in VALUES.items() if k != "cloudProvider"}))
    ],
    "sub-chart": [
        flux(
            chart={"spec": {"chart": "platform"}},
            values={"cluster-autoscaler": VALUES, "ingress": {"a": 1}},
        )
    ],
    "among charts of others": [
        custom(FLUX, "HelmRelease", {"chart": {"spec": {"chart": "ingress"}}, "values": {"a": 1}}),
        custom(CATTLE, "HelmChart", {"chart": "traefik", "valuesContent": "a: [\n"}, "traefik"),
        custom("source.toolkit.fluxcd.io/v1", "HelmRepository", {"url": "https://charts.test"}),
        flux(values=VALUES),
    ],
}


@pytest.mark.parametrize("name", CARRIERS)
def test_the_values_in_an_object_become_the_policy_of_the_values(
    name: str, expected: dict[str, Any], tmp_path: Path, capsys: Said
) -> None:
    opened = run(capsys, tmp_path, *CARRIERS[name])
    assert opened.code == 0, opened.err
    assert opened.document["spec"] == expected
    in_json = written(tmp_path, json.dumps({"kind": "List", "items": CARRIERS[name]}))
    assert imported(capsys, in_json, "--name", "shop").document["spec"] == expected


def test_rows_name_the_line_of_each_value(tmp_path: Path, capsys: Said) -> None:
    text = manifest(flux(values=VALUES))
    block = (
        "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: cluster-autoscaler}\n"
        "spec:\n  chart: cluster-autoscaler\n  valuesContent: |-\n"
        + "".join(f"    {line}\n" for line in TEXT.splitlines())
    )
    for source in (text, block):
        opened = imported(capsys, written(tmp_path, source), "--name", "shop")
        (row,) = [row for row in opened.rows if row["word"].startswith("extraArgs.expander")]
        assert "expander: least-waste" in source.splitlines()[row["line"] - 1]


def test_a_reference_that_is_not_in_the_input_is_named_with_its_command(
    tmp_path: Path, capsys: Said
) -> None:
    reference = {"kind": "ConfigMap", "name": "more"}
    for optional, verdict in ((False, "missing"), (True, "told")):
        document = flux(valuesFrom=[{**reference, "optional": optional}], values=VALUES)
        opened = run(capsys, tmp_path, document)
        ((found, text),) = opened.rows_of("spec.valuesFrom[0]: ConfigMap tools/more")
        assert found == verdict
        assert "kubectl -n tools get configmap more -o yaml" in text
        assert "helm -n kube-system get values kube-system-cluster-autoscaler -o yaml" in text
        strict = run(capsys, tmp_path, document, given=["--strict"])
        assert strict.code == (0 if optional else 1)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            flux(valuesFrom=[{"kind": "Secret", "name": "more", "valuesKey": "x"}]),
            ("spec.valuesFrom[0]: Secret tools/more", "kubectl -n tools get secret more -o yaml"),
        ),
        (
            cattle(valuesSecrets=[{"name": "more", "keys": ["x"]}]),
            ("spec.valuesSecrets[0]: Secret tools/more", "get secret more -o yaml"),
        ),
        (
            argo(valueFiles=["$values/prod/ca.yaml"]),
            ("valueFiles[0]: $values/prod/ca.yaml", "argocd app manifests cluster-autoscaler"),
        ),
        (
            custom(ARGO, "Application", {"source": {"path": "apps/cluster-autoscaler"}}),
            ("argocd app manifests cluster-autoscaler",),
        ),
    ],
)
def test_without_the_values_the_import_names_the_field_and_the_command(
    document: dict[str, Any], says: tuple[str, ...], tmp_path: Path, capsys: Said
) -> None:
    refused = run(capsys, tmp_path, document)
    assert (refused.code, refused.out) == (2, "")
    for text in says:
        assert text in refused.err


def test_rows_show_a_field_with_its_index(tmp_path: Path, capsys: Said) -> None:
    source = {"chart": "cluster-autoscaler", "helm": {"values": TEXT, "valueFiles": ["a.yaml"]}}
    document = custom(ARGO, "Application", {"sources": [{"ref": "values"}, source]})
    opened = run(capsys, tmp_path, document)
    ((verdict, _),) = opened.rows_of("spec.sources[1].helm.valueFiles[0]: a.yaml")
    assert verdict == "missing"


def test_a_values_file_of_an_application_counts_where_it_is_given(
    expected: dict[str, Any], tmp_path: Path, capsys: Said
) -> None:
    application = written(tmp_path, manifest(argo(valueFiles=["$values/prod/ca.yaml"])))
    values = written(tmp_path, TEXT, "ca.yaml")
    opened = imported(capsys, application, values, "--name", "shop")
    assert opened.document["spec"] == expected


TEMPLATE = """\
cloudProvider: clusterapi
{{- /* what all clusters have */}}
autoDiscovery:
  clusterName: {{ .Cluster.metadata.name }}
  namespace: "{{ .Cluster.metadata.namespace }}"
extraArgs:
  scale-down-delay-after-add: 7m
  scale-down-unneeded-time: {{ index .Cluster.metadata.annotations "unneeded" | default "5m" }}
  {{- if .Cluster.spec.paused }}
  scale-down-enabled: false
  {{- else }}
  scale-down-enabled: true
  {{- end }}
{{ toYaml .More }}
image:
  tag: v1.33.0
"""


def test_of_a_template_the_literal_counts_and_the_rest_is_named(
    tmp_path: Path, capsys: Said
) -> None:
    opened = run(capsys, tmp_path, proxy(valuesTemplate=TEMPLATE))
    assert opened.code == 0
    assert opened.options["scaleDownDelayAfterAdd"] == "7m"
    assert "scaleDownUnneededTime" not in opened.options
    assert "scaleDownEnabled" not in opened.options
    missing = [row for row in opened.rows if row["verdict"] == "missing"]
    named = " ".join(row["word"] + row["text"] for row in missing)
    for text in (
        "{{ .Cluster.metadata.name }}",
        "{{ .Cluster.metadata.namespace }}",
        "scale-down-unneeded-time",
        "if .Cluster.spec.paused",
        "toYaml .More",
        "get helmreleaseproxies -l",
    ):
        assert text in named
    assert run(capsys, tmp_path, proxy(valuesTemplate=TEMPLATE), given=["--strict"]).code == 1


def test_a_template_never_widens_what_is_discovered(tmp_path: Path, capsys: Said) -> None:
    opened = run(capsys, tmp_path, proxy(valuesTemplate=TEMPLATE))
    assert opened.document["spec"]["providers"]["clusterapi"]["autoDiscovery"] == [
        f"clusterapi:clusterName={PLACEHOLDER},namespace={PLACEHOLDER}"
    ]
    labels = "cloudProvider: clusterapi\nautoDiscovery:\n  labels:\n  - {pool: '{{ .Pool }}'}\n"
    opened = run(capsys, tmp_path, proxy(valuesTemplate=labels))
    (spec,) = opened.document["spec"]["providers"]["clusterapi"]["autoDiscovery"]
    assert spec.endswith(f"={PLACEHOLDER}")


def test_the_output_of_a_template_comes_from_env_or_the_only_cluster(
    tmp_path: Path, capsys: Said
) -> None:
    cluster = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Cluster",
        "metadata": {"name": "purple", "namespace": "staging"},
    }
    env = ["--env", ".Cluster.metadata.name=purple", "--env", ".Cluster.metadata.namespace=staging"]
    for documents, given in (((), env), ((cluster,), [])):
        opened = run(capsys, tmp_path, proxy(valuesTemplate=TEMPLATE), *documents, given=given)
        assert opened.document["spec"]["providers"]["clusterapi"]["autoDiscovery"] == [
            "clusterapi:clusterName=purple,namespace=staging"
        ]


def test_several_objects_are_refused_and_workload_chooses(
    expected: dict[str, Any], tmp_path: Path, capsys: Said
) -> None:
    other = flux(values={**VALUES, "cloudProvider": "aws"})
    other["metadata"]["name"] = "other"
    documents = (flux(values=VALUES), other)
    refused = run(capsys, tmp_path, *documents)
    assert refused.code == 2
    assert "HelmRelease tools/cluster-autoscaler, HelmRelease tools/other" in refused.err
    chosen = run(capsys, tmp_path, *documents, given=["--workload", "tools/cluster-autoscaler"])
    assert chosen.document["spec"] == expected
    assert run(capsys, tmp_path, *documents, given=["--workload", "tools/no"]).code == 2


def test_the_workload_that_an_object_has_made_counts(tmp_path: Path, capsys: Said) -> None:
    flags = ["./cluster-autoscaler", "--cloud-provider=clusterapi", "--expander=random"]
    deployment = workload(
        {"name": "c", "image": "registry.test/cluster-autoscaler:v1.33.0", "command": flags}
    )
    deployment["metadata"]["labels"] = {"app.kubernetes.io/instance": "ca"}
    release = flux(values=VALUES, releaseName="ca")
    opened = run(capsys, tmp_path, release, deployment)
    assert opened.options["expander"] == ["random"]
    assert [verdict for verdict, _ in opened.rows_of("HelmRelease")] == ["no effect"]
    deployment["metadata"]["labels"] = {}
    refused = run(capsys, tmp_path, release, deployment)
    assert refused.code == 2
    assert "2 configurations" in refused.err


@pytest.mark.parametrize(
    "document",
    [
        custom(
            "config.projectsveltos.io/v1beta1",
            "ClusterProfile",
            {"helmCharts": [{"chartName": "autoscaler/cluster-autoscaler", "values": TEXT}]},
        ),
        custom(
            "helm.crossplane.io/v1beta1",
            "Release",
            {"forProvider": {"chart": {"name": "cluster-autoscaler"}, "values": VALUES}},
        ),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "addons", "namespace": "tools"},
            "data": {"ca.yaml": "kind: Deployment\nmetadata: {name: cluster-autoscaler}\n"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "helm.sh/release.v1",
            "metadata": {"name": "sh.helm.release.v1.cluster-autoscaler.v3", "namespace": "tools"},
            "data": {"release": "H4sI"},
        },
    ],
)
def test_an_object_of_another_tool_is_refused_with_its_field_and_a_command(
    document: dict[str, Any], tmp_path: Path, capsys: Said
) -> None:
    refused = run(capsys, tmp_path, document)
    assert refused.code == 2
    assert len(refused.err.splitlines()) == 1
    assert f"{document['kind']} tools/{document['metadata']['name']}" in refused.err
    assert "helm -n" in refused.err or "kubectl -n tools get configmap addons" in refused.err


MALFORMED: tuple[Any, ...] = (None, 1, "x", [], {}, [None], [[]], {"": None}, True, 1e300, "a: [")


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (flux(values=VALUES), ("spec", "valuesFrom")),
        (flux(values=VALUES), ("spec", "values")),
        (flux(values=VALUES), ("spec", "chart")),
        (flux(values=VALUES), ("metadata",)),
        (flux(values=VALUES), ("spec",)),
        (argo(values=TEXT), ("spec", "source")),
        (argo(values=TEXT), ("spec", "sources")),
        (argo(values=TEXT), ("spec", "source", "helm")),
        (argo(values=TEXT), ("spec", "source", "helm", "values")),
        (argo(values=TEXT), ("spec", "source", "helm", "valueFiles")),
        (argo(values=TEXT), ("spec", "source", "helm", "parameters")),
        (cattle(valuesContent=TEXT), ("spec", "valuesContent")),
        (cattle(valuesContent=TEXT), ("spec", "valuesSecrets")),
        (cattle(valuesContent=TEXT), ("spec", "set")),
        (proxy(valuesTemplate=TEXT), ("spec", "valuesTemplate")),
        (package(config=TEXT), ("spec", "config")),
    ],
)
def test_import_reads_around_malformed_parts_of_an_object(
    document: dict[str, Any], path: tuple[str, ...], tmp_path: Path, capsys: Said
) -> None:
    for value in MALFORMED:
        changed = json.loads(json.dumps(document))
        at = changed
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        opened = run(capsys, tmp_path, changed)
        assert opened.code in (0, 2), value
        assert "Traceback" not in opened.err
        assert "bug" not in opened.err


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{above}'] * 9)}]\n"
    for above, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "document",
    [
        cattle(valuesContent=BOMB),
        cattle(valuesContent="a: " + "[" * 50_000),
        cattle(valuesContent="a: 1\n---\nb: 2\n"),
        cattle(valuesContent="x" * 2_000_000),
        cattle(valuesContent=TEXT, set={"a[99999999]": "x"}),
        cattle(valuesContent=TEXT, set={".".join("a" * 100): "x"}),
        cattle(valuesContent=TEXT, set={f"a{at}": "x" for at in range(2_000)}),
        proxy(valuesTemplate="{{" * 200_000),
        proxy(valuesTemplate="{{ a }}" * 50_000),
        proxy(valuesTemplate="{{ if a }}" * 50_000),
        proxy(valuesTemplate=("a: {{ b }}\n" * 20_000)),
        argo(parameters=[{"name": f"a[{at % 1000}]", "value": "{{x}}"} for at in range(20_000)]),
        flux(valuesFrom=[{"kind": "ConfigMap", "name": "n" * 300} for _ in range(5_000)]),
    ],
)
def test_a_hostile_object_is_refused_in_bounded_time(
    document: dict[str, Any], tmp_path: Path, capsys: Said
) -> None:
    refused = run(capsys, tmp_path, document)
    assert refused.code == 2
    assert "Traceback" not in refused.err
    assert len(refused.err) < 60_000


def test_names_in_commands_are_those_of_objects_only(tmp_path: Path, capsys: Said) -> None:
    document = flux(
        valuesFrom=[{"kind": "Secret", "name": "x; rm -rf ~"}], values=VALUES, releaseName="$(id)"
    )
    opened = run(capsys, tmp_path, document)
    texts = " ".join(row["text"] for row in opened.rows)
    assert "get secret NAME" in texts
    assert "rm -rf" not in texts
    assert "$(id)" not in texts


def test_values_of_a_secret_are_not_shown(tmp_path: Path, capsys: Said) -> None:
    secret = {**VALUES, "extraEnv": {"API_TOKEN": "hidden"}, "awsSecretAccessKey": "hidden"}
    document = flux(valuesFrom=[{"kind": "Secret", "name": "values"}])
    opened = run(
        capsys, tmp_path, document, data("Secret", {"values.yaml": yaml.safe_dump(secret)})
    )
    assert opened.code == 0
    assert "hidden" not in opened.out + opened.err
