"""Cold start cost of each function, as multiples of a process that only imports botocore's session.

    python -m tests.functional.cold_start [FOLDER]

prints the table of docs/performance.md for the artifact of this tree, or for another one
unzipped in FOLDER. Ratios of CPU times of interleaved processes are comparable across
machines and under load.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from tests.functional.artifact import artifact
from tests.functional.stack import HANDLERS

_PROCESS = Path(__file__).with_name("lambda_process.py")
_NO_EVENT = os.devnull
_PYTHON = (sys.executable, "-I", "-S")
# Each process exits without destroying its objects, as a started function does not exit.
_SESSION = """
import os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {task!r})
import botocore.session
os._exit(0)
"""
_START = """
import importlib, os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {task!r})
os.environ["_HANDLER"] = {handler!r}
importlib.import_module({module!r})
os._exit(0)
"""

#: : Variables set by Lambda and the template; the names do not exist, and a
#: start makes no AWS call.
ENVIRONMENT: Mapping[str, str] = {
    "AWS_LAMBDA_FUNCTION_NAME": "outscaler",
    "AWS_REGION": "eu-central-1",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "OUTSCALER_TABLE": "state",
    "OUTSCALER_POLICY_TABLE": "policies",
    "OUTSCALER_QUEUE_RECONCILE": "https://sqs.eu-central-1.amazonaws.com/0/queue",
    "OUTSCALER_BATCH_FAILURES": "reported",
}

#: : Handler module -> the maximum CPU for the start of its functions, in
#: imports of botocore's session.
LIMITS: Mapping[str, float] = {
    "app": 1.7,
    "chalicelib.functions.tick": 1.7,
    "chalicelib.functions.act": 2.0,
    "chalicelib.functions.reconcile": 2.6,
}


class Used(NamedTuple):
    """The cost of one process. cpu: seconds, user and system. memory: MB at its peak."""

    cpu: float
    memory: float


class Started(msgspec.Struct, frozen=True):
    """A process after its start. collects: whether garbage collection is on. frozen: objects that
    it skips. threads: of OpenBLAS."""

    modules: list[str]
    collects: bool
    frozen: int
    threads: str


def limit(handler: str) -> float:
    """The maximum number of imports of botocore's session for a function, by its Handler."""
    return LIMITS[handler.rpartition(".")[0]]


def session(task: Path) -> Used:
    """Runs a process that imports botocore's session from the artifact in `task`."""
    return _used([*_PYTHON, "-c", _SESSION.format(task=str(task))])


def start(task: Path, handler: str) -> Used:
    """Runs a process in which Lambda starts this function of the artifact in
    `task`, up to its first event."""
    return _used([*_PYTHON, "-c", _script(task, handler)])


@cache
def started(task: Path, handler: str) -> Started:
    """The state of such a process when it waits for its first event."""
    command = [*_PYTHON, str(_PROCESS), str(task), handler, _NO_EVENT]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=True)
    assert done.stderr == "", "a start that warns fills the log"
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Started)


def in_turns(task: Path, handlers: Sequence[str], rounds: int) -> dict[str, list[Used]]:
    """Runs each start that many times in interleaved rounds; "" is botocore's session."""
    got: dict[str, list[Used]] = {name: [] for name in ("", *handlers)}
    for _ in range(rounds):
        for name, runs in got.items():
            runs.append(start(task, name) if name else session(task))
    return got


def _used(command: Sequence[str]) -> Used:
    process = subprocess.Popen(command, env=_environment(), stdout=subprocess.DEVNULL)
    # the usage of this child alone, which Popen does not provide
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def _script(task: Path, handler: str) -> str:
    return _START.format(task=str(task), handler=handler, module=handler.rpartition(".")[0])


def _environment() -> dict[str, str]:
    return {**ENVIRONMENT, "PATH": os.environ["PATH"]}


def table(task: Path, rounds: int = 9) -> list[str]:
    """The table as text: per function the ratio, milliseconds and MB, each the median
    of the rounds; then sizes."""
    names = {handler: function for function, handler in HANDLERS.items()}
    got = in_turns(task, list(names), rounds)
    unit = median(one.cpu for one in got[""])
    lines = ["| Function | x botocore's session | CPU ms | Peak MB |", "|---|---|---|---|"]
    for handler, runs in got.items():
        cpu = median(one.cpu for one in runs)
        # less than this process uses
        memory = f"{median(one.memory for one in runs):.0f}" if handler else ""
        lines.append(
            f"| {names.get(handler, '(session)')} | {cpu / unit:.2f} | {cpu * 1000:.0f} | {memory} "
            "|"
        )
    size = sum(path.stat().st_size for path in task.rglob("*") if path.is_file())
    return [*lines, f"unzipped: {size / 1e6:.1f} MB"]


def main(arguments: Sequence[str]) -> None:
    """Runs the command."""
    task = Path(arguments[0]) if arguments else artifact().task
    print("\n".join(table(task)))
    if not arguments:
        print(f"zip: {artifact().zip.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
