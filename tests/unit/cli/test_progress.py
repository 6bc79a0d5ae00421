"""Slow parts of a command say so on a terminal, and nowhere else."""

from __future__ import annotations

import io
import threading

import pytest

from chalicelib.cli.output import progress
from tests.terminal import Terminal


def shown(stream: io.StringIO, seconds: int) -> str:
    """The output of a block that takes so many seconds of virtual time."""
    passed = iter([False] * seconds)
    reached = threading.Event()

    def wait(ended: threading.Event, timeout: float) -> bool:
        assert timeout == 1.0
        if next(passed, True):
            reached.set()
            return ended.wait()
        return False

    with progress("reading the\ncluster", stream, wait):
        if stream.isatty():
            assert reached.wait(600)
    return stream.getvalue()


def test_progress_is_silent_for_a_second_and_leaves_an_empty_line() -> None:
    assert shown(Terminal(), 0) == ""
    erase = "\r\x1b[K"
    assert (
        shown(Terminal(), 2)
        == f"{erase}reading the cluster … 1 s{erase}reading the cluster … 2 s{erase}"
    )


def test_progress_goes_to_terminals_only() -> None:
    assert shown(io.StringIO(), 5) == ""


def test_progress_ends_with_the_error_of_its_block() -> None:
    stream = Terminal()
    with (
        pytest.raises(ValueError, match="broken"),
        progress("reading", stream, lambda ended, _: ended.wait()),
    ):
        raise ValueError("broken")
    assert stream.getvalue() == ""
