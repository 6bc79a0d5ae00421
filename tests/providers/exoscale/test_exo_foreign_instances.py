"""A node with the id of another cluster's machine never changes the size of that cluster's pools,
whatever the policy says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.model.node import Node
from infra.emulators.exoscale.models import ExoscalePool
from tests.providers.provider_fixtures.exoscale import ExoscaleBench
from tests.providers.suite.kubelets import Word
from tests.providers.suite.operations import OperationDriver
from tests.providers.suite.passes import Passes
from tests.providers.suite.recording_provider import Ear

SKS = {"sksCluster": "ours"}
POLICIES = pytest.mark.parametrize("policy", ["discovered", "sksCluster", "named", "both"])


@pytest.fixture
def bench() -> Iterator[ExoscaleBench]:
    with ExoscaleBench() as made:
        yield made


def _ours(bench: ExoscaleBench, policy: str, size: int = 4) -> ExoscalePool:
    pool = bench.add_nodepool("workers", size=size).pool
    if policy in ("named", "both"):
        bench.bind(pool.id, 0, 10)
    bench.settings = SKS if policy in ("sksCluster", "both") else {}
    return pool


def _foreign(bench: ExoscaleBench, size: int, *, standalone: bool = False) -> ExoscalePool:
    pool = (
        bench.zone.add_pool("victim", size=size, type="standard.medium")
        if standalone
        else bench.add_nodepool("victim", size=size, cluster="theirs").pool
    )
    bench._theirs.add(pool.id)
    return pool


def _nodes(bench: ExoscaleBench, pool: ExoscalePool) -> list[Node]:
    names = {vm.name for vm in pool.members.values()}
    return [node for node in bench.nodes() if node.name in names]


def _steal(
    bench: ExoscaleBench, thief: Node, pool: ExoscalePool, at: int = 0, name: str | None = None
) -> None:
    machine = list(pool.members)[at]
    bench.kubelets.words[thief.name] = Word(bench.now(), f"exoscale://{machine}", name)


def _play(bench: ExoscaleBench, busy: list[Node], minutes: int = 48) -> Passes:
    return Passes(OperationDriver(bench, Ear()), frozenset(node.name for node in busy)).make(
        minutes
    )


@POLICIES
@pytest.mark.parametrize("standalone", [False, True], ids=["sks", "standalone"])
@pytest.mark.parametrize("size", [4, 3, 1])
def test_exoscale_one_foreign_id_never_resizes_a_foreign_pool(
    bench: ExoscaleBench, policy: str, standalone: bool, size: int
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
    bench: ExoscaleBench, policy: str, standalone: bool
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
    bench: ExoscaleBench, name: str
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


def test_exoscale_new_machines_of_a_foreign_pool_are_not_deleted(bench: ExoscaleBench) -> None:
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


def test_exoscale_named_foreign_pool_keeps_its_previous_machines(bench: ExoscaleBench) -> None:
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
    bench: ExoscaleBench, policy: str
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
    bench: ExoscaleBench,
) -> None:
    pool = _ours(bench, "named", size=0)
    anchor = bench.add_nodepool("anchor", size=2).pool
    bench.bind(anchor.id, 2, 2)
    passes = Passes(
        OperationDriver(bench, Ear()), frozenset(node.name for node in _nodes(bench, anchor))
    )
    passes.once()
    bench.settle(60.0)
    bench._theirs.add(pool.id)  # its machines never join
    yard = passes.yard
    yard.run(yard.growth(pool.id, 1))
    assert len(pool.staying) == 1
    passes.make(36)
    assert len(pool.staying) == 0
