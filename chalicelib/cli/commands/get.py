"""`outscaler get THING CLUSTER [NAME …]`: shows the stored state, with kubectl's habits.

Nothing is computed here; `outscaler plan` says what would happen next. Nodes and pods are those of
the last decision in the table, so no command needs access to the cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli import stored_rows
from chalicelib.cli.arguments import duration, not_one_of, unknown
from chalicelib.cli.columns import GROUPS, NODES
from chalicelib.cli.listing import Listing, Row, TableKind
from chalicelib.cli.output import emit, one_line, row_line, warn, with_local_times
from chalicelib.cli.store_access import add_table_argument, only_cluster, open_store, stored_policy
from chalicelib.cli.stored_rows import StoredCluster
from chalicelib.model.errors import BadInput
from chalicelib.store.errors import StoreError
from chalicelib.views import cluster_view as views
from chalicelib.views.cluster_view import as_json, instant

if TYPE_CHECKING:
    from chalicelib.store import Store

OUTPUTS = ("table", "wide", "name", "json", "yaml")
EVERY = 5.0
"""Seconds between two reads of --watch."""
_SHORTEST, _LONGEST = 1.0, 3600.0


class Thing(msgspec.Struct, frozen=True):
    """What can be shown. names: the first one is shown in help. rows: None for what is no table."""

    names: tuple[str, ...]
    rows: Callable[[Store, str], Listing] | None = None
    of_all: bool = False
    """Whether it is of all clusters."""

    @property
    def name(self) -> str:
        """Return the name that help shows."""
        return self.names[0]


THINGS = (
    Thing(("clusters", "cluster", "cl"), lambda store, _: stored_rows.clusters(store), of_all=True),
    Thing(
        ("groups", "group", "gr"),
        lambda store, name: stored_rows.groups(StoredCluster.read(store, name, entries=200)),
    ),
    Thing(
        ("nodes", "node", "no"),
        lambda store, name: stored_rows.nodes(StoredCluster.read(store, name)),
    ),
    Thing(
        ("pods", "pod", "po"), lambda store, name: stored_rows.pods(StoredCluster.read(store, name))
    ),
    Thing(("operations", "operation", "op"), stored_rows.operations),
    Thing(("policy", "policies")),
    Thing(("breaker", "brake")),
    Thing(("claims", "claim"), lambda store, _: stored_rows.claims(store), of_all=True),
)
_OLD_WORDS = {"brake": "breaker"}


def thing_named(word: str) -> Thing | None:
    """Return what a word means, None where it means nothing."""
    return next((thing for thing in THINGS if word in thing.names), None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add THING, CLUSTER, NAME, -l, -w and --table."""
    words = ", ".join(
        "|".join(dict.fromkeys(thing.names)) for thing in THINGS if thing.name != "breaker"
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="THING",
        type=_what,
        default="clusters",
        help=f"{words}, breaker (default: clusters)",
    )
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="CLUSTER",
        help="the cluster; may be omitted where there is only one",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="only these groups, nodes, pods or operations"
    )
    keys = f"groups: {', '.join(GROUPS.labels)}; nodes: {', '.join(NODES.labels)}"
    parser.add_argument(
        "-l",
        "--selector",
        default="",
        metavar="KEY=VALUE",
        help=f"only rows with (=) or without (!=) these values, separated by commas ({keys})",
    )
    parser.add_argument(
        "-w", "--watch", action="store_true", help="then print rows that change, until Ctrl-C"
    )
    parser.add_argument(
        "--interval",
        type=duration(_SHORTEST, _LONGEST, " from 1s to 1h, such as 10s"),
        default=EVERY,
        metavar="DURATION",
        help="how often --watch looks (default: 5s)",
    )
    add_table_argument(parser)


def _what(text: str) -> str:
    """Read THING or THING/NAME."""
    word, slash, name = text.partition("/")
    thing = thing_named(word)
    if thing is None:
        further = tuple(
            name for thing in THINGS for name in thing.names[1:] if name not in _OLD_WORDS
        )
        raise argparse.ArgumentTypeError(
            not_one_of(word, tuple(thing.name for thing in THINGS), further)
        )
    if word in _OLD_WORDS:
        sys.stderr.write(f"note: {word} is an old word; write {_OLD_WORDS[word]}\n")
    return f"{thing.name}{slash}{name}"


def run(args: argparse.Namespace) -> int:
    """Print the requested state. Returns 0, also for an empty result; --watch ends with Ctrl-C."""
    word, _, name = args.what.partition("/")
    thing = thing_named(word)
    assert thing is not None
    names = tuple(filter(None, (name, *args.names)))
    store = open_store(args)
    if thing.of_all:
        cluster, names = "", tuple(filter(None, (args.name, *names)))
    else:
        cluster = args.name or only_cluster(store, f"outscaler get {thing.name}")
        stored_policy(store, cluster)
    if thing.rows is None:
        return _show_one(store, thing, cluster, args)
    read = thing.rows

    def listing() -> Listing:
        return _chosen(read(store, cluster), names, args.selector)

    if args.watch:
        return watch(listing, args.output, lambda: time.sleep(args.interval))
    _print(listing(), args.output)
    return 0


