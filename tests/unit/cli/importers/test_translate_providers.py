"""Each provider's flags, variables and mounts become settings, and each secret becomes a name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chalicelib.cli.migrate.autoscaler_input import FileMount, ImportArguments, Variable
from chalicelib.cli.migrate.autoscaler_policy import Converted, convert
from chalicelib.cli.migrate.report import Verdict
from chalicelib.model.errors import InputErrors
from tests.cases import each_row
from tests.unit.cli.importers.autoscaler_inputs import autoscaler, hidden, literal

AUTO = "--node-group-auto-discovery=clusterapi:namespace="


def converted(*words: str, variables: tuple[Variable, ...] = (), **wanted: Any) -> Converted:
    return convert(
        autoscaler(*words, variables=variables), ImportArguments(**{"name": "shop", **wanted})
    )


def provider(found: Converted) -> dict[str, Any]:
    settings: dict[str, Any] = next(iter(found.document["spec"]["providers"].values()))
    return settings


def words_of(found: Converted, verdict: Verdict) -> str:
    return "\n".join(
        f"{row.word} {row.path} {row.text}" for row in found.rows if row.verdict is verdict
    )


def test_alicloud_keys_become_one_secret_with_its_command() -> None:
    found = converted(
        "--cloud-provider=alicloud",
        "--nodes=1:10:asg-bp18p2yfxow2dloq0001",
        variables=(
            literal("REGION_ID", "cn-hangzhou"),
            hidden("ACCESS_KEY_ID"),
            hidden("ACCESS_KEY_SECRET"),
        ),
    )
    assert provider(found) == {
        "region": "cn-hangzhou",
        "credentialsSecret": "outscaler/shop/alicloud",
        "nodes": ["1:10:asg-bp18p2yfxow2dloq0001"],
    }
    assert "kubectl -n kube-system get secret cloud-config" in words_of(found, Verdict.TO_STORE)


def test_IMP_5_alicloud_roles_by_the_old_names_have_a_token_that_is_not_here() -> None:
    found = converted(
        "--cloud-provider=alicloud",
        variables=(
            literal("ALICLOUD_OIDC_PROVIDER_ARN", "acs:ram::1:oidc-provider/x"),
            literal("ALICLOUD_ROLE_ARN", "acs:ram::1:role/x"),
            literal("ALICLOUD_SESSION_NAME", "s"),
            literal("ALICLOUD_OIDC_TOKEN_FILE_PATH", "/var/run/token"),
        ),
        region="cn-hangzhou",
    )
    assert provider(found) == {
        "region": "cn-hangzhou",
        "oidcProviderArn": "acs:ram::1:oidc-provider/x",
        "roleArn": "acs:ram::1:role/x",
        "sessionName": "s",
        "oidcTokenSecret": "outscaler/shop/alicloud-oidc-token",
    }
    assert "projected token" in words_of(found, Verdict.NOT_HERE)


def test_IMP_4_alicloud_without_credentials_reports_the_role_of_the_node() -> None:
    found = converted("--cloud-provider=alicloud", region="cn-hangzhou")
    assert "RAM role of the node" in words_of(found, Verdict.NOT_HERE)


@each_row(
    "flags, management",
    [
        ((), False),
        (("--cloud-config=/m/a",), True),
        (("--kubeconfig=/m/a", "--clusterapi-cloud-config-authoritative"), True),
        (("--kubeconfig=/m/a", "--cloud-config=/m/b"), True),
        (("--kubeconfig=/m/a",), False),
    ],
)
def test_IMP_26_clusterapi_topologies_need_one_kubeconfig_or_two(
    flags: tuple[str, ...], management: bool
) -> None:
    found = converted("--cloud-provider=clusterapi", *flags)
    assert found.document["spec"]["kubernetes"] == {"kubeconfigSecret": "outscaler/shop/kubeconfig"}
    assert provider(found) == (
        {"kubeconfigSecret": "outscaler/shop/clusterapi"} if management else {}
    )


def test_the_management_cluster_without_a_cloud_config_has_a_row_with_its_command() -> None:
    found = converted(
        "--cloud-provider=clusterapi",
        "--kubeconfig=/m/a",
        "--clusterapi-cloud-config-authoritative",
    )
    (row,) = [
        row
        for row in found.rows
        if row.path == "spec.providers.clusterapi.kubeconfigSecret" and row.text
    ]
    assert (row.word, row.verdict) == ("kubeconfig of the management cluster", Verdict.TO_STORE)
    assert row.text.startswith("outscaler/shop/clusterapi  aws secretsmanager create-secret --name")
    assert "of the cluster that Cluster Autoscaler runs in" in row.text
    assert found.secrets == ("outscaler/shop/kubeconfig", "outscaler/shop/clusterapi")


@each_row(
    "given, written, verdict",
    [
        ("arm64", "arm64", Verdict.TRANSLATED),
        ("sparc", None, Verdict.TOLD),
        ("ARM64", None, Verdict.TOLD),
        ("", None, Verdict.TOLD),
    ],
)
def test_an_unknown_architecture_is_amd64_with_a_warning(
    given: str, written: str | None, verdict: Verdict
) -> None:
    variable = converted(
        "--cloud-provider=clusterapi", variables=(literal("CAPI_SCALE_ZERO_DEFAULT_ARCH", given),)
    )
    flag = converted("--cloud-provider=clusterapi", f"--scale-up-from-zero-default-arch={given}")
    for found in (variable, flag):
        assert provider(found).get("scaleZeroDefaultArch") == written
        (row,) = [
            row
            for row in found.rows
            if row.path == "spec.providers.clusterapi.scaleZeroDefaultArch"
        ]
        assert row.verdict is verdict
        assert ("amd64 counts" in row.text) is (written is None)


def test_alicloud_names_rights_that_upstream_lacks_and_that_fpgas_are_unsupported() -> None:
    found = converted("--cloud-provider=alicloud", region="cn-hangzhou")
    assert "ess:ScaleWithAdjustment" in words_of(found, Verdict.TOLD)
    assert "FPGA instance types  not supported" in words_of(found, Verdict.TOLD)


@each_row(
    "flags, place",
    [
        (("--cloud-provider=exoscale", "--nodes=1:3:a", "--nodes=3:1:b"), "--nodes: [1]"),
        (
            ("--cloud-provider=exoscale", "--nodes=1:3:a", "--nodes=1:3:b", "--nodes=1:2:c,d"),
            "--nodes: [2]",
        ),
        (
            ("--cloud-provider=clusterapi", f"{AUTO}a", "--node-group-auto-discovery=x"),
            "--node-group-auto-discovery: [1]",
        ),
        (("--cloud-provider=clusterapi", "--gpu-total=a:1:2", "--gpu-total=b"), "--gpu-total: [1]"),
    ],
)
def test_a_mistake_names_the_occurrence_of_its_flag(flags: tuple[str, ...], place: str) -> None:
    with pytest.raises(InputErrors) as refused:
        converted(*flags, region="ch-gva-2")
    assert [problem.place for problem in refused.value.problems] == [f"deploy.yaml:3: {place}"]


def test_IMP_27_several_namespaces_are_kept_and_told() -> None:
    found = converted("--cloud-provider=clusterapi", f"{AUTO}a", f"{AUTO}b")
    assert provider(found)["autoDiscovery"] == ["clusterapi:namespace=a", "clusterapi:namespace=b"]
    assert "the first namespace only" in words_of(found, Verdict.TOLD)


def test_IMP_30_clusterapi_does_not_read_nodes() -> None:
    found = converted("--cloud-provider=clusterapi", "--nodes=1:2:a")
    assert "--nodes=1:2:a" in words_of(found, Verdict.NO_EFFECT)
    assert provider(found) == {}


def test_the_name_of_a_cluster_is_taken_from_its_discovery() -> None:
    found = convert(
        autoscaler("--cloud-provider=clusterapi", f"{AUTO}x,clusterName=purple"), ImportArguments()
    )
    assert found.name == "purple"


def test_cherryservers_settings_are_secrets_and_names() -> None:
    found = converted(
        "--cloud-provider=cherryservers",
        "--cluster-name=cluster1",
        "--cloud-config=/config/cloud-config",
        "--nodes=0:10:pool1",
        "--nodes=0:10:pool2",
        variables=(
            hidden("CHERRY_AUTH_TOKEN"),
            hidden("BOOTSTRAP_TOKEN_ID"),
            hidden("BOOTSTRAP_TOKEN_SECRET"),
        ),
    )
    assert list(provider(found).items()) == [
        ("clusterName", "cluster1"),
        ("credentialsSecret", "outscaler/shop/cherryservers"),
        ("cloudConfigSecret", "outscaler/shop/cherryservers-cloud-config"),
        ("bootstrapTokenSecret", "outscaler/shop/cherryservers-bootstrap-token"),
        ("nodes", ["0:10:pool1", "0:10:pool2"]),
    ]


def test_exoscale_named_pools_leave_the_others_to_discovery() -> None:
    found = converted("--cloud-provider=exoscale", "--nodes=1:3:web", region="ch-gva-2")
    assert provider(found)["autoDiscovery"] is True
    assert "autoDiscovery: true spec.providers.exoscale.autoDiscovery" in words_of(
        found, Verdict.WRITTEN_OUT
    )


def test_exoscale_keeps_the_groups_that_have_a_node() -> None:
    found = converted(
        "--cloud-provider=exoscale", variables=(literal("EXOSCALE_ZONE", "ch-gva-2"),)
    )
    assert provider(found) == {
        "zone": "ch-gva-2",
        "credentialsSecret": "outscaler/shop/exoscale",
        "scaleFromZero": False,
    }


@each_row(
    "words, says",
    [
        (
            ("--cloud-provider=aws",),
            "'aws' is not among alicloud, clusterapi, cherryservers, exoscale, huaweicloud",
        ),
        ((), "has no --cloud-provider"),
        (("--cloud-provider=huaweicloud",), "there is no CCE cluster behind these groups"),
        (("--cloud-provider=alicloud",), "give --region"),
        (
            ("--cloud-provider=clusterapi", "--node-group-auto-discovery=label:tag=a"),
            "is not a clusterapi: spec",
        ),
        (
            ("--cloud-provider=clusterapi", "--node-group-auto-discovery=clusterapi:a=b:c"),
            "clusterapi",
        ),
        (
            ("--cloud-provider=clusterapi", "--node-group-auto-discovery=clusterapi:namespace"),
            "clusterapi:namespace",
        ),
        (("--cloud-provider=exoscale", "--nodes=[min]:[max]:[ID]"), "--nodes"),
    ],
)
def test_IMP_28_29_31_providers_that_cannot_be_translated_are_mistakes(
    words: tuple[str, ...], says: str
) -> None:
    with pytest.raises(InputErrors) as refused:
        converted(*words)
    assert says in str(refused.value)


def test_IMP_31_huaweicloud_with_a_cluster_leaves_its_groups_behind() -> None:
    found = converted(
        "--cloud-provider=huaweicloud", "--nodes=1:2:as-a", region="cn-north-4", cluster_id="c-1"
    )
    assert provider(found)["clusterId"] == "c-1"
    assert "nodes" not in provider(found)
    assert "--nodes=1:2:as-a" in words_of(found, Verdict.NOT_HERE)


def test_IMP_31_huaweicloud_has_the_region_of_its_endpoint_and_its_project() -> None:
    text = f"[Global]\nas-endpoint=as.cn-north-4.myhuaweicloud.com\nproject-id={'0a' * 16}\n"
    mount = FileMount(
        "deploy.yaml:40",
        "/config/cloud-config",
        "kube-system/cloud-config",
        "cloud-config",
        text=text,
    )
    read = autoscaler("--cloud-provider=huaweicloud", "--cloud-config=/config/cloud-config")
    found = convert(
        msgspec.structs.replace(read, mounts=(mount,)),
        ImportArguments(name="shop", cluster_id="c-1"),
    )
    assert provider(found)["region"] == "cn-north-4"
    assert provider(found)["projectId"] == "0a" * 16


def test_IMP_20_a_cluster_name_that_is_not_a_dns_label_is_refused() -> None:
    with pytest.raises(InputErrors, match="is not a DNS label"):
        convert(
            autoscaler("--cloud-provider=clusterapi", "--cluster-name=$(NAME)"), ImportArguments()
        )
