"""`outscaler import` of the examples that the five vendors publish gives
exactly these documents.
"""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

from chalicelib.cli.main import main
from chalicelib.policy.load import load
from chalicelib.providers.exoscale.provider import build
from tests.functional.import_pages import commands, deployments, scaling_rules, secret
from tests.functional.import_runs import Said, container, imported, manifest, workload, written
from tests.providers.exoscale.fixture import ExoscaleFixture
from tests.reference_data import needs_shared

PLACEHOLDER, GROUP = "[min]:[max]:[ASG_ID]", "1:10:asg-bp18p2yfxow2dloq0001"
KEY = "not-a-real-key"
HEAD = (
    "apiVersion: outscaler.dev/v1\nkind: Cluster\nmetadata: {name: shop}\nspec:\n  mode: shadow\n"
)
ALICLOUD = (
    HEAD
    + """  kubernetes: {kubeconfigSecret: 'ssm:/outscaler/shop/kubeconfig'}
  providers:
    alicloud:
      region: cn-hangzhou
      credentialsSecret: ssm:/outscaler/shop/alicloud
      nodes: ['1:10:asg-bp18p2yfxow2dloq0001']
  options: {expander: random, expendablePodsPriorityCutoff: 0, scaleDownDelayAfterDelete: 10s, \
cordonNodeBeforeTerminating: false}
"""  # exactly as it is printed
)
CLUSTERAPI = """apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: purple}
spec:
  mode: shadow
  kubernetes: {kubeconfigSecret: 'ssm:/outscaler/purple/kubeconfig'}
  providers:
    clusterapi:
      autoDiscovery: ['clusterapi:namespace=staging,clusterName=purple,color=green']
      scaleZeroDefaultArch: arm64
      kubeconfigSecret: ssm:/outscaler/purple/clusterapi
  options:
    expander: random
    cordonNodeBeforeTerminating: false
    gpuTotal: ['gfx-hardware:1:2']
    balanceSimilarNodeGroups: true
    balancingIgnoreLabel: [topology.ebs.csi.aws.com/zone]
"""
CHERRYSERVERS = """apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: cluster1}
spec:
  mode: shadow
  kubernetes: {kubeconfigSecret: 'ssm:/outscaler/cluster1/kubeconfig'}
  providers:
    cherryservers:
      clusterName: cluster1
      credentialsSecret: ssm:/outscaler/cluster1/cherryservers
      cloudConfigSecret: ssm:/outscaler/cluster1/cherryservers-cloud-config
      bootstrapTokenSecret: ssm:/outscaler/cluster1/cherryservers-bootstrap-token
      nodes: ['0:10:pool1', '0:10:pool2']
  options: {scaleDownUnneededTime: 1m, scaleDownDelayAfterAdd: 1m, scaleDownUnreadyTime: 1m}
"""
EXOSCALE = (
    HEAD
    + """  kubernetes: {kubeconfigSecret: 'ssm:/outscaler/shop/kubeconfig'}
  providers:
    exoscale: {zone: ch-gva-2, credentialsSecret: 'ssm:/outscaler/shop/exoscale', scaleFromZero: \
false}
  options: {expander: random, cordonNodeBeforeTerminating: true}
"""
)
PURPLE = (
    "CAPI_SCALE_ZERO_DEFAULT_ARCH=arm64 cluster-autoscaler --cloud-provider=clusterapi "
    "--cloud-config=/mnt/kubeconfig "
    "--node-group-auto-discovery=clusterapi:namespace=staging,clusterName=purple,color=green "
    "--gpu-total=gfx-hardware:1:2 --balance-similar-node-groups "
    "--balancing-ignore-label=topology.ebs.csi.aws.com/zone"
)


def printed(said: Said, *arguments: str, code: int = 0) -> str:
    """Import and return the document without its comments."""
    assert main(["import", *arguments]) == code
    out = said.readouterr().out
    return "".join(line for line in out.splitlines(keepends=True) if not line.startswith("#"))


def both() -> str:
    """The page's two Deployments in one file."""
    return "---\n".join(deployments())


def of_secret(variable: str, name: str, key: str) -> dict[str, object]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


@needs_shared
def test_IMP_1_two_workloads_and_all_placeholders_are_refused_at_once(
    tmp_path: Path, capsys: Said
) -> None:
    text = both()
    lines = [at for at, line in enumerate(text.splitlines(), 1) if PLACEHOLDER in line]
    refused = imported(capsys, written(tmp_path, text), "--name", "shop", "--region", "cn-hangzhou")
    assert (refused.code, refused.out) == (2, "")
    assert (
        "--workload kube-system/cluster-autoscaler#1 or --workload kube-system/cluster-autoscaler#2"
        in refused.err
    )
    for line in lines:
        assert (
            f"deploy.yaml:{line}: --nodes: '{PLACEHOLDER}' is a placeholder; write it like {GROUP}"
            in refused.err
        )


@needs_shared
def test_IMP_2_alicloud_with_keys(tmp_path: Path, capsys: Said) -> None:
    text = both().replace(PLACEHOLDER, GROUP)
    given = (
        "--workload",
        "kube-system/cluster-autoscaler#1",
        "--region",
        "cn-hangzhou",
        "--name",
        "shop",
    )
    assert printed(capsys, written(tmp_path, text), *given) == ALICLOUD


