"""Runs the final placement: scales up, places all pods and removes nodes that are not needed."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.plan.scale_up.final_placement import FinalPlacer
from chalicelib.plan.scale_up.redundant_nodes import refine
from chalicelib.plan.state.pending_pods import PodBatch

_TRIES = 3  # maximum number of plans for pods that lost their place


def finalize_placement(placer: FinalPlacer) -> None:
    """Scale up for the queue and place all pods; plan/scale_up/worst_case.py determines which places may be
    promised."""
    search = placer.search
    left: Sequence[PodBatch] = placer.left
    for _ in range(_TRIES):
        before = dict(search.grown)
        placer.grow(left)
        if search.grown == before:
            break
        placer.arrange()
        for group in sorted(search.grown, reverse=True):
            placer.drop_needless(group)
        left = placer.top_up()
        if not left:
            break
    refine(placer)
