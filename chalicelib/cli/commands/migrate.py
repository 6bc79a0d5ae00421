"""`outscaler migrate`: copies policies that releases before the policy table
stored in the state table.

Functions do not use policies in the state table, because every function may write there. This
command does not use them unseen either: it prints what it copies, and `--dry-run` prints it
beforehand. It may be interrupted at any point and run again. Policies that the policy table already
has stay unchanged, and nothing is deleted without `--delete-old`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chalicelib.cli.deployment_settings import settings_of
from chalicelib.cli.output import Table, emit, warn
from chalicelib.cli.policy_files import load_document
from chalicelib.cli.store_access import add_table_argument, open_store
from chalicelib.model.errors import BadInput, InputErrors

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --dry-run, --delete-old, --table and --policy-table."""
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be copied, copy nothing"
    )
    parser.add_argument(
        "--delete-old",
        action="store_true",
        help="also delete from the state table the rows that the policy table has",
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Copy the policies. Returns 0 if every policy in force is now in the policy table. Raises
    InputErrors with those that are not."""
    store = open_store(args)
    data = [_migrate(store, policy, args) for policy in store.moving.in_old_place()]
    columns = ("cluster", "version", "digest", "result", "versions copied", "old rows deleted")
    keys = ("name", "version", "digest", "result", "copied", "deleted")
    table = Table(
        columns,
        tuple(
            tuple(str(row[key])[: 12 if key == "digest" else None] for key in keys) for row in data
        ),
        right=frozenset({1, 4, 5}),
        empty="the state table has no policies",
    )
    emit(args.output, data, lambda: [table])
    conflicts = tuple(
        BadInput(
            str(row["name"]),
            f"is left as it is: {row['result']}",
            (
                f"compare with outscaler get policy {row['name']}, and store the correct document "
                "with outscaler apply"
            ),
        )
        for row in data
        if row["conflict"]
    )
    if conflicts:
        raise InputErrors(conflicts)
    return 0


def _migrate(store: Store, old_policy: StoredPolicy, args: argparse.Namespace) -> dict[str, Any]:
    """Return the result for one cluster, or with --dry-run the expected result."""
    name, version = old_policy.name, old_policy.version
    row = {
        "name": name,
        "version": version,
        "digest": old_policy.digest,
        "copied": 0,
        "deleted": 0,
        "conflict": False,
    }
    secret: str | None = None  # of the policy's webhook
    deployment = settings_of(store).deployment
    try:
        secret = load_document(
            old_policy.text, f"{name}, version {version}", deployment=deployment
        )[0].webhook.secret
    except BadInput as bad:
        warn(f"this release cannot use it, apply a corrected document: {str(bad).splitlines()[0]}")
    if args.dry_run:
        current = store.policies.current(name)
        return row | {
            "result": f"left alone, version {current.version} is there"
            if current
            else "would be copied"
        }
    moved = store.moving.copy(name, lambda _: secret)
    if moved.conflict:
        return row | {"result": moved.conflict, "copied": moved.copied, "conflict": True}
    deleted = store.moving.delete_old(name) if args.delete_old else 0
    if moved.copied:
        result = "copied"
    else:
        result = (
            "is there"
            if moved.version == version
            else f"version {moved.version} is there, which is newer"
        )
    return row | {"result": result, "copied": moved.copied, "deleted": deleted}
