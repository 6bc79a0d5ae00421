"""`outscaler get THING CLUSTER [NAME …]`: shows the stored state, with kubectl's habits.

Nothing is computed here; `outscaler plan` says what would happen next. Nodes and pods are those of
the last decision in the table, so no command needs access to the cluster.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from chalicelib.cli import stored_rows
from chalicelib.cli.arguments import duration, in_any_case, not_one_of, unfolded, unknown
from chalicelib.cli.columns import CLAIMS, CLUSTERS, GROUPS, NODES, OPERATIONS, PODS, POOLS
from chalicelib.cli.listing import Listing, Row, TableKind, of_all_clusters
from chalicelib.cli.output import (
    GrowingTable,
    add_head_argument,
    emit,
    one_line,
    show_answer,
    warn,
    with_local_times,
)
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
_TABLES = ("table", "wide")


class Thing(msgspec.Struct, frozen=True):
    """What can be shown. names: the first one is shown in help. rows, kind: None for what is no
    table."""

    names: tuple[str, ...]
    rows: Callable[[Store, str], Listing] | None = None
    kind: TableKind[Any] | None = None
    of_all: bool = False
    """Whether it is of all clusters."""

    @property
    def name(self) -> str:
        """Return the name that help shows."""
        return self.names[0]


THINGS = (
    Thing(
        ("clusters", "cluster", "cl"),
        lambda store, _: stored_rows.clusters(store),
        CLUSTERS,
        of_all=True,
    ),
    Thing(
        ("groups", "group", "gr"),
        lambda store, name: stored_rows.groups(StoredCluster.read(store, name, entries=200)),
        GROUPS,
    ),
    Thing(
        ("pools", "pool"),
        lambda store, name: stored_rows.pools(StoredCluster.read(store, name)),
        POOLS,
    ),
    Thing(
        ("nodes", "node", "no"),
        lambda store, name: stored_rows.nodes(StoredCluster.read(store, name, entries=50)),
        NODES,
    ),
    Thing(
        ("pods", "pod", "po"),
        lambda store, name: stored_rows.pods(StoredCluster.read(store, name)),
        PODS,
    ),
    Thing(("operations", "operation", "op"), stored_rows.operations, OPERATIONS),
    Thing(("policy", "policies")),
    Thing(("breaker", "brake")),
    Thing(("claims", "claim"), lambda store, _: stored_rows.claims(store), CLAIMS, of_all=True),
)
_OLD_WORDS = {"brake": "breaker"}


def thing_named(word: str) -> Thing | None:
    """Return what a word means, None where it means nothing."""
    return next((thing for thing in THINGS if word in thing.names), None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add THING, CLUSTER, NAME, -l, -w, the arguments of rows and --table."""
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
        "names",
        nargs="*",
        metavar="NAME",
        help="only these groups, pools, nodes, pods or operations",
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
    _add_row_arguments(parser)
    add_table_argument(parser)


def _add_row_arguments(parser: argparse.ArgumentParser) -> None:
    """Add -A, --sort-by and --no-headers."""
    parser.add_argument(
        "-A",
        "--all-clusters",
        action="store_true",
        help="the rows of every cluster, with a column for it",
    )
    action = parser.add_argument(
        "--sort-by",
        default="",
        metavar="COLUMN",
        help="order of the rows, such as age or min..max; also a column of -o wide",
    )
    action.completer = _column_words  # type: ignore[attr-defined]
    add_head_argument(parser)


def _column_words(parsed_args: argparse.Namespace, **_: object) -> Sequence[str]:
    """Complete --sort-by with the columns of what is listed."""
    thing = thing_named(str(getattr(parsed_args, "what", None) or "clusters").partition("/")[0])
    kind = thing.kind if thing is not None else None
    return [column.word for column in kind.columns] if kind is not None else []


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
        clusters: tuple[str, ...] = ("",)
        names = tuple(filter(None, (args.name, *names)))
    elif args.all_clusters:
        if args.name or names:
            raise BadInput("-A", "is all clusters, and one is named", "take -A or the name out")
        clusters = tuple(store.policies.names())
    else:
        cluster = args.name or only_cluster(
            store, f"outscaler get {thing.name}", ", or -A for all clusters"
        )
        stored_policy(store, cluster)
        clusters = (cluster,)
    if thing.rows is None:
        return _show_one(store, thing, clusters, args)
    read = _read_all if args.all_clusters and not thing.of_all else _read_one

    def listing() -> Listing:
        rows = _chosen(read(thing, store, clusters), names, args.selector)
        return rows.sorted_by(args.sort_by) if args.sort_by else rows

    if args.watch:
        pause = functools.partial(time.sleep, args.interval)
        return watch(listing, args.output, pause, has_head=args.has_head)
    _print(listing(), args.output, has_head=args.has_head)
    return 0


def _read_one(thing: Thing, store: Store, clusters: Sequence[str]) -> Listing:
    assert thing.rows is not None
    return thing.rows(store, clusters[0])