@needs_shared
@pytest.mark.parametrize("output", ["table", "json"])
def test_IMP_3_the_secrets_region_is_read_and_its_keys_are_not(
    output: str, tmp_path: Path, capsys: Said
) -> None:
    values = {
        "ACCESS_KEY_ID": f"id-{KEY}",
        "ACCESS_KEY_SECRET": f"secret-{KEY}",
        "REGION_ID": "cn-hangzhou",
    }
    text = secret()
    for name, value in values.items():
        text = text.replace(f"<BASE64_{name}>", base64.b64encode(value.encode()).decode())
    file = written(tmp_path, text + "---\n" + deployments()[0].replace(PLACEHOLDER, GROUP))
    report = tmp_path / "report.txt"
    assert main(["import", file, "--name", "shop", "--report", str(report), "-o", output]) == 0
    found = capsys.readouterr()
    said = found.out + found.err + report.read_text(encoding="utf-8")
    assert "cn-hangzhou" in found.out
    for value in (f"id-{KEY}", f"secret-{KEY}"):
        assert value not in said
        assert base64.b64encode(value.encode()).decode() not in said


@needs_shared
def test_IMP_3_placeholders_of_the_secret_are_refused(tmp_path: Path, capsys: Said) -> None:
    file = written(tmp_path, secret() + "---\n" + deployments()[0])
    refused = imported(capsys, file, "--name", "shop")
    assert "REGION_ID: '<BASE64_REGION_ID>' is a placeholder" in refused.err
    assert "--nodes: " in refused.err


@needs_shared
def test_IMP_4_the_role_of_a_node_is_not_here(tmp_path: Path, capsys: Said) -> None:
    file = written(tmp_path, deployments()[1].replace(PLACEHOLDER, GROUP))
    found = imported(capsys, file, "--name", "shop", "--region", "cn-hangzhou", "--strict")
    assert found.code == 1
    assert next(
        text for verdict, text in found.rows_of("no credentials") if verdict == "not here"
    ).startswith("RAM role of the node")


def test_clusterapi_with_a_management_cluster(capsys: Said) -> None:
    assert printed(capsys, "--command", PURPLE, "--image-version", "1.29") == CLUSTERAPI


@needs_shared
def test_every_command_line_of_cluster_api_is_read(tmp_path: Path, capsys: Said) -> None:
    texts = commands(2)
    assert len(texts) >= 5
    for text in texts:
        found = imported(capsys, written(tmp_path, text, "command.sh"), "--name", "shop")
        spec = found.document["spec"]
        assert spec["kubernetes"] == {"kubeconfigSecret": "ssm:/outscaler/shop/kubeconfig"}
        two = "--cloud-config" in text or "authoritative" in text
        assert ("kubeconfigSecret" in spec["providers"]["clusterapi"]) is two, text


@needs_shared
def test_IMP_32_a_backslash_before_blanks_continues_the_line_and_is_told(
    tmp_path: Path, capsys: Said
) -> None:
    (text,) = commands(3)
    file = written(tmp_path, text, "run.sh")
    refused = imported(capsys, file)
    assert refused.code == 2
    assert "--env CLUSTER_NAME=VALUE" in refused.err
    secrets = (
        "--env",
        "BOOTSTRAP_TOKEN_ID=x",
        "--env",
        "BOOTSTRAP_TOKEN_SECRET=y",
        "--env",
        "CHERRY_AUTH_TOKEN=z",
    )
    given = (file, "--env", "CLUSTER_NAME=cluster1", *secrets)
    assert printed(capsys, *given) == CHERRYSERVERS
    found = imported(capsys, *given)
    assert found.rows_of("\\")[0][0] == "told"


def test_IMP_32_cherryservers_with_a_deployment_and_secrets(tmp_path: Path, capsys: Said) -> None:
    flags = [
        "--alsologtostderr",
        "--cluster-name=cluster1",
        "--cloud-config=/config/cloud-config",
        "--cloud-provider=cherryservers",
        "--nodes=0:10:pool1",
        "--nodes=0:10:pool2",
        "--scale-down-unneeded-time=1m0s",
        "--scale-down-delay-after-add=1m0s",
        "--scale-down-unready-time=1m0s",
        "--v=2",
    ]
    env = [
        of_secret("BOOTSTRAP_TOKEN_ID", "bootstrap-token", "token-id"),
        of_secret("BOOTSTRAP_TOKEN_SECRET", "bootstrap-token", "token-secret"),
        of_secret("CHERRY_AUTH_TOKEN", "cherry", "authtoken"),
    ]
    config = (
        f'[nodegroupdef "default"]\nproject-id=YOUR_CHERRYSERVERS_PROJECT_ID\ncloudinit="{KEY}"\n'
    )
    mounts = [{"name": "config", "mountPath": "/config", "readOnly": True}]
    deployment = workload(
        container(
            ["./cluster-autoscaler", *flags],
            image="autoscaler:latest",
            env=env,
            volumeMounts=mounts,
        )
    )
    pod = deployment["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "config", "secret": {"secretName": "cloud-config"}}]
    objects = [
        {
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "kube-system"},
            "stringData": data,
        }
        for name, data in (
            ("cherry", {"authtoken": KEY}),
            ("cloud-config", {"cloud-config": config}),
        )
    ]
    file = written(tmp_path, manifest(deployment, *objects))
    assert printed(capsys, file) == CHERRYSERVERS
    found = imported(capsys, file)
    assert (
        "kubectl -n kube-system get secret cloud-config" in found.rows_of("--cloud-config=")[0][1]
    )
    assert found.rows_of("--alsologtostderr")[0][0] == "no effect"
    assert KEY not in found.out + found.err


