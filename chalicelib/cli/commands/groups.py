"""`outscaler groups DIR`: drafts the manifest of node groups that `outscaler plan DIR`
needs, from the saved nodes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chalicelib.cli.live_cluster import add_management_namespace
from chalicelib.cli.output import emit
from chalicelib.cli.plan_inputs import SAVED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder."""
    parser.add_argument("directory", metavar="DIR", type=Path, help=SAVED)
    add_management_namespace(parser)


def run(args: argparse.Namespace) -> int:
    """Print the manifest as JSON (as YAML for `-o yaml`), and on standard error what was
    guessed; raises BadInput."""
    from chalicelib.cli.live_cluster import management_namespaces, policy_of
    from chalicelib.cli.output import one_line
    from chalicelib.cli.saved.capture_lists import saved_bounds
    from chalicelib.cli.saved.group_draft import LEAST_MAX, draft
    from chalicelib.cli.saved.saved_cluster import read_nodes

    namespaces = management_namespaces(args, policy_of(args))
    bounds = saved_bounds(args.directory, namespaces) if args.directory.is_dir() else {}
    drafted = draft(read_nodes(args.directory), bounds)
    entries = drafted.manifest["nodeGroups"]
    bounds_note = f"; {drafted.bounded} have the bounds of Cluster API" if drafted.bounded else ""
    guessed = f"; min 0 and max (twice the size, at least {LEAST_MAX}) are guesses: correct them"
    notes = [
        (
            f"{len(entries)} node "
            f"groups{bounds_note}{guessed if drafted.bounded < len(entries) else ''}"
        ),
        "a group without nodes cannot be seen: add it",
    ]
    if drafted.control_plane:
        notes.append(f"control-plane nodes are left out: {drafted.control_plane}")
    if drafted.listed:
        notes.append(
            f"no label distinguishes {', '.join(drafted.listed)}: their nodes are listed by name"
        )
    for note in notes:
        sys.stderr.write(f"note: {one_line(note)}\n")
    emit("yaml" if args.output == "yaml" else "json", drafted.manifest, list)
    return 0
