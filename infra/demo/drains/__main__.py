"""`python -m infra.demo.drains`: twenty drains while functions die, told as it happens, on virtual time.

Exit code 0 if everything expected was seen, 1 if not, 2 for a wrong argument. The same seed tells the same account, to
the letter. docs/recorded-drain.md holds one, and --record writes it there.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from chalicelib.runtime.log import logger
from infra.demo.drains.drain_runner import tell

NODES, MOST_NODES, SEED = 20, 60, 7
BEGIN, END = "<!-- recorded: begin -->\n```text\n", "```\n<!-- recorded: end -->"
HEAD, TAIL = 70, 90
"""Lines of an account that a document shows of its beginning and its end."""


def main(argv: Sequence[str] | None = None) -> int:
    """The whole run; the exit code."""
    args = _arguments(argv)
    # A function that dies is logged as a failure, and told here as what it is.
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


class _DrainsParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, without the usage that argparse puts before it."""
        self.exit(2, f"{self.prog}: {message}\n")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _DrainsParser(prog="python -m infra.demo.drains", description="Drains while functions die.")
    parser.add_argument(
        "--nodes",
        type=_nodes,
        default=NODES,
        metavar="N",
        help=f"nodes that are to go, 1 to {MOST_NODES} (default {NODES})",
    )
    parser.add_argument("--seed", type=int, default=SEED, metavar="N", help=f"of the dice (default {SEED})")
    parser.add_argument("--record", type=_document, metavar="FILE", help="a document to write the account into")
    return parser.parse_args(argv)


def _nodes(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MOST_NODES):
        raise argparse.ArgumentTypeError(f"{text!r}: write a number from 1 to {MOST_NODES}")
    return int(text)


def _document(text: str) -> Path:
    path = Path(text)
    if not path.is_file() or BEGIN not in path.read_text("utf-8"):
        raise argparse.ArgumentTypeError(
            f"{text!r}: name a document with a place for an account, as docs/recorded-drain.md"
        )
    return path


def recorded(document: str, lines: Sequence[str]) -> str:
    """The document with these lines in the place of those it had; of many, the middle is left out."""
    left = len(lines) - HEAD - TAIL
    shown = [*lines[:HEAD], f"        … {left} lines …", *lines[-TAIL:]] if left > 1 else lines
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}" + "".join(f"{line}\n" for line in shown) + f"{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
