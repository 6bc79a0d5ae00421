"""Says which figures a cluster must reach before its mode becomes active, and which are missing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chalicelib.command.shadow_figures import Figures


class Condition(msgspec.Struct, frozen=True):
    """One condition. value: the figure, None where it does not apply; then the condition is met only if optional."""

    name: str
    wanted: str
    value: float | None
    met: bool


class _Rule(msgspec.Struct, frozen=True):
    name: str
    wanted: str
    value: Callable[[Figures], float | None]
    least: float | None = None
    most: float | None = None
    optional: bool = False


_RULES = (
    _Rule("growth agreement", "at least 0.95", lambda f: f.growth_agreement, least=0.95),
    _Rule("unneeded overlap", "at least 0.9", lambda f: f.unneeded_overlap, least=0.9, optional=True),
    _Rule("only ours, not accepted", "0", lambda f: float(f.only_ours_open), most=0.0),
    _Rule("missed without a known cause", "0", lambda f: float(f.missed_unknown), most=0.0),
    _Rule("cost ratio", "at most 1.05", lambda f: f.cost_ratio, most=1.05, optional=True),
    _Rule("growths", "at least 20", lambda f: float(f.compared_growths), least=20.0),
    _Rule("removals", "at least 20", lambda f: float(f.compared_removals), least=20.0),
    _Rule("days", "at least 7", lambda f: f.days, least=7.0),
)


def gate(figures: Figures) -> tuple[Condition, ...]:
    """Return all conditions in the order in which they are shown."""
    return tuple(Condition(rule.name, rule.wanted, rule.value(figures), _met(rule, figures)) for rule in _RULES)


def is_open(conditions: tuple[Condition, ...]) -> bool:
    """Return whether all conditions are met."""
    return all(condition.met for condition in conditions)


def _met(rule: _Rule, figures: Figures) -> bool:
    value = rule.value(figures)
    if value is None:
        return rule.optional
    value = round(value, 9)
    return (rule.least is None or value >= rule.least) and (rule.most is None or value <= rule.most)