def _read_all(thing: Thing, store: Store, clusters: Sequence[str]) -> Listing:
    """Return the rows of these clusters. Those that have none yet are said on standard error."""
    assert thing.rows is not None
    assert thing.kind is not None
    listings: dict[str, Listing] = {}
    for cluster in clusters:
        try:
            listings[cluster] = thing.rows(store, cluster)
        except BadInput as error:
            warn(str(error))
    return of_all_clusters(listings) if listings else Listing(thing.kind, ())


def _chosen(listing: Listing, names: tuple[str, ...], selector: str) -> Listing:
    """Return the listing with the rows that the arguments name. Raises BadInput for
    a name that is no row's."""
    rows = listing.rows
    if names:
        known = {alias for row in rows for alias in (row.name, *row.aliases)}
        names = tuple(in_any_case(unfolded(name, known), known) for name in names)
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


def _print(listing: Listing, output: str, *, has_head: bool = True) -> None:
    """Print the rows. What is said about them goes to standard error."""
    if output == "name":
        sys.stdout.write("".join(f"{_full_name(listing, row)}\n" for row in listing.rows))
        return
    if output in _TABLES:
        table = listing.table(wide=output == "wide")
        show_answer(msgspec.structs.replace(table, has_head=has_head), listing.before)
        return
    emit(output, listing.data, list)


def _full_name(listing: Listing, row: Row) -> str:
    return one_line(f"{listing.kind.word}/{row.name}")


def _show_one(store: Store, thing: Thing, clusters: Sequence[str], args: argparse.Namespace) -> int:
    """Print the policies or the circuit breakers of clusters, which are no tables."""
    flags = (
        ("-w", args.watch),
        ("-l", args.selector),
        ("--sort-by", args.sort_by),
        ("NAME", args.names),
    )
    given = next((flag for flag, value in flags if value), "")
    if given:
        raise BadInput(given, f"belongs to tables, and {thing.name} is none", "take it out")
    if args.output == "name":
        sys.stdout.write("".join(f"{thing.name}/{cluster}\n" for cluster in clusters))
    elif thing.name == "policy":
        _show_policies(store, clusters, args)
    else:
        now = time.time()
        every = [
            (cluster, views.breaker_view(store.memory.look(cluster), now)) for cluster in clusters
        ]
        data = [{"name": cluster, **as_json(view)} for cluster, view in every]
        lines = [
            f"{cluster}: {with_local_times(view.line, now, sys.stdout)}" for cluster, view in every
        ]
        form = "table" if args.output == "wide" else args.output
        emit(form, data if args.all_clusters else data[0], lambda: ["\n".join(lines)])
    return 0


def _show_policies(store: Store, clusters: Sequence[str], args: argparse.Namespace) -> None:
    """Print the stored text for table and yaml: it is YAML, and its comments must be kept."""
    policies = [stored_policy(store, cluster) for cluster in clusters]
    if args.output in (*_TABLES, "yaml"):
        texts = [
            stored.text if stored.text.endswith("\n") else f"{stored.text}\n" for stored in policies
        ]
        sys.stdout.write("---\n".join(texts))
        return
    data = [
        {
            "name": stored.name,
            "version": stored.version,
            "storedAt": instant(stored.stored_at),
            "digest": stored.digest,
            "text": stored.text,
        }
        for stored in policies
    ]
    emit(args.output, data if args.all_clusters else data[0], list)


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
    read: Callable[[], Listing],
    output: str,
    wait: Callable[[], object],
    rounds: int | None = None,
    *,
    has_head: bool = True,
) -> int:
    """Print the listing, then each row that is new or has changed, and the names of those that are
    gone. A row is an object on one line with -o json. rounds: how often it is read; None: until the
    process is interrupted. Returns 0."""
    before: dict[str, Row] | None = None
    growing: GrowingTable | None = None
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
            if output in _TABLES:
                if growing is None:
                    growing = GrowingTable(listing.table(wide=output == "wide"), sys.stdout)
                    _print(listing, output, has_head=has_head)
                else:
                    gone_cells = [before[name].cells for name in gone] if before else []
                    _print_changed_rows(part, gone_cells, output, growing)
            else:
                _print_changes(part, output)
            sys.stdout.flush()
            before = {row.name: row for row in listing.rows}
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            wait()
    return 0


def _state(row: Row | None) -> tuple[object, ...] | None:
    return row.state if row is not None else None


def _print_changed_rows(
    listing: Listing, gone: Sequence[tuple[str, ...]], output: str, growing: GrowingTable
) -> None:
    """Print changed rows, and those that are gone with this word behind their names."""
    table = listing.table(wide=output == "wide")
    names = listing.names_first
    rows_gone = []
    for cells in gone:
        blank = ("",) * (len(table.columns) - names - 1)
        rows_gone.append((*cells[:names], "gone", *blank)[: len(table.columns)])
    growing.add(msgspec.structs.replace(table, rows=(*table.rows, *rows_gone)))


def _print_changes(listing: Listing, output: str) -> None:
    if output == "json":
        lines = [json.dumps(row.data, ensure_ascii=False) for row in listing.rows]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    elif listing.rows:
        sys.stdout.write("---\n" if output == "yaml" else "")
        _print(listing, output)
