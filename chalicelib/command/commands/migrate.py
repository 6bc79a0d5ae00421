"""`outscaler migrate`: copies policies that releases before the policy table stored in the state table.

Functions do not use policies in the state table, because every function may write there. This command does not use them
unseen either: it prints what it copies, and `--dry-run` prints it beforehand. It may be interrupted at any point and
run again. Policies that the policy table already has stay unchanged, and nothing is deleted without `--delete-old`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chalicelib.command.deployment_settings import settings_of
from chalicelib.command.output import Table, emit, warn
from chalicelib.command.policy_files import load_document
from chalicelib.command.store_access import add_table_argument, open_store
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.policy_permissions import Deployment

if TYPE_CHECKING:
    from chalicelib.store import Store, StoredPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --dry-run, --delete-old, --table and --policy-table."""
    parser.add_argument("--dry-run", action="store_true", help="show what would be copied, copy nothing")
    parser.add_argument(
        "--delete-old", action="store_true", help="also delete from the state table the rows that the policy table has"
    )
    add_table_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Copy the policies. Returns 0 if every policy in force is now in the policy table. Raises InputErrors with those
    that are not."""
    store = open_store(args)
    data = [_one(store, old, args) for old in store.moving.in_old_place()]
    emit(
        args.output,
        data,
        lambda: [
            Table(
                ("cluster", "version", "digest", "result", "versions copied", "old rows deleted"),
                tuple(
                    (
                        one["name"],
                        str(one["version"]),
                        str(one["digest"])[:12],
                        one["result"],
                        str(one["copied"]),
                        str(one["deleted"]),
                    )
                    for one in data
                ),
                right=frozenset({1, 4, 5}),
                empty="the state table has no policies",
            )
        ],
    )
    conflicts = tuple(
        BadInput(
            str(one["name"]),
            f"is left as it is: {one['result']}",
            f"compare with outscaler get policy {one['name']}, and store the correct document with outscaler apply",
        )
        for one in data
        if one["conflict"]
    )
    if conflicts:
        raise InputErrors(conflicts)
    return 0


def _one(store: Store, old_policy: StoredPolicy, args: argparse.Namespace) -> dict[str, Any]:
    """Return the result for one cluster, or with --dry-run the expected result."""
    reported = {
        "name": old_policy.name,
        "version": old_policy.version,
        "digest": old_policy.digest,
        "copied": 0,
        "deleted": 0,
        "conflict": False,
    }
    secret = _webhook(old_policy, settings_of(store).deployment)
    if args.dry_run:
        known = store.policies.current(old_policy.name)
        return reported | {"result": f"left alone, version {known.version} is there" if known else "would be copied"}
    moved = store.moving.copy(old_policy.name, lambda _: secret)
    if moved.conflict:
        return reported | {"result": moved.conflict, "copied": moved.copied, "conflict": True}
    deleted = store.moving.delete_old(old_policy.name) if args.delete_old else 0
    result = "is there" if moved.version == old_policy.version else f"version {moved.version} is there, which is newer"
    if moved.copied:
        result = "copied"
    return reported | {"result": result, "copied": moved.copied, "deleted": deleted}


def _webhook(old_policy: StoredPolicy, deployment: Deployment) -> str | None:
    """Return the name of the policy's webhook secret; None, and a warning, where this release cannot use the
    document."""
    try:
        policy, _ = load_document(
            old_policy.text, f"{old_policy.name}, version {old_policy.version}", deployment=deployment
        )
    except BadInput as bad:
        warn(f"this release cannot use it, apply a corrected document: {str(bad).splitlines()[0]}")
        return None
    return policy.webhook.secret
