"""One function's process: started at its first invocation, reused for the next
events, killed at the timeout.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from infra.emulators.http_server import LoopbackServer, QuietHandler
from infra.emulators.lambda_runtime import shifted_clock

_ROOT = "/2018-06-01/runtime"
_MOST = 6 * 2**20  # maximum bytes of a response that Lambda accepts


class RuntimeEvent(msgspec.Struct, frozen=True):
    """One invocation: its id, the event's JSON, the function's ARN, and the
    deadline in epoch milliseconds."""

    request: str
    body: bytes
    arn: str
    deadline: int


class RuntimeResponse(msgspec.Struct, frozen=True):
    """A message of the runtime. kind: `ready` (it requests an event), `response`,
    `error` or `init`. body: JSON."""

    kind: str
    body: Any = None


class _RuntimeApiHandler(QuietHandler):
    api: ClassVar[RuntimeApi]

    def serve(self) -> None:
        if self.command == "GET":
            self._hand_out()
        else:
            self._accept()

    def _hand_out(self) -> None:
        """Return the next event; the runtime waits until there is one."""
        self.api.said.put(RuntimeResponse("ready"))
        event = self.api.events.get()
        if event is None:
            self.close_connection = True
            return
        self.send(
            200,
            {
                "Content-Type": "application/json",
                "Lambda-Runtime-Aws-Request-Id": event.request,
                "Lambda-Runtime-Deadline-Ms": str(event.deadline),
                "Lambda-Runtime-Invoked-Function-Arn": event.arn,
                "Lambda-Runtime-Trace-Id": (
                    f"Root=1-00000000-{event.request.replace('-', '')[:24]};Sampled=0"
                ),
            }.items(),
            event.body,
        )

    def _accept(self) -> None:
        """Accept a response or an error. The runtime client sends both in
        chunks or with a length."""
        body = self._body()
        kind = "init" if self.path == f"{_ROOT}/init/error" else self.path.rpartition("/")[2]
        self.api.said.put(RuntimeResponse(kind, json.loads(body or b"null")))
        self.send(202, [("Content-Type", "application/json")], b'{"status": "OK"}')

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MOST))
        parts = []
        while length := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)


class RuntimeApi:
    """address: `host:port`, as in AWS_LAMBDA_RUNTIME_API."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[RuntimeEvent | None] = queue.SimpleQueue()
        self.said: queue.SimpleQueue[RuntimeResponse] = queue.SimpleQueue()
        self._server = LoopbackServer(type("Handler", (_RuntimeApiHandler,), {"api": self}))
        self._server.start()
        self.address = self._server.url.partition("//")[2]

    def hand_out(self, event: RuntimeEvent) -> None:
        self.events.put(event)

    def next(self, timeout: float) -> RuntimeResponse | None:
        """Return the runtime's next message, None if it sends none within this number of
        seconds."""
        try:
            return self.said.get(timeout=timeout)
        except queue.Empty:
            return None

    def stop(self) -> None:
        self.events.put(None)
        self._server.stop()


_RUNTIME = ("awslambdaric", "runtime_client*", "simplejson", "snapshot_restore_py")
_AUTHORITIES = Path("certifi") / "cacert.pem"
_READ_DIRECTORY, _READ_FILE, _WRITE = 0o555, 0o444, 0o755
_DROP = ("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")


class Folders:
    """task, runtime: below `place`, which must be empty. clock: seconds by which the
    functions' clocks are ahead."""

    def __init__(self, place: Path, archive: Path, authority: bytes = b"") -> None:
        self.task, self.runtime = place / "task", place / "runtime"
        with zipfile.ZipFile(archive) as code:
            code.extractall(self.task)
        if authority:
            with (self.task / _AUTHORITIES).open("ab") as known:
                known.write(b"\n" + authority)
        for path in (self.task, *self.task.rglob("*")):
            path.chmod(_READ_DIRECTORY if path.is_dir() else _READ_FILE)
        self.runtime.mkdir()
        for pattern in _RUNTIME:
            for found in Path(sysconfig.get_path("purelib")).glob(pattern):
                if not found.name.endswith(".dist-info"):
                    (self.runtime / found.name).symlink_to(found)
        shutil.copy(shifted_clock.__file__, self.runtime / "shifted_clock.py")
        self._clock = self.runtime / shifted_clock.NAME
        self._clock.write_bytes(struct.pack("<d", 0.0))

    def ahead(self, seconds: float) -> None:
        """Set the seconds by which functions' clocks are ahead. The file is written in place,
        because the functions have mapped it."""
        with self._clock.open("r+b") as file:
            file.write(struct.pack("<d", seconds))

    def command(self, handler: str) -> list[str]:
        """Return the command that starts the runtime client for this handler, without site-packages
        and without permission to write the task's folder."""
        boot = (
            "import pathlib, runpy, sys, shifted_clock; "
            f"shifted_clock.install(pathlib.Path({str(self._clock)!r})); "
            "sys.argv[:] = ['awslambdaric', sys.argv[1]]; "
            "runpy.run_module('awslambdaric', run_name='__main__')"
        )
        return [*without_rights(), sys.executable, "-S", "-s", "-c", boot, handler]

    def remove(self) -> None:
        for path in (self.task, *self.task.rglob("*")):
            if path.is_dir():
                path.chmod(_WRITE)
        shutil.rmtree(self.task, ignore_errors=True)
        shutil.rmtree(self.runtime, ignore_errors=True)


def without_rights() -> list[str]:
    """Return a command prefix with which the superuser has no more permissions on files than other
    users. Empty for other users, and if util-linux has no setpriv."""
    found = shutil.which("setpriv")
    return [found, *_DROP] if found and os.geteuid() == 0 else []


