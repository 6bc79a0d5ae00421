"""`outscaler manifests NAME…`: prints the manifests of what stands in a cluster,
for `kubectl apply -f -`.

They are the files of infra/kubernetes, which the wheel carries beside this package. Their comments
say what may have to be replaced before they are applied.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from chalicelib.cli.arguments import named
from chalicelib.cli.output import emit
from chalicelib.model.errors import BadInput

FILES = {
    "rbac": "rbac-workload.yaml",
    "rbac-capi": "rbac-capi-namespaced.yaml",
    "rbac-capi-all": "rbac-capi-management.yaml",
    "rbac-bootstrap-tokens": "rbac-bootstrap-tokens.yaml",
    "token": "token-secret.yaml",
    "watcher": "outscaler-watcher.yaml",
}
"""The file of each name."""
_NAMES = {file: name for name, file in FILES.items()}
_HERE = Path(__file__).resolve()
FOLDERS = (_HERE.parents[1] / "files" / "kubernetes", _HERE.parents[3] / "infra" / "kubernetes")
"""Of the wheel, and of a clone of the repository."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add NAME…"""
    parser.add_argument(
        "names",
        nargs="+",
        metavar="NAME",
        help="rbac: account, rights and status of a scaled cluster; rbac-capi: rights to Cluster "
        "API's objects in one "
        "namespace; rbac-capi-all: in all; rbac-bootstrap-tokens: to make bootstrap tokens of "
        "Cherry Servers; token: "
        "the account's token; watcher: the watcher",
    )


def run(args: argparse.Namespace) -> int:
    """Print the manifests, as a List of kubectl for json and yaml. Returns 0; raises BadInput for
    another name, and where the installation has none."""
    import yaml

    texts = [_text(named(name, FILES, "NAME", "manifest")) for name in dict.fromkeys(args.names)]
    if args.output == "table":
        sys.stdout.write("---\n".join(texts))
        return 0
    items: list[Any] = [
        document for text in texts for document in yaml.safe_load_all(text) if document
    ]
    emit(args.output, {"apiVersion": "v1", "kind": "List", "items": items}, list)
    return 0


def manifest_name(file: str) -> str:
    """Return the name under which the command prints a file of infra/kubernetes."""
    return _NAMES[file]


def apply_command(file: str) -> str:
    """Return the command that applies a file of infra/kubernetes."""
    return f"outscaler manifests {_NAMES[file]} | kubectl apply -f -"


def _text(file: str) -> str:
    for folder in FOLDERS:
        if (folder / file).is_file():
            return (folder / file).read_text("utf-8")
    raise BadInput(
        "outscaler manifests",
        f"this installation has no {file}",
        "pip install --force-reinstall outscaler",
    )
