"""Prints one result in three forms: `-o table` for people, json and yaml for programs (stable keys, no other
output)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from chalicelib.command.tables import Block, show


def emit(output: str, data: Any, blocks: Callable[[], Iterable[Block]]) -> None:
    """Print data (dicts, lists, text, numbers, None) as json or yaml, or blocks() as text and tables."""
    if output == "json":
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    elif output == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    else:
        show(blocks())


def warn(text: str) -> None:
    """Print a warning on standard error, so that standard output contains only the result."""
    from chalicelib.command.terminal_text import as_warning, one_line

    sys.stderr.write(f"{as_warning(f'warning: {one_line(text)}', sys.stderr)}\n")
