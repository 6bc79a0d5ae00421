"""Ends a command on Ctrl-C and on SIGTERM in the same way: it cleans up, prints one
line, and has exit code 130.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

INTERRUPTED = 130


def run(main: Callable[[], int]) -> NoReturn:
    """Exit with the code of a command. main: may handle KeyboardInterrupt itself. While it cleans
    up after the first signal, further ones have no effect, so that nothing is left behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, and a shell's background job
            signal.signal(number, _interrupt)
    try:
        code = main()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            sys.stderr.write("interrupted\n")
        code = INTERRUPTED
    sys.exit(code)


def _interrupt(number: int, frame: object) -> NoReturn:
    del number, frame
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt
