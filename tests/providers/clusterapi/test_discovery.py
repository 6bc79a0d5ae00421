"""Auto-discovery specs, settings and annotation keys of Cluster API."""

from __future__ import annotations

import pytest

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.providers.clusterapi.models import CAPACITY, PAUSED, REVISION, CapiAnnotations
from chalicelib.providers.clusterapi.settings import (
    CapiManagement,
    Spec,
    any_matches,
    cluster_names,
    parse_spec,
    read_settings,
    scope,
)
from tests.cases import each_row


@each_row(
    ("text", "spec"),
    [
        ("clusterapi:", Spec()),
        ("clusterapi:mylabel=", Spec(labels=(("mylabel", ""),))),
        ("clusterapi:namespace=n,color=blue,clusterName=c", Spec("n", "c", (("color", "blue"),))),
        ("clusterapi:namespace=a,namespace=b", Spec("b")),  # the last one wins
        ("clusterapi:namespace=,clusterName=", Spec()),  # empty: no restriction
        ("clusterapi:,color=blue,", Spec(labels=(("color", "blue"),))),  # empty pairs are skipped
        ("clusterapi:example.com/team=x", Spec(labels=(("example.com/team", "x"),))),
        # keys are case-sensitive
        ("clusterapi:clustername=c", Spec(labels=(("clustername", "c"),))),
    ],
)
def test_capi_valid_discovery_specs(text: str, spec: Spec) -> None:
    assert parse_spec(text, "place") == spec


