"""Pictures of the status page for the documentation, made by headless Chromium: `make screenshots`.

The page shows the example deployment (infra/emulators/example_clusters.py) at its own instant, so the pictures differ
only where the page does. Chromium is found by its name, or named by CHROMIUM.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from chalicelib.model.policy_permissions import STRICT
from chalicelib.page.pages import PageRequest, respond
from chalicelib.page.render import Links
from infra.emulators.example_clusters import NOW, example
from infra.tools.chromium import browser, chromium

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
    store, links = example(), Links()

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
