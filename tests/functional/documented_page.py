"""Runs the shell blocks of a page in order, as a person types them, and compares what
they print with what the page shows.

In a shown output `…` on a line of its own stands for any lines, and at the end of a line for the
rest of it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import msgspec

from tests.processes import PATIENCE, started

_BLOCK = re.compile(
    r"^```sh\n(?P<script>.*?)^```\n(?:\n```\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
#: What differs from run to run, and a word for it.
_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "INSTANT"),
    (re.compile(r"\d+\.\d{3} s\b"), "SECONDS"),
    (re.compile(r"after \d+ s\b"), "after SECONDS"),
    (re.compile(r"\b(?:\d+[dhms])+( ago)?\b"), "AGE"),
    (re.compile(r"https://\d+\.\d+\.\d+\.\d+:\d+"), "SERVER"),
    (re.compile(r"https://[a-z0-9]{10}\.execute-api"), "https://API.execute-api"),
    (re.compile(r"\b([a-z]+)-[a-z0-9]{5,8}-[a-z0-9]{5}\b"), r"\1-ID"),
    (re.compile(r"[~/]\S*/profile\.json"), "PROFILE"),
    (re.compile(r"\s+"), " "),
)


class PageStep(msgspec.Struct, frozen=True):
    """A block that is typed. output: what the page shows below it, "" where it shows nothing."""

    script: str
    output: str = ""


def steps(text: str) -> list[PageStep]:
    """The shell blocks of a page, or of a part of it."""
    return [PageStep(found["script"], found["output"] or "") for found in _BLOCK.finditer(text)]


def section(text: str, title: str) -> str:
    """The part of a page below a heading of the second level."""
    return re.split(r"^## ", text.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]


class PageShell:
    """A shell of one person: its folder and its variables stay from block to block.

    home: an empty folder. environment: its variables at the beginning. tools: commands that replace
    those of the machine, name -> script.
    """

    def __init__(
        self, home: Path, environment: Mapping[str, str], tools: Mapping[str, str]
    ) -> None:
        self.folder = home / "desk"
        self._state = home / "variables"
        bin_folder = home / "bin"
        for folder in (self.folder, bin_folder):
            folder.mkdir()
        own = {"outscaler": f'exec {shlex.quote(sys.executable)} -m chalicelib "$@"'}
        for name, script in {**own, **tools}.items():
            tool = bin_folder / name
            tool.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
            tool.chmod(0o755)
        self.environment = {
            **os.environ,
            **environment,
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_PAGER": "",
            "COLUMNS": "120",
            "BROWSER": "true",
        }
        self._state.write_text("", "utf-8")

    def run(self, script: str) -> str:
        """Runs a block and returns what the terminal shows. Raises AssertionError for the first
        command that fails."""
        state = shlex.quote(str(self._state))
        whole = (
            f"set -eu -o pipefail\nset -a; . {state}; set +a\n{script}\ndeclare -p > {state}.new"
        )
        keep = "grep -E '^declare -[x-]+ [A-Z]+=' {0}.new | sed 's/^declare -[x-]* //' > {0}"
        done = subprocess.run(
            ["bash", "-c", f"{whole}\n{keep.format(state)}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout

    def open_page(self) -> str:
        """Runs `outscaler ui` as a person does who opens the page, and then types Ctrl-C. Returns
        the first page."""
        command = str(Path(self.environment["PATH"].split(os.pathsep)[0]) / "outscaler")
        with started([command, "ui"], self.environment, self.folder) as process:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            browser = build_opener(HTTPCookieProcessor(CookieJar()))
            with browser.open(address, timeout=PATIENCE) as answer:
                page = str(answer.read().decode())
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
        return page


def unlike(shown: str, printed: str) -> list[str]:
    """The first shown line that the output has not, with the output; [] where all are there."""
    lines = [_steady(line) for line in printed.splitlines()]
    at = 0
    skipping = False
    for line in shown.splitlines():
        if line.strip() == "…":
            skipping = True
            continue
        wanted = _steady(line.rstrip("…")) if line.endswith("…") else _steady(line)
        matches = [
            number
            for number in range(at, len(lines))
            if lines[number] == wanted or (line.endswith("…") and lines[number].startswith(wanted))
        ]
        if not matches or (matches[0] != at and not skipping):
            return [f"not printed there: {line}", *printed.splitlines()]
        at, skipping = matches[0] + 1, False
    return [] if skipping or at == len(lines) else ["more is printed:", *printed.splitlines()]


def _steady(line: str) -> str:
    for pattern, word in _CHANGING:
        line = pattern.sub(word, line)
    return line.strip()
