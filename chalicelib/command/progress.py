"""Shows on a terminal that a slow part of a command is at work, once it has taken longer than a second.

Files and pipes get nothing: the line goes to standard error, and only if that is a terminal.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from chalicelib.command.terminal_text import one_line

FIRST = 1.0
"""Seconds before the first line, and between its updates."""
_ERASE = "\r\x1b[K"


@contextmanager
def progress(
    what: str, stream: TextIO | None = None, wait: Callable[[threading.Event, float], bool] = threading.Event.wait
) -> Iterator[None]:
    """Show `what … 3 s` while the block runs. wait: waits for the event, and returns whether it was set in time."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(one_line(what), stream, ended, wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(what: str, stream: TextIO, ended: threading.Event, wait: Callable[[threading.Event, float], bool]) -> None:
    seconds = 0
    while not wait(ended, FIRST):
        seconds += int(FIRST)
        stream.write(f"{_ERASE}{what} … {seconds} s")
        stream.flush()
    if seconds:
        stream.write(_ERASE)
        stream.flush()
