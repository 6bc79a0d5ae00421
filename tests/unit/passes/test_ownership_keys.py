"""Keys by which policies claim node groups: the same group has one key,
another group has another.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.operation import OperationKind
from chalicelib.passes.foreign_groups import former_keys, ownership_keys
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from tests.builders import cluster
from tests.operations import new_operation

GROW = new_operation(
    id="grow-1",
    cluster="prod",
    provider="test",
    group="pool-a",
    kind=OperationKind.SCALE_UP,
    plan="plan-1",
    created_at=0.0,
    from_size=1,
    to_size=2,
)
NONE = cluster().snapshot()


def policy(settings: dict[str, str], **access: Any) -> Policy:
    return Policy(name="prod", providers={"test": settings}, kubernetes=KubernetesAccess(**access))


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        pytest.param({"region": "cn-hangzhou"}, "cn-hangzhou", id="region"),
        pytest.param({"zone": "ch-gva-2"}, "ch-gva-2", id="zone"),
        pytest.param(
            {"zone": "ch-gva-2", "region": "cn-hangzhou"}, "ch-gva-2", id="zone-before-region"
        ),
        pytest.param(
            {"kubeconfigSecret": "outscaler/m", "zone": "z"}, "outscaler/m", id="management-cluster"
        ),
        pytest.param({"kubeconfigFile": "m.yaml", "zone": "z"}, "m.yaml", id="management-file"),
        pytest.param(
            {"cloudConfigAuthoritative": "true"}, "outscaler/in", id="authoritative-cloud-config"
        ),
        pytest.param({}, "outscaler/k", id="the-cluster-itself"),
    ],
)
def test_ownership_key_of_a_group_names_the_place_of_its_provider(
    settings: dict[str, str], place: str
) -> None:
    site = policy(
        settings, kubeconfig_secret="outscaler/k", in_cluster_kubeconfig_secret="outscaler/in"
    )
    assert ownership_keys(site, NONE, [GROW]) == {("test", f"{place}#pool-a"): "pool-a"}


@pytest.mark.parametrize(
    "access",
    [
        {"kubeconfig_file": "k.yaml"},
        {"eks_cluster": "k.yaml"},
        {"in_cluster_kubeconfig_secret": "k.yaml"},
    ],
)
def test_ownership_key_without_a_place_of_the_provider_names_the_cluster(
    access: dict[str, str],
) -> None:
    assert ownership_keys(policy({}, **access), NONE, [GROW]) == {
        ("test", "k.yaml#pool-a"): "pool-a"
    }


def test_groups_of_one_name_in_two_regions_have_two_ownership_keys() -> None:
    one, two = (
        ownership_keys(policy({"region": region}, kubeconfig_secret="outscaler/k"), NONE, [GROW])
        for region in ("cn-hangzhou", "cn-beijing")
    )
    assert not one.keys() & two.keys()


def test_identity_that_the_provider_supplies_replaces_the_place_in_the_ownership_key() -> None:
    site = policy({"region": "cn-hangzhou"})
    known = cluster().group("pool-a", claim="uid-1").snapshot()
    assert ownership_keys(site, known, [GROW]) == {("test", "uid-1#pool-a"): "pool-a"}
    assert former_keys(site, known, [GROW]) == {("test", "cn-hangzhou#pool-a"): "pool-a"}
    assert former_keys(site, NONE, [GROW]) == {}
