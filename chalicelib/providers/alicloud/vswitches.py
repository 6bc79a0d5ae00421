"""The zones of the VSwitches of scaling groups: where new instances may be.

A VSwitch lies in one zone for ever, so its zone is read once and cached for a week. Zones are an
extra, as prices are: a key may not have the permission, and the API may fail. Then those of the
group's instances are known, and nothing else of the pass changes. A pass makes few calls in a short
time, and a failure is remembered for all functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from chalicelib.model.node import Node
from chalicelib.providers.alicloud.decoding import ScalingGroup, ScalingInstance
from chalicelib.providers.alicloud.error_mapping import is_denied
from chalicelib.providers.kit.errors import InvalidRequest, NotFound, ProviderError
from chalicelib.providers.kit.node_template import ZONE
from chalicelib.providers.kit.price_reader import DENIED_FOR, FAILED_FOR, within_limits
from chalicelib.providers.kit.services import TtlCache

PERMISSION = "vpc:DescribeVSwitches"
_KNOWN, _UNKNOWN = 7 * 86400.0, 3600.0  # seconds to cache a zone, and that a VSwitch has none
_FORM = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", re.ASCII)
_API = ""  # the cache's name of what applies to all VSwitches


class SwitchZones:
    """The zones of VSwitches of one account in one region, for one pass. ask: sends one call for a
    VSwitch and returns its zone, "" if the vendor does not list it; raises ProviderError."""

    def __init__(
        self, cache: TtlCache[str], ask: Callable[[str], str], now: Callable[[], float]
    ) -> None:
        self._cache, self._ask, self._now = cache, ask, now
        self.denied = ""
        """Why the key may not read zones; "" if it may, or if that is not known."""

    def read(self, ids: Iterable[str]) -> dict[str, str]:
        """Return VSwitch -> zone, as far as zones are known. Never raises."""
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        cached = self._cache.get([_API, *wanted])
        stopped = cached.pop(_API, None)
        if stopped is None:
            cached |= self._read_missing([name for name in wanted if name not in cached])
        else:
            self.denied = stopped
        return {name: zone for name, zone in cached.items() if zone}

    def _read_missing(self, names: Iterable[str]) -> dict[str, str | None]:
        zones: dict[str, str | None] = {}
        for name in within_limits(names, self._now):
            try:
                zone = self._ask(name)
            except (InvalidRequest, NotFound):
                zone = ""
            except ProviderError as error:
                self._stop(error)
                break
            zones[name] = zone if _FORM.match(zone) else None
        self._cache.put(zones, known=_KNOWN, unknown=_UNKNOWN)
        return zones

    def _stop(self, error: ProviderError) -> None:
        if is_denied(error):
            self.denied = f"the key may not read the zones of VSwitches (it needs {PERMISSION})"
        seconds = DENIED_FOR if self.denied else FAILED_FOR
        self._cache.put({_API: self.denied}, known=seconds, unknown=0.0)


def uncertain_switches(group: ScalingGroup) -> frozenset[str]:
    """Return the VSwitches of a group that has several, of which it is to be known
    in which zones they are."""
    switches = frozenset(group.v_switch_ids or ())
    return switches if len(switches) > 1 else frozenset()


def possible_zones(
    group: ScalingGroup,
    instances: Iterable[ScalingInstance],
    template_node: Node | None,
    switch_zones: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the zones in which a new node of a group with several VSwitches may be, () if that
    is one: those of its VSwitches and of its instances; "" stands for the zones of VSwitches that
    are unknown. template_node: of the group; a tag may set its zone."""
    switches = uncertain_switches(group)
    if not switches or (template_node is not None and ZONE in template_node.labels):
        return ()
    zones = {switch_zones.get(name, "") for name in switches}
    zones |= {instance.zone_id for instance in instances if instance.zone_id}
    named = sorted(zones - {""})
    return (*named, "") if "" in zones else tuple(named) if len(named) > 1 else ()


def only_zone(
    group: ScalingGroup, instances: Iterable[ScalingInstance], switch_zones: Mapping[str, str]
) -> str:
    """Return the zone of all new nodes of a group: of its VSwitches, if all of them are in one; for
    a single VSwitch, that of its instances. "": they may be in several zones, or the zone is
    unknown; a tag may set it."""
    zones = {instance.zone_id for instance in instances} - {""}
    switches = uncertain_switches(group)
    if switches:
        zones |= {switch_zones.get(name, "") for name in switches}
    return next(iter(zones)) if group.v_switch_ids and len(zones) == 1 else ""