EXOSCALE_MANIFEST = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: cluster-autoscaler
  namespace: kube-system
spec:
  template:
    spec:
      containers:
        - image: registry.example/autoscaling/cluster-autoscaler:v1.24.0
          name: cluster-autoscaler
          command:
            - ./cluster-autoscaler
            - --cloud-provider=exoscale
            - --stderrthreshold=info
            - --cordon-node-before-terminating
            # - --scale-down-utilization-threshold=0.8
            # - --nodes=1:10:web
            # - --v=6
          env:
            - name: EXOSCALE_API_KEY
              valueFrom: {secretKeyRef: {key: api-key, name: exoscale-api-credentials}}
            - name: EXOSCALE_API_SECRET
              valueFrom: {secretKeyRef: {key: api-secret, name: exoscale-api-credentials}}
            - name: EXOSCALE_ZONE
              valueFrom: {secretKeyRef: {key: api-zone, name: exoscale-api-credentials}}
---
apiVersion: v1
kind: Secret
metadata: {name: exoscale-api-credentials, namespace: kube-system}
data: {api-zone: Y2gtZ3ZhLTI=, api-key: bm90LWEtcmVhbC1rZXk=, api-secret: bm90LWEtcmVhbC1rZXk=}
"""


def test_IMP_34_exoscale_with_its_zone_in_the_secret(tmp_path: Path, capsys: Said) -> None:
    file = written(tmp_path, EXOSCALE_MANIFEST)
    assert printed(capsys, file, "--name", "shop") == EXOSCALE
    found = imported(capsys, file, "--name", "shop")
    assert "name pools under nodes to bound them" in found.rows_of("no --nodes")[0][1]
    assert KEY not in found.out + found.err
    assert "bm90LWEtcmVhbC1rZXk" not in found.out + found.err


def test_IMP_34_exoscale_with_a_named_pool(tmp_path: Path, capsys: Said) -> None:
    text = EXOSCALE_MANIFEST.replace("# - --nodes=1:10:web", "- --nodes=1:10:web")
    found = imported(capsys, written(tmp_path, text), "--name", "shop")
    settings = found.document["spec"]["providers"]["exoscale"]
    assert (settings["nodes"], settings["autoDiscovery"]) == (["1:10:web"], True)


def test_exoscale_import_with_a_named_pool_makes_groups_of_all_pools(capsys: Said) -> None:
    command = "EXOSCALE_ZONE=ch-gva-2 cluster-autoscaler --cloud-provider=exoscale --nodes=1:3:web"
    policy, warnings = load(
        printed(capsys, "--command", command, "--name", "shop"), place="shop.yaml"
    )
    assert warnings == ()
    with ExoscaleFixture() as bench:
        web, gpu = (
            bench.add_nodepool("web", size=2).pool.id,
            bench.add_nodepool("gpu", size=1).pool.id,
        )
        connection = bench.connection(bench.server.root)
        settings = {**policy.providers["exoscale"], "endpoint": bench.server.root}
        provider = build(
            msgspec.structs.replace(connection, settings=settings, groups=policy.node_groups)
        )
        groups = {group.id: group for group in provider.observe(bench.nodes()).groups}
    assert set(groups) == {web, gpu}
    assert (groups[web].min, groups[web].max) == (1, 3)
    assert groups[gpu].max > 3


@needs_shared
def test_huawei_clouds_rules_are_valid_without_the_addon(tmp_path: Path, capsys: Said) -> None:
    given = (
        "--name",
        "prod",
        "--region",
        "cn-north-4",
        "--cluster-id",
        "2292498e-1111-11ee-8b5e-0255ac1001ba",
    )
    secrets = (
        "--credentials-secret",
        "outscaler/prod/huaweicloud",
        "--kubeconfig-secret",
        "outscaler/prod/kubeconfig",
    )
    file = written(tmp_path, scaling_rules(), "rules.yaml")
    assert main(["import", file, *given, *secrets, "--time-zone", "Asia/Shanghai"]) == 0
    policy = written(tmp_path, capsys.readouterr().out, "prod.yaml")
    assert main(["validate", policy]) == 0


@needs_shared
def test_imported_pages_pass_strict_validation(tmp_path: Path, capsys: Said) -> None:
    for document in (ALICLOUD, CLUSTERAPI, CHERRYSERVERS, EXOSCALE):
        assert main(["validate", "--strict", written(tmp_path, document, "policy.yaml")]) == 0
