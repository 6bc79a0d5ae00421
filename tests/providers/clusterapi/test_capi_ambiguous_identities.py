"""Ambiguous identities: a Node with another Node's identity, Machines with equal claims, Machines
of another cluster's Nodes.

None of them is touched, whether by the removal of the false Node or by the repair of a
Machine that seems never to have joined. Identities are checked again right before
annotations and sizes are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from chalicelib.model.group import Instance
from chalicelib.model.operation import Operation, OperationKind, RemovalTarget
from chalicelib.model.outcome import Failed, InProgress, Succeeded
from chalicelib.providers.kit.base import Observation
from tests.providers.clusterapi.management import Management, fill, management, operation
from tests.providers.clusterapi.objects import GROUP, Json, machine, node, pool, pool_node


@pytest.fixture
def there() -> Iterator[Management]:
    """md-0 with the Machines m-0 to m-3; n-0 to n-2 are Nodes, m-3 has not joined."""
    with management() as made:
        fill(made, 4, joined=3)
        yield made


def change(
    there: Management, name: str, *, spec: Json | None = None, status: Json | None = None
) -> None:
    """Changes fields of a Machine, as a controller or a user does."""
    found = there.store.get("machines", name, "default", GROUP)
    assert found is not None
    there.store.update(
        "machines",
        {
            **found,
            "spec": {**found["spec"], **(spec or {})},
            "status": {**found.get("status", {}), **(status or {})},
        },
        GROUP,
    )


def renew(there: Management, name: str, provider_id: str, **annotations: str) -> None:
    """Deletes the Node and registers it again with that id, as its kubelet can."""
    there.store.delete("nodes", name)
    written = {f"{GROUP}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    there.store.load(
        "nodes",
        [{"metadata": {"name": name, "annotations": written}, "spec": {"providerID": provider_id}}],
    )


def take_the_id_of_m_3(there: Management) -> None:
    change(there, "m-3", spec={"providerID": "c:///i-3"})
    renew(there, "n-1", "c:///i-3")


def lose(there: Management, name: str) -> None:
    there.store.delete("nodes", name)


# A change of the objects -> the Machines that are then ambiguous, and words of the gap.
ATTACKS: dict[str, tuple[Callable[[Management], None], set[str], str]] = {
    "an idle Node takes a busy one's id": (
        lambda there: renew(there, "n-1", "c:///i-0"),
        {"m-0", "m-1"},
        "Nodes n-0 and n-1 have one providerID",
    ),
    "in another spelling": (
        lambda there: renew(there, "n-1", "c:///zone/i-0"),
        {"m-1"},
        "has another providerID, c:///zone/i-0",
    ),
    "a new Node takes it": (
        lambda there: renew_new(there, "evil", "c:///i-0"),
        {"m-0"},
        "Nodes evil and n-0 have one providerID",
    ),
    "a Node takes the id of a Machine that has not joined": (
        take_the_id_of_m_3,
        {"m-1", "m-3"},
        "i-3",
    ),
    "an annotation names a Machine that has not joined": (
        lambda there: renew_new(
            there, "evil", "c:///x", machine="m-3", cluster_namespace="default"
        ),
        {"m-3"},
        "an annotation of Node evil names it",
    ),
    "two Machines with one providerID": (
        lambda there: change(there, "m-1", spec={"providerID": "c:///i-0"}),
        {"m-0", "m-1"},
        "Machines default/m-0 and default/m-1 have one providerID",
    ),
    "two Machines with one nodeRef": (
        lambda there: change(there, "m-1", status={"nodeRef": {"name": "n-0"}}),
        {"m-0", "m-1"},
        "Machines default/m-0 and default/m-1 have one Node",
    ),
    "a nodeRef to a Node with another id": (
        lambda there: change(there, "m-1", spec={"providerID": "c:///other"}),
        {"m-1"},
        "has another providerID",
    ),
    "a nodeRef to no Node of ours": (
        lambda there: change(there, "m-3", status={"nodeRef": {"name": "victim-0"}}),
        {"m-3"},
        "join as Node victim-0",
    ),
    "the Node of a Machine is gone": (
        lambda there: lose(there, "n-1"),
        {"m-1"},
        "join as Node n-1",
    ),
    "an id of a thousand characters": (
        lambda there: renew(there, "n-1", "c:///" + "x" * 60_000),
        {"m-1"},
        "has another providerID",
    ),
}


def renew_new(there: Management, name: str, provider_id: str, **annotations: str) -> None:
    there.join(node(name))
    renew(there, name, provider_id, **annotations)


attacked = pytest.mark.parametrize(("attack", "doubtful", "says"), ATTACKS.values(), ids=ATTACKS)


def machines(observed: Observation) -> dict[str, Instance]:
    [group] = observed.groups
    return {each.handle.rpartition("/")[2]: each for each in group.instances}


@attacked
def test_capi_ambiguous_machines_are_blocked_and_reported_and_others_unaffected(
    there: Management, attack: Callable[[Management], None], doubtful: set[str], says: str
) -> None:
    before = machines(there.provider().observe(there.nodes()))
    assert not [each for each in before.values() if each.held]
    attack(there)
    observed = there.provider(settings={"clusterName": "c1"}).observe(there.nodes())
    after = machines(observed)
    assert {name for name, each in after.items() if each.held} == doubtful
    assert {name: each for name, each in after.items() if name not in doubtful} == {
        name: each for name, each in before.items() if name not in doubtful
    }
    assert all(after[name].node == "" for name in doubtful)
    [gap] = [gap for gap in observed.gaps if gap.kind == "MachineDeployment"]
    assert says in gap.detail
    assert len(gap.detail) < 1000


def wanted(kind: OperationKind, name: str) -> Operation:
    """Removes m-0 as node n-0, or deletes m-3 as the Machine that never joined."""
    index = int(name[-1])
    named = (
        RemovalTarget(f"n-{index}", f"c:///i-{index}", f"default/m-{index}")
        if kind is OperationKind.DELETE_NODES
        else (RemovalTarget("", f"pending-machine-default_{name}", f"default/{name}"))
    )
    return operation(kind, 4, 3).with_spec(targets=(named,))


@attacked
def test_capi_attack_between_the_plan_and_the_change_stops_the_change(
    there: Management, attack: Callable[[Management], None], doubtful: set[str], says: str
) -> None:
    del says
    attack(there)
    for kind, name in (
        (OperationKind.DELETE_NODES, "m-0"),
        (OperationKind.DELETE_NODES, "m-1"),
        (OperationKind.DELETE_INSTANCES, "m-3"),
    ):
        if name not in doubtful:
            continue
        gone = kind is OperationKind.DELETE_NODES and "n-1" not in [
            each.name for each in there.nodes()
        ]
        outcome = there.provider().delete_nodes(wanted(kind, name))
        assert isinstance(outcome, InProgress if gone else Failed), outcome
        if isinstance(outcome, Failed):
            assert outcome.error_class in {"Conflict", "InvalidRequest"}
            assert (there.size(), there.marked()) == (4, {})


@attacked
def test_capi_unambiguous_machines_are_removed_despite_an_attack(
    there: Management, attack: Callable[[Management], None], doubtful: set[str], says: str
) -> None:
    del says
    attack(there)
    for kind, name in (
        (OperationKind.DELETE_NODES, "m-2"),
        (OperationKind.DELETE_INSTANCES, "m-3"),
    ):
        if name not in doubtful:
            outcome = there.provider().delete_nodes(wanted(kind, name))
            assert isinstance(outcome, InProgress), outcome
            there.work()
            assert name not in there.machines()
            return


def test_capi_node_is_removed_only_as_the_machine_it_was_drained_for(there: Management) -> None:
    """The plan took n-1 for m-0; Cluster API says that m-0 is n-0."""
    wrong = operation(OperationKind.DELETE_NODES, 4, 3).with_spec(
        targets=(RemovalTarget("n-1", "c:///i-0", "default/m-0"),)
    )
    outcome = there.provider().delete_nodes(wrong)
    assert isinstance(outcome, Failed)
    assert "is node n-0 by now, and n-1 was drained" in outcome.message
    assert (there.size(), there.marked()) == (4, {})


def test_capi_node_with_a_machine_placeholder_as_id_is_not_that_machine(there: Management) -> None:
    placeholder = "pending-machine-default_m-3"
    renew_new(there, "evil", placeholder)
    wrong = operation(OperationKind.DELETE_NODES, 4, 3).with_spec(
        targets=(RemovalTarget("evil", placeholder, "default/m-3"),)
    )
    assert isinstance(there.provider().delete_nodes(wrong), Failed)
    assert (there.size(), there.marked()) == (4, {})


def test_capi_delete_annotation_set_before_the_attack_is_removed(there: Management) -> None:
    """The function died between annotation and size; the Node changes its id before the
    next function continues."""
    there.fault("PATCH", "/scale", 500, times=-1)
    provider = there.provider()
    with pytest.raises(Exception, match="by the test"):
        provider.delete_nodes(wanted(OperationKind.DELETE_NODES, "m-0"))
    there.server.faults.clear()
    assert set(there.marked()) == {"m-0"}
    renew(there, "n-1", "c:///i-0")
    assert isinstance(
        there.provider().delete_nodes(wanted(OperationKind.DELETE_NODES, "m-0")), Failed
    )
    assert (there.size(), there.marked()) == (4, {})


def test_capi_foreign_machine_with_our_id_blocks_nothing_of_ours(there: Management) -> None:
    """Write access to Machines in the management cluster must not suffice to stop us."""
    there.add(machine("copy", "", cluster="c2", provider_id="c:///i-0", node="n-0", owners=()))
    observed = there.provider(settings={"clusterName": "c1", "namespace": "default"}).observe(
        there.nodes()
    )
    assert not [each for each in machines(observed).values() if each.held]
    assert isinstance(
        there.provider().delete_nodes(wanted(OperationKind.DELETE_NODES, "m-0")), InProgress
    )


@pytest.mark.parametrize(
    "attack",
    [
        lambda there: renew_new(there, "evil", "c:///p-0"),
        lambda there: there.change(
            "mp",
            "MachinePool",
            providerIDList=[f"c:///{at}" for at in ("z/p-0", "y/p-0", "p-1")],
            replicas=3,
        ),
    ],
    ids=["two Nodes", "two spellings"],
)
def test_capi_pool_instance_without_a_unique_node_is_blocked(
    attack: Callable[[Management], None],
) -> None:
    with management() as there:
        there.add(pool("mp", ["c:///p-0", "c:///p-1"], replicas=2))
        there.join(pool_node("p-0", "c:///p-0", of="mp"), pool_node("p-1", "c:///p-1", of="mp"))
        attack(there)
        settings = {"clusterName": "c1", "allowPoolShrink": "true"}
        [group] = there.provider(settings=settings).observe(there.nodes()).groups
        doubtful = [each for each in group.instances if each.held]
        assert doubtful
        target = RemovalTarget("evil", doubtful[0].id, doubtful[0].handle)
        outcome = there.provider(settings=settings).delete_nodes(
            operation(OperationKind.DELETE_NODES, 3, 2, group="MachinePool/default/mp").with_spec(
                targets=(target,)
            )
        )
        assert isinstance(outcome, Failed), outcome
        assert there.size("mp", "MachinePool") in {2, 3}


@pytest.mark.parametrize(
    ("refs", "held"),
    [
        ([], False),
        ([{"name": "p-0"}], False),
        ([{"name": "p-0"}, {"name": "elsewhere"}], True),
        ([{"name": "elsewhere", "kind": "Pod"}], False),
    ],
)
def test_capi_pool_with_foreign_nodes_loses_no_instance(refs: list[Json], held: bool) -> None:
    """The pool's status names Nodes without saying which instance each of them is."""
    with management() as there:
        there.add(pool("mp", ["c:///p-0", "c:///p-1"], replicas=2, status={"nodeRefs": refs}))
        there.join(pool_node("p-0", "c:///p-0", of="mp"))
        provider = there.provider(settings={"clusterName": "c1", "allowPoolShrink": "true"})
        [group] = provider.observe(there.nodes()).groups
        assert {each.id: bool(each.held) for each in group.instances} == {
            "c:///p-0": False,
            "c:///p-1": held,
        }
        outcome = provider.delete_nodes(
            operation(
                OperationKind.DELETE_INSTANCES, 2, 1, group="MachinePool/default/mp"
            ).with_spec(targets=(RemovalTarget("", "c:///p-1", "listed:c:///p-1"),))
        )
        assert isinstance(outcome, Failed if held else InProgress), outcome
        assert there.size("mp", "MachinePool") == 2


def test_capi_complete_drain_of_an_unambiguous_node_works(there: Management) -> None:
    outcome = there.provider().delete_nodes(wanted(OperationKind.DELETE_NODES, "m-0"))
    assert isinstance(outcome, InProgress)
    there.work()
    assert isinstance(there.provider().poll(wanted(OperationKind.DELETE_NODES, "m-0")), Succeeded)
    assert there.machines() == ["m-1", "m-2", "m-3"]
