"""Processes of the live emulation may die at any time; its threads
continue, or report their end.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.emulators.controllers.clock import Clock
from infra.emulators.deployed_functions import DeployedFunction, queues
from infra.emulators.events import Schedule
from infra.emulators.lambda_events import Json
from infra.emulators.live.emulation import Emulation, Setting
from infra.emulators.live.lambda_processes import FunctionProcess, Result, Worker
from infra.emulators.live.lambda_worker import CLOCK, LOG

ROOT = Path(__file__).resolve().parents[3]
HANDLER = "import os\n\n\ndef handle(event, context):\n    return {'pid': os.getpid()}\n"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[FunctionProcess]:
    (tmp_path / "idle_handler.py").write_text(HANDLER)
    Clock(1000.0, 1.0, path=tmp_path / "clock")
    urls = {f"OUTSCALER_QUEUE_{name.upper()}": f"http://127.0.0.1:9/{name}" for name in queues()}
    environment = {
        **os.environ,
        **urls,
        "OUTSCALER_TABLE": "t",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        CLOCK: str(tmp_path / "clock"),
        LOG: str(tmp_path / "log"),
        "PYTHONPATH": f"{ROOT}:{tmp_path}",
    }
    made = FunctionProcess("idle", "idle_handler.handle", environment, lambda: 0.0)
    yield made
    made.stop()


# within and beyond the capacity of the pipe and its buffer
@pytest.mark.parametrize("size", [0, 10_000, 1_000_000])
def test_worker_that_died_while_idle_is_a_killed_invocation_and_is_replaced(
    process: FunctionProcess, size: int
) -> None:
    first = process.invoke({}).answer["pid"]
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # dead and not yet reaped
    died = process.invoke({"size": size * "x"})
    assert (died.killed, died.finished) == (True, False)
    again = process.invoke({})
    assert again.finished
    assert again.answer["pid"] != first


def test_worker_that_died_while_idle_can_be_stopped(process: FunctionProcess) -> None:
    pid = process.invoke({}).answer["pid"]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    process.stop()
    with pytest.raises(RuntimeError, match="has ended"):
        process.invoke({})


def test_emulation_thread_ending_by_an_exception_reports_itself() -> None:
    ended: list[tuple[str, str]] = []

    def work() -> None:
        raise BrokenPipeError("no reader")

    thread = Worker(
        work, name="receive-tick", ended=lambda name, error: ended.append((name, str(error)))
    )
    thread.start()
    thread.join()
    assert ended == [("receive-tick", "no reader")]


def test_emulation_thread_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    thread = Worker(lambda: 1 // 0, name="play-reconcile")
    thread.start()
    thread.join()
    assert "play-reconcile" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_emulation_schedule_that_cannot_invoke_its_function_reports_its_end() -> None:
    ended = threading.Event()

    def invoke(name: str, event: Json) -> Result:
        raise OSError(f"{name} cannot be invoked")

    schedule = Schedule(
        DeployedFunction("tick", "m.tick", ""),
        Clock(0.0, 1.0, time.monotonic),
        invoke,
        threading.Event(),
        lambda name, error: ended.set(),
    )
    schedule.start()
    assert ended.wait(600)
    schedule.join()


def test_emulation_interrupted_before_its_start_leaves_no_file(tmp_path: Path) -> None:
    emulation = Emulation(
        Setting("prod", 1000.0, 1.0, tmp_path), lambda result, event: None, time.monotonic
    )
    assert (emulation.clock.now() >= 1000.0, list(tmp_path.iterdir())) == (True, [])
