"""A node with the id of another cluster's machine never changes the size of that cluster's pools,
whatever the policy says."""

from __future__ import annotations

import itertools

import pytest

from chalicelib.model.node import Node
from infra.emulators.exoscale.models import ExoscalePool
from tests.amounts import examples
from tests.providers.exoscale.fixture import ExoscaleFixture
from tests.providers.suite.kubelets import Word
from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.passes import Passes
from tests.providers.suite.recording_provider import Ear

SKS = {"sksCluster": "ours"}
WAYS = ["discovered", "sksCluster", "named", "both"]
POLICIES = pytest.mark.parametrize("policy", WAYS)
#: All of policy, kind and size; the first of them have each value with some value of the others.
CASES = [
    (policy, standalone, (4, 3, 1)[(at + turn) % 3])
    for turn in range(3)
    for at, (policy, standalone) in enumerate(itertools.product(WAYS, (False, True)))
]


def _ours(bench: ExoscaleFixture, policy: str, size: int = 4) -> ExoscalePool:
    pool = bench.add_nodepool("workers", size=size).pool
    if policy in ("named", "both"):
        bench.bind(pool.id, 0, 10)
    bench.settings = SKS if policy in ("sksCluster", "both") else {}
    return pool


def _foreign(bench: ExoscaleFixture, size: int, *, standalone: bool = False) -> ExoscalePool:
    pool = (
        bench.zone.add_pool("victim", size=size, type="standard.medium")
        if standalone
        else bench.add_nodepool("victim", size=size, cluster="theirs").pool
    )
    bench.theirs.add(pool.id)
    return pool


def _nodes(bench: ExoscaleFixture, pool: ExoscalePool) -> list[Node]:
    names = {vm.name for vm in pool.members.values()}
    return [node for node in bench.nodes() if node.name in names]


def _steal(
    bench: ExoscaleFixture, thief: Node, pool: ExoscalePool, at: int = 0, name: str | None = None
) -> None:
    machine = list(pool.members)[at]
    bench.kubelets.words[thief.name] = Word(bench.now(), f"exoscale://{machine}", name)


def _play(bench: ExoscaleFixture, busy: list[Node], minutes: int = 48) -> Passes:
    return Passes(OperationDriver(bench, Ear()), frozenset(node.name for node in busy)).make(
        minutes
    )


@pytest.mark.more
@pytest.mark.parametrize(("policy", "standalone", "size"), CASES[: examples(8, len(CASES))])
def test_exoscale_one_foreign_id_never_resizes_a_foreign_pool(
    bench: ExoscaleFixture, policy: str, standalone: bool, size: int
) -> None:
    ours, theirs = _ours(bench, policy), _foreign(bench, size, standalone=standalone)
    thief, *rest = _nodes(bench, ours)
    _steal(bench, thief, theirs)
    _play(bench, rest)
    assert (len(theirs.staying), theirs.size) == (size, size)
    assert set(_play(bench, rest, 4).memory.groups) <= {ours.id, theirs.id}
    assert len(ours.staying) == 4


@POLICIES
@pytest.mark.parametrize("standalone", [False, True], ids=["sks", "standalone"])
def test_exoscale_id_taken_over_between_passes_never_resizes_any_pool(
    bench: ExoscaleFixture, policy: str, standalone: bool
) -> None:
    ours, theirs = _ours(bench, policy), _foreign(bench, 4, standalone=standalone)
    thief, *rest = _nodes(bench, ours)
    passes = Passes(OperationDriver(bench, Ear()), frozenset(node.name for node in rest))
    passes.once()
    bench.settle(1000.0)
    for at in range(3):  # another machine in each pass
        _steal(bench, thief, theirs, at)
        passes.make(20)
    assert (len(theirs.staying), len(ours.staying)) == (4, 4)


@pytest.mark.parametrize("name", ["000", "zzz"])
def test_exoscale_discovered_pool_with_few_joined_machines_is_not_changed(
    bench: ExoscaleFixture, name: str
) -> None:
    """The Node's name belongs to no machine, so that no name contradicts the id."""
    ours, theirs = _ours(bench, "discovered"), _foreign(bench, 4, standalone=True)
    first, second, *rest = _nodes(bench, ours)
    for at, thief in enumerate((first, second)):
        _steal(bench, thief, theirs, at, f"{name}-{at}")
    passes = _play(bench, rest)
    assert (len(theirs.staying), theirs.size) == (4, 4)
    skipped = {each.group: each.skipped for each in passes.plans[-1].groups}[theirs.id]
    assert skipped is not None
    assert "only 2 of its 4 machines are nodes of this cluster" in str(skipped.params["detail"])


def test_exoscale_new_machines_of_a_foreign_pool_are_not_deleted(bench: ExoscaleFixture) -> None:
    ours, theirs = _ours(bench, "discovered"), _foreign(bench, 1, standalone=True)
    thief, *rest = _nodes(bench, ours)
    _steal(bench, thief, theirs, name="000-thief")
    passes = Passes(
        OperationDriver(bench, Ear()), frozenset({"000-thief", *(node.name for node in rest)})
    )
    passes.make(8)
    bench.zone.add_members(theirs.id, 3)
    theirs.size = 4
    passes.make(40)
    assert (len(theirs.staying), theirs.size) == (4, 4)


def test_exoscale_named_foreign_pool_keeps_its_previous_machines(bench: ExoscaleFixture) -> None:
    """A policy may name the wrong pool: none of its machines is a node of this cluster."""
    _ours(bench, "named")
    theirs = _foreign(bench, 4)
    bench.bind(theirs.id, 0, 10)
    passes = _play(bench, list(bench.nodes()), 60)
    assert len(theirs.staying) == 4
    held = [note for note in passes.plans[-1].notes if note.code.value == "DiscardHeld"]
    assert len(held) == 4


@POLICIES
def test_exoscale_never_joining_machine_is_deleted_where_most_have_joined(
    bench: ExoscaleFixture, policy: str
) -> None:
    pool = _ours(bench, policy)
    nodes = _nodes(bench, pool)
    passes = Passes(OperationDriver(bench, Ear()), frozenset(node.name for node in nodes))
    passes.once()
    bench.settle(60.0)
    gone = bench.machines(pool.id)[0]
    bench.kubelets.silent.add(nodes[0].name)
    passes.make(28)
    if policy == "discovered":
        assert len(pool.staying) == 4 or gone not in bench.machines(pool.id)
    else:
        assert gone not in bench.machines(pool.id)
        assert len(pool.staying) == 3


def test_exoscale_named_pool_loses_its_first_machine_if_it_never_joins(
    bench: ExoscaleFixture,
) -> None:
    pool = _ours(bench, "named", size=0)
    anchor = bench.add_nodepool("anchor", size=2).pool
    bench.bind(anchor.id, 2, 2)
    passes = Passes(
        OperationDriver(bench, Ear()), frozenset(node.name for node in _nodes(bench, anchor))
    )
    passes.once()
    bench.settle(60.0)
    bench.theirs.add(pool.id)  # its machines never join
    yard = passes.yard
    yard.run(yard.growth(pool.id, 1))
    assert len(pool.staying) == 1
    passes.make(36)
    assert len(pool.staying) == 0
