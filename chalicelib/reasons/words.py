"""Numbers, names, amounts and instants in words, for everything that speaks: sentences of
reasons, commands, views, page, events and messages of vendors.

Here: only what is the same everywhere. What one place words in its own way stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.model.quantity import format_duration


def counted(number: int | str, noun: str) -> str:
    """Return `1 node` or `2 nodes`. number: or its text, such as `1.5`."""
    return f"{number} {noun}{'' if str(number) == '1' else 's'}"


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others: `a, b, c and 4 more`."""
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


def amount(value: float) -> str:
    """Return an amount of money without its currency: cents, or two digits of a smaller one."""
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


def money(value: float, currency: str) -> str:
    """Return `0.10 EUR`; the amount alone where the currency is "" for unknown."""
    return f"{amount(value)} {currency}".strip()


def ago(instant: float, now: float, written: Callable[[float], str] = format_duration) -> str:
    """Return `5m10s ago`, `in 20s` or `never`. written: turns whole seconds into text."""
    if instant <= 0:
        return "never"
    away = written(float(round(abs(now - instant))))
    return f"{away} ago" if instant <= now else f"in {away}"
