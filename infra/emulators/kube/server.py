"""The simulated API server on a loopback port: HTTP/1.1 with keep-alive, chunked watches,
gzip, and optionally TLS.

Its kubeconfig is an ordinary one, so kubectl, the official Python client and this program can use
it. It is for tests and for `make run`; requests of clients are not limited.
"""

from __future__ import annotations

import base64
import gzip
import random
import select
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import yaml

from infra.emulators.certificates import CertificateAuthority, server_context
from infra.emulators.http_server import LoopbackServer, QuietHandler
from infra.emulators.kube import crds
from infra.emulators.kube.api import Api, ApiLoggedRequest
from infra.emulators.kube.auth import MASTERS, RbacRule, User
from infra.emulators.kube.faults import Faults
from infra.emulators.kube.listing import LONGEST
from infra.emulators.kube.request import Response
from infra.emulators.kube.store import ObjectStore

_GZIP_FROM = 128 * 1024  # bytes, as in the real server


class _ApiServerHandler(QuietHandler):
    timeout = None
    server: _HttpServer

    def serve(self) -> None:
        body = self.read_body()
        made = self.server.api.handle(
            self.command, self.path, dict(self.headers.items()), body, self._certificate()
        )
        if made.close:
            self.close_connection = True
            return
        if made.stream is not None:
            with self.server.streaming():
                self._stream(made)
        else:
            self._answer(made)

    def _certificate(self) -> User | None:
        if not isinstance(self.connection, ssl.SSLSocket):
            return None
        found = self.connection.getpeercert() or {}
        subject: Any = found.get("subject") or ()
        names = [pair for part in subject for pair in part]
        common = next((value for key, value in names if key == "commonName"), None)
        groups = tuple(value for key, value in names if key == "organizationName")
        return User(common, groups=groups) if common else None

    def _answer(self, made: Response) -> None:
        body, headers = made.body, dict(made.headers)
        if len(body) >= _GZIP_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, 1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        cut = max(0, len(body) - made.truncate) if made.truncate >= 0 else 0
        self.server.count(len(body) - cut)
        self.send(made.status, headers.items(), body, cut)
        self.close_connection = self.close_connection or made.truncate >= 0

    def _stream(self, made: Response) -> None:
        self.send_response(made.status)
        for name, value in made.headers.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        sent = 0
        for piece in made.stream or ():
            if not piece:
                # a watcher sends nothing, so readable means that it disconnected
                if select.select([self.connection], [], [], 0)[0]:
                    break
                continue
            if 0 <= made.truncate < sent + len(piece):
                break
            sent += len(piece)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        else:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
            return
        self.close_connection = True


