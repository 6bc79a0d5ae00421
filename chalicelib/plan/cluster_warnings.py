"""Warns about taints and annotations that a cluster should not have, because they stop or mislead an autoscaler.

These are warnings only: Cluster Autoscaler supports both, and the planner obeys them in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState

MOST = 10
"""Maximum warnings of each kind, sorted by name: further ones add no information."""
IGNORE_TAINT = "ignore-taint.cluster-autoscaler.kubernetes.io/"


def notes(state: ClusterState) -> tuple[Reason, ...]:
    """Return AVOID_TAINT per node and AVOID_ANNOTATION per pod of a DaemonSet; at most MOST of each."""
    return (*islice(_tainted(state), MOST), *sorted(_annotated(state), key=lambda note: str(note.params["pod"]))[:MOST])


def _tainted(state: ClusterState) -> Iterator[Reason]:
    for node in state.snapshot.nodes:
        taint = next((taint.key for taint in node.taints if taint.key.startswith(IGNORE_TAINT)), None)
        if taint is not None:
            yield Reason.of(ReasonCode.AVOID_TAINT, node=node.name, taint=taint)


def _annotated(state: ClusterState) -> Iterator[Reason]:
    """Return annotated pods; pods are scanned only if a class has the annotation, with any value, because its value is
    set per pod."""
    marked = {at for at, cls in enumerate(state.snapshot.classes) if cls.enable_ds_eviction and cls.is_daemonset}
    for pod in state.snapshot.pods if marked else ():
        if pod.cls in marked:
            yield Reason.of(ReasonCode.AVOID_ANNOTATION, pod=pod.key)
