"""Attacks with false Node identities: whatever machine a Node claims to be, no other
machine is removed for it.

Each attack runs passes of the planner and the executor over the emulated vendor. The attacker is an
idle Node; the victim has a pod that may not be moved.
"""

from __future__ import annotations

import msgspec
import pytest

from chalicelib.cluster.node_groups import read_node_groups
from chalicelib.model.node import Node
from chalicelib.model.operation import OperationKind
from chalicelib.model.outcome import Failed
from chalicelib.providers.kit.errors import ProviderError
from tests.providers.suite.kubelets import Kubelets, Word
from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.passes import Passes


def _kubelets(yard: OperationDriver) -> Kubelets:
    found = getattr(yard.bench, "kubelets", None)
    if not isinstance(found, Kubelets):
        pytest.skip(
            f"{yard.bench.name}: what a Node says of itself does not decide which machine it is"
        )
    return found


def _nodes(yard: OperationDriver, group: str) -> list[Node]:
    """Returns the Nodes of a group's machines, oldest first."""
    known = {node.provider_id: node for node in yard.bench.nodes()}
    return [known[each.id] for each in yard.instances(group)]


def _steal(yard: OperationDriver, thief: Node, provider_id: str, name: str | None = None) -> None:
    """Registers the attacker's Node again with that id."""
    _kubelets(yard).words[thief.name] = Word(yard.bench.now(), provider_id, name)


NAMES = pytest.mark.parametrize(
    "name", [None, "000-first", "zzz-last"], ids=["its own name", "first", "last"]
)


@NAMES
def test_two_nodes_with_one_provider_id_are_untouched(
    yard: OperationDriver, name: str | None
) -> None:
    _kubelets(yard)
    group = yard.bench.add_group("g", size=3)
    victim, thief, honest = _nodes(yard, group)
    before = yard.bench.machines(group)
    passes = Passes(yard, frozenset({victim.name, honest.name}))
    passes.once()
    yard.bench.settle(60.0)
    _steal(yard, thief, victim.provider_id, name)
    passes.make(40)
    assert yard.finish(group) == before
    assert yard.bench.target(group) == 3
    stays = {each.node: each.reason.code.value for each in passes.plans[-1].unremovable}
    assert stays[victim.name] == stays[name or thief.name] == "NodeIdentityContested"
    assert not any(plan.operations for plan in passes.plans)
    reported = [gap.detail for gap in passes.plans[-1].gaps if gap.kind == "Node"]
    assert any(victim.name in text and (name or thief.name) in text for text in reported)


@NAMES
def test_node_without_an_initial_id_cannot_take_another_nodes_id(
    yard: OperationDriver, name: str | None
) -> None:
    _kubelets(yard)
    group = yard.bench.add_group("g", size=3)
    victim, thief, honest = _nodes(yard, group)
    before = yard.bench.machines(group)
    _steal(yard, thief, "", name)
    passes = Passes(yard, frozenset({victim.name, honest.name}))
    passes.once()
    yard.bench.settle(120.0)
    _steal(yard, thief, victim.provider_id, name)
    passes.make(14)
    after = yard.bench.machines(group)
    assert set(before) - set(after) <= {before[1]}, "the thief's own machine at most"


def test_node_with_the_id_of_a_foreign_machine_costs_no_machine(yard: OperationDriver) -> None:
    _kubelets(yard)
    ours, theirs = (
        yard.bench.add_group("g", size=3),
        yard.bench.add_group("t", size=4, cluster="theirs"),
    )
    victim, thief, honest = _nodes(yard, ours)
    before = yard.bench.machines(ours), yard.bench.machines(theirs)
    passes = Passes(yard, frozenset({victim.name, honest.name}))
    passes.once()
    yard.bench.settle(1000.0)
    machine = yard.bench.machines(theirs)[0]
    known = yard.bench.machines(ours)[1]
    assert known in thief.provider_id
    _steal(yard, thief, thief.provider_id.replace(known, machine))
    passes.make(60)
    assert (yard.bench.machines(ours), yard.bench.machines(theirs)) == before
    assert (yard.bench.target(ours), yard.bench.target(theirs)) == (3, 4)


