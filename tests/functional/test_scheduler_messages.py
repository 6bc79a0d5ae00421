"""The real scheduler's messages on shop-busy, compared with ours pod by pod:
texts and numbers are equal.

The capture holds kube-scheduler's message on every pod it rejected, such as `0/11 nodes
are available: 2 Insufficient cpu.` The planner's simulated cluster is queried before any placement.
The rest of the message after its first sentence, about claims and preemption, does not concern
filters and has no counterpart.
"""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pytest

from chalicelib.cli.saved import saved_cluster
from chalicelib.model.memory import Memory
from chalicelib.model.snapshot import Snapshot
from chalicelib.model.timestamps import parse_time
from chalicelib.plan.demand.pending_pods import collect_pending_pods
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.simulation.cluster_builder import build
from chalicelib.plan.simulation.simulated_cluster import SimulatedCluster
from chalicelib.plan.state.cluster_state import build_cluster_state
from chalicelib.plan.tables import ResourceColumns
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.reasons.text import text
from tests.reference_data import SHARED, needs_shared

BUSY = SHARED / "data" / "captures" / "shop-busy"
_MESSAGE = re.compile(r"0/(?P<nodes>\d+) nodes are available: (?P<counts>.*?)\.(?: |$)")
_COUNT = re.compile(r"(\d+) (.+)")

Counts = dict[str, int]  # the scheduler's reason -> nodes


def refused() -> dict[str, tuple[int, Counts]]:
    """pod -> nodes and counts in its message. Empty where the reference data is missing."""
    found: dict[str, tuple[int, Counts]] = {}
    path = BUSY / "pods.json"
    for pod in json.loads(path.read_text())["items"] if path.exists() else ():
        for condition in pod["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                found[key] = counted(condition["message"])
    return found


def counted(message: str) -> tuple[int, Counts]:
    """The number of nodes, and for each reason the number of nodes it excludes for the pod."""
    said = _MESSAGE.match(message)
    assert said is not None, message
    return int(said["nodes"]), _counts(said["counts"])


def _counts(said: str) -> Counts:
    """Parses `2 Insufficient cpu, 9 Insufficient memory`."""
    counts: Counts = {}
    for part in said.split(", "):
        pair = _COUNT.fullmatch(part)
        assert pair is not None, said
        counts[pair[2]] = int(pair[1])
    return counts


@cache
def captured() -> Snapshot:
    """The cluster as the planner reads it."""
    at = parse_time((BUSY / "captured-at").read_text().strip())
    return saved_cluster.read(BUSY, node_groups=None, cluster="shop-busy", taken_at=at)


@cache
def simulated_capture() -> tuple[SimulatedCluster, dict[str, int]]:
    """The captured nodes without any placement, and the class of every pod."""
    snapshot = captured()
    world = build_cluster_state(snapshot, Policy(name="shop-busy"), Memory(), snapshot.taken_at)
    columns = ResourceColumns(snapshot.classes)
    return build(world, collect_pending_pods(world).nominated, columns), {
        pod.key: pod.cls for pod in snapshot.pods
    }


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("pod", sorted(refused()))
def test_every_pod_is_rejected_with_the_schedulers_reasons_and_numbers(pod: str) -> None:
    here, class_of = simulated_capture()
    real = np.arange(len(here.table)) < here.real
    ours = {text(reason): count for reason, count in here.tally(class_of[pod], real)}
    assert (here.real, ours) == refused()[pod]


@needs_shared
@pytest.mark.shared
def test_every_rejected_pod_of_the_capture_is_compared() -> None:
    words = {reason for _, counts in refused().values() for reason in counts}
    assert (len(refused()), len(words)) == (34, 6)


@needs_shared
@pytest.mark.shared
def test_documented_fate_of_the_rejected_pods_is_correct() -> None:
    plan, _ = plan_cluster(captured(), Policy(name="shop-busy"), Memory(), captured().taken_at, 0)
    placed = {pod for up in plan.scale_ups for pod in up.pods}
    ignored = {pod for each in plan.ignored for pod in each.pods}
    assert (len(placed), sum(up.to_size - up.from_size for up in plan.scale_ups)) == (27, 9)
    assert [
        pod for pod in refused().keys() - placed - ignored if not pod.startswith("ml/huge")
    ] == []
    assert {pod.rpartition("-")[0].rpartition("-")[0] for pod in refused().keys() & ignored} == {
        "jobs/spare"
    }
    assert len(ignored - refused().keys()) == 2


def test_scheduler_message_is_parsed_to_the_end_of_its_counts() -> None:
    said = (
        "0/11 nodes are available: 2 node(s) had untolerated taint(s), 9 node(s) didn't match "
        "Pod's node "
        "affinity/selector. no new claims to deallocate, preemption: 0/11 nodes are available: 11 "
        "Preemption is "
        "not helpful for scheduling."
    )
    assert counted(said) == (
        11,
        {
            "node(s) had untolerated taint(s)": 2,
            "node(s) didn't match Pod's node affinity/selector": 9,
        },
    )
    assert counted("0/1 nodes are available: 1 Insufficient example.com/gpu.") == (
        1,
        {"Insufficient example.com/gpu": 1},
    )
