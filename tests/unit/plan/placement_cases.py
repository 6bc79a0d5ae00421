"""Checks one placement on three kinds of empty nodes: existing, upcoming and new.

The rules between pods are the same for all three, but each kind has its own implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.model.node import Taint
from chalicelib.reasons.text import text
from tests.builders import ZONE, ClusterBuilder, cluster, coming, node, verdict

EXISTING, UPCOMING, NEW = "existing", "upcoming", "new"
WAYS = (EXISTING, UPCOMING, NEW)
FITS = ""
_OF_THE_FULL_NODES = frozenset(
    {
        "Insufficient cpu",
        "node(s) had untolerated taint(s)",
        "node(s) didn't match Pod's node affinity/selector",
    }
)


def crowd(
    pods: Mapping[str, int], build: ClusterBuilder | None = None, *, key: str = ZONE, **more: Any
) -> ClusterBuilder:
    """Adds a node without any cpu in each of these domains, with that many
    pods that request nothing."""
    build = build or cluster()
    for domain, count in pods.items():
        name = f"full-{domain}-{len(build.nodes)}"
        build.node(name, "0", labels={key: domain}).running(name, count, **more)
    return build


def answer(
    build: ClusterBuilder,
    way: str,
    labels: Mapping[str, str],
    /,
    *,
    taints: tuple[Taint, ...] = (),
    **pod: Any,
) -> str:
    """Returns why one pending pod of 1 cpu may not go to an empty node of 1 cpu with
    these labels; "" if it may.

    All other nodes must be full, so that only this node decides. `build` is consumed.
    """
    if way == EXISTING:
        build.node("candidate", "1", labels=labels, taints=taints)
    else:
        build.group(
            "g",
            template=node("t", "1", labels=labels, taints=taints),
            target=way == UPCOMING,
            max=1,
        )
    plan = build.pending(1, "1", **pod).plan(coming({"g": 1}) if way == UPCOMING else None)
    if plan.fits_existing or plan.scale_ups:
        assert bool(plan.scale_ups) is (way == NEW)
        assert len(plan.promises) == 1
        return FITS
    said = verdict(plan)
    if way == NEW:
        return text(said.reasons["g"][0])
    if way == UPCOMING:
        return "no"  # upcoming nodes are not part of any count
    return " ".join(sorted({text(reason) for reason, _ in said.against} - _OF_THE_FULL_NODES))
