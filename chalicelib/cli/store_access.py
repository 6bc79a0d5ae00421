"""The tables that a command talks to, and the clusters in it. Imported store and all only when a command needs AWS."""

from __future__ import annotations

import argparse
import os
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING

from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import state_table

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy


def add_table_argument(parser: argparse.ArgumentParser) -> None:
    """--table NAME and --policy-table NAME, for the commands that need AWS."""
    parser.add_argument(
        "--table",
        default="",
        metavar="NAME",
        help="DynamoDB table (default: $OUTSCALER_TABLE, else the state table of the deployment $OUTSCALER_PREFIX)",
    )
    parser.add_argument(
        "--policy-table",
        default="",
        metavar="NAME",
        help="DynamoDB table of the policies "
        "(default: $OUTSCALER_POLICY_TABLE, else the name of the other table and -policies)",
    )


def open_store(args: argparse.Namespace) -> Store:
    """The store on --table and --policy-table, or on what the environment names. Raises BadInput if nothing does,
    NewerSchema where a newer release has written the tables.

    A --table that is given does not go with the environment's policy table, which is that of another one."""
    table = table_name(args)
    from chalicelib.store import Store
    from chalicelib.store.errors import NewerSchema, StoreError

    policy_table = args.policy_table or ("" if args.table else os.environ.get("OUTSCALER_POLICY_TABLE", ""))
    store = Store(table, clock=time.time, policy_table=policy_table)
    try:
        store.schema.check()
    except NewerSchema:
        raise
    except StoreError:
        pass  # who may use the policy table only is not refused here; what the command asks for fails by itself
    return store


def table_name(args: argparse.Namespace) -> str:
    """The state table's name; raises BadInput if nothing names it."""
    table = str(args.table) or state_table(os.environ)
    if not table:
        raise BadInput(
            "--table",
            "is not given, and OUTSCALER_TABLE is not set",
            "name the deployment's DynamoDB table, or set OUTSCALER_PREFIX as make deploy prints it",
        )
    return table


def not_moved(store: Store) -> str:
    """A sentence about policies that lie in the old place and are not used; "" where there are none."""
    from chalicelib.store.policy_migration import not_used

    names = store.moving.not_moved(store.policies.all_current())
    if not names:
        return ""
    return f"{not_used(names)}; run outscaler migrate"


def stored_policy(store: Store, name: str) -> StoredPolicy:
    """A cluster's policy in force; raises BadInput with the nearest name for a cluster that has none."""
    stored = store.policies.current(name)
    if stored is not None:
        return stored
    names = store.policies.names()
    near = get_close_matches(name, names, n=1)
    if near:
        remedy = f"did you mean {near[0]}?"
    else:
        remedy = f"known: {', '.join(names[:10])}" if names else "store one with outscaler apply"
    raise BadInput(name, "no such cluster", remedy)