def _chosen(listing: Listing, names: tuple[str, ...], selector: str) -> Listing:
    """Return the listing with the rows that the arguments name. Raises BadInput for
    a name that is no row's."""
    rows = listing.rows
    if names:
        known = {alias for row in rows for alias in (row.name, *row.aliases)}
        for name in names:
            if name not in known:
                raise unknown(name, [row.name for row in rows], "NAME", listing.kind.word)
        rows = tuple(row for row in rows if {row.name, *row.aliases} & set(names))
    if not selector:
        return msgspec.structs.replace(listing, rows=rows)
    rows = selected(rows, selector, listing.kind)
    return msgspec.structs.replace(
        listing, rows=rows, empty=f"no {listing.kind.word} has {one_line(selector)}"
    )


def _print(listing: Listing, output: str) -> None:
    if output == "name":
        sys.stdout.write("".join(f"{_full_name(listing, row)}\n" for row in listing.rows))
        return
    form = "table" if output == "wide" else output
    emit(form, listing.data, lambda: [*listing.before, listing.table(wide=output == "wide")])


def _full_name(listing: Listing, row: Row) -> str:
    return one_line(f"{listing.kind.word}/{row.name}")


def _show_one(store: Store, thing: Thing, cluster: str, args: argparse.Namespace) -> int:
    """Print the policy or the circuit breaker, which are no tables."""
    if args.watch or args.selector or args.names:
        given = next(
            flag
            for flag, value in (("-w", args.watch), ("-l", args.selector), ("NAME", True))
            if value
        )
        raise BadInput(given, f"belongs to tables, and {thing.name} is none", "take it out")
    if args.output == "name":
        sys.stdout.write(f"{thing.name}/{cluster}\n")
    elif thing.name == "policy":
        _show_policy(store, cluster, args.output)
    else:
        view = views.breaker_view(store.memory.look(cluster), time.time())
        form = "table" if args.output == "wide" else args.output
        line = with_local_times(view.line, time.time(), sys.stdout)
        emit(form, {"name": cluster, **as_json(view)}, lambda: [f"{cluster}: {line}"])
    return 0


def _show_policy(store: Store, cluster: str, output: str) -> None:
    """Print the stored text for table and yaml: it is YAML, and its comments must be kept."""
    stored = stored_policy(store, cluster)
    if output in ("table", "wide", "yaml"):
        sys.stdout.write(stored.text if stored.text.endswith("\n") else f"{stored.text}\n")
        return
    data = {
        "name": stored.name,
        "version": stored.version,
        "storedAt": instant(stored.stored_at),
        "digest": stored.digest,
        "text": stored.text,
    }
    emit(output, data, list)


# -- -l


def selected(rows: Sequence[Row], selector: str, kind: TableKind[Any]) -> tuple[Row, ...]:
    """Return the rows that a label selector such as `provider=exoscale,state!=steady` selects.
    Raises BadInput for a key that these rows do not have."""
    for part in filter(None, selector.split(",")):
        name, negated, value = (text.strip() for text in _split(part))
        if name not in kind.labels:
            remedy = f"select by {', '.join(kind.labels)}"
            raise BadInput("-l", f"{kind.word}s have no {name[:40]!r}", remedy)
        rows = [
            row
            for row in rows
            if any(_same(value, own) for own in row.labels[name]) is not bool(negated)
        ]
    return tuple(rows)


def _split(part: str) -> tuple[str, str, str]:
    name, equals, value = part.partition("=")
    if not equals:
        raise BadInput(
            "-l", f"{part[:60]!r} is not KEY=VALUE", "write it like state=steady,provider!=exoscale"
        )
    return name.removesuffix("!"), name[-1:] if name.endswith("!") else "", value.removeprefix("=")


def _same(one: str, other: str) -> bool:
    """Return whether two values are the same; blanks may be written as hyphens."""
    return one.casefold().replace("-", " ") == other.casefold().replace("-", " ")


# -- -w


def watch(
    read: Callable[[], Listing], output: str, wait: Callable[[], None], rounds: int | None = None
) -> int:
    """Print the listing, then each row that is new or has changed, and the names of those that are
    gone. A row is an object on one line with -o json. rounds: how often it is read; None: until the
    process is interrupted. Returns 0."""
    before: dict[str, Row] | None = None
    widths: list[int] = []
    while rounds is None or rounds > 0:
        try:
            listing = read()
        except StoreError as error:
            if before is None:
                raise
            warn(f"the table cannot be read now, trying again: {error}")
        else:
            changed = tuple(
                row
                for row in listing.rows
                if before is None or _state(before.get(row.name)) != row.state
            )
            gone = sorted(set(before or ()) - {row.name for row in listing.rows})
            part = msgspec.structs.replace(listing, rows=changed)
            if before is None and output in ("table", "wide"):
                _print(listing, output)
                widths = _widths(listing, wide=output == "wide")
            else:
                _print_changes(part, gone, output, widths)
            sys.stdout.flush()
            before = {row.name: row for row in listing.rows}
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            wait()
    return 0


def _state(row: Row | None) -> tuple[object, ...] | None:
    return row.state if row is not None else None


def _widths(listing: Listing, *, wide: bool) -> list[int]:
    table = listing.table(wide=wide)
    return [max(map(len, cells)) for cells in zip(table.columns, *table.rows, strict=True)]


def _print_changes(listing: Listing, gone: list[str], output: str, widths: list[int]) -> None:
    lines: list[str] = []
    if output in ("table", "wide"):
        lines = [row_line(row.cells[: len(widths)], widths) for row in listing.rows]
        lines += [row_line((name, "gone"), widths) for name in gone]
    elif output == "json":
        lines = [json.dumps(row.data, ensure_ascii=False) for row in listing.rows]
    elif listing.rows:
        if output == "yaml":
            lines = ["---"]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        _print(listing, output)
        return
    sys.stdout.write("".join(f"{line}\n" for line in lines))
