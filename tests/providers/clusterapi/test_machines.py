"""Matching of Machines, Nodes and instances."""

from __future__ import annotations

from typing import Any

from chalicelib.model.group import Instance, InstanceError, InstanceState
from chalicelib.model.node import Node
from chalicelib.providers.clusterapi.instances import Nodes, classify, handle_of, normalise
from chalicelib.providers.clusterapi.models import CapiAnnotations
from tests.cases import each_row
from tests.providers.clusterapi.objects import as_machine, leaving, machine, node

VMSS = (
    "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/"
    "pool/"
    "virtualMachines/0"
)
CREATING, RUNNING, DELETING = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING


def instance(obj: dict[str, Any], *nodes: Node) -> Instance:
    parsed = as_machine(obj)
    return classify(parsed, Nodes(nodes, CapiAnnotations()).match(parsed))


@each_row(
    ("provider_id", "normal"),
    [
        ("aws:////i-1", "i-1"),
        ("aws:///eu-west-1a/i-1", "i-1"),
        ("gce://project/zone-a/n1", "n1"),
        ("", ""),
        ("bare", "bare"),
        ("azure:///subscriptions/s/providers/Microsoft.Compute/virtualMachines/VM-1", "vm-1"),
        (VMSS, VMSS.lower()),  # its last segment is a plain number, so the whole id is kept
    ],
)
def test_capi_normalized_provider_ids(provider_id: str, normal: str) -> None:
    assert normalise(provider_id) == normal


def test_capi_azure_ids_that_differ_in_case_are_equal() -> None:
    found = instance(
        machine("m", "ms", provider_id=VMSS.upper().replace("AZURE", "azure")), node("n", VMSS)
    )
    assert (found.id, found.node) == (VMSS, "n")


@each_row(
    ("text", "handle"),
    [
        ("pending-machine-ns_name_with_more", "ns/name_with_more"),
        ("failed-machine-ns_m", "ns/m"),
        ("deleting-machine-ns_m", "ns/m"),
        ("aws:///pending-machine-ns_m", ""),
        ("i-1", ""),
    ],
)
def test_capi_placeholder_names_lead_back_to_their_machine(text: str, handle: str) -> None:
    assert handle_of(text) == handle


def test_capi_states_of_five_machines() -> None:
    nodes = (node("n1", "cloud://z/i-1"), node("n3", "cloud://z/i-3"))
    expected = [
        (
            machine("running", "ms", provider_id="cloud://z/i-1", node="n1"),
            Instance("cloud://z/i-1", RUNNING, handle="default/running", node="n1"),
        ),
        (
            machine("pending", "ms", provider_id="cloud://z/i-2"),
            Instance("pending-machine-default_pending", CREATING, handle="default/pending"),
        ),
        # Cluster API has not seen its Node, we have
        (
            machine("joined", "ms", provider_id="cloud://z/i-3"),
            Instance("cloud://z/i-3", RUNNING, handle="default/joined", node="n3"),
        ),
        (
            leaving(machine("leaving", "ms", provider_id="cloud://z/i-4", node="n4")),
            Instance("deleting-machine-default_leaving", DELETING, handle="default/leaving"),
        ),
        (
            machine("failed", "ms", phase="Failed", failureMessage="no capacity"),
            Instance(
                "failed-machine-default_failed",
                CREATING,
                InstanceError("OutOfStock", "ProvisioningFailed", "no capacity"),
                "default/failed",
            ),
        ),
    ]
    for obj, wanted in expected:
        assert instance(obj, *nodes) == wanted, obj["metadata"]["name"]


def test_capi_failure_message_of_v1beta2() -> None:
    failed = machine("m", "ms", phase="Failed", deprecated={"v1beta1": {"failureMessage": "quota"}})
    found = instance(failed)
    assert found.error == InstanceError("QuotaExceeded", "ProvisioningFailed", "quota")


def test_capi_failed_state_takes_precedence_over_deleting() -> None:
    found = instance(leaving(machine("m", "ms", phase="Failed", failureMessage="gone wrong")))
    assert (found.id, found.state) == ("failed-machine-default_m", DELETING)
    assert found.error == InstanceError("Unknown", "DeletingFailed", "gone wrong")