@each_row(
    "text",
    [
        "foo",
        "asg:tag=x",
        "clusterapi:invalid",
        "clusterapi:a=b=c",
        "a:b:c=d",
        "clusterapi:a:b",
        ":a=b",
        "clusterapi: a=b",
        "clusterapi:a=b ",
        "clusterapi:/x=y",
        "clusterapi:-a=b",
        "clusterapi:a=b/c",
        "",
        "clusterapi:namespace=a/b",
        "clusterapi:clusterName=../c",
        "ClusterAPI:",
        "clusterapi:=",
        "clusterapi:=a",
    ],
)
def test_capi_invalid_discovery_specs(text: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_spec(text, "providers.clusterapi.autoDiscovery")
    assert raised.value.place == "providers.clusterapi.autoDiscovery"
    assert "clusterapi:" in raised.value.remedy


@each_row(
    ("spec", "namespace", "cluster", "labels", "matches"),
    [
        (Spec(), "any", "any", {}, True),
        (Spec("n"), "n", "c", {}, True),
        (Spec("n"), "m", "c", {}, False),
        (Spec(cluster="c"), "n", "", {}, False),
        (Spec("n", "c", (("a", "1"),)), "n", "c", {"a": "1", "b": "2"}, True),
        (Spec("n", "c", (("a", "1"),)), "n", "c", {"a": "2"}, False),
        (Spec(labels=(("a", ""),)), "n", "c", {"a": ""}, True),
        (Spec(labels=(("a", ""),)), "n", "c", {}, False),
        (Spec(labels=(("a", "1"), ("a", "2"))), "n", "c", {"a": "1"}, False),  # both must match
    ],
)
def test_capi_all_parts_of_a_discovery_spec_must_match(
    spec: Spec, namespace: str, cluster: str, labels: dict[str, str], matches: bool
) -> None:
    assert spec.matches(namespace, cluster, labels) is matches


def test_capi_any_of_several_discovery_specs_may_match_in_all_their_namespaces() -> None:
    two = (Spec("a"), Spec("b", labels=(("x", "y"),)))
    assert any_matches(two, "a", "c", {})
    assert any_matches(two, "b", "c", {"x": "y"})
    assert not any_matches(two, "b", "c", {})
    assert scope(two) == ("a", "b")
    # one spec without a namespace searches all of them
    assert scope((*two, Spec(cluster="c"))) == ("",)


def test_capi_cluster_names_are_known_only_if_every_spec_names_one() -> None:
    assert cluster_names((Spec(cluster="a"), Spec(cluster="b"))) == frozenset({"a", "b"})
    assert cluster_names((Spec(cluster="a"), Spec("n"))) is None


def test_capi_custom_api_group_changes_only_its_own_keys() -> None:
    keys = CapiAnnotations("test.k8s.io")
    assert keys.min_size == "test.k8s.io/cluster-api-autoscaler-node-group-min-size"
    assert keys.max_size == "test.k8s.io/cluster-api-autoscaler-node-group-max-size"
    assert keys.options == "test.k8s.io/autoscaling-options-"
    assert keys.delete_machine == "test.k8s.io/delete-machine"
    assert keys.machine == "test.k8s.io/machine"
    assert keys.cluster_namespace == "test.k8s.io/cluster-namespace"
    assert keys.cluster_name == "test.k8s.io/cluster-name"
    fixed = (PAUSED, REVISION, CAPACITY)
    assert fixed == (
        "cluster.x-k8s.io/paused",
        "machinedeployment.clusters.x-k8s.io/revision",
        "capacity.cluster-autoscaler.kubernetes.io/",
    )


def test_capi_settings_in_both_forms() -> None:
    assert read_settings({}).specs == (Spec(),)
    plain = read_settings({"namespace": "n", "clusterName": "c", "labels": "a=1,b=2"})
    assert plain.specs == (Spec("n", "c", (("a", "1"), ("b", "2"))),)
    several = read_settings({"autoDiscovery": "clusterapi:namespace=a\nclusterapi:namespace=b"})
    assert several.specs == (Spec("a"), Spec("b"))
    more = read_settings(
        {
            "group": "test.k8s.io",
            "version": "v1beta1",
            "scaleZeroDefaultArch": "arm64",
            "reservedCpu": "100m",
            "reservedMemory": "1Gi",
        }
    )
    assert (more.keys.group, more.version, more.scale_zero_default_arch) == (
        "test.k8s.io",
        "v1beta1",
        "arm64",
    )
    assert more.reserve == {"cpu": 100, "memory": 2**30}


def test_capi_settings_defaults_of_switches() -> None:
    plain = read_settings({})
    assert (plain.allow_pool_shrink, plain.zone_from_failure_domain, plain.stuck_after) == (
        False,
        True,
        None,
    )
    assert plain.management == CapiManagement()
    other = read_settings(
        {
            "allowPoolShrink": "true",
            "zoneFromFailureDomain": "false",
            "stuckAfter": "5m",
            "kubeconfigSecret": "m",
            "context": "c",
            "cloudConfigAuthoritative": "true",
        }
    )
    assert (other.allow_pool_shrink, other.zone_from_failure_domain, other.stuck_after) == (
        True,
        False,
        300.0,
    )
    assert other.management == CapiManagement(secret="m", context="c", authoritative=True)


@each_row(
    ("settings", "place"),
    [
        ({"autoDiscovery": "asg:x=y"}, "autoDiscovery"),
        ({"autoDiscovery": "clusterapi:", "namespace": "n"}, "namespace"),
        ({"labels": "a"}, "labels"),
        ({"group": "Not A Group"}, "group"),
        ({"version": "latest"}, "version"),
        ({"scaleZeroDefaultArch": "AMD64"}, "scaleZeroDefaultArch"),
        ({"reservedMemory": "1.5Gii"}, "reservedMemory"),
        ({"reservedCpu": "-1"}, "reservedCpu"),
        ({"syncMachineLabels": "("}, "syncMachineLabels"),
        ({"kubeconfigSecret": "a", "kubeconfigFile": "b"}, "kubeconfigFile"),
        ({"context": "a"}, "context"),
        ({"cloudConfigAuthoritative": "yes"}, "cloudConfigAuthoritative"),
        ({"allowPoolShrink": "1"}, "allowPoolShrink"),
        ({"zoneFromFailureDomain": "tRUE"}, "zoneFromFailureDomain"),
        ({"stuckAfter": "5"}, "stuckAfter"),
        ({"stuckAfter": "-5m"}, "stuckAfter"),
        ({"nameSpace": "n"}, "nameSpace"),
    ],
)
def test_capi_invalid_setting_is_named(settings: dict[str, str], place: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_settings(settings)
    assert raised.value.place == f"providers.clusterapi.{place}"
    assert raised.value.remedy


def test_capi_invalid_settings_are_named_all_at_once() -> None:
    with pytest.raises(InputErrors) as raised:
        read_settings({"group": "No", "version": "x", "scaleZeroDefaultArch": "z"})
    assert len(raised.value.problems) == 3