@pytest.mark.parametrize(
    "change", ["another node has its id", "it has another id", "it was registered anew"]
)
def test_node_that_changed_its_identity_before_the_deletion_is_kept(
    yard: OperationDriver, change: str
) -> None:
    group = yard.bench.add_group("g", size=4)
    idle, other, busy, _ = _nodes(yard, group) if _kubelets(yard) else []
    before, chosen = yard.bench.machines(group), yard.instances(group)[0]
    order = yard.removal(group, chosen)
    target = msgspec.structs.replace(order.spec.targets[0], uid=idle.uid)
    order = order.with_spec(targets=(target,))
    liar, provider_id = {
        "another node has its id": (other, idle.provider_id),
        "it has another id": (idle, busy.provider_id),
        "it was registered anew": (idle, idle.provider_id),
    }[change]
    _steal(yard, liar, provider_id)
    yard.bench.calls()
    answer = yard.ask(lambda provider: provider.delete_nodes(order))
    assert isinstance(answer, Failed), "waiting does not help"
    assert answer.error_class == "Conflict"
    assert not yard.bench.writes()
    outcome = yard.run(order)
    assert isinstance(outcome, Failed)
    assert idle.name in outcome.message
    assert yard.cluster.nodes[idle.name].taints == ()
    assert (yard.finish(group), yard.bench.target(group)) == (before, 4)


def test_node_that_vanishes_by_itself_does_not_save_its_machine(yard: OperationDriver) -> None:
    group = yard.bench.add_group("g", size=3)
    _kubelets(yard).silent.add(_nodes(yard, group)[0].name)
    gone = yard.bench.machines(group)[0]
    chosen = next(each for each in yard.group(group).instances if each.handle == gone)
    order = yard.removal(group, chosen).with_spec(id="remove-silent-0123456789")
    assert not isinstance(
        yard.ask(lambda provider: provider.delete_nodes(order)), Failed | ProviderError
    )
    yard.drive(order)
    assert len(yard.finish(group)) == 2


def test_machine_whose_node_is_gone_is_deleted_where_most_have_joined(
    yard: OperationDriver,
) -> None:
    yard.needs("discard")
    group = yard.bench.add_group("g", size=4)
    nodes = _nodes(yard, group) if _kubelets(yard) else []
    passes = Passes(yard, frozenset(node.name for node in nodes))
    passes.once()
    yard.bench.settle(1000.0)
    gone = yard.bench.machines(group)[2]
    _kubelets(yard).silent.add(nodes[2].name)
    passes.make(40)
    left = yard.bench.machines(group)
    assert gone not in left
    assert len(left) == 3


def test_contested_machine_counts_in_the_size_of_its_group(yard: OperationDriver) -> None:
    _kubelets(yard)
    group = yard.bench.add_group("g", size=3)
    victim, thief, _ = _nodes(yard, group)
    _steal(yard, thief, victim.provider_id, "000-first")
    found = {
        each.id: each for each in read_node_groups([yard.provider()], yard.bench.nodes()).groups
    }[group]
    assert found.target == 3
    assert len({each.handle for each in found.instances}) == 3
    assert ("000-first", victim.name) in {each.claimants for each in found.instances}


def test_delete_instances_is_refused_where_two_nodes_claim_the_machine(
    yard: OperationDriver,
) -> None:
    yard.needs("discard")
    _kubelets(yard)
    group = yard.bench.add_group("g", size=3)
    victim, thief, _ = _nodes(yard, group)
    chosen = yard.instances(group)[0]
    _steal(yard, thief, victim.provider_id)
    answer = yard.ask(
        lambda provider: provider.delete_nodes(
            yard.removal(group, chosen, kind=OperationKind.DELETE_INSTANCES)
        )
    )
    assert isinstance(answer, Failed | ProviderError)
    assert answer.error_class == "Conflict"
