"""Plans the openb trace as one backlog to completion with a given expander, and
computes the price of the plan.

The reference data's own converter (bench/openb.py) turns the trace into input. After each pass the
planned nodes join, the placed pods run on them, and planning is repeated until nothing is added.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

import msgspec

from chalicelib.cli.saved.saved_cluster import read
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import HOSTNAME_LABEL, Condition, Node
from chalicelib.model.plan import Plan
from chalicelib.model.pod import Pod
from chalicelib.model.snapshot import Snapshot
from chalicelib.plan.planner import plan_cluster
from chalicelib.plan.predicates import static_mask
from chalicelib.plan.scale_up.least_cost.problem import Ask, Offer
from chalicelib.plan.tables import NodeTable, ResourceColumns
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.settings.cluster_policy import Policy
from chalicelib.policy.settings.node_prices import NodePrices
from tests.reference_data import SHARED

NOW = 1_790_000_000.0
PRICES = NodePrices(cpu=1.0, memory=0.125, gpu=10.0)
#: : : The file of pods, the price of the linear relaxation (from the reference data), and the
#: number of pods that fit on no machine.
INPUTS = {
    "default-whole-open": ("openb_pod_list_default.csv", 199_266, 0),
    "gpuspec33-whole-open": ("openb_pod_list_gpuspec33.csv", 205_417, 1),
}
_GPU = "nvidia.com/gpu"
_PASSES = 20


class OpenbOutcome(msgspec.Struct, frozen=True):
    """What a plan buys; seconds: CPU time of planning over all passes."""

    nodes: int
    price: float
    left: int
    passes: int
    seconds: float


def convert(name: str, out: Path) -> Path:
    """Converts one of INPUTS and writes it to `out`."""
    before = sys.argv
    sys.argv = [
        "openb",
        f"--data={SHARED / 'data' / 'openb'}",
        f"--pods={INPUTS[name][0]}",
        "--gpu=whole",
        "--max=open",
        f"--out={out}",
    ]
    try:
        runpy.run_path(str(SHARED / "bench" / "openb.py"), run_name="__main__")
    finally:
        sys.argv = before
    return out


def load(folder: Path) -> Snapshot:
    """Reads the converted trace."""
    return read(folder, node_groups=None, cluster="openb", taken_at=NOW)


def price_of(node: Node) -> float:
    """Price of a node's resources: 1 per core, 0.125 per GiB, 10 per GPU."""
    return (
        node.capacity["cpu"] / 1000
        + node.capacity["memory"] / 2**30 / 8
        + 10 * node.capacity.get(_GPU, 0)
    )


def question(snapshot: Snapshot) -> tuple[list[Offer], list[Ask]]:
    """The problem for least-cost without any limits besides the backlog."""
    counts: dict[int, int] = {}
    for pod in snapshot.pods:
        counts[pod.cls] = counts.get(pod.cls, 0) + 1
    templates = [group.template for group in snapshot.groups if group.template is not None]
    columns = ResourceColumns(snapshot.classes)
    table = NodeTable(templates, columns)
    offers = [
        Offer(group.id, table.free[row].copy(), price_of(templates[row]), group.max)
        for row, group in enumerate(snapshot.groups)
    ]
    asks = [
        Ask(
            columns.need(cls),
            count,
            tuple(static_mask(cls, snapshot.classes[cls], table).tolist()),
        )
        for cls, count in sorted(counts.items())
    ]
    return offers, asks


def plan_to_the_end(snapshot: Snapshot, *expanders: str) -> OpenbOutcome:
    """Plans, applies the plan and plans again until no node is added."""
    policy = Policy("openb", options=Options(expander=expanders), prices=PRICES)
    seconds = 0.0
    for number in range(1, _PASSES + 1):
        started = time.process_time()
        plan, _ = plan_cluster(snapshot, policy, Memory(), NOW, 0)
        seconds += time.process_time() - started
        if not plan.scale_ups:
            break
        snapshot = come_true(snapshot, plan, number)
    return OpenbOutcome(
        nodes=len(snapshot.nodes),
        price=sum(price_of(node) for node in snapshot.nodes),
        left=sum(not pod.node for pod in snapshot.pods),
        passes=number,
        seconds=seconds,
    )


def come_true(snapshot: Snapshot, plan: Plan, number: int) -> Snapshot:
    """The cluster after the nodes of a plan have joined and the placed pods run."""
    grown = {up.group: up.to_size - up.from_size for up in plan.scale_ups}
    where = {
        pod: promise.node or f"{promise.group}-{number}-{promise.number}"
        for promise in plan.promises
        for pod in promise.pods
    }
    nodes, groups = list(snapshot.nodes), []
    for group in snapshot.groups:
        new = [
            _joined(group, f"{group.id}-{number}-{at}")
            for at in range(1, grown.get(group.id, 0) + 1)
        ]
        nodes += new
        groups.append(
            msgspec.structs.replace(
                group,
                target=group.target + len(new),
                instances=group.instances
                + tuple(
                    Instance(id=node.provider_id, handle=node.provider_id, node=node.name)
                    for node in new
                ),
            )
        )
    return msgspec.structs.replace(
        snapshot,
        nodes=tuple(nodes),
        groups=tuple(groups),
        pods=tuple(_placed(pod, where.get(pod.key, "")) for pod in snapshot.pods),
    )


def _joined(group: NodeGroup, name: str) -> Node:
    assert group.template is not None
    ready = Condition("Ready", "True", "KubeletReady", NOW - 3600)
    return msgspec.structs.replace(
        group.template,
        name=name,
        uid=name,
        labels={**group.template.labels, HOSTNAME_LABEL: name},
        provider_id=f"bench://{group.id}/{name}",
        conditions=(ready,),
        created=NOW - 3600,
    )


def _placed(pod: Pod, node: str) -> Pod:
    if not node:
        return pod
    return msgspec.structs.replace(
        pod, node=node, phase="Running", scheduled="True", scheduled_reason=""
    )
