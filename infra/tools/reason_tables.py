"""The tables of docs/runbook.md "Reasons", made from the rows of chalicelib/model/reason.py."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chalicelib.model.reason import ReasonCode

_INTRODUCTION = "All codes of a plan (`code` in JSON). The text next to the code has the figures."
_HEAD = ("| Code | Meaning, and what to do |", "|---|---|")


class _Table(msgspec.Struct, frozen=True):
    """A table of reasons. begins: the first of each of its runs of codes in ReasonCode; a run ends
    where another one begins."""

    title: str
    begins: tuple[ReasonCode, ...]


_TABLES = (
    _Table(
        "Reasons why a pod does not fit a node or a template:",
        (ReasonCode.NODE_NAME, ReasonCode.STORAGE_NOT_KNOWN),
    ),
    _Table("Reasons why a group does not grow:", (ReasonCode.GROUP_UNHEALTHY,)),
    _Table(
        "Reasons why a rule adds no nodes, or no more (`rules` of a plan; [scaling "
        "rules](reference/scaling-rules.md)):",
        (ReasonCode.RULE_NOT_DUE,),
    ),
    _Table(
        "Warnings about the cluster (`notes` of a plan, and Events):",
        (ReasonCode.RULE_OBJECT_INVALID,),
    ),
    _Table("Notes of expanders (`notes` of a plan):", (ReasonCode.EXPANDER_SKIPPED,)),
    _Table(
        "Reasons why a pod is ignored ([pending pods](reference/scale-up.md#pending-pods)):",
        (ReasonCode.SCHEDULING_GATED,),
    ),
    _Table("Reasons why a node stays:", (ReasonCode.SCALE_DOWN_DISABLED,)),
    _Table(
        "[Drain rules](reference/drain.md#drain-rules) by which a pod blocks its node:",
        (ReasonCode.CONTROLLER_NOT_FOUND,),
    ),
    _Table(
        "Reasons why a node is not [consolidated](reference/consolidation.md) (`consolidation` "
        "of a plan; `outscaler explain node`). A\n"
        "reason of the tables above may hold a node, too:",
        (ReasonCode.CONSOLIDATION_OFF,),
    ),
    _Table("Reasons of [spot nodes](reference/spot.md):", (ReasonCode.NODE_AT_RISK,)),
    _Table(
        "Reasons of [age, drift and repair](reference/node-lifecycle.md):",
        (ReasonCode.NOT_EXPIRED,),
    ),
    _Table(
        "Reasons for [repairs](reference/node-groups.md#repairs):",
        (ReasonCode.LONG_UNREGISTERED,),
    ),
)


def section() -> Iterator[str]:
    """Return the lines of all tables."""
    runs = _runs()
    yield from (_INTRODUCTION, "")
    for number, table in enumerate(_TABLES):
        yield from (*([""] if number else []), table.title, "", *_HEAD)
        for begin in table.begins:
            yield from map(_line, runs[begin])


def _runs() -> dict[ReasonCode, list[ReasonCode]]:
    """Return all codes in runs, by the first of each."""
    begins = {begin for table in _TABLES for begin in table.begins}
    runs: dict[ReasonCode, list[ReasonCode]] = {}
    begin = ReasonCode.NODE_NAME
    for code in ReasonCode:
        begin = code if code in begins else begin
        runs.setdefault(begin, []).append(code)
    return runs


def _line(code: ReasonCode) -> str:
    return f'| <a id="{code.lower()}"></a>`{code}` | {code.row.meaning} |'
