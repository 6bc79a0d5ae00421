"""`outscaler pools`: asks for what Outscaler does not do by itself with groups that it has made.

`prune` asks for the deletion of the groups that are empty now: where a vendor deletes the machines
of a group with it, and takes no condition, they stay by default. `drain` asks for the replacement
of the nodes of groups that retire. The next passes plan it (docs/reference/managed-pools.md
"Deleting", "Draining").
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection

from chalicelib.cli.arguments import near
from chalicelib.cli.output import emit
from chalicelib.cli.store_access import add_table_argument, note, open_store, stored_policy
from chalicelib.model.errors import BadInput
from chalicelib.model.managed_group import declaration_in_name, short_declaration
from chalicelib.model.memory import Memory
from chalicelib.model.overview import ClusterOverview
from chalicelib.policy.load import load

_DRAIN = "drain"
_OUTCOMES = {
    "prune": ("empty groups", "; the next pass plans their deletion", "; nothing to delete"),
    _DRAIN: (
        "retiring groups",
        "; for seven days passes replace their nodes, and delete them when they are empty",
        "; nothing to drain",
    ),
}
"""What is acted on, what comes of it, and what is said if there is none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to do, CLUSTER, --pool and --table."""
    parser.add_argument(
        "action",
        choices=tuple(_OUTCOMES),
        help="prune: delete empty groups; drain: replace the nodes of groups that retire",
    )
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    parser.add_argument(
        "--pool",
        default="",
        metavar="POOL",
        help="only groups of this entry of spec.managedPools",
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Store the request and return 0. Raises BadInput for a pool that is not known, or of which no
    group retires."""
    store = open_store(args)
    policy, _ = load(stored_policy(store, args.name).text, place=args.name)
    memory, now = store.memory.look(args.name), time.time()
    # groups of a declaration that is gone are known by their names alone
    declared = {short_declaration(pool.name): pool.name for pool in policy.managed_pools}
    drains = args.action == _DRAIN
    if drains:
        shorts = _retiring(store.gauge_rings.overview(args.name), memory, declared.keys())
    else:
        empty = (name for name, group in memory.groups.items() if group.empty_since)
        shorts = {name: declaration_in_name(name) for name in empty}
    pool_of = {name: declared.get(short, short) for name, short in sorted(shorts.items())}
    known = [*declared.values(), *sorted(set(pool_of.values()) - {"", *declared.values()})]
    if args.pool and args.pool not in known:
        close = near(args.pool, known)
        remedy = f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"
        raise BadInput(f"--pool {args.pool}", f"is no managed pool of {args.name}", remedy)
    groups = [name for name, pool in pool_of.items() if pool and args.pool in ("", pool)]
    if drains and args.pool and not groups:
        problem = "is declared, and none of its groups retires"
        raise BadInput(f"--pool {args.pool}", problem, "take it out of spec.managedPools first")
    pools = sorted({pool_of[name] for name in groups})
    what, outcome, nothing = _OUTCOMES[args.action]
    if groups:
        requests, earlier = store.prunes, memory.prunes
        if drains:
            requests, earlier = store.drains, memory.drains
        requests.request(args.name, {**earlier, **dict.fromkeys(pools, now)})
        note(store, args.name, args.action, {"pools": ", ".join(pools), "groups": len(groups)})
    title = f"{args.name}: {len(groups)} {what}{outcome if groups else nothing}"
    lines = [title, *(f"  {name}" for name in groups)]
    emit(args.output, {"name": args.name, "pools": pools, "groups": groups}, lambda: lines)
    return 0


def _retiring(
    overview: ClusterOverview, memory: Memory, declared: Collection[str]
) -> dict[str, str]:
    """Return the groups that retire, by the last pass or because their declaration is gone by now,
    each with what its name has of the declaration. declared: the same of the declarations."""
    # a second group of a name has the vendor's id
    seen = {
        group.group: declaration_in_name(group.group) or declaration_in_name(group.name)
        for group in overview.groups
        if group.retiring
    }
    for name, group in memory.groups.items():
        short = declaration_in_name(name)
        if short and short not in declared and (group.target or group.empty_since):
            seen[name] = short
    return seen
