from __future__ import annotations

from typing import Any

import pytest

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import Unavailable
from chalicelib.model.errors import BadInput
from chalicelib.model.operation import OperationKind, OperationState
from chalicelib.operations.runner import handle
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.store.tables import POLICIES
from tests.functional.operations.harness import POLICY, OperationHarness


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_operation_of_an_off_or_shadow_cluster_is_abandoned_without_changes(
    stage: OperationHarness, mode: str
) -> None:
    stage.group(2)
    stage.policy(mode)
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=4)
    removal = stage.remove("g-1")
    stage.play()
    assert (
        stage.now(operation).status.state
        is stage.now(removal).status.state
        is OperationState.ABANDONED
    )
    assert stage.now(operation).status.outcome == f"the cluster's mode is {mode}"
    assert stage.provider.calls == []
    assert [request for request in stage.server.requests if request.method != "GET"] == []
    assert stage.memory().groups == {}


def test_mode_change_in_the_middle_of_a_drain_rolls_back(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    assert not stage.untouched("g-1")
    stage.policy("shadow")
    stage.play()
    assert stage.now(operation).status.state is OperationState.ABANDONED
    assert stage.untouched("g-1")
    assert stage.memory().last_scale_down_failure == 0.0


def test_act_rejects_an_unreadable_message(stage: OperationHarness) -> None:
    with pytest.raises(BadInput, match="message"):
        handle(b"{", stage.runtime)


def test_act_ignores_a_message_of_an_unknown_operation(stage: OperationHarness) -> None:
    handle(b'{"cluster": "%b", "operation": "grow-unknown"}' % stage.name.encode(), stage.runtime)
    assert stage.sent == []


def test_unreachable_cluster_ends_a_removal_that_has_not_begun(stage: OperationHarness) -> None:
    stage.group(1)

    def refuse(policy: Policy) -> object:
        raise Unavailable(f"{policy.name}: no route to host")

    stage.replace(kube_client=refuse)
    operation = stage.remove("g-1")
    stage.play()
    ended = stage.now(operation)
    assert (ended.status.state, ended.status.error_class) == (
        OperationState.FAILED,
        "ClusterUnavailable",
    )
    assert stage.provider.deleted == []


def test_missing_credential_is_a_failure_that_names_its_source(stage: OperationHarness) -> None:
    stage.group(2)

    def refuse() -> list[object]:
        raise BadInput("spec.providers.clusterapi", "token is not set", "set tokenSecret")

    stage.replace(providers=lambda policy, cluster, secret: refuse())
    operation = stage.planned(OperationKind.SCALE_UP, from_size=2, to_size=3)
    stage.play()
    ended = stage.now(operation)
    assert ended.status.error_class == "InvalidRequest"
    assert ended.status.outcome == "spec.providers.clusterapi: token is not set; set tokenSecret"


def test_unexpected_error_leaves_the_operation_to_the_next_attempt(stage: OperationHarness) -> None:
    stage.group(2)

    def broken() -> list[object]:
        raise LookupError("a bug")

    stage.replace(providers=lambda policy, cluster, secret: broken())
    stage.pod("waiting")
    operation = stage.planned(
        OperationKind.SCALE_UP, from_size=2, to_size=3, pods=("default/waiting",)
    )
    with pytest.raises(LookupError):
        stage.deliver()
    assert stage.now(operation).status.state is OperationState.RUNNING
    stage.replace(providers=lambda policy, cluster, secret: [stage.provider])
    stage.deliver_later(operation.spec.id, 200.0)
    stage.play()
    assert stage.now(operation).status.state is OperationState.SUCCEEDED


def test_group_that_disappears_during_a_removal_leaves_no_taint(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    assert not stage.untouched("g-1")
    del stage.provider.pools["g"]
    stage.play()
    assert (stage.now(operation).status.state, stage.now(operation).status.error_class) == (
        OperationState.FAILED,
        "NotFound",
    )
    assert stage.untouched("g-1")


def test_policy_deleted_during_a_removal_leaves_no_taint(stage: OperationHarness) -> None:
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    table = stage.store.policy_table
    client: Any = table.client
    client.delete_item(
        TableName=table.name, Key={"cluster": {"S": POLICIES}, "item": {"S": stage.name}}
    )
    assert stage.store.policies.current(stage.name) is None
    stage.play()
    assert stage.now(operation).status.state is OperationState.ABANDONED
    assert stage.now(operation).status.outcome == "node g-1: the cluster's policy is gone"
    assert stage.untouched("g-1")


@pytest.mark.parametrize(
    "theft",
    [
        ("outscaler/{name}/kubeconfig", "outscaler/other/kubeconfig"),
        ("kubeconfigSecret:", "kubeconfigFile:"),
        (
            "clusterapi: {{}}",
            "clusterapi: {{clusterName: x, kubeconfigSecret: outscaler/other/clusterapi}}",
        ),
    ],
    ids=["foreign-kubeconfig", "file", "foreign-management-cluster"],
)
def test_policy_that_steals_a_kubeconfig_during_a_removal_leaves_no_taint(
    stage: OperationHarness, theft: tuple[str, str]
) -> None:
    used: list[Policy] = []
    connect = stage.runtime.kube_client

    def noted(policy: Policy) -> KubeClient:
        used.append(policy)
        return connect(policy)

    stage.replace(kube_client=noted)
    stage.group(1)
    operation = stage.remove("g-1")
    stage.deliver()
    assert not stage.untouched("g-1")
    stage.store.policies.put(
        stage.name, POLICY.replace(*theft).format(name=stage.name, mode="active"), "stolen", 1
    )
    stage.play()
    ended = stage.now(operation)
    assert (ended.status.state, stage.provider.deleted) == (OperationState.ABANDONED, [])
    assert "the cluster's policy cannot be read" in ended.status.outcome
    assert stage.untouched("g-1")
    assert {policy.version for policy in used} == {1}
