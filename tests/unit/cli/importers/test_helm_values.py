"""Values of the Helm chart become the flags that the chart renders; nothing of
them is lost without a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from chalicelib.cli.migrate.autoscaler_input import AutoscalerInput, ImportArguments
from chalicelib.cli.migrate.autoscaler_policy import Converted, convert
from chalicelib.cli.migrate.helm_values import read_helm_values
from chalicelib.cli.migrate.report import Verdict
from chalicelib.model.errors import InputErrors
from tests.cases import each_row

GROUPS = [{"name": "web", "minSize": 1, "maxSize": 10}]
EXOSCALE: dict[str, Any] = {"cloudProvider": "exoscale", "autoscalingGroups": GROUPS}
CAPI: dict[str, Any] = {"cloudProvider": "clusterapi", "autoDiscovery": {"clusterName": "purple"}}


def read(
    values: Mapping[str, Any], *, namespace: str = "", image_version: str = ""
) -> AutoscalerInput:
    return read_helm_values(
        "values.yaml", values, {}, namespace=namespace, image_version=image_version
    )


def flags(found: AutoscalerInput) -> list[tuple[str, str | None]]:
    return [(each.flag, each.value) for each in found.arguments]


def remarks(found: AutoscalerInput, word: str) -> list[tuple[str, str]]:
    return [(each.verdict, each.text) for each in found.remarks if each.word == word]


def converted(values: Mapping[str, Any], **wanted: Any) -> Converted:
    return convert(
        read(values), ImportArguments(**{"name": "shop", "region": "ch-gva-2", **wanted})
    )


def refused(values: Mapping[str, Any]) -> str:
    with pytest.raises(InputErrors) as found:
        converted(values)
    return str(found.value)


def test_groups_and_extra_arguments_become_flags_of_the_chart() -> None:
    found = read(
        EXOSCALE | {"extraArgs": {"expander": "random", "v": 4, "scale-down-enabled": False}}
    )
    assert flags(found) == [
        ("cloud-provider", "exoscale"),
        ("nodes", "1:10:web"),
        ("expander", "random"),
        ("scale-down-enabled", "false"),
        ("v", "4"),
        ("namespace", "kube-system"),
    ]


def test_IMP_23_a_suffix_after_an_underscore_only_makes_a_key_unique() -> None:
    found = converted(
        EXOSCALE | {"extraArgs": {"balancing-ignore-label_1": "a", "balancing-ignore-label_2": "b"}}
    )
    assert found.document["spec"]["options"]["balancingIgnoreLabel"] == ["a", "b"]


def test_null_of_extra_arguments_is_a_flag_without_a_value() -> None:
    found = converted(EXOSCALE | {"extraArgs": {"balance-similar-node-groups": None}})
    assert found.document["spec"]["options"]["balanceSimilarNodeGroups"] is True


def test_custom_arguments_are_words_of_a_command_line() -> None:
    found = read(EXOSCALE | {"customArgs": ["--max-nodes-total", 5, "--v=4"]})
    assert ("max-nodes-total", "5") in flags(found)
    assert ("v", "4") in flags(found)


@each_row(
    "discovery, spec",
    [
        ({"clusterName": "purple"}, "clusterapi:clusterName=purple"),
        ({"namespace": "a", "clusterName": "purple"}, "clusterapi:clusterName=purple,namespace=a"),
        (
            {"labels": [{"color": "green"}, {"shape": "circle"}]},
            "clusterapi:color=green,shape=circle",
        ),
        ({"labels": {"color": "green"}, "namespace": "a"}, "clusterapi:namespace=a,color=green"),
    ],
)
def test_discovery_of_clusterapi_is_written_in_the_order_of_the_chart(
    discovery: Any, spec: str
) -> None:
    found = converted(CAPI | {"autoDiscovery": discovery})
    assert found.document["spec"]["providers"]["clusterapi"]["autoDiscovery"] == [spec]


def test_discovery_of_exoscale_has_no_effect_besides_that_the_chart_deploys() -> None:
    found = read({"cloudProvider": "exoscale", "autoDiscovery": {"clusterName": "x"}})
    assert remarks(found, "autoDiscovery") == [
        (Verdict.NO_EFFECT, "the chart renders no flag of it for exoscale")
    ]
    assert "node-group-auto-discovery" not in dict(flags(found))


@each_row(
    "values, says",
    [
        (
            CAPI | {"autoDiscovery": {"clusterName": "{{ .Values.global.name }}"}},
            "render it first: helm template",
        ),
        (
            EXOSCALE | {"extraArgs": {"cluster-name": "{{ .Release.Name }}"}},
            "render it first: helm template",
        ),
        (
            EXOSCALE | {"autoscalingGroups": [GROUPS[0] | {"name": "[ID]"}]},
            "'1:10:[ID]' is a placeholder",
        ),
        (EXOSCALE | {"extraArgs": {"cluster-name": "${NAME}"}}, "'${NAME}' is a placeholder"),
        ({"cloudProvider": "exoscale"}, "these values deploy no autoscaler"),
        (
            {"cloudProvider": "exoscale", "autoDiscovery": {"tags": ["a"]}},
            "these values deploy no autoscaler",
        ),
        ({"autoscalingGroups": GROUPS}, "'aws' is not among alicloud"),
        (EXOSCALE | {"autoscalingGroup": []}, "did you mean autoscalingGroups?"),
        (EXOSCALE | {"extraArgs": ["--v=4"]}, "extraArgs: is not an object"),
        (
            EXOSCALE | {"extraArgs": {"expander": {"a": 1}}},
            "is not a text, a number, true or false",
        ),
        (
            EXOSCALE | {"autoscalingGroups": [{"name": "web", "minSize": 1}]},
            "name, minSize and maxSize",
        ),
        (CAPI | {"clusterAPIMode": "both"}, "is not one of incluster-incluster"),
    ],
)
def test_IMP_24_values_that_cannot_be_read_are_mistakes(
    values: Mapping[str, Any], says: str
) -> None:
    assert says in refused(values)


def test_all_templates_of_values_are_reported_at_once() -> None:
    found = refused(
        CAPI | {"autoDiscovery": {"clusterName": "{{ a }}"}, "extraArgs": {"v": "{{ b }}"}}
    )
    assert found.count("render it first") == 2


def test_unknown_values_are_only_told_where_the_author_skips_them() -> None:
    found = convert(
        read(EXOSCALE | {"nonsense": 1}),
        ImportArguments(name="shop", region="ch-gva-2"),
        skip_unknown=True,
    )
    assert [row.verdict for row in found.rows if row.word == "nonsense"] == [Verdict.UNKNOWN]


def test_IMP_25_the_chart_does_not_render_cloud_config_path() -> None:
    found = read(
        {
            "cloudProvider": "cherryservers",
            "autoscalingGroups": GROUPS,
            "cloudConfigPath": "/config/a",
        }
    )
    assert remarks(found, "cloudConfigPath") == [
        (
            Verdict.TOLD,
            "the chart renders no flag of it for cherryservers: it needs extraArgs.cloud-config",
        )
    ]
    assert "cloud-config" not in dict(flags(found))


@each_row(
    "mode, management",
    [
        ("incluster-incluster", False),
        ("incluster-kubeconfig", True),
        ("kubeconfig-incluster", True),
        ("kubeconfig-kubeconfig", True),
        ("single-kubeconfig", False),
    ],
)
def test_IMP_26_modes_of_the_chart_need_one_kubeconfig_or_two(mode: str, management: bool) -> None:
    found = converted(
        CAPI | {"clusterAPIMode": mode, "clusterAPIKubeconfigSecret": "purple-kubeconfig"}
    )
    settings = found.document["spec"]["providers"]["clusterapi"]
    assert settings.get("kubeconfigSecret") == ("outscaler/shop/clusterapi" if management else None)
    assert found.document["spec"]["kubernetes"] == {"kubeconfigSecret": "outscaler/shop/kubeconfig"}
    assert "inCluster" not in str(found.document)


def test_the_config_maps_namespace_counts_where_only_the_workload_has_a_kubeconfig() -> None:
    values = CAPI | {
        "clusterAPIMode": "kubeconfig-incluster",
        "clusterAPIConfigMapsNamespace": "scaling",
    }
    assert converted(values).document["spec"]["options"]["namespace"] == "scaling"


def test_the_namespace_of_a_release_is_told_to_be_assumed() -> None:
    assert flags(read(EXOSCALE, namespace="infra"))[-1] == ("namespace", "infra")
    assert "not in its values" in read(EXOSCALE).arguments[-1].read_as
    assert "Role and RoleBinding" in read(EXOSCALE, namespace="infra").arguments[-1].read_as


def test_the_chart_of_exoscale_takes_its_credentials_from_one_secret() -> None:
    found = converted(EXOSCALE | {"secretKeyRefNameOverride": "exo"})
    assert (
        found.document["spec"]["providers"]["exoscale"]["credentialsSecret"]
        == "outscaler/shop/exoscale"
    )
    stored = [row.word for row in found.rows if row.verdict is Verdict.TO_STORE]
    assert "EXOSCALE_API_KEY, EXOSCALE_API_SECRET: kube-system/exo" in stored


def test_a_zone_that_only_a_secret_has_needs_region() -> None:
    with pytest.raises(InputErrors, match="or give --region with the zone"):
        converted(EXOSCALE, region="")


def test_a_secret_with_variables_names_the_credentials_of_the_provider() -> None:
    groups = [{"name": "asg-bp18p2yfxow2dloq0001", "minSize": 1, "maxSize": 10}]
    values = {"cloudProvider": "alicloud", "autoscalingGroups": groups, "envFromSecret": "ali"}
    found = converted(values, region="cn-hangzhou")
    assert any(
        row.word.startswith("ACCESS_KEY_ID, ACCESS_KEY_SECRET: kube-system/ali")
        for row in found.rows
    )


def test_variables_of_values_are_used_and_their_secrets_are_not_shown() -> None:
    values = EXOSCALE | {
        "extraEnv": {"EXOSCALE_ZONE": "de-fra-1", "EXOSCALE_API_SECRET": "hush", "OTHER": "x"}
    }
    found = converted(values, region="")
    assert found.document["spec"]["providers"]["exoscale"]["zone"] == "de-fra-1"
    assert "hush" not in str(found)
    assert [row.verdict for row in found.rows if row.word == "OTHER"] == [Verdict.NO_EFFECT]


def test_mounted_secrets_are_found_for_the_flags_that_name_their_files() -> None:
    values = {
        "cloudProvider": "cherryservers",
        "autoscalingGroups": GROUPS,
        "extraArgs": {"cloud-config": "/config/cloud-config"},
        "extraVolumeSecrets": {"cherry": {"name": "cherry-config", "mountPath": "/config"}},
    }
    found = converted(values)
    assert any("get secret cherry-config" in row.text for row in found.rows)


def test_priorities_of_values_are_a_config_map_only_with_their_expander() -> None:
    values = EXOSCALE | {"expanderPriorities": {10: [".*web.*"]}}
    assert read(values).objects == ()
    assert remarks(read(values), "expanderPriorities")[0][0] == Verdict.NO_EFFECT
    ((_, document),) = read(values | {"extraArgs": {"expander": "priority"}}).objects
    assert document["data"] == {"priorities": "10:\n- .*web.*\n"}


def test_a_parent_chart_may_have_values_of_the_same_name() -> None:
    found = read(
        {"image": {"tag": "v2.0.0"}, "replicaCount": 1, "cluster-autoscaler": dict(EXOSCALE)}
    )
    assert found.version is None
    assert ("cloud-provider", "exoscale") in flags(found)


def test_values_below_the_name_of_the_chart_are_read_with_their_lines() -> None:
    document = {"global": {"a": 1}, "cluster-autoscaler": dict(EXOSCALE)}
    places = {
        ("cluster-autoscaler",): "values.yaml:2",
        ("cluster-autoscaler", "cloudProvider"): "values.yaml:3",
    }
    found = read_helm_values("values.yaml", document, places, namespace="", image_version="")
    assert found.arguments[0].place == "values.yaml:3"
    assert found.arguments[1].place == "values.yaml:2"
    assert remarks(found, "global") == [(Verdict.NO_EFFECT, "values of other charts")]


@each_row(
    "image, given, release",
    [
        ({"tag": "v1.29.0"}, "", (1, 29)),
        ({"repository": "registry.example/a", "tag": "latest"}, "", None),
        ({}, "1.24", (1, 24)),
    ],
)
def test_the_release_of_values_is_that_of_their_image(image: Any, given: str, release: Any) -> None:
    assert read(EXOSCALE | {"image": image}, image_version=given).version == release


def test_every_value_has_a_row_or_is_a_flag() -> None:
    more = {
        "replicaCount": 2,
        "rbac": {},
        "prometheusRule": {"enabled": True},
        "awsRegion": "x",
        "image": {"tag": "v1.29.0"},
    }
    found = converted(EXOSCALE | more)
    words = [row.word for row in found.rows]
    assert {"replicaCount", "rbac", "prometheusRule", "awsRegion"} <= set(words)
    assert any("v1.29.0" in word for word in words)
