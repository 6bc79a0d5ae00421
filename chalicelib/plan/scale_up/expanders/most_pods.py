"""most-pods: keeps the options that place the most pods."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.plan.scale_up.expanders.context import ExpanderContext, Kept
from chalicelib.plan.scale_up.option import Option


def keep(options: Sequence[Option], _: ExpanderContext) -> Kept:
    """Return all options with the largest pod count."""
    most = max(option.pod_count for option in options)
    return [option for option in options if option.pod_count == most], ()
