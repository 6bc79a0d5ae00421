"""`outscaler capture DIR`: saves a live cluster as files for `outscaler plan DIR`;
it only reads the cluster.

`kubectl get -o json` would do, but it fails for a kind that the server does not know, and its
output contains environment variables. This command saves only what a plan reads.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from chalicelib.cli.arguments import add_cluster_arguments
from chalicelib.cli.kubeconfig_files import kubeconfig_of
from chalicelib.cli.live_cluster import add_management_namespace
from chalicelib.cli.output import Table, emit, warn
from chalicelib.model.timestamps import format_time
from chalicelib.policy.settings.cluster_options import Options

_SILENT = 1.0  # seconds without a message, if standard error is not a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder and the cluster's kubeconfig."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        help="a new folder, or the folder of an older capture",
    )
    add_cluster_arguments(
        parser,
        "the cluster (default: $KUBECONFIG, otherwise ~/.kube/config)",
        (
            "the cluster that Cluster API's objects are in, if it is another one; groups takes "
            "bounds from them"
        ),
    )
    add_management_namespace(parser)
    parser.add_argument(
        "--namespace",
        help="the namespace of the priority expander's ConfigMap (default: options.namespace of "
        "--policy, otherwise "
        "kube-system)",
    )


def run(args: argparse.Namespace) -> int:
    """Read the cluster and write the folder; raises BadInput, ClusterError, OSError."""
    from chalicelib.cli.live_cluster import connected_by_file, management_namespaces, policy_of
    from chalicelib.cli.saved.capture_lists import (
        EVERYTHING,
        MACHINE_FILES,
        read_lists,
        read_machine_groups,
    )
    from chalicelib.cli.saved.saved_cluster import CAPTURED_AT, claim_folder, write_capture

    policy = policy_of(args)
    namespaces = management_namespaces(args, policy)
    namespace = args.namespace or (policy.options if policy else Options()).namespace
    claim_folder(args.directory)
    kube = connected_by_file(args.kubeconfig or kubeconfig_of(os.environ), args.context or "")
    captured_at = format_time(time.time())
    progress = CaptureProgress(time.monotonic, sys.stderr.write, at_once=sys.stderr.isatty())
    capture = read_lists(kube, namespace, progress)
    manager = (
        connected_by_file(args.management_kubeconfig, "") if args.management_kubeconfig else kube
    )
    machine_groups, notes = read_machine_groups(manager, progress, namespaces)
    hint = (
        ": --management-namespace names the namespace that may be read" if "" in namespaces else ""
    )
    for note in notes:
        warn(f"{note}; `outscaler groups` will guess the bounds of Cluster API's groups{hint}")
    for gap in capture.missing:
        warn(f"{gap.place}: not captured: {gap.detail}")
    lists = (*capture.lists, *machine_groups)
    files = {f"{captured.resource.plural}.json.gz": captured.packed for captured in lists}
    files[CAPTURED_AT] = f"{captured_at}\n".encode()
    stale = frozenset(f"{resource.plural}.json.gz" for resource in EVERYTHING) | MACHINE_FILES
    write_capture(args.directory, files, stale, capture.missing)
    rows = [
        (captured.resource.kind, captured.count, f"{captured.resource.plural}.json.gz")
        for captured in lists
    ]
    emit(
        args.output,
        {
            "directory": str(args.directory),
            "capturedAt": captured_at,
            "lists": [{"kind": kind, "objects": count, "file": file} for kind, count, file in rows],
            "notRead": [
                {"kind": gap.kind, "place": gap.place, "detail": gap.detail}
                for gap in capture.missing
            ],
        },
        lambda: [
            Table(
                columns=("kind", "objects", "file"),
                rows=tuple((k, str(count), f) for k, count, f in rows),
                right=frozenset({1}),
            ),
            _next_step(args.directory),
        ],
    )
    return 0


class CaptureProgress:
    """Prints one line per list. Nothing is printed for the first second, unless `at_once`.

    clock: seconds that never go back; write: prints a text.
    """

    def __init__(
        self, clock: Callable[[], float], write: Callable[[str], object], *, at_once: bool
    ) -> None:
        self._clock, self._write = clock, write
        self._last = clock()
        self._open = at_once
        self._held: list[str] = []

    def reading(self, plural: str, count: int) -> None:
        """Report how many objects of a list are read so far, at most once per second."""
        if self._clock() - self._last >= _SILENT:
            self._print(f"{plural}: {count} so far\n")

    def complete(self, plural: str, count: int) -> None:
        """Report a complete list."""
        self._held.append(f"{plural}: {count}\n")
        if self._open or self._clock() - self._last >= _SILENT:
            self._print("")

    def _print(self, more: str) -> None:
        self._open, self._last = True, self._clock()
        self._write("".join(self._held) + more)
        self._held.clear()


def _next_step(directory: Path) -> str:
    folder, manifest = shlex.quote(str(directory)), directory / "manifest.json"
    if manifest.exists():
        return f"Next: outscaler plan {folder}"
    return (
        f"Next: outscaler groups {folder} > {shlex.quote(str(manifest))}, then outscaler plan "
        f"{folder}"
    )
