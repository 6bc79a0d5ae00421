"""The functions' processes: started on first use, given one event at a time, and
restarted after a crash.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import msgspec

from chalicelib.runtime.runtime import MEMORY_SIZE
from infra.emulators.lambda_events import Json, failed_messages

_log = logging.getLogger(__name__)

Ended = Callable[[str, BaseException], None]
"""Called with the name of a thread that has ended with an exception, in that thread."""


def logged(name: str, error: BaseException) -> None:
    _log.critical("thread %s has ended and does nothing more", name, exc_info=error)


class Worker(threading.Thread):
    """A daemon thread that reports its end. target, args: as of threading.Thread."""

    def __init__(
        self,
        target: Callable[..., object],
        *,
        name: str,
        args: tuple[Any, ...] = (),
        ended: Ended = logged,
    ) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._reported = ended

    def run(self) -> None:
        """Run the target; an exception ends the thread and is reported."""
        try:
            super().run()
        except BaseException as error:
            self._reported(self.name, error)


class Result(msgspec.Struct, frozen=True):
    """The result of an invocation. began, ended: virtual epoch seconds. killed: the process ended
    before a response. counts: see lambda_worker.py. cold: the process was started for it."""

    function: str
    began: float
    ended: float
    answer: Any = None
    error: str = ""
    killed: bool = False
    cold: bool = False
    counts: dict[str, int] = {}

    @property
    def finished(self) -> bool:
        return not (self.error or self.killed)

    @property
    def failed_messages(self) -> tuple[str, ...]:
        return failed_messages(self.answer)


class FunctionProcess:
    """One function with a concurrency of one. Thread-safe."""

    def __init__(
        self, name: str, handler: str, environment: Mapping[str, str], clock: Callable[[], float]
    ) -> None:
        self._name, self._handler, self._clock = name, handler, clock
        self._environment = {**environment, "_HANDLER": handler}
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self.started = 0

    def warm(self) -> None:
        with self._lock:
            self._running()

    def invoke(self, event: Json, die_at: Sequence[str] = ()) -> Result:
        """Send an event and wait for the response, or for the end of the process."""
        with self._lock:
            cold, began = self._process is None, self._clock()
            process = self._running()
            answer = self._exchange(process, json.dumps({"event": event, "die_at": list(die_at)}))
            if answer is None:
                self._bury()
                return Result(self._name, began, self._clock(), killed=True, cold=cold)
            return Result(
                self._name,
                began,
                self._clock(),
                answer.get("answer"),
                answer.get("error", ""),
                cold=cold,
                counts=answer["counts"],
            )

    def stop(self) -> None:
        """End the process; it is not started again."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()
        with self._lock:
            self._bury()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            if self._stopped:
                raise RuntimeError(f"{self._name}: the emulation has ended")
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "infra.emulators.live.lambda_worker",
                    self._name,
                    self._handler,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self._environment,
                start_new_session=True,
            )
            self.started += 1
            if self._read(self._process) is None and not self._stopped:
                raise RuntimeError(f"function {self._name} could not be started; see the log")
        return self._process

    def _exchange(self, process: subprocess.Popen[str], line: str) -> dict[str, Any] | None:
        try:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except OSError:  # the process has ended, a while ago or just now
            return None
        return self._read(process)

    def _read(self, process: subprocess.Popen[str]) -> dict[str, Any] | None:
        assert process.stdout is not None
        line = process.stdout.readline()
        made: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
        return made

    def _bury(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    # close() tries once more to send unsent data to the ended
                    # process, without success.
                    with contextlib.suppress(OSError):
                        stream.close()
            process.wait()


class Functions:
    """All functions by name. on_result: called with each result, from the thread that invoked.

    memory: MB by function, for functions that know their memory size. working: entered for each
    invocation. deaths: function -> checkpoints at which its next invocations crash, one each;
    `2*PLACE`: at the second visit of that checkpoint.
    """

    def __init__(
        self,
        handlers: Mapping[str, str],
        environment: Mapping[str, str],
        clock: Callable[[], float],
        on_result: Callable[[Result, Json], None],
        memory: Mapping[str, int] = MappingProxyType({}),
        working: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        own = {name: {MEMORY_SIZE: str(size)} for name, size in memory.items()}
        self._processes = {
            name: FunctionProcess(name, handler, {**environment, **own.get(name, {})}, clock)
            for name, handler in handlers.items()
        }
        self._on_result, self._working = on_result, working
        self.deaths: dict[str, list[str]] = {}

    def warm(self, *names: str) -> None:
        """Start these functions concurrently and wait until they are ready. Raises
        RuntimeError if one does not start."""
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(lambda name: self._processes[name].warm(), names))

    def invoke(self, name: str, event: Json) -> Result:
        waiting = self.deaths.get(name, [])
        with self._working():
            made = self._processes[name].invoke(event, waiting[:1])
            if made.killed and waiting:
                waiting.pop(0)
            self._on_result(made, event)
        return made

    def stop(self) -> None:
        for process in self._processes.values():
            process.stop()
