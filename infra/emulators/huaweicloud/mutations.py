"""The requests that change a pool, with all checks before they are accepted.

A scaling request sets the pool's total size, even if it was changed in the meantime. There is no
idempotency token, so a repeated request is executed again. Missing fields of a request count as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.emulators.huaweicloud import simulation
from infra.emulators.huaweicloud.account import CceCloud
from infra.emulators.huaweicloud.errors import CceRefusedError, bad
from infra.emulators.huaweicloud.models import DEFAULT, OPEN, CceCluster, CcePool, Node, ScaleGroup

_CHECKS = ("instant", "async")
_POLICIES = ("Random", "AZBalance")


class CceMutations:
    """Accepts change requests for one cloud."""

    def __init__(self, cloud: CceCloud) -> None:
        self._cloud = cloud

    def scale(self, cluster: CceCluster, pool: CcePool, spec: Mapping[str, Any]) -> None:
        """Scale the pool to an absolute size, in the given scale groups."""
        total, options = _size(spec, "desiredNodeCount"), _part(spec, "options")
        names = spec.get("scaleGroups") or [DEFAULT]
        if not isinstance(names, list):
            raise bad("scaleGroups must be a list")
        groups = list(
            {group.name: group for group in (_group(pool, name) for name in names)}.values()
        )
        if (
            options.get("scalableChecking", "instant") not in _CHECKS
            or options.get("scalePolicy", "Random") not in _POLICIES
            or "billingConfigOverride" in options
        ):
            raise bad("options are invalid")
        self._take(cluster, pool)
        if total >= pool.desired:
            self._check(
                groups, total - pool.desired, instant=options.get("scalableChecking") != "async"
            )
            self._spread(
                groups, total - pool.desired, balance=options.get("scalePolicy") == "AZBalance"
            )
        else:
            _shrink(pool, groups, total)
        self._settle(pool)

    def update(self, cluster: CceCluster, pool: CcePool, body: Mapping[str, Any]) -> None:
        """Update settings of a pool. Without the guard the size is set as well, and
        missing fields count as 0."""
        spec, name = _part(body, "spec"), _part(body, "metadata").get("name")
        if not isinstance(name, str) or not name:
            raise bad("metadata.name is mandatory")
        told = _part(spec, "autoscaling")
        if told.get("minNodeCount", pool.least) > told.get("maxNodeCount", pool.most):
            raise bad("minNodeCount must not be above maxNodeCount")
        self._take(cluster, pool)
        pool.name, pool.enabled = name, told.get("enable", pool.enabled)
        pool.least, pool.most = (
            told.get("minNodeCount", pool.least),
            told.get("maxNodeCount", pool.most),
        )
        pool.cooldown = told.get("scaleDownCooldownTime", pool.cooldown)
        pool.priority = told.get("priority", pool.priority)
        if "extensionScaleGroups" in spec:
            self._replace(pool, spec["extensionScaleGroups"])
        if spec.get("ignoreInitialNodeCount") is not True:
            total = _size(spec, "initialNodeCount")
            if total >= pool.desired:
                pool.groups[DEFAULT].desired += total - pool.desired
            else:
                _lower(pool, total)
        self._settle(pool)

    def delete(self, cluster: CceCluster, node: Node, *, keeps_size: bool) -> None:
        """Delete a node and reduce the desired number by one unless requested otherwise. A
        deletion in progress continues."""
        if cluster.phase not in OPEN:
            raise bad(f"the status of the cluster is {cluster.phase}")
        if node.leaves:
            return
        if node.reclaimed:
            raise bad(f"spot price node {node.name} is being reclaimed and cannot be deleted")
        pool = cluster.pools.get(node.pool)
        if pool is not None:
            self._hold(pool)
            group = pool.groups[node.group]
            if not keeps_size:
                group.desired = max(0, group.desired - 1)
        simulation.leave(self._cloud, node, self._cloud.clock())

    def protect(self, cluster: CceCluster, names: object, *, protected: bool) -> None:
        """Protect a node from resizing of its pool, or remove the protection."""
        if not isinstance(names, list) or not names:
            raise bad("nodeList is mandatory")
        found = [cluster.node(str(name)) for name in names]
        if None in found:
            raise bad("nodeList names a node that does not exist")
        for node in found:
            if node is not None:
                node.protected = protected

    # -- checks

    def _take(self, cluster: CceCluster, pool: CcePool) -> None:
        if cluster.phase not in OPEN:
            raise bad(f"the status of the cluster is {cluster.phase}")
        if pool.phase in ("Deleting", "Error"):
            raise bad(f"the status of the node pool is {pool.phase}")
        self._hold(pool)

    def _hold(self, pool: CcePool) -> None:
        now = self._cloud.clock()
        if pool.taken > now:
            raise CceRefusedError(429, "CCE.01429002", "Resource locked by other requests")
        pool.taken = now + self._cloud.holds
        simulation.tell_later(self._cloud, pool)

    def _check(self, groups: Sequence[ScaleGroup], count: int, *, instant: bool) -> None:
        """Check what CCE can know at once."""
        if not count:
            return
        stuck = [group for group in groups if not simulation.scalable(self._cloud, group)]
        if stuck and instant:
            raise CceRefusedError(
                400, "CCE.01400021", f"Flavor of scale group {stuck[0].name} is not scalable"
            )
        free = self._cloud.free()
        if free is not None and count > free and self._cloud.refuses_quota:
            raise CceRefusedError(400, "CCE.01400008", "Insufficient quota of servers")

    # -- execution

    def _spread(self, groups: Sequence[ScaleGroup], count: int, *, balance: bool) -> None:
        for _ in range(count):
            fewest = min(group.desired for group in groups)
            chosen = [group for group in groups if group.desired == fewest] if balance else groups
            self._cloud.random.choice(chosen).desired += 1

    def _replace(self, pool: CcePool, told: Sequence[Mapping[str, Any]]) -> None:
        """Replace the extension groups. The list is complete: groups that it does not contain are
        deleted with their nodes."""
        held = pool.groups
        pool.groups = {DEFAULT: held[DEFAULT]}
        for each in told:
            meta, spec = _part(each, "metadata"), _part(each, "spec")
            scaling, name = _part(spec, "autoscaling"), meta.get("name", "")
            group = held.get(name) or ScaleGroup(
                name, self._cloud.number("group"), spec.get("flavor", ""), spec.get("az", "")
            )
            group.enabled, group.priority = (
                scaling.get("enable", False),
                scaling.get("extensionPriority", 0),
            )
            group.least, group.most = scaling.get("minNodeCount"), scaling.get("maxNodeCount")
            pool.groups[name] = group

    def _settle(self, pool: CcePool) -> None:
        for group in pool.groups.values():
            simulation.settle(self._cloud, pool, group, self._cloud.clock())


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object within an object, an empty one if it is missing."""
    found = whole.get(name) or {}
    if not isinstance(found, dict):
        raise bad(f"{name} must be an object")
    return found


def _size(spec: Mapping[str, Any], name: str) -> int:
    found = spec.get(name, 0)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise bad(f"{name} must be a whole number, not below 0")
    return found


def _group(pool: CcePool, name: object) -> ScaleGroup:
    found = pool.groups.get(name) if isinstance(name, str) else None
    if found is None:
        raise bad(f"scale group {name} does not exist in node pool {pool.name}")
    return found


def _shrink(pool: CcePool, groups: Sequence[ScaleGroup], total: int) -> None:
    if len(groups) != 1:
        raise bad("only one scale group can be scaled in")
    if total == 0:
        _lower(pool, 0)
        return
    less = pool.desired - total
    if less > groups[0].desired:
        raise bad(f"scale group {groups[0].name} has fewer than {less} nodes")
    groups[0].desired -= less


def _lower(pool: CcePool, total: int) -> None:
    """Reduce groups, the default one first, until the pool has that size."""
    for group in pool.groups.values():
        group.desired -= min(group.desired, pool.desired - total)
