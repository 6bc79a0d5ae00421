"""Compares upstream's recorded scale-down decisions on 200 half-empty clusters with ours: we find
as many nodes or more, or known_differences.md gives the reason, and all found nodes can be removed.

The table is checked in both directions: an unlisted difference fails, and so does a row that no
longer applies. `python -m tests.differential.scale_down` and `python -m
tests.differential.scale_down_checker` print more.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.reason import ReasonCode
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.policy.settings.cluster_policy import Policy
from tests.amounts import examples
from tests.benchmarks.test_planning import generate
from tests.differential.compare import NOW, generator
from tests.differential.scale_down import Down, answers, cluster_of, plan_of, upstream_down
from tests.differential.scale_down_checker import ALL, Referee, removals
from tests.differential.scale_down_clusters import herd, wild
from tests.property.snapshot_reader import Lists, read
from tests.reference_data import needs_shared

DIFFERENCES = Path(__file__).with_name("known_differences.md")
SEEDS, PART = 200, 50
QUICK = 50  # seeds of `make test`; the others are slow
PARTS = [
    pytest.param(range(first, first + PART), marks=[pytest.mark.slow] if first >= QUICK else [])
    for first in range(0, SEEDS, PART)
]
_SECTION = re.compile(r"^## Scale-down$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (\d+) \| (\d+ nodes) \| ([\w ]+) \| ([^|]*) \|$", re.MULTILINE)
_HARD = Policy(
    name="hard", options=msgspec.structs.replace(ALL, scale_down_utilization_threshold=1.0)
)


def listed() -> dict[tuple[int, str, str], str]:
    """The exceptions listed in the document, each with its reason."""
    section = _SECTION.search(DIFFERENCES.read_text("utf-8"))
    assert section is not None, "known_differences.md has a section Scale-down"
    return {
        (int(seed), ours, theirs): why.strip()
        for seed, ours, theirs, why in _ROW.findall(section.group(1))
    }


# -- as many nodes as upstream


@cache
def _answers(seeds: range) -> list[Down]:
    return list(answers(seeds))


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("seeds", PARTS, ids=str)
def test_as_many_nodes_are_unneeded_as_in_upstreams_best_run_or_listed(seeds: range) -> None:
    found = {each.row for each in _answers(seeds) if each.is_worse}
    known = {row for row in listed() if row[0] in seeds}
    assert sorted(found - known) == [], "not listed in known_differences.md"
    assert sorted(known - found) == [], "listed in known_differences.md, and no longer so"


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("seeds", PARTS, ids=str)
def test_candidates_and_reasons_against_other_nodes_equal_upstreams(seeds: range) -> None:
    assert [each for each in _answers(seeds) if each.our_tally != each.their_tally] == []


@needs_shared
@pytest.mark.shared
def test_upstreams_scale_down_decisions_cover_every_seed() -> None:
    assert sorted(upstream_down()) == list(range(SEEDS))


def test_every_listed_scale_down_difference_has_a_reason() -> None:
    assert [row for row, why in listed().items() if len(why) < 10] == []


# -- stability over passes


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("seeds", PARTS, ids=str)
def test_unneeded_node_is_unneeded_in_the_next_pass(seeds: range) -> None:
    """Otherwise no timer would ever expire, since a node not confirmed in a pass loses its
    timer."""
    make, lost = generator().make_down, {}
    for seed in seeds:
        _, _, snapshot = cluster_of(seed, make)
        first, memory = plan_cluster(snapshot, Policy(name="again"), Memory(), NOW, 0)
        for later in (60.0, 400.0):  # before and after the retry of failed candidates
            plan, memory = plan_cluster(snapshot, Policy(name="again"), memory, NOW + later, 0)
            if missing := set(first.unneeded) - set(plan.unneeded):
                lost[seed, later] = sorted(missing)
    assert lost == {}


@needs_shared
@pytest.mark.shared
@pytest.mark.more
def test_unneeded_nodes_stay_unneeded_after_some_were_removed() -> None:
    """Nodes are removed a few at a time; the remaining ones keep their timers."""
    make, lost = generator().make_down, {}
    for seed in range(examples(25, 60)):
        _, _, snapshot = cluster_of(seed, make)
        memory, before, now = Memory(), set[str](), NOW
        for turn in range(4):
            plan, memory = plan_cluster(
                snapshot, Policy(name="turn"), memory, now, 0, assume_unneeded_for=86_400.0
            )
            kept = {
                verdict.node
                for verdict in plan.unremovable
                if verdict.reason.code is not ReasonCode.GROUP_MIN_SIZE
            }
            if missing := (before - set(plan.unneeded)) & kept:
                lost[seed, turn] = sorted(missing)
            before, now = (
                set(plan.unneeded) - {removal.node for removal in plan.removals},
                now + 60.0,
            )
            snapshot = _without(snapshot, plan)
    assert lost == {}


def _without(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The cluster after the plan's removals, with the evicted pods at their destinations."""
    gone = {removal.node for removal in plan.removals}
    to = {pod: on for removal in plan.removals for pod, on in removal.destinations.items()}
    groups = []
    for group in snapshot.groups:
        left = tuple(instance for instance in group.instances if instance.node not in gone)
        groups.append(
            msgspec.structs.replace(
                group, target=group.target - len(group.instances) + len(left), instances=left
            )
        )
    return msgspec.structs.replace(
        snapshot,
        groups=tuple(groups),
        nodes=tuple(node for node in snapshot.nodes if node.name not in gone),
        pods=tuple(
            msgspec.structs.replace(pod, node=to.get(pod.key, pod.node))
            for pod in snapshot.pods
            if pod.node not in gone or pod.key in to
        ),
    )


