"""What a cluster should not have, because it makes an autoscaler stop or misjudge (huaweicloud-cce.md A10).

Told, and nothing more: both are things that upstream understands, and the planner obeys them as upstream does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from chalicelib.model.reason import Reason, ReasonCode
from chalicelib.plan.state.cluster_state import ClusterState

MOST = 10
"""Of each kind, in the order of names: the others of a hundred would say the same."""
IGNORE_TAINT = "ignore-taint.cluster-autoscaler.kubernetes.io/"


def notes(world: ClusterState) -> tuple[Reason, ...]:
    """AVOID_TAINT per node, AVOID_ANNOTATION per pod of a DaemonSet; at most MOST of each."""
    return (*islice(_tainted(world), MOST), *sorted(_annotated(world), key=lambda note: str(note.params["pod"]))[:MOST])


def _tainted(world: ClusterState) -> Iterator[Reason]:
    for node in world.snapshot.nodes:
        taint = next((taint.key for taint in node.taints if taint.key.startswith(IGNORE_TAINT)), None)
        if taint is not None:
            yield Reason.of(ReasonCode.AVOID_TAINT, node=node.name, taint=taint)


def _annotated(world: ClusterState) -> Iterator[Reason]:
    """Pods are looked through only where a class has the annotation, whatever it says: it is the pod's own word."""
    marked = {at for at, cls in enumerate(world.snapshot.classes) if cls.enable_ds_eviction and cls.is_daemonset}
    for pod in world.snapshot.pods if marked else ():
        if pod.cls in marked:
            yield Reason.of(ReasonCode.AVOID_ANNOTATION, pod=pod.key)
