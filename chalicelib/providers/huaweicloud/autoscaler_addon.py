"""Detects a second autoscaler in the same cluster: the vendor's own add-on, if it is active.

It is requested once an hour for all functions together. If the key lacks the permission or there is no response,
nothing is reported: this is only a warning, and no pass depends on it.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.snapshot import MissingData
from chalicelib.policy.vendors.huaweicloud import PROVIDER
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.errors import ProviderError, Unauthorized
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.models import Addon

NAME = "autoscaler"
SWITCHES = ("scaleUpUnscheduledPodEnabled", "scaleUpUtilizationEnabled", "scaleDownEnabled")
_HOUR, _ENTRY = 3600.0, "switches"


class Switches(msgspec.Struct, frozen=True):
    """The enabled functions of the vendor's autoscaler."""

    on: tuple[str, ...] = ()


def find_rival(api: CceApi, kept: TtlCache[Switches] | None) -> MissingData | None:
    """Return a warning if the vendor's autoscaler is active. kept: caches the result for an hour. Never raises."""
    known = kept.get([_ENTRY]) if kept is not None else {}
    switches = known[_ENTRY] if _ENTRY in known else _ask(api, kept)
    if switches is None or not switches.on:
        return None
    return MissingData(
        f"provider/{PROVIDER}",
        f"CCE's own add-on {NAME} is at work ({', '.join(switches.on)}): two autoscalers fight over the same pools; "
        "uninstall it, or switch all of that off",
        name=f"add-on {NAME}",
        place=f"spec.providers.{PROVIDER}",
        affected_decisions=("two autoscalers fight",),
    )


def _ask(api: CceApi, kept: TtlCache[Switches] | None) -> Switches | None:
    try:
        found: Switches | None = _switches(api.addons())
    except Unauthorized:
        found = None  # a missing permission will not appear within a minute
    except ProviderError:
        return None
    if kept is not None:
        kept.put({_ENTRY: found}, known=_HOUR, unknown=_HOUR)
    return found


def _switches(addons: tuple[Addon, ...]) -> Switches:
    """Return the add-on's switches. A missing one has the vendor's default: scale-up on, scale-down off."""
    for each in addons:
        if each.template == NAME and each.status.lower() not in {"uninstalled", "deleted"}:
            return Switches(tuple(name for name in SWITCHES if _is_on(each.custom.get(name), name)))
    return Switches()


def _is_on(value: object, name: str) -> bool:
    if value is None:
        return name != SWITCHES[-1]
    return value is True or str(value).strip().lower() == "true"
