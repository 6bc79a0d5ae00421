"""`outscaler pools prune CLUSTER`: asks for the deletion of empty groups that Outscaler has made.

Where a vendor deletes the machines of a group with it, and takes no condition, empty groups stay by
default (docs/reference/managed-pools.md "Deleting"). This command asks for those that are empty
now; the next pass plans their deletion, and an executor looks several times before.
"""

from __future__ import annotations

import argparse
import time

from chalicelib.cli.arguments import near
from chalicelib.cli.output import emit
from chalicelib.cli.store_access import add_table_argument, note, open_store, stored_policy
from chalicelib.model.errors import BadInput
from chalicelib.model.managed_group import declaration_in_name, short_declaration
from chalicelib.policy.load import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to do, CLUSTER, --pool and --table."""
    parser.add_argument("action", choices=("prune",), help="prune: delete empty groups")
    parser.add_argument("name", metavar="CLUSTER", help="the cluster")
    parser.add_argument(
        "--pool",
        default="",
        metavar="POOL",
        help="only groups of this entry of spec.managedPools",
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Store the request and return 0. Raises BadInput for a pool that is not known."""
    store = open_store(args)
    policy, _ = load(stored_policy(store, args.name).text, place=args.name)
    memory, now = store.memory.look(args.name), time.time()
    declared = [pool.name for pool in policy.managed_pools]
    empty = [name for name, group in sorted(memory.groups.items()) if group.empty_since]
    # groups of a declaration that is gone are known by their names alone
    left = {declaration_in_name(name) for name in empty} - set(map(short_declaration, declared))
    known = [*declared, *sorted(left - {""})]
    if args.pool and args.pool not in known:
        close = near(args.pool, known)
        remedy = f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"
        raise BadInput(f"--pool {args.pool}", f"is no managed pool of {args.name}", remedy)
    pools = [args.pool] if args.pool else known
    shortened = set(map(short_declaration, pools))
    groups = [name for name in empty if declaration_in_name(name) in shortened]
    if groups:
        store.prunes.request(args.name, pools, now)
        note(store, args.name, "prune", {"pools": ", ".join(pools), "groups": len(groups)})
    text = "; the next pass plans their deletion" if groups else "; nothing to delete"
    lines = [f"{args.name}: {len(groups)} empty groups{text}", *(f"  {name}" for name in groups)]
    emit(args.output, {"name": args.name, "pools": pools, "groups": groups}, lambda: lines)
    return 0
