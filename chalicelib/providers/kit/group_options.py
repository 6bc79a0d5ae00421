"""Options of one node group that a vendor's tags or annotations state. The end of their key names
the option as on AWS, `scaledownunneededtime`.

Here: the options of the policy that a group may have, too. A vendor's own ones stay with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from chalicelib.model.errors import BadInput
from chalicelib.model.group import GroupOptions
from chalicelib.model.quantity import parse_duration
from chalicelib.policy.schema import fields_of
from chalicelib.policy.settings.cluster_options import DURATION, RATIO, Options
from chalicelib.policy.value_types import BOOLEAN, ValueType

OptionReader = Callable[[str], float | bool]
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?\Z")


def _read_share(text: str) -> float:
    value = float(text) if _NUMBER.match(text) else math.nan
    if not math.isfinite(value):
        raise BadInput("option", f"{text!r} is not a number", "write a share such as 0.5")
    return value


def _read_seconds(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0 or not math.isfinite(seconds):
        raise BadInput("option", f"{text[:40]!r} is not a duration", "write a duration such as 10m")
    return seconds


def read_flag(text: str) -> bool:
    """Read `true` or `false`. Raises BadInput."""
    if text not in {"true", "false"}:
        raise BadInput("option", f"{text!r} is neither true nor false", "write true or false")
    return text == "true"


def _readers() -> Mapping[str, tuple[str, OptionReader]]:
    reader_of: dict[ValueType, OptionReader] = {
        RATIO: _read_share,
        DURATION: _read_seconds,
        BOOLEAN: read_flag,
    }
    own_fields = GroupOptions.__struct_fields__
    shared = [field for field in fields_of(Options) if field.attribute in own_fields]
    return {
        field.attribute.replace("_", ""): (field.attribute, reader_of[field.kind])
        for field in shared
    }


OPTION_READERS = _readers()
"""The end of a key -> (field of GroupOptions, reader of the lower-cased value)."""
