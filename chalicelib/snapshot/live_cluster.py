"""Reads a live cluster into a snapshot: its lists, in full or as changes since an earlier pass, and its node groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.kube.client import KubeClient
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.snapshot.cluster_lists import read_lists
from chalicelib.snapshot.storage import NAMESPACE

Observe = Callable[[Sequence[Node]], tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]]


def read_live_cluster(
    cluster: str, kube: KubeClient, observe: Observe, now: float, *, namespace: str = NAMESPACE, rules: bool = False
) -> Snapshot:
    """Read everything in the table of lists and the priority expander's ConfigMap, then the node groups.

    rules: whether HorizontalNodeAutoscalers apply and are read too; otherwise they count as absent (not as unread,
    which would keep the last good ones in force).

    observe: the cluster's nodes -> its groups, and what could not be read of them. now: epoch seconds, the snapshot's
    instant. namespace: where that ConfigMap is (options.namespace). Raises ClusterError if nodes or pods cannot be
    read, or if anything fails for another cause than a refusal (403) or a missing resource (404).
    """
    builder = read_lists(kube, namespace, rules=rules).builder
    groups, gaps = observe(builder.nodes)
    return builder.snapshot(cluster, now, groups, gaps)