@needs_shared
@pytest.mark.shared
@pytest.mark.more
def test_order_of_input_does_not_change_the_unneeded_nodes() -> None:
    make, seeds = generator().make_down, range(0, SEEDS, examples(20, 10))
    assert len(seeds) >= 10
    for seed in seeds:
        lists, manifest, snapshot = cluster_of(seed, make)
        turned = plan_of(read(lists, manifest, NOW, shuffle=random.Random(seed)))
        assert turned.unneeded == plan_of(snapshot).unneeded, seed


# -- all of them can be removed


def wrong(lists: Lists, manifest: Any, policy: Policy | None = None) -> list[tuple[str, str]]:
    """The referee's errors for the plan that removes all unneeded nodes."""
    return list(Referee(lists, removals(read(lists, manifest, NOW), policy)).found())


def hard(made: tuple[Lists, Any]) -> list[tuple[str, str]]:
    """The same with every node a candidate, whatever its utilization."""
    return wrong(*made, _HARD)


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("seeds", PARTS, ids=str)
def test_all_unneeded_nodes_can_be_removed_sequentially(seeds: range) -> None:
    make = generator().make_down
    assert {seed: found for seed in seeds if (found := wrong(*make(seed)))} == {}


@needs_shared
@pytest.mark.shared
def test_all_unneeded_nodes_can_be_removed_if_every_node_is_a_candidate() -> None:
    make = generator().make_down
    assert {seed: found for seed in range(1000, 1020) if (found := hard(make(seed)))} == {}


@pytest.mark.more
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_all_unneeded_nodes_can_be_removed_with_every_pod_and_node_rule_in_use(first: int) -> None:
    assert {
        seed: found
        for seed in range(first, first + examples(50, 100))
        if (found := wrong(*wild(seed)))
    } == {}
    assert {
        seed: found
        for seed in range(first, first + examples(10, 20))
        if (found := hard(wild(seed)))
    } == {}


def test_all_unneeded_nodes_can_be_removed_with_rules_across_many_nodes() -> None:
    lists, manifest = herd(9000, 100)
    assert len(lists["nodes"]) > 100
    assert wrong(lists, manifest) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1000])
def test_all_unneeded_nodes_of_a_large_rule_rich_cluster_can_be_removed(first: int) -> None:
    lists, manifest = herd(first, 400)
    assert len(lists["nodes"]) > 600
    assert wrong(lists, manifest) == []


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("nodes", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("variant", ["plain", "affinity"])
def test_all_unneeded_nodes_of_the_benchmark_input_can_be_removed(
    nodes: int, variant: str, tmp_path: Path
) -> None:
    folder = generate(
        tmp_path / "down", nodes=nodes, utilization=0.4, jitter=0.2, pdbs=True, variant=variant
    )
    lists = {
        path.stem: msgspec.json.decode(path.read_bytes())["items"]
        for path in folder.glob("*.json")
        if path.stem != "manifest"
    }
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    plan = removals(read(lists, manifest, NOW))
    assert list(Referee(lists, plan, each=nodes // 25).found()) == []