INIT = 10.0
"""Lambda's time limit in seconds for the start of a function."""
PATIENCE = 600.0
"""Wall seconds without an answer after which the emulation takes a process for hung."""
_PATH = "/var/lang/bin:/usr/local/bin:/usr/bin:/bin:/opt/bin"


class Configuration(msgspec.Struct, frozen=True):
    """The configuration of a function in the account. variables: its own environment variables.
    timeout: seconds. memory: MB."""

    name: str
    arn: str
    role: str
    handler: str
    timeout: int
    memory: int
    variables: Mapping[str, str]

    @property
    def log_group(self) -> str:
        return f"/aws/lambda/{self.name}"


class Made(msgspec.Struct, frozen=True):
    """One invocation. error: type and message if the function failed, was killed, or did not start.
    log: output in the meantime. cold: the process was started for it."""

    answer: Any
    error: str
    log: str
    cold: bool


class Process:
    """A function. access: its AWS credentials. clock: for its deadlines. log: a separate file.
    patience: wall seconds after which it is killed, by default its timeout as in Lambda. On a busy
    machine a function may need longer.

    init_seconds: CPU time that the start of the newest process took, wall time where the
    system does not report it.
    """

    def __init__(
        self,
        configuration: Configuration,
        folders: Folders,
        access: Mapping[str, str],
        clock: Callable[[], float],
        log: Path,
        patience: float | None = None,
    ) -> None:
        self.configuration, self._folders, self._access = configuration, folders, dict(access)
        self._clock, self._log = clock, log
        self._patience = configuration.timeout if patience is None else patience
        self._log.touch()
        self._api: RuntimeApi | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.init_seconds = 0.0

    def environment(self, address: str) -> dict[str, str]:
        """Return Lambda's variables, the function's configured ones, and
        those of the emulated AWS."""
        made, region = self.configuration, self._access["AWS_REGION"]
        return {
            **made.variables,
            **self._access,
            "AWS_DEFAULT_REGION": region,
            "AWS_LAMBDA_FUNCTION_NAME": made.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(made.memory),
            "AWS_LAMBDA_RUNTIME_API": address,
            "AWS_LAMBDA_LOG_GROUP_NAME": made.log_group,
            "AWS_LAMBDA_LOG_STREAM_NAME": "local",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_EXECUTION_ENV": "AWS_Lambda_python3.11",
            "_HANDLER": made.handler,
            "LAMBDA_TASK_ROOT": str(self._folders.task),
            "LAMBDA_RUNTIME_DIR": str(self._folders.runtime),
            "PYTHONPATH": str(self._folders.runtime),
            "PATH": _PATH,
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
        }

    def start(self) -> str:
        """Perform a cold start. Returns the error, "" if it succeeded."""
        self.stop()
        self._api, began = RuntimeApi(), time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._folders.command(self.configuration.handler),
                env=self.environment(self._api.address),
                cwd=self._folders.task,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        said = self._wait(PATIENCE)
        self.init_seconds = _cpu_seconds(self._process.pid) or time.monotonic() - began
        if said is None or said.kind != "ready":
            self.stop()
            return f"init: {said.body if said else 'no answer'}"
        return ""

    def invoke(self, event: Mapping[str, Any]) -> Made:
        """Process one event, and start the process if necessary."""
        began, cold = self._log.stat().st_size, self._process is None
        if failed := (self.start() if cold else ""):
            return Made(None, failed, self._read(began), cold)
        assert self._api is not None
        timeout = self.configuration.timeout
        self._api.hand_out(
            RuntimeEvent(
                str(uuid.uuid4()),
                json.dumps(event).encode(),
                self.configuration.arn,
                int((self._clock() + timeout) * 1000),
            )
        )
        said = self._wait(self._patience)
        if said is None:
            status = self._process.poll() if self._process else None
            self.stop()
            error = (
                f"Task timed out after {timeout}.00 seconds"
                if status is None
                else (f"Runtime exited with error: exit status {status}")
            )
            return Made(None, error, self._read(began), cold)
        if said.kind == "response":
            # it requests the next event, so all of its output has been written
            self._wait(self._patience)
            return Made(said.body, "", self._read(began), cold)
        if said.kind == "error":
            self._wait(self._patience)
            return Made(
                None,
                f"{said.body['errorType']}: {said.body['errorMessage']}",
                self._read(began),
                cold,
            )
        self.stop()
        return Made(None, f"the runtime ended: {said.body}", self._read(began), cold)

    def peak_megabytes(self) -> float:
        """Return the process's peak memory; 0 if it is not running or the
        system does not report it."""
        if self._process is None:
            return 0.0
        found = re.search(r"VmHWM:\s+(\d+) kB", _reported(self._process.pid, "status"))
        return int(found[1]) / 1024 if found else 0.0

    def stop(self) -> None:
        """End the process at once, as Lambda does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._api is not None:
            self._api.stop()
        self._process, self._api = None, None

    def _wait(self, seconds: float) -> RuntimeResponse | None:
        """Return the runtime's next message, None if it sends none or ends."""
        assert self._api is not None
        assert self._process is not None
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            said = self._api.next(min(0.2, seconds))
            if said is not None:
                return said
            if self._process.poll() is not None:
                return self._api.next(0.1)
        return None

    def _read(self, since: int) -> str:
        with self._log.open("rb") as file:
            file.seek(since)
            return file.read().decode(errors="replace")


def _reported(pid: int, name: str) -> str:
    """Return what the system reports of a process, which may end at any moment;
    "" if it reports nothing."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used; 0 if the system does not report it."""
    # the name before it may contain blanks
    fields = _reported(pid, "stat").rpartition(")")[2].split()
    if not fields:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
