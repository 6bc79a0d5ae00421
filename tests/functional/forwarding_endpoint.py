"""An endpoint in front of the emulated account, through which a test can observe or cut traffic."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

Admit = Callable[[str, str, Message, bytes], bool]
"""(method, path, headers, body) -> whether the request is passed on; if not, the line is
closed without an answer."""

_NOT_PASSED_ON = ("transfer-encoding", "content-length", "connection", "date", "server")


@contextmanager
def passing_on(endpoint: str, admit: Admit) -> Iterator[str]:
    """An endpoint that forwards the requests that `admit` permits."""
    target = urlsplit(endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not admit(self.command, self.path, self.headers, body):
                self.close_connection = True
                return
            line = HTTPConnection(str(target.hostname), target.port, timeout=600)
            line.request(self.command, self.path, body, dict(self.headers.items()))
            answer = line.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _NOT_PASSED_ON:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            line.close()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - the base class's names

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
            pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
