"""The status page of the demonstration, while `make run ARGS=--stay` keeps everything up.

It is the page of `outscaler ui`, with the clock of the emulation: time runs faster there.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chalicelib.command.ui_server import PageServer
from chalicelib.model.policy_permissions import Deployment
from chalicelib.page.pages import respond
from chalicelib.store import Store


@contextmanager
def status_page(store: Store, clock: Callable[[], float], deployment: Deployment) -> Iterator[str]:
    """Serve the page and yield the address that opens it, once."""
    with PageServer(
        0, lambda request, links: respond(store, request, clock(), links, deployment), time.monotonic
    ) as server:
        thread = threading.Thread(target=server.serve_until_idle, args=(math.inf,), daemon=True)
        thread.start()
        try:
            yield server.address
        finally:
            server.end()
            thread.join()
