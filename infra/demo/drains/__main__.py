"""`python -m infra.demo.drains`: runs twenty drains while functions crash, and prints what
happens, on virtual time.

Exit code 0 if all expectations are met, 1 if not, 2 for an invalid argument. The same seed gives
identical output. recorded-drain.md beside it contains one run; --record writes it there.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from chalicelib.runtime.log import logger
from infra.demo.console import OneLineParser
from infra.demo.drains.drain_runner import tell
from infra.tools.interruptible import run

NODES, MOST_NODES, SEED = 20, 60, 7
BEGIN, END = "<!-- recorded: begin -->\n```text\n", "```\n<!-- recorded: end -->"
HEAD, TAIL = 70, 90
"""Lines from the beginning and from the end of a long run that the document contains."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    # The logger reports a crashed function as a failure, so it is silenced; the output
    # here describes the crash.
    quiet = logging.getLogger(logger.name)
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)
    lines: list[str] = []

    def put(line: str) -> None:
        lines.append(line)
        sys.stdout.write(f"{line}\n")

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = tell(args.nodes, args.seed, put)
    finally:
        quiet.setLevel(level)
    if args.record is not None:
        args.record.write_text(recorded(args.record.read_text("utf-8"), lines), "utf-8")
    return code


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(
        prog="python -m infra.demo.drains", description="Drains while functions die."
    )
    parser.add_argument(
        "--nodes",
        type=_nodes,
        default=NODES,
        metavar="N",
        help=f"nodes that are to go, 1 to {MOST_NODES} (default {NODES})",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, metavar="N", help=f"of the dice (default {SEED})"
    )
    parser.add_argument(
        "--record", type=_document, metavar="FILE", help="a document to write the account into"
    )
    return parser.parse_args(argv)


def _nodes(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MOST_NODES):
        raise argparse.ArgumentTypeError(f"{text!r}: write a number from 1 to {MOST_NODES}")
    return int(text)


def _document(text: str) -> Path:
    path = Path(text)
    if not path.is_file() or BEGIN not in path.read_text("utf-8"):
        raise argparse.ArgumentTypeError(
            f"{text!r}: name a document with a place for an account, as "
            "infra/demo/drains/recorded-drain.md"
        )
    return path


def recorded(document: str, lines: Sequence[str]) -> str:
    """Return the document with its lines replaced by these. If there are
    many, the middle is left out."""
    left = len(lines) - HEAD - TAIL
    shown = [*lines[:HEAD], f"        … {left} lines …", *lines[-TAIL:]] if left > 1 else lines
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}" + "".join(f"{line}\n" for line in shown) + f"{END}{after}"


if __name__ == "__main__":
    run(main)
