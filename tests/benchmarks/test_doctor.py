"""The doctor's checks of a cluster of 5,000 nodes and 60,000 pods, against a
plan of the same cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from chalicelib.cli.doctor.cluster_state import (
    check_expander,
    check_provider_ids,
    check_simulation,
    check_startup_taints,
)
from chalicelib.cli.doctor.drains import check_drains, check_overlaps
from chalicelib.cli.doctor.finding import DoctorContext
from chalicelib.cli.doctor.node_templates import check_architectures, check_templates
from chalicelib.cli.doctor.other_autoscalers import check_traces
from chalicelib.model.group import Instance, NodeGroup
from chalicelib.model.memory import Memory
from chalicelib.model.node import Node
from chalicelib.model.pod import Owner, Pod, PodClass
from chalicelib.model.selector import Requirement, Selector
from chalicelib.model.snapshot import Controller, PodDisruptionBudget, Snapshot
from chalicelib.plan.planner import plan_cluster
from tests.functional.doctor_cases import ACTIVE, no_secret

NODES, PODS, CLASSES, GROUPS = 5_000, 60_000, 600, 20
NOW = 1_800_000_000.0
CHECKS = (
    check_templates,
    check_architectures,
    check_overlaps,
    check_simulation,
    check_provider_ids,
    check_startup_taints,
    check_expander,
    check_traces,
    check_drains,
)


def cluster() -> Snapshot:
    offers = {"cpu": 8000, "memory": 32 * 2**30, "pods": 110}
    nodes = tuple(
        Node(
            f"n{at}",
            {"kubernetes.io/hostname": f"n{at}", "pool": str(at % GROUPS)},
            offers,
            offers,
            created=1.0,
        )
        for at in range(NODES)
    )
    classes = tuple(
        PodClass(
            "shop",
            {"app": f"a{at}"},
            {"cpu": 500, "memory": 2**30},
            Owner("ReplicaSet", f"a{at}", f"u{at}"),
        )
        for at in range(CLASSES)
    )
    pods = tuple(
        Pod("shop", f"p{at}", f"pu{at}", at % CLASSES, f"n{at % NODES}", phase="Running")
        for at in range(PODS)
    )
    groups = tuple(
        NodeGroup(
            f"g{group}",
            "exoscale",
            0,
            1000,
            NODES // GROUPS,
            tuple(Instance(f"i{at}", node=f"n{at}") for at in range(group, NODES, GROUPS)),
            template=Node("template", {"pool": str(group)}, offers, offers),
        )
        for group in range(GROUPS)
    )
    budgets = tuple(
        PodDisruptionBudget("shop", f"b{at}", Selector((Requirement("app", "In", (f"a{at}",)),)), 1)
        for at in range(CLASSES)
    )
    controllers = tuple(
        Controller("ReplicaSet", "shop", f"a{at}", f"u{at}", 100) for at in range(CLASSES)
    )
    return Snapshot(
        "prod", NOW, nodes, pods, classes, groups, budgets, controllers, ("ReplicaSet",)
    )


def seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def test_doctor_of_a_large_cluster_takes_no_longer_than_a_few_plans(
    capsys: pytest.CaptureFixture[str],
) -> None:
    snapshot = cluster()
    context = DoctorContext(
        policy=ACTIVE, clock=lambda: NOW, read_secret=no_secret, snapshot=snapshot
    )
    plan = seconds(
        lambda: plan_cluster(snapshot, ACTIVE, Memory(), NOW, 0, assume_unneeded_for=700.0)
    )
    each = {check.__name__: seconds(lambda check=check: check(context)) for check in CHECKS}  # type: ignore[misc]
    with capsys.disabled():
        print(
            f"\nplan {plan:.2f} s of CPU; checks {sum(each.values()):.2f} s, "
            f"{sum(each.values()) / plan:.1f} plans"
        )
        print("; ".join(f"{name} {taken:.2f}" for name, taken in each.items()))
    assert sum(each.values()) < 60.0
    assert sum(each.values()) / plan < 10
