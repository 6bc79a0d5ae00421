"""The scheduler's score formulas by worked values: weights, rounding, ties and sampling."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from infra.emulators.controllers.scheduler.score_formulas import (
    BALANCE,
    DEFAULT_SPREAD,
    FIT,
    IMAGES,
    NODES,
    PODS,
    SPREAD,
    TAINTS,
    NodeSampling,
    SpreadCounts,
    apply_weights,
    choose,
    count_by_domain,
    count_nodes_to_find,
    scale_image_bytes,
    score_balanced_allocation,
    score_images,
    score_least_allocated,
    score_node_affinity,
    score_pod_affinity,
    score_spread,
    score_taints,
    sort_by_tree,
)

MIB = 2**20
CORES_8, MEMORY_32 = 7910, 31_837_491_200  # allocatable millicores and bytes


def integers(*values: object) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_weights_are_those_of_the_default_profile() -> None:
    one = integers(1)
    names = (TAINTS, NODES, SPREAD, PODS, FIT, BALANCE, IMAGES)
    scores = apply_weights(dict.fromkeys(names, one))
    assert [scores[name].tolist() for name in names] == [[3], [2], [2], [2], [1], [1], [1]]
    assert DEFAULT_SPREAD == (("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5))


@pytest.mark.parametrize(
    ("untolerated", "scores"),
    [
        ((0, 1), [300, 0]),
        ((0, 1, 2), [300, 150, 0]),
        ((0, 1, 2, 3), [300, 201, 102, 0]),  # divided first, then subtracted
        ((1, 2, 3), [201, 102, 0]),
        ((2, 2), [0, 0]),
        ((0, 0), [300, 300]),
    ],
)
def test_a_soft_taint_costs_less_the_more_of_them_another_node_has(
    untolerated: Sequence[int], scores: list[int]
) -> None:
    plugin = {TAINTS: score_taints(integers(*untolerated))}
    assert apply_weights(plugin)[TAINTS].tolist() == scores


def test_preferred_nodes_score_their_share_of_the_most_weight_rounded_down() -> None:
    assert score_node_affinity(integers(0, 1, 2, 3)).tolist() == [0, 33, 66, 100]
    assert score_node_affinity(integers(0, 0)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("requested", "allocatable", "score"),
    [
        ((3283, 4_236_247_040), (CORES_8, MEMORY_32), 72),  # (58 + 86) // 2
        ((1000, 490), (2000, 1000), 50),  # (50 + 51) // 2
        ((0, 0), (2000, 1000), 100),
        ((3000, 500), (2000, 1000), 25),  # over: 0, not negative
        ((2000, 1000), (2000, 1000), 0),
        ((100, 250), (0, 1000), 75),  # it has no cores: memory alone counts
        ((100, 250), (0, 0), 0),
    ],
)
def test_least_allocated_scores_the_mean_of_free_shares(
    requested: tuple[int, int], allocatable: tuple[int, int], score: int
) -> None:
    assert score_least_allocated(integers(requested), integers(allocatable)).tolist() == [score]


@pytest.mark.parametrize(
    ("before", "pod", "allocatable", "score"),
    [
        # balance 86 without, 85 with the pod: 50 + (50 - 1) // 2
        ((2883, 2_952_790_016), (400, 1_073_741_824), (CORES_8, MEMORY_32), 74),
        ((500, 500), (100, 100), (1000, 1000), 75),  # unchanged
        ((0, 1000), (1000, 0), (1000, 1000), 100),  # 50 without, 100 with it
        ((0, 0), (1000, 0), (1000, 1000), 50),  # 100 without, 50 with it
        ((0, 0), (5000, 0), (1000, 1000), 50),  # a share is 1 at most
        ((0, 0), (20, 0), (1000, 1000), 74),  # 100 without, 99 with it: rounded down
        ((0, 20), (20, 0), (1000, 1000), 75),  # 99 without, 100 with it
        ((0, 300), (0, 300), (0, 1000), 75),  # one resource is always balanced
    ],
)
def test_balanced_allocation_scores_the_change_by_the_pod(
    before: tuple[int, int], pod: tuple[int, int], allocatable: tuple[int, int], score: int
) -> None:
    scores = score_balanced_allocation(integers(before), integers(*pod), integers(allocatable))
    assert scores.tolist() == [score]


def test_spread_scores_fewer_matching_pods_higher() -> None:
    # ln(3 + 2) a pod, and 2 for maxSkew 3: 2, 3.61 and 5.22, rounded to 2, 4 and 5
    counts = SpreadCounts(integers(0, 1, 2), 3, 3)
    assert score_spread([counts]).tolist() == [100, 60, 40]


def test_spread_adds_its_constraints_and_skips_a_label_that_a_node_lacks() -> None:
    hosts = SpreadCounts(integers(1, 1, 0), 3, 3)  # 3.609, 3.609, 2
    zones = SpreadCounts(integers(4, 2, -1), 2, 5)  # 9.545, 6.773, nothing
    # 13.15, 10.38 and 2, rounded to 13, 10 and 2
    assert score_spread([hosts, zones]).tolist() == [15, 38, 100]


def test_spread_scores_all_nodes_best_where_nothing_counts() -> None:
    assert score_spread([SpreadCounts(integers(0, 0), 2, 1)]).tolist() == [100, 100]


def test_spread_ignores_nodes_that_lack_a_label_of_its_own_constraints() -> None:
    counts = SpreadCounts(integers(1, 2, 9), 2, 1)  # 1.39, 2.77
    able = np.array([True, True, False])
    assert score_spread([counts], able).tolist() == [100, 33, 0]
    assert score_spread([counts], ~(able | True)).tolist() == [0, 0, 0]


def test_pods_of_a_domain_count_on_all_its_nodes_but_only_sampled_domains_count() -> None:
    domains, pods = integers(0, 0, 1, -1, 2), integers(1, 2, 4, 8, 16)
    counts, size = count_by_domain(domains, pods, integers(0, 2, 3))
    assert (counts.tolist(), size) == ([3, 4, -1], 3)
    counts, size = count_by_domain(domains, pods, integers(0, 2, 3), np.array([True, True, False]))
    assert (counts.tolist(), size) == ([3, 4, -1], 2)
    assert count_by_domain(domains, pods, integers(1, 0))[1] == 1


def test_pod_affinity_scales_weights_between_least_and_most() -> None:
    assert score_pod_affinity(integers(-100, 0, 50)).tolist() == [0, 66, 100]
    # 0.29 * 100.0 is less than 29
    assert score_pod_affinity(integers(0, 29, 100)).tolist() == [0, 28, 100]
    assert score_pod_affinity(integers(7, 7)).tolist() == [0, 0]


def test_images_score_between_23_and_1000_mib_for_each_container() -> None:
    sizes = integers(0, 23 * MIB, 32 * MIB, 512 * MIB, 1000 * MIB, 5000 * MIB)
    assert score_images(sizes, 1).tolist() == [0, 0, 0, 50, 100, 100]
    assert score_images(sizes, 2).tolist() == [0, 0, 0, 24, 49, 100]


def test_image_counts_less_where_few_nodes_have_it() -> None:
    assert scale_image_bytes(1000, 1, 3) == 333
    assert scale_image_bytes(1000, 3, 3) == 1000


def heap_root(totals: Sequence[int]) -> int:
    """What heap.Init and heap.Pop of Go take from a list, step by step."""
    heap = list(enumerate(totals))
    for top in reversed(range(len(heap) // 2)):
        at = top
        while (child := 2 * at + 1) < len(heap):
            if child + 1 < len(heap) and heap[child + 1][1] > heap[child][1]:
                child += 1
            if heap[child][1] <= heap[at][1]:
                break
            heap[at], heap[child] = heap[child], heap[at]
            at = child
    return heap[0][0]


@pytest.mark.parametrize(
    ("totals", "winner"),
    [
        ((5, 5, 5), 0),
        ((1, 5, 5), 1),
        ((1, 1, 5, 5), 3),  # it is below 1, which is left of 2
        ((1, 1, 5, 1, 5), 4),
        ((1, 1, 1, 1, 1, 5, 5, 5), 7),
        ((1, 2, 9, 3), 2),
    ],
)
def test_root_of_the_heap_wins_among_equals(totals: Sequence[int], winner: int) -> None:
    assert choose(integers(*totals)) == heap_root(totals) == winner


def test_winner_is_the_root_of_the_heap_for_any_list() -> None:
    draw = random.Random(1)
    for _ in range(500):
        totals = [draw.randint(0, 3) for _ in range(draw.randint(1, 40))]
        assert choose(integers(*totals)) == heap_root(totals)


@pytest.mark.parametrize(
    ("nodes", "percentage", "count"),
    [
        (1, 0, 1),
        (99, 0, 99),
        (99, 10, 99),
        (100, 0, 100),
        (150, 0, 100),
        (150, 100, 150),
        (249, 0, 122),  # 49 %
        (250, 0, 120),  # 48 %
        (1000, 0, 420),
        (1000, 50, 500),
        (5000, 0, 500),
        (5625, 0, 281),  # 5 %
        (7000, 0, 350),  # never less than 5 %
    ],
)
def test_share_of_nodes_that_is_looked_for_falls_with_their_number(
    nodes: int, percentage: int, count: int
) -> None:
    assert count_nodes_to_find(nodes, percentage) == count


def test_scheduler_looks_at_the_zones_in_turn() -> None:
    assert sort_by_tree(["a", "a", "a", "b", "c", "c"]) == [0, 3, 4, 1, 5, 2]


def test_sample_goes_on_where_the_one_before_ended() -> None:
    sampling, fits = NodeSampling(), np.ones(300, dtype=np.bool_)
    samples = [sampling.take(fits).tolist() for _ in range(3)]  # 48 % of 300
    assert samples == [
        [*range(144)],
        [*range(144, 288)],
        [*range(288, 300), *range(132)],
    ]
    assert sampling.start == 132


def test_sample_passes_over_nodes_that_do_not_fit_up_to_one_more_that_does() -> None:
    sampling, fits = NodeSampling(), np.arange(300) % 2 == 1
    assert sampling.take(fits).tolist() == [*range(1, 289, 2)]
    assert sampling.start == 289
    assert sampling.take(fits).tolist()[:7] == [289, 291, 293, 295, 297, 299, 1]


def test_sample_of_few_nodes_that_fit_looks_at_all() -> None:
    sampling, fits = NodeSampling(), np.arange(300) < 144
    sampling.start = 10
    assert sampling.take(fits).tolist() == [*range(10, 144), *range(10)]
    assert sampling.start == 10
    assert sampling.take(np.zeros(0, dtype=np.bool_)).tolist() == []


def test_sample_with_all_nodes_takes_all() -> None:
    sampling = NodeSampling(percentage=100)
    assert len(sampling.take(np.ones(300, dtype=np.bool_))) == 300
    assert sampling.start == 0


def test_order_within_a_sample_is_drawn_by_its_seed() -> None:
    fits = np.ones(300, dtype=np.bool_)
    first, same, other = (NodeSampling(seed=seed).take(fits).tolist() for seed in (1, 1, 2))
    assert first == same != other
    assert sorted(first) == sorted(other) == [*range(144)]
