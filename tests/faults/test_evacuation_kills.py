"""Functions are killed at every write while a node is evacuated that its vendor takes back: one
node is bought, each pod is evicted once, the node goes once, and nothing is left behind
(docs/reference/spot.md "Evacuation")."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest

from infra.emulators.controllers import objects
from tests.faults import cluster
from tests.faults.fault_schedule import FAIL, KILL, LOSE, TABLE, Strike, Writes
from tests.faults.final_checks import restless
from tests.faults.node_events import announce, keep
from tests.faults.run_state import FaultRun

WRITES = 30
"""An undisturbed run has more writes than this from the notice until all is at rest."""
KINDS = {
    "plan": ("reconcile", "transact_write_items"),
    "message": ("reconcile", "send act_clusterapi"),
    "claim": ("act_clusterapi", "update_item"),
    "purchase": ("act_clusterapi", "/scale"),
    "taint": ("act_clusterapi", "PATCH /api/v1/nodes/"),
    "eviction": ("act_clusterapi", "/eviction"),
    "deletion-mark": ("act_clusterapi", "/machines/"),
    "end": ("act_clusterapi", "transact_write_items"),
}
"""Kinds of writes, with the function and words that only they have."""
QUIET: dict[str, Any] = {"scaleDownUnneededTime": "3h", "scaleDownUnreadyTime": "3h"}


def evacuated(*strikes: Strike) -> list[str]:
    """Plays the evacuation of the one node with a large pod, which has room nowhere else. Returns
    the writes. Raises Broken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "CONSOLIDATION", {**cluster.CONSOLIDATION, "mode": "off"})
        with FaultRun(1, consolidates=True, age=0.0, **QUIET) as run:
            run.world.seed(objects.deployment("huge", replicas=1, cpu="3500m", memory="128Mi"))
            run.world.step(240.0)
            (pod,) = [
                each
                for each in run.world.kube.list("pods", "default")
                if "huge" in each["metadata"]["name"]
            ]
            node, before = pod["spec"]["nodeName"], dict(run.world.audit.counts)
            assert (run.world.size("large"), before) == (3, {"grown": 1})
            writes = Writes(KILL, 1)
            run.world.weather.strikes.extend([writes, *strikes])
            announce(run, node)
            for _ in range(14):
                run.world.step(60.0)
                run.take_machines()
                run.check()
            counts = Counter(run.world.audit.counts)
            if counts["machines taken back"]:  # its pass was killed, and the next one was too late
                assert counts["grown"] <= 2
            else:
                assert (counts["grown"], counts["evicted"], counts["tainted as interrupted"]) == (
                    2,
                    1,
                    1,
                )
                assert (counts["node gone as interrupted"], run.world.size("large")) == (1, 3)
            assert node not in run.world.nodes()
            assert run.world.operations() == ()
            assert list(restless(run)) == []
            assert [made for made in run.world.pending() if "huge" in made] == []
            assert len([made for made in run.world.invocations if made.killed_at]) == sum(
                each.kind == KILL for each in strikes
            )
            return writes.made


@functools.cache
def undisturbed() -> tuple[str, ...]:
    """The writes of a run without faults."""
    return tuple(evacuated())


def number_of(kind: str) -> int:
    """The number of the first write of a kind."""
    function, word = KINDS[kind]
    return next(
        at
        for at, write in enumerate(undisturbed(), 1)
        if write.startswith(function) and word in write
    )


@pytest.mark.parametrize("after", [False, True], ids=["at", "after"])
@pytest.mark.parametrize("kind", KINDS)
def test_evacuation_killed_at_a_write_of_each_kind_buys_and_evicts_once(
    kind: str, *, after: bool
) -> None:
    evacuated(Strike(KILL, number_of(kind), writing=True, after=after))


def test_evacuation_survives_lost_answers_of_the_table() -> None:
    number = (
        undisturbed().index(
            next(write for write in undisturbed() if "transact_write_items" in write)
        )
        + 1
    )
    evacuated(
        Strike(LOSE, number, door=TABLE, writing=True),
        Strike(FAIL, number + 5, door=TABLE, writing=True),
    )


def kept(*strikes: Strike) -> list[str]:
    """Plays a notice that is taken back after 76 seconds, of a node whose pod a budget
    holds. Returns the writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "CONSOLIDATION", {**cluster.CONSOLIDATION, "mode": "off"})
        with FaultRun(1, consolidates=True, age=0.0, **QUIET) as run:
            huge = objects.deployment("huge", replicas=1, cpu="3500m", memory="128Mi")
            run.world.seed(huge, objects.pdb("huge", max_unavailable=0))
            run.world.step(240.0)
            (pod,) = [
                each
                for each in run.world.kube.list("pods", "default")
                if "huge" in each["metadata"]["name"]
            ]
            node, before = pod["spec"]["nodeName"], run.world.size("large")
            writes = Writes(KILL, 1)
            run.world.weather.strikes.extend([writes, *strikes])
            announce(run, node)
            run.world.step(76.0)
            keep(run, node)
            made = len(writes.made)
            for _ in range(8):
                run.world.step(60.0)
                run.take_machines()
                run.check()
            assert run.world.audit.counts.get("evicted", 0) == 0
            assert [
                each["metadata"]["uid"]
                for each in run.world.kube.pods_on(node)
                if "huge" in each["metadata"]["name"]
            ] == [pod["metadata"]["uid"]]
            assert run.world.size("large") <= before + 1
            assert run.world.operations() == ()
            assert list(restless(run)) == []
            return writes.made[:made]


def test_a_notice_that_is_taken_back_keeps_the_machine_of_a_protected_pod() -> None:
    kept()


@pytest.mark.parametrize("after", [False, True], ids=["at", "after"])
@pytest.mark.parametrize("number", [2, 6, 12, 20, 30])
def test_a_notice_that_is_taken_back_keeps_the_machine_after_kills(
    number: int, *, after: bool
) -> None:
    kept(
        Strike(KILL, number, writing=True, after=after),
        Strike(KILL, number + 9, writing=True, after=after),
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_evacuation_killed_at_any_write_once_and_twice_buys_and_evicts_once(number: int) -> None:
    assert len(undisturbed()) > WRITES
    for later in ((), (1,), (4,)):
        for after in (False, True):
            numbers = [number, *(number + more for more in later)]
            evacuated(*(Strike(KILL, each, writing=True, after=after) for each in numbers))
