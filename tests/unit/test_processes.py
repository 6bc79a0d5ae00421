"""Children of tests have the signals of a terminal, and end with their test."""

from __future__ import annotations

import ast
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import PATIENCE, ChildProcess, children, is_running, python, started
from tests.source_trees import nodes_of, trees

_LINUX = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="processes are not listed in /proc"
)
_MAY_START = {
    "tests/processes.py",
    "tests/benchmarks/test_pass.py",
    "tests/functional/cold_start.py",
    "tests/property/hostile_tenants.py",  # ends with its standard input
}
_SHOW = (
    "import signal; print([signal.getsignal(number) is signal.SIG_IGN for number in (2, 15, 1)])"
)
# It ignores what can be ignored, and so does its own child, in another session.
_STUBBORN = """
import os, signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, "-c", open("/proc/self/cmdline").read().split(chr(0))[-2], \
"inner"],
                     start_new_session=True)
print("runs", flush=True)
signal.pause()
"""
_RESTLESS = """
import subprocess, sys, threading
def work():
    while True:
        thread = threading.Thread(target=subprocess.run, args=([sys.executable, "-S", "-c", ""],))
        thread.start()
        thread.join()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
print("runs", flush=True)
sys.stdin.read()
"""


@contextmanager
def ignoring(*numbers: signal.Signals) -> Iterator[None]:
    """As under nohup, and in the background of a script."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_child_has_default_signals_where_they_are_ignored() -> None:
    with ignoring(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with started(python("-c", _SHOW)) as process:
            out, err = process.communicate(timeout=PATIENCE)
        assert [signal.getsignal(number) for number in (2, 15, 1)] == [signal.SIG_IGN] * 3
    assert (out, err) == ("[False, False, False]\n", "")


@_LINUX
def test_children_that_outlive_their_test_are_killed() -> None:
    with started(python("-c", _STUBBORN)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while not (inner := children(process.pid)):
            os.sched_yield()
    assert process.returncode == -signal.SIGKILL
    until = time.monotonic() + PATIENCE  # the system removes it soon after the signal
    while any(is_running(child) for child in inner):
        assert time.monotonic() < until


@_LINUX
def test_threads_that_end_while_children_are_read_are_no_error() -> None:
    with started(python("-c", _RESTLESS)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen = set[ChildProcess]()
        while len(seen) < 10:
            seen |= children(process.pid)
    assert children(process.pid) == set()
    assert not is_running(ChildProcess(os.getpid(), "0"))  # another process had its number


def test_tests_start_processes_in_one_way() -> None:
    named = {
        path
        for path, tree in trees("tests")
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "subprocess.Popen"
    }
    assert named == _MAY_START