class _HttpServer(LoopbackServer):
    def __init__(self, address: str, port: int, api: Api, context: ssl.SSLContext | None) -> None:
        super().__init__(_ApiServerHandler, address=address, port=port, context=context)
        self.api = api
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.sent = 0
        self._streams, self._streams_changed = 0, threading.Condition()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Run in the connection's own thread, because the TLS handshake must not
        block other connections."""
        connection = request
        if self.context is not None:
            request.settimeout(600.0)
            connection = self.context.wrap_socket(request, server_side=True)
            connection.settimeout(None)
        with self._lock:
            self._open.add(connection)
        try:
            ThreadingHTTPServer.finish_request(self, connection, client_address)
        finally:
            with self._lock:
                self._open.discard(connection)
            if connection is not request:
                connection.close()

    def count(self, sent: int) -> None:
        """Count the bytes of a body."""
        with self._lock:
            self.sent += sent

    @contextmanager
    def streaming(self) -> Iterator[None]:
        with self._streams_changed:
            self._streams += 1
        try:
            yield
        finally:
            with self._streams_changed:
                self._streams -= 1
                self._streams_changed.notify_all()

    def wait_for_watches(self, seconds: float) -> bool:
        """Return whether all watches have ended within some seconds."""
        with self._streams_changed:
            return self._streams_changed.wait_for(lambda: self._streams == 0, seconds)

    def drop_connections(self) -> None:
        """Give watches a moment to end properly, then end the threads that
        wait for another request."""
        self.wait_for_watches(1.0)
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class ApiServer:
    """A simulated API server over a store. As a context manager it starts on
    entry and stops on exit.

    store: the cluster, and its clock; users: by default one `admin` of system:masters; rbac:
    user or group -> rules crd_directory: definitions to serve, by default the short ones of
    this package; None: none
    tls: serve HTTPS with certificates made at run time; seed: of the default user's
    token longest_watch: wall seconds after which a watch ends at the latest; with 0 it ends when it
    has sent what there is address: of this machine; a non-loopback one for clients that refuse
    loopback
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        users: Iterable[User] | None = None,
        rbac: Mapping[str, Iterable[RbacRule]] | None = None,
        crd_directory: Path | None = crds.OWN,
        tls: bool = False,
        bookmark_interval: float = 60.0,
        longest_watch: float = LONGEST,
        seed: int = 0,
        address: str = "127.0.0.1",
    ) -> None:
        token = f"local-{random.Random(seed).getrandbits(64):016x}"
        known = tuple(users) if users is not None else (User("admin", token, (MASTERS,)),)
        self.store = store
        self.api = Api(
            store,
            known,
            rbac or {},
            crd_directory,
            bookmark_interval=bookmark_interval,
            longest_watch=longest_watch,
        )
        self.url = ""
        self._address = address
        self._authority = CertificateAuthority("outscaler simulated cluster") if tls else None
        self._server: _HttpServer | None = None

    @property
    def faults(self) -> Faults:
        return self.api.faults

    @property
    def requests(self) -> list[ApiLoggedRequest]:
        return list(self.api.requests)

    @property
    def sent_bytes(self) -> int:
        """Return the bytes of bodies sent since the start, without watches."""
        return self._server.sent if self._server is not None else 0

    def wait_for_watches(self, seconds: float) -> bool:
        """Return whether all watches have ended within some seconds."""
        return self._server is None or self._server.wait_for_watches(seconds)

    def handle(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        """Handle a request without a network; see Api.handle."""
        return self.api.handle(method, target, headers, body)

    def start(self, port: int = 0) -> str:
        """Start serving on the address and return the URL. port 0: any free port."""
        context = None
        # client certificates of this authority are accepted, but not required
        if self._authority is not None:
            pair = self._authority.server("localhost", self._address)
            context = server_context(pair, client_ca=self._authority.pem)
        self._server = _HttpServer(self._address, port, self.api, context)
        self.api.stopping.clear()
        self._server.start()
        self.url = self._server.url
        return self.url

    def stay_inside(self) -> str:
        """Start without a network, for callers of `handle` only (in_process_transport.py). Returns
        the URL in the kubeconfig."""
        self.url = "http://127.0.0.1:1"
        return self.url

    def stop(self) -> None:
        """Stop serving: watches end, connections are closed. The store is kept."""
        if self._server is None:
            return
        self.api.stopping.set()
        self.store.wake()
        self._server.shutdown()
        self._server.drop_connections()
        self._server.stop()
        self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def headers(self, user: str = "admin") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api.authority.user(user).token}"}

    def kubeconfig(
        self, user: str = "admin", *, certificate: bool = False, namespace: str = "default"
    ) -> str:
        """Return a kubeconfig for a user, with its token or (TLS only) a new client certificate."""
        known = self.api.authority.user(user)
        cluster: dict[str, Any] = {"server": self.url}
        credentials: dict[str, Any] = {"token": known.token}
        if self._authority is not None:
            cluster["certificate-authority-data"] = _base64(self._authority.pem)
            if certificate:
                pair = self._authority.client(known.name, known.groups)
                credentials = {
                    "client-certificate-data": _base64(pair.certificate),
                    "client-key-data": _base64(pair.key),
                }
        context = {"cluster": "simulated", "user": user, "namespace": namespace}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "simulated",
                "clusters": [{"name": "simulated", "cluster": cluster}],
                "users": [{"name": user, "user": credentials}],
                "contexts": [{"name": "simulated", "context": context}],
            }
        )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
