"""Reads a live cluster into a snapshot: its lists, in full or as changes since an earlier pass, and its node groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chalicelib.kube.client import KubeClient
from chalicelib.kube.errors import ClusterError
from chalicelib.model.errors import OutscalerError
from chalicelib.model.group import NodeGroup
from chalicelib.model.node import Node
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import MissingData, Snapshot
from chalicelib.snapshot.class_table import unbounded
from chalicelib.snapshot.cluster_lists import ClusterLists, read_lists
from chalicelib.snapshot.kept_lists import KeptCluster, KeptLists
from chalicelib.snapshot.list_changes import Changes, ServerBehind, follow
from chalicelib.snapshot.storage import NAMESPACE

_REMEMBERED = 75.0
"""Seconds of changes that the watch cache of an API server holds at least, where it has room (eventFreshDuration in
k8s.io/apiserver/pkg/storage/cacher)."""

Observe = Callable[[Sequence[Node]], tuple[tuple[NodeGroup, ...], tuple[MissingData, ...]]]


class ReadResult(msgspec.Struct, frozen=True):
    """How a cluster was read. reason: why in full, "" for changes. folded: changes of objects; reread: lists that were
    read in full all the same, and why; stored: whether another process has read what the changes were followed from.
    behind: seconds before the end of this read as of which all lists are known to be complete; later changes may be
    missing. short: see list_changes.Changes."""

    scope: ReadScope
    reason: str = ""
    stored: bool = False
    folded: int = 0
    reread: dict[str, str] = {}
    behind: float = 0.0
    short: tuple[str, ...] = ()


def read_live_cluster(
    cluster: str,
    kube: KubeClient,
    observe: Observe,
    now: float,
    *,
    namespace: str = NAMESPACE,
    rules: bool = False,
    kept: KeptLists | None = None,
    report: Callable[[ReadResult], None] | None = None,
    check: Callable[[], None] = unbounded,
) -> Snapshot:
    """Read everything in the table of lists and the priority expander's ConfigMap, then the node groups.

    rules: whether HorizontalNodeAutoscalers apply and are read too; otherwise they count as absent (not as unread,
    which would keep the last good ones in force). kept: lists of earlier passes of this process; with them only changes
    are read. report: called with how it was read.

    observe: the cluster's nodes -> its groups, and what could not be read of them. now: epoch seconds, the snapshot's
    instant. namespace: where that ConfigMap is (options.namespace). Raises ClusterError if nodes or pods cannot be
    read, or if anything fails for another cause than a refusal (403) or a missing resource (404).

    check: called while the lists grow; raises MemoryExceeded where this process has no memory for more.
    """
    if kept is None:
        lists, result = (
            read_lists(kube, namespace, rules=rules, check=check),
            ReadResult(ReadScope.FULL, "nothing is kept"),
        )
    else:
        lists, result = _with_kept(cluster, kube, kept, namespace, rules=rules, check=check)
    if report is not None:
        report(result)
    groups, gaps = observe(lists.builder.nodes)
    return lists.builder.snapshot(cluster, now, groups, gaps)


def _with_kept(
    cluster: str, kube: KubeClient, kept: KeptLists, namespace: str, *, rules: bool, check: Callable[[], None]
) -> tuple[ClusterLists, ReadResult]:
    """Follow the lists of an earlier pass; read in full where there are none, or where following them fails."""
    asked = f"{namespace} {rules}"
    found, stored, reason = _earlier(cluster, kube, kept, namespace, asked)
    if found is not None:
        found.lists.bound(check)
        try:
            pace = kept.pace(cluster, kube)
            made: Changes = follow(kube, found.lists, rules=rules, turn=found.turn, now=kept.now(), pace=pace)
        except ServerBehind as behind:
            reason = f"the server has not reached the version of {behind}"
        except ClusterError as error:
            reason = error.message
        else:
            found.kube = kube
            kept.put(cluster, found)
            return found.lists, ReadResult(
                ReadScope.CHANGES, "", stored, made.folded, dict(made.reread), kept.behind(found), made.short
            )
    kube.begin_lists()
    found = None  # not needed any more; a full read needs its memory
    lists = read_lists(kube, namespace, rules=rules, rates=kept.rates(cluster, kube), check=check)
    fresh = kept.start(kube, asked, lists)
    kept.put(cluster, fresh)
    return fresh.lists, ReadResult(ReadScope.FULL, reason)


def _earlier(
    cluster: str, kube: KubeClient, kept: KeptLists, namespace: str, asked: str
) -> tuple[KeptCluster | None, bool, str]:
    """Return lists to follow, whether another process has stored them, and why there are none. Stored ones are asked
    for where this process has none, or where a server may have forgotten the version of its own."""
    access = kube.access()
    found, reason = kept.take(cluster, access, asked), "no earlier pass in this process"
    if kept.archive is None or (found is not None and kept.age(found) < _REMEMBERED):
        return found, False, reason
    try:
        stored = kept.archive.load(cluster, access, asked, namespace)
    except OutscalerError as error:
        return found, False, f"{reason}; stored lists: {error}"
    if stored is None or (found is not None and kept.age(found) <= stored.age):
        return found, False, f"{reason}, and none is stored"
    restarted = kept.restart(kube, asked, stored.lists, stored.read_before, stored.age)
    return (restarted, True, "") if restarted is not None else (found, False, f"{reason}; stored lists: too old")
