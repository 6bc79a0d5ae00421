"""Cases F from upstream's FAQ, and S1, which has no limit here to be compared with."""

from __future__ import annotations

import pytest

from chalicelib.model.node import Taint
from chalicelib.model.pod import Toleration
from tests.builders import cluster, growth, node, words

_TAINT = Taint("dedicated", "NoSchedule", "gpu")


def test_F3_a_group_at_zero_needs_a_template_that_says_what_its_nodes_will_be() -> None:
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


def test_F3_without_a_template_nothing_is_known_of_its_nodes() -> None:
    plan = cluster().node("home", "1").pending(1, "3").group("g", template_error="no capacity annotations").plan()
    assert words(plan) == {"g": ["not ready for scale-up"]}


@pytest.mark.parametrize(("priority", "grown"), [(-10, {"g": (1, 1)}), (-11, {})])
def test_F4_placeholders_at_the_cutoff_trigger_and_below_it_do_not(
    priority: int,
    grown: dict[str, tuple[int, int]],
) -> None:
    build = cluster().node("home", "1").pending(1, "3", priority=priority)
    assert growth(build.group("g", template=node("t", "4")).plan()) == grown


@pytest.mark.parametrize(("known", "parallelism"), [(0, 10), (3, 10), (70, 10)])
def test_S1_every_candidate_is_looked_at_whatever_upstreams_limit_would_be(known: int, parallelism: int) -> None:
    """Upstream stops looking after min(known + 2N, …) nodes, since each costs it a simulation. Here all 100 are found
    at once, and what goes now is bounded by parallelism alone."""
    build = cluster().node("home", "4", "64Gi")
    for at in range(100):
        build.node(f"n{at:03d}", group="g")
    build.group("g")
    _, memory = build.decide()
    first = {name: one for name, one in memory.nodes.items() if name < f"n{known:03d}"}
    plan = build.plan(type(memory)(nodes=first), unneeded=7200, max_scale_down_parallelism=parallelism)
    assert len(plan.unneeded) == 100
    assert len(plan.removals) == parallelism
