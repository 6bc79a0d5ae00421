"""The disagreements of `outscaler shadow` as a table for people, and one of them as a sentence.

Names of nodes and groups are folded in the middle, and `outscaler shadow accept` takes folded
names. A terminal shows all texts, below their row where they are long. Elsewhere a disagreement is
one line of 140 columns, and the texts that are cut in it follow below the table.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from chalicelib.cli.output import (
    Block,
    Table,
    columns,
    folded,
    is_terminal,
    local_time,
    printable,
    with_local_times,
)
from chalicelib.reasons.words import counted
from chalicelib.shadow.records import AGREEING, GROWTH, Ledger, Match

WIDEST = 140
"""Columns of a line where no terminal sets the width, for names of usual length."""
MOST_SHOWN = 20
# characters of a node's name, of a group's, and of what was done
_NODE = 32
_GROUP = 20
_ACT = 44
_LEAST_TEXT = 20  # of a cause or detail that is cut
_GAP = 3  # between two columns
_NOTHING = "nothing"
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


def disagreements(
    ledger: Ledger, matches: Iterable[Match], apart: Sequence[Match], accepted: set[str], now: float
) -> list[Block]:
    """Return the table of the first ones, and the texts for which it is too narrow.
    matches: all results; apart: the disagreements in their order; accepted: ids of those
    that an operator has accepted."""
    shown = apart[:MOST_SHOWN]
    when = "when" if sys.stdout.isatty() else "when (UTC)"
    names = ("verdict", when, "what", "cause", "detail", "id")
    rows = _rows(shown, _short_names(ledger, matches), node_texts(ledger), accepted, now)
    title = "Disagreements"
    if len(apart) > MOST_SHOWN:
        title += f" ({MOST_SHOWN} of {len(apart)}; -o json has all)"
    full_table = Table(names, tuple(rows), title=title, empty="none", notes=frozenset({3, 4}))
    table = _without_empty_columns(full_table)
    if is_terminal(sys.stdout) or _width(table) <= WIDEST:
        return [table]
    return _narrow_blocks(names, rows, title)


def node_texts(ledger: Ledger) -> dict[str, str]:
    """Return node -> its text in the table, for the nodes of all
    disagreements; no two texts are equal."""
    apart = (match for match in ledger.matches if match.verdict not in AGREEING)
    return folded((match.node for match in apart), _NODE)


def sentence(match: Match) -> str:
    """Return one result in words: `FEWER, 18 Nov 09:12 UTC, Cluster Autoscaler web +3,
    Outscaler web +2 (77b0d1c4)`."""
    what = match.node
    if match.kind == GROWTH:
        theirs = _sizes(match.theirs, _NO_NAMES)
        ours = _sizes(match.ours, _NO_NAMES)
        what = f"Cluster Autoscaler {theirs}, Outscaler {ours}"
    return f"{match.verdict.upper()}, {_utc(match.at)} UTC, {what} ({match.id})"


# -- cells -----------------------------------------------------------------------------------------


def _rows(
    matches: Sequence[Match],
    short: Mapping[str, str],
    nodes: Mapping[str, str],
    accepted: set[str],
    now: float,
) -> list[tuple[str, ...]]:
    """Return the cells of each disagreement: verdict, when, what, cause, detail, id."""
    groups = {group for match in matches for group in (*match.theirs, *match.ours)}
    group_texts = folded((short.get(group, group) for group in groups), _GROUP)
    names = {group: group_texts[short.get(group, group)] for group in groups}
    rows: list[tuple[str, ...]] = []
    for match in matches:
        verdict = match.verdict.upper()
        if match.id in accepted:
            verdict += " (accepted)"
        when = local_time(match.at, now, sys.stdout) if sys.stdout.isatty() else _utc(match.at)
        if match.kind == GROWTH:
            what, groups_text = _growth(match, names)
        else:
            what, groups_text = nodes[match.node], ""
        cause = _with_short_names(match.cause, short)
        approximate = "approximate" if match.approximate else ""
        details = (approximate, groups_text, _with_short_names(match.detail, short))
        detail = "; ".join(filter(None, details))
        cause = with_local_times(cause, now, sys.stdout)
        detail = with_local_times(detail, now, sys.stdout)
        rows.append((verdict, when, what, cause, detail, match.id))
    return rows


def _growth(match: Match, names: Mapping[str, str]) -> tuple[str, str]:
    """Return what both did in a growth, `web +3, Outscaler +2`, and "". With many groups or long
    names the first is their nodes, and the second their groups."""
    ours = _sizes(match.ours, names)
    if len(match.theirs) == 1 and match.ours.keys() == match.theirs.keys():
        ours = f"+{sum(match.ours.values())}"
    words = f"{_sizes(match.theirs, names)}, Outscaler {ours}"
    if len(words) <= _ACT:
        return words, ""
    their_size = sum(match.theirs.values())
    own_size = sum(match.ours.values())
    theirs = counted(their_size, "node") if their_size else _NOTHING
    return f"{theirs}, Outscaler {own_size or _NOTHING}", words


def _sizes(groups: Mapping[str, int], names: Mapping[str, str]) -> str:
    counts = sorted(groups.items())
    sizes = [f"{names.get(group, group)} +{count}" for group, count in counts]
    return ", ".join(sizes) or _NOTHING


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%d %b %H:%M")


def _short_names(ledger: Ledger, matches: Iterable[Match]) -> dict[str, str]:
    """Return group id -> its last part, for ids of which no other one ends the same:
    `MachineDeployment/default/web` is `web` in a table."""
    ids = set(ledger.seen.targets)
    for match in matches:
        ids |= match.theirs.keys() | match.ours.keys()
    last_parts = {group: group.rpartition("/")[2] for group in ids}
    counts = Counter(last_parts.values())
    short_names: dict[str, str] = {}
    for group, part in last_parts.items():
        is_unique = counts[part] == 1
        if part and is_unique and part != group:
            short_names[group] = part
    return short_names


def _with_short_names(text: str, names: Mapping[str, str]) -> str:
    for group in sorted(names, key=len, reverse=True):
        text = text.replace(group, names[group])
    return text


# -- width -----------------------------------------------------------------------------------------


def _without_empty_columns(table: Table) -> Table:
    """Return the table without the columns that say nothing in any row."""
    all_indexes = range(len(table.columns))
    indexes = [index for index in all_indexes if any(row[index] for row in table.rows)]
    rows = tuple(tuple(row[index] for index in indexes) for row in table.rows)
    notes = frozenset(place for place, index in enumerate(indexes) if index in table.notes)
    names = tuple(table.columns[index] for index in indexes)
    return msgspec.structs.replace(table, columns=names, rows=rows, notes=notes)


def _width(table: Table) -> int:
    cells_of_columns = zip(table.columns, *table.rows, strict=True)
    widths = [max(columns(printable(cell)) for cell in cells) for cells in cells_of_columns]
    gaps = len(widths) - 1
    return sum(widths) + _GAP * gaps


def _narrow_blocks(
    names: Sequence[str], rows: Sequence[tuple[str, ...]], title: str
) -> list[Block]:
    """Return a table of one line per row, in which cause and detail are one text that is
    cut, and the whole texts."""
    *columns_of_act, _, _, id_column = names
    acts = Table((*columns_of_act, id_column), tuple((*row[:3], row[5]) for row in rows))
    width = max(WIDEST - _width(acts) - _GAP, _LEAST_TEXT)
    cells: list[tuple[str, ...]] = []
    whole_texts: list[str] = []
    for row in rows:
        *act, cause, detail, match_id = row
        text = "; ".join(filter(None, (cause, detail)))
        shown = _cut(text, width)
        cells.append((*act, shown, match_id))
        if shown != text:
            whole_texts.append(_wrapped(f"{match_id}: {text}"))
    table_columns = (*columns_of_act, "cause; detail", id_column)
    table = Table(table_columns, tuple(cells), title=title)
    blocks: list[Block] = [_without_empty_columns(table)]
    if whole_texts:
        blocks.append(f"Texts that are cut in the table, by id:\n{''.join(whole_texts)}")
    return blocks


def _cut(text: str, width: int) -> str:
    """Return the text, or its beginning and ` …`."""
    if columns(printable(text)) <= width:
        return text
    return f"{text[: width - 2].rstrip()} …"


def _wrapped(text: str) -> str:
    lines = textwrap.wrap(
        printable(text),
        WIDEST,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n" for line in lines)
