"""Counts of pods by row: terminating pods count for one rule and not for another."""

from __future__ import annotations

import numpy as np

from chalicelib.plan.simulation.pod_constraints import Counting

WEB, OTHER = 0, 1
MANY = frozenset(range(40))  # so many members that all pods are scanned once


def counting() -> Counting:
    """Three rows: a web pod and a terminating one on row 0, a terminating one on row
    1, another pod on row 2."""
    rows, classes, dying = [0, 0, 1, 2], [WEB, WEB, WEB, OTHER], [False, True, True, False]
    return Counting(np.array(rows), np.array(classes), np.array(dying), 3)


def test_counter_without_terminating_pods_is_another_than_the_one_with_them() -> None:
    for members in (frozenset({WEB}), MANY - {OTHER}):
        for first in (True, False):
            counts = counting()
            counts.counter(members, settled=first)
            assert counts.counter(members).rows.tolist() == [2, 1, 0]
            assert counts.counter(members, settled=True).rows.tolist() == [1, 0, 0]


def test_counter_of_a_set_of_classes_is_created_once_and_follows_placements() -> None:
    counts = counting()
    settled, all_pods = (
        counts.counter(frozenset({WEB}), settled=True),
        counts.counter(frozenset({WEB})),
    )
    assert counts.counter(frozenset({WEB}), settled=True) is settled
    assert counts.add_one(1, WEB, 2)
    assert (settled.rows.tolist(), all_pods.rows.tolist()) == ([1, 2, 0], [2, 3, 0])
    assert not counts.add_one(1, OTHER, 1)
    assert counts.counter(frozenset({OTHER})).rows.tolist() == [0, 1, 1]
