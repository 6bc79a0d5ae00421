"""Pictures of the status page for the documentation, made by headless Chromium: `make screenshots`.

The page shows the example deployment (infra/emulators/example_clusters.py) at its own instant, so the pictures differ
only where the page does. Chromium is found by its name, or named by CHROMIUM.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from chalicelib.model.policy_permissions import STRICT
from chalicelib.page.pages import PageRequest, respond
from chalicelib.page.render import Links
from infra.emulators.example_clusters import NOW, example

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_READ, _WRITE = 3, 4  # the file descriptors that Chromium uses
_SECONDS = 60.0
# Moves the pipes to the descriptors that Chromium uses, from wherever they are.
_MOVE = (
    "import fcntl, os, sys; a, b = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 20) for each in sys.argv[1:3]); "
    f"os.dup2(a, {_READ}); os.dup2(b, {_WRITE}); os.execvp(sys.argv[3], sys.argv[3:])"
)


def chromium() -> str:
    """Return the program, by CHROMIUM or one of its names; "" where there is none."""
    named = os.environ.get("CHROMIUM", "")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), "")


class ChromiumError(Exception):
    """Chromium refused a command, or did not answer in time."""


class Browser:
    """One tab. console: messages of the pages, such as violations of the content security policy."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._rest, self._last = read, write, b"", 0
        self._events: list[dict[str, Any]] = []
        self.console: list[str] = []
        self._session = ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, address: str, width: int, height: int, *, dark: bool = False) -> None:
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self._ask("Page.navigate", url=address)
        self._wait("Page.loadEventFired")

    def width_of_content(self) -> int:
        """Return how wide the content is, in pixels; more than the window means scrolling sideways."""
        return int(self._ask("Page.getLayoutMetrics")["cssContentSize"]["width"])

    def picture(self) -> bytes:
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def _ask(self, method: str, **given: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _SECONDS
        while True:
            found = self._next(until)
            if found.get("id") != self._last:
                self._keep(found)
                continue
            if "error" in found:
                raise ChromiumError(f"{method}: {found['error'].get('message', '')}")
            answer: dict[str, Any] = found["result"]
            return answer

    def _wait(self, event: str) -> None:
        until = time.monotonic() + _SECONDS
        while not any(each["method"] == event for each in self._events):
            self._keep(self._next(until))

    def _keep(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Log.entryAdded":
            self.console.append(str(message["params"]["entry"]["text"]))
        if "method" in message:
            self._events.append(message)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._read, 2**16) if ready else b""
            if not data:
                raise ChromiumError("Chromium does not answer")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """Start Chromium with a new profile and yield a tab; it ends with the block."""
    to_it, ours_out = os.pipe()
    ours_in, from_it = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", _MOVE, str(to_it), str(from_it), *command],
            pass_fds=(to_it, from_it),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_it)
        os.close(from_it)
        try:
            yield Browser(ours_in, ours_out)
        finally:
            os.close(ours_out)
            process.terminate()
            process.wait(_SECONDS)
            os.close(ours_in)


FOLDER = Path("docs/images")


class Picture(NamedTuple):
    """One picture. width, height: of the window, in pixels."""

    name: str
    path: str
    width: int
    height: int
    dark: bool


PICTURES = (
    Picture("page-cluster", "/clusters/prod?refresh=off", 1200, 1080, dark=False),
    Picture("page-group", "/clusters/prod/groups/web", 1200, 620, dark=False),
    Picture("page-clusters-dark", "/?refresh=off", 1200, 420, dark=True),
    Picture("page-cluster-phone", "/clusters/prod?refresh=off", 360, 1080, dark=False),
    Picture("page-nodes-phone-dark", "/clusters/prod/nodes?reason=BlockedByPod", 360, 900, dark=True),
)


@contextmanager
def served() -> Iterator[str]:
    """Serve the example without the checks of `outscaler ui`; yields the address."""
    store, links = example(hours=336), Links()

    class ExampleHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            answer = respond(store, PageRequest(path, dict(parse_qsl(query))), NOW, links, STRICT)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), ExampleHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def main() -> int:
    """Make every picture. Returns 1 where there is no Chromium."""
    program = chromium()
    if not program:
        sys.stderr.write("chromium is not installed; on Debian: apt-get install chromium, or set CHROMIUM\n")
        return 1
    with served() as address, browser(program) as tab:
        for picture in PICTURES:
            tab.open(f"{address}{picture.path}", picture.width, picture.height, dark=picture.dark)
            made = FOLDER / f"{picture.name}.png"
            made.write_bytes(tab.picture())
            sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
