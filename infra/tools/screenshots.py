"""Pictures of the status page for the documentation, made by headless Chromium: `make screenshots`.

The page shows the example deployment (infra/emulators/example_clusters.py) at its own instant, so
the pictures differ only where the page does. Chromium is found by its name, or named by CHROMIUM;
Playwright drives it and downloads none.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from chalicelib.model.policy_permissions import STRICT, Deployment
from chalicelib.page.render import Links
from chalicelib.page.routes import PageRequest, respond
from chalicelib.store import Store
from infra.emulators.example_clusters import NOW, example

_NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage")
"""Of Chromium: it shows nothing but pages of this machine, also as root in a
container without /dev/shm."""
ZONE = "Europe/Zurich"
"""The time zone of the pictures' reader."""
FOLDER = Path("docs/images")


def chromium() -> str:
    """Return the program, by CHROMIUM or one of its names; "" where there is none."""
    named = os.environ.get("CHROMIUM", "")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), "")


class Picture(NamedTuple):
    """One picture. width: of the window, in pixels. height: of the picture, 0 for the whole
    page."""

    name: str
    path: str
    width: int
    height: int
    dark: bool


PICTURES = (
    Picture("page-cluster", "/clusters/prod", 1440, 0, dark=False),
    Picture("page-cluster-dark", "/clusters/prod", 1440, 0, dark=True),
    Picture("page-cluster-phone", "/clusters/prod", 390, 1700, dark=False),
    Picture("page-cluster-phone-dark", "/clusters/prod", 390, 1700, dark=True),
    Picture("page-group", "/clusters/prod/groups?group=web", 1440, 0, dark=False),
    Picture("page-history", "/clusters/prod/history", 1440, 0, dark=False),
    Picture("page-clusters-dark", "/", 1440, 620, dark=True),
)


@contextmanager
def served(
    store: Store | None = None,
    clock: Callable[[], float] = lambda: NOW,
    deployment: Deployment = STRICT,
) -> Iterator[str]:
    """Serve a store's clusters, or the example, without the checks of `outscaler
    ui`; yields the address. deployment: what policies may name."""
    shown, links = store or example(hours=336), Links()

    class ExampleHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            answer = respond(
                shown, PageRequest(path, dict(parse_qsl(query))), clock(), links, deployment
            )
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
        sys.stderr.write(
            "chromium is not installed; on Debian: apt-get install chromium, or set CHROMIUM\n"
        )
        return 1
    from playwright.sync_api import sync_playwright

    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        for picture in PICTURES:
            page = browser.new_page(
                viewport={"width": picture.width, "height": picture.height or 900},
                color_scheme="dark" if picture.dark else "light",
                timezone_id=ZONE,
            )
            page.goto(f"{address}{picture.path}")
            made = FOLDER / f"{picture.name}.png"
            page.screenshot(path=made, full_page=not picture.height)
            page.close()
            sys.stdout.write(f"{made}\n")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
