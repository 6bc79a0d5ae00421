"""Which pools are node groups of this cluster, and what the policy says of each (exoscale.md §2; §6, 1 and 14).

    a pool that the policy names, one that has a node of the cluster, and, where groups may be empty, every Nodepool of
    the SKS cluster that has one

A name means one pool or none: a bare name means our own cluster's Nodepools as soon as it is known which that is, and
what then still means two is a mistake that is told and never guessed at. Pools of nobody we know are left alone.

While it is not known, a bare name may be that of another cluster's Nodepool, all of whose machines would look like ours
that never joined. So they are held: the group may grow from nothing, and no running machine of it is discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chalicelib.providers.exoscale.reading import Zone
from chalicelib.providers.exoscale.settings import Bounds, Settings
from chalicelib.providers.exoscale.sites import Site


class Chosen(msgspec.Struct, frozen=True):
    """A pool that is a group. bounds None: nobody named it. error: why nothing may be done with it; held: why none of
    its machines that is no node may be discarded."""

    site: Site
    bounds: Bounds | None = None
    error: str = ""
    held: str = ""


class Warned(msgspec.Struct, frozen=True):
    """What is wrong with an entry of the policy. name: the entry."""

    name: str
    text: str


def choose(zone: Zone, settings: Settings, owners: frozenset[str]) -> tuple[tuple[Chosen, ...], tuple[Warned, ...]]:
    """The groups, those of the policy's entries first and in their order. owners: the pools that have our nodes."""
    chooser = _Chooser(zone, settings, owners)
    chooser.name_them()
    chooser.discover()
    return tuple(chooser.chosen.values()), tuple(chooser.warned)


class _Chooser:
    def __init__(self, zone: Zone, settings: Settings, owners: frozenset[str]) -> None:
        self._zone, self._settings, self._owners = zone, settings, owners
        self._sites = [site for site in zone.sites if not site.ending]
        self._exact = _index((name, site) for site in self._sites for name in site.exact)
        self._bare = _index((site.name, site) for site in self._sites if site.name)
        self._doubtful: dict[str, str] = {}
        self.chosen: dict[str, Chosen] = {}
        self.warned: list[Warned] = []
        self._home = self._clusters_of_ours()
        self._known = self._home or frozenset(
            site.cluster.id for entry in settings.groups for site in self._exact.get(entry.name, ())
            if site.cluster is not None)

    def _clusters_of_ours(self) -> frozenset[str]:
        wanted = self._settings.sks_cluster
        found = {site.cluster.id for site in self._sites if site.cluster is not None and site.id in self._owners}
        if not wanted or self._zone.clusters is None:
            return frozenset(found)
        named = [each.id for each in self._zone.clusters if wanted in {each.id, each.name}]
        foreign = bool(found) and len(named) == 1 and named[0] not in found
        if len(named) == 1 and not foreign:
            return frozenset({*found, *named})
        # Taken at its word, all machines of the other cluster would be discarded, for none of them is a node of ours.
        text = (f"its nodes are of {', '.join(sorted(found))} and not of {wanted}; correct it" if foreign
                else f"it is the name of {len(named)} SKS clusters: {', '.join(sorted(named))}; write the id" if named
                else f"there is no SKS cluster {wanted} in {self._settings.zone}")
        self.warned.append(Warned("", f"providers.exoscale.sksCluster: {text}"))
        return frozenset(found)

    def name_them(self) -> None:
        """The pools that entries mean; ids and cluster/name before bare names, as Context.bounds has it."""
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
                self.warned.append(Warned(entry.name, (
                    f"{entry.name} is the same group as {_entry(self.chosen[site.id])}, which decides; take one of the "
                    "two out")))
            else:
                self.chosen[site.id] = Chosen(site, entry, held=self._held(entry.name, site))

    def discover(self) -> None:
        """The pools that are ours without being named."""
        for site in sorted(self._sites, key=lambda site: (site.name, site.id)):
            of_home = site.cluster is not None and site.cluster.id in self._home and self._settings.scale_from_zero
            if site.id not in self.chosen and (site.id in self._owners or of_home):
                self.chosen[site.id] = Chosen(site, None, self._doubtful.get(site.id, ""))

    def _meant(self, name: str) -> Sequence[Site]:
        if name in self._exact:
            return self._exact[name]
        found = [site for site in self._bare.get(name, ())
                 if site.cluster is None or not self._home or site.cluster.id in self._home]
        ours = [site for site in found if site.id in self._owners
                or (site.cluster is not None and site.cluster.id in self._home)]
        return ours or found

    def _held(self, name: str, site: Site) -> str:
        if site.cluster is None or name in site.exact or site.cluster.id in self._known:
            return ""
        return (f"nothing says that the SKS cluster {site.cluster.name} is this cluster, so {site.name} may be "
                f"another's; write {site.cluster.name}/{site.name}, or set providers.exoscale.sksCluster")

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


def _index(pairs: Iterable[tuple[str, Site]]) -> dict[str, list[Site]]:
    found: dict[str, list[Site]] = {}
    for name, site in pairs:
        found.setdefault(name, []).append(site)
    return found


def _entry(chosen: Chosen) -> str:
    return chosen.bounds.name if chosen.bounds is not None else chosen.site.id
