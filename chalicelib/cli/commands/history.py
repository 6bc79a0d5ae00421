"""`outscaler history CLUSTER`: shows what happened, newest first: operations, versions of
the policy, acts of people.

A line is a sentence. What is under way comes first. Decisions that changed nothing are counted and
not shown, and a decision is not shown beside the operation that carried it out; --all shows both.
--kind, --group, --operation and --since select lines of the journal; --follow prints new ones as
they are written. --compare shows the comparison with another autoscaler instead, as `outscaler
shadow CLUSTER` does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli.arguments import not_one_of
from chalicelib.cli.commands.shadow import add_since_argument, show
from chalicelib.cli.output import (
    Styled,
    Table,
    add_head_argument,
    emit,
    local_time,
    row_line,
    show_answer,
    warn,
    with_local_times,
)
from chalicelib.cli.store_access import (
    add_table_argument,
    check_group,
    only_cluster,
    open_store,
    stored_policy,
)
from chalicelib.cli.stored_rows import StoredCluster
from chalicelib.model.operation import MOST_PODS, Operation, OperationKind, OperationState
from chalicelib.model.quantity import format_duration
from chalicelib.reasons.text import disruption_words
from chalicelib.reasons.words import counted
from chalicelib.store.errors import StoreError
from chalicelib.views.cluster_view import instant
from chalicelib.views.journal_lines import (
    EVERY_KIND,
    KINDS,
    PlanLine,
    kind_named,
    kind_of_operation,
    kinds_of,
    line_of,
    operation_of,
    sentence,
)
from chalicelib.views.rows import short_name

if TYPE_CHECKING:
    from chalicelib.store import JournalEntry, Store, StoredPolicy

SEARCHED = 10_000
"""Entries of the journal that a filter searches at most."""
EVERY = 5.0
"""Seconds between two reads of --follow."""
_PAGE = 200
# entries that are searched for lines to show, where most are decisions that changed nothing
_FOLDED = 2000
_AT_ONCE = 500
_OVERLAP = 120.0  # seconds; a function writes no entry that is older than this
_KIND_WORDS = (*(kind.word for kind in KINDS), EVERY_KIND)


class JournalFilter(msgspec.Struct, frozen=True):
    """Which lines are shown. kinds: words of KINDS. since: epoch seconds. The rest: "" and ()
    select all."""

    kinds: tuple[str, ...] = ()
    group: str = ""
    operation: str = ""
    since: float = 0.0

    def selects(self, entry: JournalEntry) -> bool:
        """Return whether the line is shown."""
        return (
            entry.at >= self.since
            and (not self.kinds or not kinds_of(entry).isdisjoint(self.kinds))
            and self.group in ("", entry.group)
            and self.operation in ("", entry.operation)
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add CLUSTER, --limit, the filters, --all, --follow, --compare, --since and --table."""
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="CLUSTER",
        help="the cluster; may be omitted where there is only one",
    )
    parser.add_argument(
        "--limit", type=_limit, default=20, metavar="N", help="so many lines (default: 20)"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also decisions that changed nothing or led to an operation",
    )
    action = parser.add_argument(
        "--kind",
        action="append",
        type=_kind,
        default=[],
        metavar="KIND",
        help=f"lines of this kind only: {', '.join(_KIND_WORDS)}; may be repeated",
    )
    action.completer = lambda **_: _KIND_WORDS  # type: ignore[attr-defined]
    parser.add_argument(
        "--group", default="", metavar="GROUP", help="lines about this node group only"
    )
    parser.add_argument(
        "--operation", default="", metavar="ID", help="lines about this operation only"
    )
    parser.add_argument(
        "--follow", action="store_true", help="print new lines as they are written, until Ctrl-C"
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="compare a cluster in mode shadow with the autoscaler that acts there",
    )
    add_head_argument(parser)
    add_since_argument(parser)
    add_table_argument(parser)


