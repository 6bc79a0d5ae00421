"""Selects the pools that are node groups of this cluster, and matches them to the policy's entries.

    the policy names                groups are
    pools (nodeGroups, nodes)       only these
    its SKS cluster (sksCluster)    the Nodepools that the vendor lists for it, and named pools
    pools, and autoDiscovery        these, and those of the next line
    neither                         the Nodepools of the SKS cluster with most nodes, and standalone pools with a
                                    node; all of them only discovered (NodeGroup.discovered), unless most machines of
                                    the SKS cluster are nodes of this cluster

A node's own claims must not make another pool a group: one node with the id of another cluster's machine must not claim
that cluster's pools. A node counts here only if nothing contradicts it (provider_ids.py).

A name matches at most one pool. Once the cluster's own SKS cluster is known, a bare name means one of its Nodepools; a
name that is still ambiguous is reported as an error. Pools of unknown clusters are not changed.

Until then a bare name may match another cluster's Nodepool, whose machines would all seem never to have joined. They
are therefore protected: the group may scale up from zero, and none of its running machines is deleted as unregistered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from chalicelib.policy.vendors.exoscale import ExoscaleBounds, ExoscaleSettings
from chalicelib.providers.exoscale.pools import ExoscalePool
from chalicelib.providers.exoscale.zone_state import Zone


class ExoscaleSelection(msgspec.Struct, frozen=True):
    """A pool that is a group. bounds None: no policy entry names it. error: why it must not be changed; held: why its
    machines that are not nodes must not be deleted. discovered: only nodes make it a group."""

    site: ExoscalePool
    bounds: ExoscaleBounds | None = None
    error: str = ""
    held: str = ""
    discovered: bool = False


class Warned(msgspec.Struct, frozen=True):
    """A problem with an entry of the policy. name: the entry."""

    name: str
    text: str


def choose(
    zone: Zone, settings: ExoscaleSettings, ours: Mapping[str, int]
) -> tuple[tuple[ExoscaleSelection, ...], tuple[Warned, ...]]:
    """Return the groups, those of the policy's entries first and in their order, and the warnings.

    ours: pool -> number of its machines that are nodes of this cluster."""
    chooser = _Chooser(zone, settings, ours)
    chooser.name_them()
    chooser.discover()
    return tuple(chooser.chosen.values()), tuple(chooser.warned)


class _Chooser:
    def __init__(self, zone: Zone, settings: ExoscaleSettings, ours: Mapping[str, int]) -> None:
        self._zone, self._settings, self._ours = zone, settings, ours
        self._sites = [site for site in zone.sites if not site.ending]
        self._exact = _index((name, site) for site in self._sites for name in site.exact)
        self._bare = _index((site.name, site) for site in self._sites if site.name)
        self._doubtful: dict[str, str] = {}
        self.chosen: dict[str, ExoscaleSelection] = {}
        self.warned: list[Warned] = []
        self._discovers = settings.auto_discovery or not settings.groups
        self._listed = False  # the policy names the SKS cluster, and nothing contradicts it
        self._home = self._cluster_of_ours()
        self._known = self._home or frozenset(
            site.cluster.id
            for entry in settings.groups
            for site in self._exact.get(entry.name, ())
            if site.cluster is not None
        )

    def _cluster_of_ours(self) -> frozenset[str]:
        """Return this cluster's SKS cluster: the one that the policy names, otherwise the one with most nodes; none in
        a tie."""
        counts = Counter[str]()
        for site in self._sites:
            if site.cluster is not None and self._ours.get(site.id):
                counts[site.cluster.id] += self._ours[site.id]
        # Nodes of a pool that no list contains might belong to a cluster that has more nodes than any other.
        known = {site.id for site in self._zone.sites} | self._zone.unread.keys()
        lost = sum(count for name, count in self._ours.items() if name not in known)
        most = max(counts.values(), default=0)
        if lost >= most:
            most = 0
        found = frozenset(name for name, count in counts.items() if count == most)
        wanted = self._settings.sks_cluster
        if wanted and self._zone.clusters is not None:
            named = [each.id for each in self._zone.clusters if wanted in {each.id, each.name}]
            foreign = len(named) == 1 and counts[named[0]] < most
            if len(named) == 1 and not foreign:
                self._listed = True
                return frozenset(named)
            # If the setting were followed, machines of the other cluster would be deleted, because few of them are
            # nodes of this cluster.
            text = (
                f"its nodes are of {', '.join(sorted(found))} and not of {wanted}; correct it"
                if foreign
                else f"it is the name of {len(named)} SKS clusters: {', '.join(sorted(named))}; write the id"
                if named
                else f"there is no SKS cluster {wanted} in {self._settings.zone}"
            )
            self.warned.append(Warned("", f"providers.exoscale.sksCluster: {text}"))
        return found if len(found) == 1 else frozenset()

    def name_them(self) -> None:
        """Resolve the entries to pools; ids and cluster/name before bare names, as in Context.bounds."""
        for entry in sorted(self._settings.groups, key=lambda entry: entry.name not in self._exact):
            meant = self._meant(entry.name)
            if not meant:
                if entry.name not in self._zone.unread:
                    self.warned.append(Warned(entry.name, self._unmatched(entry.name)))
            elif len(meant) > 1:
                ids = ", ".join(site.title for site in meant)
                text = f"{entry.name} means {len(meant)} groups: {ids}; write the id, or cluster/name, of one"
                self.warned.append(Warned(entry.name, text))
                self._doubtful |= dict.fromkeys((site.id for site in meant), text)
            elif (site := meant[0]).id in self.chosen:
                self.warned.append(
                    Warned(
                        entry.name,
                        (
                            f"{entry.name} is the same group as {_entry(self.chosen[site.id])}, "
                            f"which decides; take one of the "
                            "two out"
                        ),
                    )
                )
            else:
                self.chosen[site.id] = ExoscaleSelection(site, entry, held=self._held(entry.name, site))

    def discover(self) -> None:
        """Add the pools that belong to the cluster without being named, and the warnings about those that do not."""
        for site in sorted(self._sites, key=lambda site: (site.name, site.id)):
            if site.id in self.chosen:
                continue
            count, error = self._ours.get(site.id, 0), self._doubtful.get(site.id, "")
            if (error and count) or self._is_group(site, count):
                self.chosen[site.id] = ExoscaleSelection(
                    site, None, error, discovered=not (self._listed or self._strong(site))
                )
            elif count:
                self.warned.append(Warned(site.id, self._left_alone(site, count)))

    def _is_group(self, pool: ExoscalePool, count: int) -> bool:
        """Whether a pool that no entry names is a group.

        A Nodepool whose cluster could not be read is kept with an error, so that it does not count as deleted."""
        if pool.is_sks and pool.cluster is None:
            return count > 0 and (self._discovers or bool(self._settings.sks_cluster))
        of_home = pool.cluster is not None and pool.cluster.id in self._home
        if self._listed:
            return of_home and (count > 0 or self._settings.scale_from_zero)
        if not self._discovers:
            return False
        return (of_home and (count > 0 or self._settings.scale_from_zero)) or (not pool.is_sks and count > 0)

    def _strong(self, pool: ExoscalePool) -> bool:
        """Whether most machines of the Nodepool's SKS cluster are nodes of this cluster."""
        if pool.cluster is None or pool.cluster.id not in self._home:
            return False
        sites = [each for each in self._sites if each.cluster is not None and each.cluster.id == pool.cluster.id]
        return 2 * sum(self._ours.get(each.id, 0) for each in sites) > sum(
            len(self._zone.machines(each)) for each in sites
        )

    def _left_alone(self, pool: ExoscalePool, count: int) -> str:
        nodes = f"{count} of the machines of {pool.title} {'is a node' if count == 1 else 'are nodes'} of this cluster"
        if self._listed or (pool.is_sks and self._discovers):
            return (
                f"{nodes}, and its SKS cluster is not the one that is scaled here, so it is left alone; look where "
                "these nodes come from, or name the pool in nodeGroups"
            )
        remedy = "name it, or set sksCluster or autoDiscovery"
        return f"{nodes}, and the policy names other pools, so it is left alone; {remedy}"

    def _meant(self, name: str) -> Sequence[ExoscalePool]:
        if name in self._exact:
            return self._exact[name]
        found = [
            site
            for site in self._bare.get(name, ())
            if site.cluster is None or not self._home or site.cluster.id in self._home
        ]
        ours = [
            site
            for site in found
            if self._ours.get(site.id) or (site.cluster is not None and site.cluster.id in self._home)
        ]
        return ours or found

    def _held(self, name: str, pool: ExoscalePool) -> str:
        if pool.cluster is None or name in pool.exact or pool.cluster.id in self._known:
            return ""
        return (
            f"nothing says that the SKS cluster {pool.cluster.name} is this cluster, so {pool.name} may be "
            f"another's; write {pool.cluster.name}/{pool.name}, or set providers.exoscale.sksCluster"
        )

    def _unmatched(self, name: str) -> str:
        text = f"no Nodepool and no instance pool of {self._settings.zone} is called {name}"
        foreign = [site.cluster.name for site in self._bare.get(name, ()) if site.cluster is not None]
        ending = any(name == site.name or name in site.exact for site in self._zone.sites if site.ending)
        rows = (
            (ending, "; the one that was is being deleted"),
            (bool(foreign), f"; another SKS cluster has one, to mean it write {''.join(foreign[:1])}/{name}"),
            (bool(self._zone.no_clusters), f" ({self._zone.no_clusters})"),
        )
        return text + next((more for applies, more in rows if applies), "; correct the name, or take it out")


def _index(pairs: Iterable[tuple[str, ExoscalePool]]) -> dict[str, list[ExoscalePool]]:
    found: dict[str, list[ExoscalePool]] = {}
    for name, site in pairs:
        found.setdefault(name, []).append(site)
    return found


def _entry(selection: ExoscaleSelection) -> str:
    return selection.bounds.name if selection.bounds is not None else selection.site.id
