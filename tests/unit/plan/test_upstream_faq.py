"""Answers of upstream's FAQ as test cases, and one upstream limit that does not exist here."""

from __future__ import annotations

import pytest

from chalicelib.model.node import Taint
from chalicelib.model.pod import Toleration
from tests.builders import cluster, growth, node, words

_TAINT = Taint("dedicated", "NoSchedule", "gpu")


def test_group_at_zero_needs_a_template_with_its_labels_and_resources() -> None:
    def build(labels: dict[str, str], taints: tuple[Taint, ...] = ()) -> dict[str, tuple[int, int]]:
        made = (
            cluster()
            .node("home", "1")
            .pending(
                1,
                "3",
                node_selector={"pool": "batch"},
                tolerations=(Toleration("dedicated", "Equal", "gpu", "NoSchedule"),),
            )
        )
        return growth(made.group("g", template=node("t", "4", labels=labels, taints=taints)).plan())

    assert build({"pool": "batch"}) == {"g": (1, 1)}
    assert build({"pool": "batch"}, (_TAINT,)) == {"g": (1, 1)}
    assert build({}) == {}, "a template without the label: the pod does not fit"
    assert build({"pool": "batch"}, (Taint("dedicated", "NoSchedule", "other"),)) == {}


def test_empty_group_without_a_template_is_not_scaled_up() -> None:
    plan = (
        cluster()
        .node("home", "1")
        .pending(1, "3")
        .group("g", template_error="no capacity annotations")
        .plan()
    )
    assert words(plan) == {"g": ["not ready for scale-up"]}


@pytest.mark.parametrize(("priority", "grown"), [(-10, {"g": (1, 1)}), (-11, {})])
def test_placeholder_pods_at_the_priority_cutoff_trigger_a_scale_up(
    priority: int,
    grown: dict[str, tuple[int, int]],
) -> None:
    build = cluster().node("home", "1").pending(1, "3", priority=priority)
    assert growth(build.group("g", template=node("t", "4")).plan()) == grown


@pytest.mark.parametrize(("known", "parallelism"), [(0, 10), (3, 10), (70, 10)])
def test_every_removal_candidate_is_simulated_regardless_of_upstreams_limit(
    known: int, parallelism: int
) -> None:
    """Upstream stops after min(known + 2N, …) nodes, because each node costs it a simulation. Here
    all 100 are found at once, and only parallelism limits how many are removed now."""
    build = cluster().node("home", "4", "64Gi")
    for at in range(100):
        build.node(f"n{at:03d}", group="g")
    build.group("g")
    _, memory = build.decide()
    first = {name: one for name, one in memory.nodes.items() if name < f"n{known:03d}"}
    plan = build.plan(
        type(memory)(nodes=first), unneeded=7200, max_scale_down_parallelism=parallelism
    )
    assert len(plan.unneeded) == 100
    assert len(plan.removals) == parallelism
