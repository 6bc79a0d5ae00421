"""spec.schedules: windows of a clock in which bounds, headroom or the mode are others."""

from __future__ import annotations

import msgspec


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A window that opens when `cron` matches in time_zone and lasts `duration` seconds,
    and the settings within it.

    groups: the groups whose min and max it sets, every group if empty. mode: of the whole cluster
    (groups is empty then). headroom: percentage that replaces that of the headroom entries of the
    same scope; None: they stay unchanged.
    """

    name: str
    cron: str
    duration: float
    time_zone: str = "UTC"
    groups: tuple[str, ...] = ()
    min: int | None = None
    max: int | None = None
    headroom: int | None = None
    mode: str = ""