def _kind(text: str) -> str:
    """Return the word of a kind, "" for all of them."""
    word = text.casefold()
    kind = kind_named(word)
    if kind is not None:
        return kind.word
    if word == EVERY_KIND:
        return ""
    further = [also for known in KINDS for also in known.also]
    raise argparse.ArgumentTypeError(not_one_of(text, _KIND_WORDS, further))


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 1000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")


def run(args: argparse.Namespace) -> int:
    """Print the history. Returns 0; --follow ends with Ctrl-C."""
    store = open_store(args)
    args.name = args.name or only_cluster(store, "outscaler history")
    if args.compare:
        return show(store, args.name, args)
    stored_policy(store, args.name)
    if args.group and not selected(store, args.name, JournalFilter(group=args.group), 1):
        # a group that the journal has may be gone
        args.group = check_group(store, args.name, args.group)
    kinds = () if "" in args.kind else tuple(args.kind)
    journal_filter = JournalFilter(kinds, args.group, args.operation, time.time() - args.since)
    if args.follow:
        everything = args.all or bool(kinds)
        return follow(
            store,
            args.name,
            journal_filter,
            args.limit,
            args.output,
            time.sleep,
            everything=everything,
        )
    entries = selected(store, args.name, journal_filter, args.limit)
    versions = store.policies.history(args.name, args.limit)
    data = {
        "versions": [
            {
                "version": stored.version,
                "storedAt": instant(stored.stored_at),
                "digest": stored.digest,
            }
            for stored in versions
        ],
        "journal": [entry_data(entry) for entry in entries],
    }
    if args.output == "table":
        table, notes = _lines(store, args, journal_filter, versions)
        show_answer(table, after=notes)
    else:
        emit(args.output, data, list)
    return 0


# -- lines for people


class Line(msgspec.Struct, frozen=True):
    """One line. result: how it ended, "" for what has no end."""

    at: float
    text: str
    result: str = ""


def journal_line(entry: JournalEntry, names: Mapping[str, str]) -> Line:
    """Return what an entry says; the time that an operation took is its result.
    names: of groups, by id."""
    name, operation = _name(entry.group, names), operation_of(entry)
    if operation is None:
        return Line(entry.at, sentence(entry, name))
    facts = {fact: value for fact, value in entry.facts.items() if fact != "seconds"}
    text = sentence(msgspec.structs.replace(entry, facts=facts), name)
    took = (
        f" in {format_duration(round(operation.seconds))}" if operation.seconds is not None else ""
    )
    if operation.succeeded:
        return Line(entry.at, text, f"done{took}")
    given_up = operation.state is OperationState.ABANDONED
    return Line(
        entry.at, text, Styled("given up", "yellow") if given_up else Styled("failed", "red")
    )


def open_line(operation: Operation, names: Mapping[str, str], now: float) -> Line:
    """Return the line of an operation that is under way."""
    spec, name = operation.spec, _name(operation.spec.group, names)
    of_nodes = (OperationKind.DELETE_NODES, OperationKind.RESTART_NODE)
    targets = counted(len(spec.targets), "node" if spec.kind in of_nodes else "machine")
    why = f" {words}" if (words := disruption_words(spec.reason)) else ""
    more = " or more" if len(spec.pods) >= MOST_PODS else ""
    pods = f" for {counted(f'{len(spec.pods)}{more}', 'pod')}" if spec.pods else ""
    text = {
        OperationKind.SCALE_UP: f"{name} grows from {spec.from_size} to {spec.to_size}{pods}",
        OperationKind.DELETE_NODES: (
            f"{targets} of {name} leave{'s' if len(spec.targets) == 1 else ''}{why}"
        ),
        OperationKind.DECREASE_TARGET: (
            f"the target of {name} is lowered from {spec.from_size} to {spec.to_size}"
        ),
        OperationKind.DELETE_INSTANCES: (
            f"{targets} of {name} {'is' if len(spec.targets) == 1 else 'are'} discarded"
        ),
        OperationKind.RESTART_NODE: (
            f"{targets} of {name} {'is' if len(spec.targets) == 1 else 'are'} restarted{why}"
        ),
        OperationKind.REMOVE_GROUP: f"the empty group {name} is deleted",
    }[spec.kind]
    if spec.kind is OperationKind.DECREASE_TARGET and spec.from_size == spec.to_size:
        text = f"marks of old removals are taken off machines of {name}"
    lasts = format_duration(max(0, round(now - spec.created_at)))
    return Line(spec.created_at, text, Styled(f"under way, {lasts}", "green"))