@each_row("status", [{"phase": "Failed"}, {"phase": "Provisioning", "failureMessage": "retried"}])
def test_capi_failure_needs_both_phase_and_message(status: dict[str, Any]) -> None:
    found = instance(machine("m", "ms", **status))
    assert (found.id, found.error) == ("pending-machine-default_m", None)


def test_capi_failed_machine_with_a_node_is_not_unregistered() -> None:
    joined = machine("m", "ms", provider_id="c://i", node="n", phase="Failed", failureMessage="x")
    assert instance(joined, node("n", "c://i")) == Instance(
        "c://i", RUNNING, handle="default/m", node="n"
    )


def test_capi_machine_without_an_id_takes_its_nodes_id() -> None:
    by_reference = instance(machine("m", "ms", node="n"), node("n", "cloud:///i-1"))
    assert by_reference == Instance("cloud:///i-1", RUNNING, handle="default/m", node="n")
    by_id = instance(machine("m", "ms", provider_id="cloud:///i-1"), node("n", "cloud:///i-1"))
    assert by_id == by_reference


@each_row("provider_id", ["", "cloud:///i-9"])
def test_capi_machine_named_only_by_a_node_annotation_is_blocked(provider_id: str) -> None:
    """Anyone who controls a kubelet can write it; the Machine then is neither that Node nor
    treated as unregistered."""
    found = instance(machine("m", "ms", provider_id=provider_id), node("n", "cloud:///i-1", of="m"))
    assert (found.id, found.state, found.node) == ("pending-machine-default_m", CREATING, "")
    assert "an annotation of Node n names it" in found.held


def test_capi_node_without_an_id_is_matched_and_no_instance_has_an_empty_id() -> None:
    found = instance(machine("m", "ms", node="n"), node("n", "", of="m"))
    assert (found.state, found.node, found.handle) == (RUNNING, "n", "default/m")
    assert found.id
    # the Machine's own id, if it has one
    assert (
        instance(machine("m", "ms", provider_id="cloud:///i-1", node="n"), node("n")).id
        == "cloud:///i-1"
    )


def test_capi_annotation_of_another_namespace_means_another_machine() -> None:
    found = instance(
        machine("m", "ms", namespace="here"), node("n", "c:///i", of="m", namespace="there")
    )
    assert found.state is CREATING


def test_capi_ids_are_compared_whole_before_their_last_segment() -> None:
    nodes = (node("a", "cloud://zone-a/i-1"), node("b", "cloud://zone-b/i-1"))
    exact = instance(machine("m", "ms", provider_id="cloud://zone-b/i-1"), *nodes)
    assert exact.node == "b"
    # the two are indistinguishable, so neither matches
    unclear = instance(machine("m", "ms", provider_id="cloud:////i-1"), *nodes)
    assert (unclear.state, unclear.node) == (CREATING, "")
    assert "Node a and b" in unclear.held


def test_capi_nodes_spelling_of_an_id_is_used() -> None:
    found = instance(
        machine("m", "ms", provider_id="aws:////i-1", node="n"), node("n", "aws:///eu/i-1")
    )
    assert found.id == "aws:///eu/i-1"


@each_row(
    ("obj", "name"),
    [
        (machine("m", "ms", nodeRef={"kind": "Pod", "name": "n"}), "pending-machine-default_m"),
        (machine("m", "ms", node="gone"), "pending-machine-default_m"),
        (machine("m", "ms", node="gone", provider_id="c:///i-1"), "c:///i-1"),
        # its id belongs to one of our Nodes, and its nodeRef does not
        (machine("m", "ms", node="gone", provider_id="c:///i"), "c:///i"),
        (machine("m", "ms", node="n", provider_id="c:///i-1"), "c:///i-1"),
    ],
)
def test_capi_machine_with_a_foreign_node_reference_is_blocked(
    obj: dict[str, Any], name: str
) -> None:
    found = instance(obj, node("n", "c:///i", of="m"))
    assert (found.id, found.state, found.node) == (name, RUNNING, "")
    assert found.held
