"""Reads the cluster for a pass, in the way that the policy asks for: changes since an
earlier pass, or everything.

The vendors' catalogues for managed pools are read at the end of a pass, after its plan has been
sent: a pass decides with what an earlier one has read, and never waits for a list of types.

With `verify` a pass that has read changes compares its lists with those that the server gives of
the same versions. A difference is reported, and everything is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from chalicelib.cluster.client import KubeClient
from chalicelib.cluster.errors import ClusterError
from chalicelib.cluster.live_cluster import KeptLists, Observe, ReadResult, read_live_cluster
from chalicelib.model.errors import MALFORMED, OutscalerError
from chalicelib.model.memory import Memory
from chalicelib.model.plan import Plan
from chalicelib.model.read_scope import ReadScope
from chalicelib.model.snapshot import ObservedGroups, Snapshot
from chalicelib.plan.state.managed_groups import declaration_of
from chalicelib.policy.horizontal_node_autoscaler import obeyed
from chalicelib.policy.settings.cluster_policy import ClusterReading, Policy
from chalicelib.providers.kit.base import PoolMaker, Provider
from chalicelib.providers.kit.errors import ProviderError
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import Runtime
from chalicelib.store.pass_footprint import GROWN

if TYPE_CHECKING:
    from chalicelib.cluster.list_changes import Comparison

NOTHING = Memory()
_UNREAD: tuple[type[Exception], ...] = (ProviderError, *MALFORMED)


def connected(policy: Policy, peak: int, runtime: Runtime) -> KubeClient:
    """Return a client of the cluster, that of an earlier pass of this process where its connections
    may still be open. Lists of other clusters are dropped for which this pass leaves no memory.
    peak: MB that a pass of this cluster needs, 0 if unknown. Raises BadInput, ClusterError."""
    fresh = runtime.kube_client(policy)
    if runtime.kept_lists is None:
        return fresh
    kept = runtime.kept_lists()
    if runtime.memory_size:
        room = max(0, int(runtime.memory_size * GROWN) - peak)
        kept.limit(policy.name, room << 20)
    return kept.client(policy.name, fresh)


def observe(
    policy: Policy, kube: KubeClient, groups: Observe, runtime: Runtime, memory: Memory = NOTHING
) -> tuple[Snapshot, ReadScope]:
    """Return the cluster now, and how it was read. groups: see read_live_cluster. memory:
    with which the pass decides; it must not know of changes that the snapshot does not
    show. Raises ClusterError."""
    if (watched := _watched(policy, groups, runtime, last_change(memory))) is not None:
        return watched, ReadScope.CHANGES
    lists = (
        runtime.kept_lists()
        if runtime.kept_lists is not None and policy.reading is not ClusterReading.FULL
        else None
    )
    results: list[ReadResult] = []
    snapshot = _read(policy, kube, groups, runtime, lists, results)
    result = results[0]
    if lists is not None:
        logger.info(
            "cluster read",
            cluster=policy.name,
            scope=result.scope.value,
            reason=result.reason,
            changes=result.folded,
            stored=result.stored,
            reread=result.reread,
            behind=round(result.behind, 1),
        )
    if result.short:
        logger.warning(
            "watches of the cluster pause before their end", cluster=policy.name, kinds=result.short
        )
    if (
        lists is None
        or policy.reading is not ClusterReading.VERIFY
        or result.scope is not ReadScope.CHANGES
    ):
        return snapshot, result.scope
    kube.begin_lists()
    try:
        comparison = lists.compared(policy.name, kube)
    except ClusterError as error:
        logger.warning("changes not verified", cluster=policy.name, **failure(error))
        return snapshot, ReadScope.FULL
    if _is_confirmed(comparison, policy.name):
        return snapshot, ReadScope.FULL
    observed = ObservedGroups(
        snapshot.groups, candidates=snapshot.candidates, selections=snapshot.selections
    )
    full = _read(policy, kube, lambda _: observed, runtime, None, results)
    # The groups were read once, and their gaps are those of the first read.
    gaps = set(full.gaps)
    more = (gap for gap in snapshot.gaps if gap not in gaps)
    return msgspec.structs.replace(full, gaps=(*full.gaps, *more)), ReadScope.FULL


def _is_confirmed(comparison: Comparison | None, cluster: str) -> bool:
    """Return whether the lists that were followed are those of the server, as far
    as they can be compared."""
    if comparison is None:
        logger.warning("changes not verified", cluster=cluster, detail="the lists are not kept")
        return True
    if comparison.incomparable:
        logger.info("lists not verified", cluster=cluster, kinds=comparison.incomparable)
    if comparison.differences:
        logger.error(
            "the changes do not add up to the cluster",
            cluster=cluster,
            differences=comparison.differences,
        )
    return not comparison.differences


def last_change(memory: Memory) -> float:
    """Return the latest instant at which memory knows that an operation ended;
    epoch seconds, 0.0 for none."""
    groups = (
        instant
        for group in memory.groups.values()
        for instant in (
            group.last_add,
            group.last_delete,
            group.last_failure,
            group.request.since if group.request is not None else 0.0,
        )
    )
    return max(
        memory.last_scale_up, memory.last_scale_down, memory.last_scale_down_failure, *groups
    )


def _watched(policy: Policy, groups: Observe, runtime: Runtime, since: float) -> Snapshot | None:
    """Return the cluster as its watcher has posted it; None where it has none, or where its posts
    cannot be used. since: see WatchedLists.load."""
    secret, namespace = policy.kubernetes.watcher_secret, policy.options.namespace
    if not secret or policy.reading is not ClusterReading.CHANGES or obeyed(policy):
        return None
    if not runtime.lists:
        logger.warning(
            "lists of the watcher not used", cluster=policy.name, detail="deploy with ShareLists"
        )
        return None
    # Imported here, because few clusters have a watcher.
    from chalicelib.cluster.list_archive import PostsBehind, WatchedLists, list_place, watcher_key
    from chalicelib.policy.secret_names import KUBECONFIG, ClusterSecrets

    try:
        text = ClusterSecrets(runtime.read_secret, policy.name, (KUBECONFIG,), runtime.deployment)(
            secret
        )
        key = watcher_key(policy.name, text, namespace)
        lists = WatchedLists(list_place(runtime.lists), runtime.clock).load(
            policy.name, key, namespace, since
        )
    except OutscalerError as error:
        log = logger.info if isinstance(error, PostsBehind) else logger.warning
        log("lists of the watcher not used", cluster=policy.name, **failure(error))
        return None
    age = max(0.0, runtime.clock() - lists.followed_at)
    logger.info(
        "cluster read", cluster=policy.name, scope=ReadScope.CHANGES.value, watched=True, age=age
    )
    builder = lists.builder
    return builder.snapshot(policy.name, runtime.clock(), groups(builder.nodes))


def share_lists(policy: Policy, runtime: Runtime) -> None:
    """Store what this pass has read for other processes, where the deployment has a place for it.
    Raises nothing: the pass is over."""
    if runtime.kept_lists is None or policy.reading is ClusterReading.FULL:
        return
    try:
        size = runtime.kept_lists().save(policy.name)
    except OutscalerError as error:
        logger.warning("lists not stored", cluster=policy.name, **failure(error))
        return
    except Exception:
        logger.exception("lists not stored, for an unexpected reason", cluster=policy.name)
        return
    if size:
        logger.debug("lists stored", cluster=policy.name, bytes=size)


def _read(
    policy: Policy,
    kube: KubeClient,
    groups: Observe,
    runtime: Runtime,
    kept: KeptLists | None,
    results: list[ReadResult],
) -> Snapshot:
    return read_live_cluster(
        policy.name,
        kube,
        groups,
        runtime.clock(),
        namespace=policy.options.namespace,
        rules=obeyed(policy),
        kept=kept,
        report=results.append,
        check=lambda: runtime.memory_usage.check(runtime.memory_size),
    )


def refresh_catalogues(
    cluster: str, providers: Sequence[Provider], snapshot: Snapshot, plan: Plan
) -> bool:
    """Read the catalogues that are due; return whether one has become known, so that another pass
    can plan with it. Raises nothing: without a catalogue nothing is opened."""
    wanted = {selection.provider for selection in snapshot.selections}
    groups = {group.id: group for group in (*snapshot.groups, *snapshot.candidates)}
    buying = {growth.provider for growth in plan.scale_ups if declaration_of(groups[growth.group])}
    has_new = False
    for provider in providers:
        if provider.name not in wanted or not isinstance(provider, PoolMaker):
            continue
        try:
            is_new = provider.refresh_catalogue(buying=provider.name in buying)
        except _UNREAD as error:
            logger.warning("catalogue not read", cluster=cluster, **failure(error))
            continue
        has_new = has_new or is_new
    return has_new