def _name(group: str, names: Mapping[str, str]) -> str:
    return names.get(group, short_name(group)) if group else ""


def is_quiet(entry: JournalEntry) -> bool:
    """Return whether an entry is a decision that changes nothing."""
    line = line_of(entry)
    return isinstance(line, PlanLine) and line.changes_nothing


def _lines(
    store: Store,
    args: argparse.Namespace,
    journal_filter: JournalFilter,
    versions: Sequence[StoredPolicy],
) -> tuple[Table, list[str]]:
    """Return the lines, and what is to be said about them."""
    now, cluster = time.time(), StoredCluster.read(store, args.name)
    names = {row.group: row.name for row in cluster.groups}
    lines = [
        open_line(operation, names, now)
        for operation in cluster.memory.operations
        if operation.is_open and _selects_open(journal_filter, operation)
    ][: args.limit]
    past = _past_lines(store, args, journal_filter, versions, names, args.limit - len(lines))
    lines += past.lines
    zone = (
        datetime.fromtimestamp(now, UTC).astimezone().strftime(" (%Z)")
        if sys.stdout.isatty()
        else ""
    )
    selects_all = journal_filter == JournalFilter(since=journal_filter.since)
    table = Table(
        (f"when{zone}", "what happened", "result"),
        tuple(
            (
                local_time(line.at, now, sys.stdout),
                with_local_times(line.text, now, sys.stdout),
                line.result,
            )
            for line in lines
        ),
        empty="nothing has happened yet"
        if selects_all and not past.folded
        else "nothing of it has happened",
        has_head=args.has_head,
    )
    notes = []
    if past.folded:
        verb = "is" if past.folded == 1 else "are"
        notes.append(
            f"({counted(past.folded, 'decision')} without a change {verb} not shown; --all)"
        )
    if past.is_cut:
        since = local_time(past.searched_to, now, sys.stdout)
        notes.append(f"(only the newest {_FOLDED} entries were searched, since {since})")
    return table, notes


def _selects_open(journal_filter: JournalFilter, operation: Operation) -> bool:
    spec = operation.spec
    kinds = journal_filter.kinds
    return (
        (not kinds or "operation" in kinds or kind_of_operation(spec.kind) in kinds)
        and journal_filter.group in ("", spec.group)
        and journal_filter.operation in ("", spec.id)
    )


class _Past(msgspec.Struct, frozen=True):
    """Lines of what is over, newest first. folded: decisions without a change between them.
    searched_to: the instant of the last entry that was read; is_cut: there may be more lines before
    it, although fewer were read than are wanted."""

    lines: tuple[Line, ...]
    folded: int
    searched_to: float
    is_cut: bool


def _past_lines(
    store: Store,
    args: argparse.Namespace,
    journal_filter: JournalFilter,
    versions: Sequence[StoredPolicy],
    names: Mapping[str, str],
    limit: int,
) -> _Past:
    """Return the newest `limit` lines: a decision is none where an operation that carried it out is
    one, and a version of the policy is one where the journal does not have it."""
    shows_every_decision = args.all or bool(journal_filter.kinds)
    entries: list[JournalEntry] = []
    carried_out: set[str] = set()
    folded, searched, searched_to = 0, 0, 0.0
    for entry in _entries(store, args.name, journal_filter, _PAGE):
        if len(entries) >= limit or searched >= _FOLDED:
            break
        searched += 1
        searched_to = entry.at
        if entry.kind == "operation":
            carried_out.add(entry.plan)
        if shows_every_decision:
            entries.append(entry)
        elif is_quiet(entry):
            folded += 1
        elif entry.kind != "plan" or entry.plan not in carried_out:
            entries.append(entry)
    else:
        searched_to = 0.0
    noted = {entry.facts.get("version") for entry in entries if entry.kind == "policy"}
    stored_lines = [
        Line(stored.stored_at, f"stored version {stored.version} of the policy")
        for stored in versions
        if journal_filter == JournalFilter(since=journal_filter.since)
        and stored.version not in noted
        and stored.stored_at >= max(searched_to, journal_filter.since)
    ]
    lines = [*(journal_line(entry, names) for entry in entries), *stored_lines]
    lines.sort(key=lambda line: -line.at)
    is_cut = searched >= _FOLDED and len(lines) < limit
    return _Past(tuple(lines[:limit]), folded, searched_to, is_cut)


