"""Child processes of tests: with the signals of a terminal, and never longer than their test.

A test may run where SIGINT is ignored (nohup, a background job of a script), and a child would
inherit that. It may fail while its child still runs, and would then wait for it for ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

PATIENCE = 600.0
"""Seconds that nothing takes, on a machine however busy."""
_ENDED = (FileNotFoundError, ProcessLookupError)
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A child in a session of its own, with pipes. It is killed after PATIENCE, so that every
    read of its pipes ends, and at the end of the block, with all of its session. environment:
    added to this process's."""
    with _default_signals():
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    watch = threading.Timer(PATIENCE, _kill_session, (process.pid,))
    watch.daemon = True
    watch.start()
    try:
        yield process
    finally:
        watch.cancel()
        if process.poll() is None:
            own = children(process.pid)
            _kill_session(process.pid)
            for child in own:  # in sessions of their own
                _kill(child)
        for stream in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):  # what was not sent is lost with the child
                stream.close() if stream is not None else None
        process.wait(PATIENCE)


def python(*arguments: str) -> list[str]:
    """The command of a Python process whose output is not held back."""
    return [sys.executable, "-u", *arguments]


class ChildProcess(NamedTuple):
    """A process. since: when it was started, because another process may get
    its number after its end."""

    pid: int
    since: str


def children(pid: int) -> set[ChildProcess]:
    """The processes that a process has started and that still run. A thread or a process that ends
    while it is read has none."""
    numbers: list[str] = []
    with suppress(*_ENDED):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(*_ENDED):
                numbers += (thread / "children").read_text().split()
    return {child for number in numbers if (child := _running(int(number))) is not None}


def is_running(child: ChildProcess) -> bool:
    """Whether it has not ended."""
    return _running(child.pid) == child


def _running(pid: int) -> ChildProcess | None:
    """The process of that number; None where there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except _ENDED:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may contain blanks
    return None if fields[0] in ("Z", "X") else ChildProcess(pid, fields[19])


@contextmanager
def _default_signals() -> Iterator[None]:
    """A child that is started here has the default action of signals that this process ignores: the
    system resets handlers in a new program, and keeps what is ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = [number for number in _RESET if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, _ignore)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _ignore(number: int, frame: object) -> None:
    """A handler that does nothing."""


def _kill(child: ChildProcess) -> None:
    if is_running(child):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child.pid, signal.SIGKILL)


def _kill_session(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
