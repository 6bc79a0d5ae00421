"""Parses Kubernetes quantities and Go durations to whole numbers.

The client library's parser cannot be used because it accepts `2K`, `1mi`, `1_000` and `NaN`.
Results are cached, because every pod of a large cluster is parsed here. Fractions round up, as in
the scheduler, so that parsing never makes a request smaller.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from chalicelib.model.errors import BadInput

_QUANTITY = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d{1,4})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)?)\Z",
    re.ASCII,
)
_SCALE = {
    "": Decimal(1),
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_LARGEST = 2**63 - 1
# maximum characters of a quantity, and of an invalid one that an error quotes
_LONGEST, _SHOWN = 128, 40
_REMEDY = "write a number with an optional suffix: 500m, 2, 1.5Gi, 128Mi, 1e3"


@lru_cache(maxsize=65536)
def parse_quantity(text: str, *, milli: bool = False) -> int:
    """Parse `500m` -> 1 (or 500 with milli=True, the unit of cpu); `1.5Gi` -> 1610612736.

    Raises BadInput for anything that the API server would reject, and for more than 128 characters
    or an exponent beyond 64. As in the API server, an amount beyond 2^63-1 becomes 2^63-1.
    """
    match = _QUANTITY.match(text) if len(text) <= _LONGEST else None
    if match is None:
        shown = (
            repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…, {len(text)} characters,"
        )
        raise BadInput("quantity", f"{shown} is not a Kubernetes quantity", _REMEDY)
    sign, digits, exponent, suffix = match.groups()
    if exponent and abs(int(exponent[1:])) > 64:
        raise BadInput("quantity", f"{text!r} is out of range", _REMEDY)
    value = Decimal(digits + (exponent or "")) * _SCALE[suffix or ""]
    if milli:
        value *= 1000
    whole = int(value.to_integral_value(rounding=ROUND_CEILING))
    return -min(whole, _LARGEST) if sign == "-" else min(whole, _LARGEST)


def quantity_text(value: str | float) -> str:
    """Return a quantity from JSON, text or a number, as text. A whole number beyond 2^63-1 becomes
    2^63-1, because Python refuses to print a number of more than 4,300 digits."""
    return str(max(-_LARGEST, min(value, _LARGEST))) if isinstance(value, int) else str(value)


def parse_amount(resource: str, text: str) -> int:
    """Return the amount of a named resource in its own unit: millicores for cpu,
    otherwise bytes or pieces.

    Raises BadInput (place: the resource) for an invalid or negative quantity; the
    API server accepts neither.
    """
    try:
        amount = parse_quantity(text, milli=resource == "cpu")
    except BadInput as error:
        raise BadInput(resource, error.problem, error.remedy) from None
    if amount < 0:
        raise BadInput(resource, f"{text!r} is negative", _REMEDY)
    return amount


def format_amount(resource: str, amount: int) -> str:
    """Format for display: millicores as `3900m` or `4`, bytes in the largest fitting binary unit
    with at most two decimals."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if abs(amount) >= size:
                return f"{amount / size:.2f}".rstrip("0").rstrip(".") + unit
    return str(amount)


_DURATION = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNIT = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}


@lru_cache(maxsize=4096)
def parse_duration(text: str) -> float:
    """Parse a Go duration (`1h30m`, `10s`, `1.5h`, `0`) to seconds; raises BadInput. A bare number
    other than 0 is invalid."""
    body = text[1:] if text[:1] in {"+", "-"} else text
    if body == "0":
        return 0.0
    seconds, at = 0.0, 0
    for match in _DURATION.finditer(body):
        part = match.group()
        if match.start() != at or part[0] in "+-":
            break
        at = match.end()
        unit = part.lstrip("0123456789.")
        seconds += float(part[: -len(unit)]) * _UNIT[unit]
    if at != len(body) or not body or not math.isfinite(seconds):
        raise BadInput(
            "duration", f"{text!r} is not a duration", "write it as Go does: 30s, 10m, 1h30m, 0"
        )
    return -seconds if text[0] == "-" else seconds


def format_duration(seconds: float) -> str:
    """Format seconds: 600 -> `10m`; 5400 -> `1h30m`; 0.5 -> `500ms`."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if 0 < seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    text = (
        (f"{hours}h" if hours else "")
        + (f"{minutes}m" if minutes else "")
        + (f"{secs}s" if secs else "")
    )
    return text or "0s"