# -- entries of the journal


def selected(
    store: Store, name: str, journal_filter: JournalFilter, limit: int
) -> tuple[JournalEntry, ...]:
    """Return the newest entries that the filter selects, newest first, at most `limit`. SEARCHED
    entries are read at most."""
    return tuple(islice(_entries(store, name, journal_filter, max(limit, 1)), limit))


def _entries(
    store: Store, name: str, journal_filter: JournalFilter, first: int
) -> Iterator[JournalEntry]:
    """Yield the entries that the filter selects, newest first. first: the size of the first
    page."""
    before: float | None = None
    for _ in range(SEARCHED // _PAGE):
        page = store.journal.recent(name, _PAGE if before is not None else first, before=before)
        yield from (entry for entry in page if journal_filter.selects(entry))
        if not page or page[-1].at < journal_filter.since:
            return
        before = page[-1].at


def entry_data(entry: JournalEntry) -> dict[str, Any]:
    """Return the entry under stable keys."""
    return {
        "at": instant(entry.at),
        "kind": entry.kind,
        "group": entry.group,
        "plan": entry.plan,
        "operation": entry.operation,
        "facts": dict(entry.facts),
    }


def follow(
    store: Store,
    name: str,
    journal_filter: JournalFilter,
    limit: int,
    output: str,
    sleep: Callable[[float], None],
    rounds: int | None = None,
    *,
    everything: bool = True,
) -> int:
    """Print the last `limit` lines, oldest first, then new ones. output: `json` prints one
    object per line. rounds: how often the table is read; None: until the process is interrupted.
    everything: also decisions without a change; json always has them. Returns 0.

    The table is read for entries that are newer than the last one shown. Two functions
    with different clocks may write entries out of order, so entries of the last seconds
    are read again and shown once.
    """
    shown: set[bytes] = set()
    since, first = journal_filter.since, True
    shows_all = everything or output != "table"
    while rounds is None or rounds > 0:
        newest_at = 0.0
        entries: list[JournalEntry] = []
        try:
            newer = msgspec.structs.replace(journal_filter, since=since)
            most = limit if first else _AT_ONCE
            for entry in islice(_entries(store, name, newer, most), _FOLDED):
                newest_at = newest_at or entry.at
                if shows_all or not is_quiet(entry):
                    entries.append(entry)
                if len(entries) >= most:
                    break
        except StoreError as error:
            warn(f"{name}: the journal cannot be read now, trying again: {error}")
            newest_at, entries = 0.0, []
        for entry in reversed(entries):
            if _key(entry) not in shown:
                text = json.dumps(entry_data(entry), ensure_ascii=False)
                if output == "table":
                    line = journal_line(entry, {})
                    at = local_time(line.at, time.time(), sys.stdout)
                    text = row_line(tuple(filter(None, (at, line.text, line.result))), (0, 0, 0))
                sys.stdout.write(f"{text}\n")
                sys.stdout.flush()
        if newest_at:
            shown = {_key(entry) for entry in entries}
            # Entries before the first one that was shown are not shown later, either.
            first_shown = entries[-1].at if first and entries else since
            since = max(first_shown, newest_at - _OVERLAP)
            first = False
        if rounds is not None:
            rounds -= 1
        if rounds != 0:
            sleep(EVERY)
    return 0


def _key(entry: JournalEntry) -> bytes:
    return json.dumps([entry.at, entry_data(entry)], sort_keys=True).encode()
