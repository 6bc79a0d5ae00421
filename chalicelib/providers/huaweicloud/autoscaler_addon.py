"""A second autoscaler in the same cluster is told (huaweicloud-cce.md A7): the vendor's own add-on, if it is at work.

It is asked for once an hour, by all functions together. Whose key may not look, or where nobody answers, nothing is
told: that is a warning for people, and no pass depends on it.
"""

from __future__ import annotations

import msgspec

from chalicelib.model.snapshot import MissingData
from chalicelib.providers.cached import TtlCache
from chalicelib.providers.errors import ProviderError, Unauthorized
from chalicelib.providers.huaweicloud.api import CceApi
from chalicelib.providers.huaweicloud.models import Addon
from chalicelib.providers.huaweicloud.settings import PROVIDER

NAME = "autoscaler"
SWITCHES = ("scaleUpUnscheduledPodEnabled", "scaleUpUtilizationEnabled", "scaleDownEnabled")
_HOUR, _ENTRY = 3600.0, "switches"


class Switches(msgspec.Struct, frozen=True):
    """What of the vendor's scaler is on."""

    on: tuple[str, ...] = ()


def find_rival(api: CceApi, kept: TtlCache[Switches] | None) -> MissingData | None:
    """What to tell, if the vendor's scaler is at work. kept: where the answer lives for an hour. Never raises."""
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
        found = None  # it will not be allowed in a minute either
    except ProviderError:
        return None
    if kept is not None:
        kept.put({_ENTRY: found}, known=_HOUR, unknown=_HOUR)
    return found


def _switches(addons: tuple[Addon, ...]) -> Switches:
    """A switch that is not written is as the vendor has it by default: growing on, shrinking off (A1.1, A7)."""
    for each in addons:
        if each.template == NAME and each.status.lower() not in {"uninstalled", "deleted"}:
            return Switches(tuple(name for name in SWITCHES if _is_on(each.custom.get(name), name)))
    return Switches()


def _is_on(value: object, name: str) -> bool:
    if value is None:
        return name != SWITCHES[-1]
    return value is True or str(value).strip().lower() == "true"
