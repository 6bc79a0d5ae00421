"""`outscaler schema`: prints the JSON schema of a policy document, for editors."""

from __future__ import annotations

import argparse
import json
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the schema depends on the release alone."""
    del parser


def run(args: argparse.Namespace) -> int:
    """Print the schema, as JSON unless yaml is requested. Always returns 0."""
    from chalicelib.cli.output import emit
    from chalicelib.policy.document import json_schema

    if args.output == "table":
        sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
    else:
        emit(args.output, json_schema(), list)
    return 0
