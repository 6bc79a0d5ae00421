"""A `requests` session with bounded exchanges and without implicit behaviour.

It ignores the environment, stores no cookies, neither follows nor reads redirects (requests would
read the whole body), and trusts only the given CA. Its User-Agent has the release, for audit logs
of vendors and clusters.
"""

from __future__ import annotations

import functools
import logging
import socket
import ssl
import sys
from collections.abc import Callable
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.ssl_ import create_urllib3_context

from chalicelib import __version__
from chalicelib.net.addresses import never
from chalicelib.net.sockets import AddressAllowed, connected, use

AGENT = f"outscaler/{__version__}"

_CONNECTIONS = 20  # kept open; a warm pass watches every list at the same time

# They warn of headers that cannot be parsed, and quote them, with the address and its query. Each
# has its own level, because the package `kubernetes` sets the level of their parent.
for _name in ("connection", "connectionpool", "poolmanager", "response", "util.retry"):
    logging.getLogger(f"urllib3.{_name}").setLevel(logging.ERROR)


def public_context() -> ssl.SSLContext:
    """Return TLS settings that trust only the public authorities shipped with certifi, and nothing
    from the machine or the environment."""
    context = create_urllib3_context()
    context.load_verify_locations(cafile=requests.utils.DEFAULT_CA_BUNDLE_PATH)
    return context


def _new_connection(connection: HTTPConnection, allowed: AddressAllowed) -> socket.socket:
    """Do what urllib3's own `_new_conn` does, with a socket that enforces the limit."""
    timeout = connection.timeout
    seconds = timeout if isinstance(timeout, int | float) else None
    try:
        options = connection.socket_options or ()
        bounded = connected(connection._dns_host, connection.port, seconds, options, allowed)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(
            connection, f"Connection to {connection.host} timed out"
        ) from error
    except OSError as error:
        raise NewConnectionError(
            connection, f"Failed to establish a new connection: {error}"
        ) from error
    sys.audit("http.client.connect", connection, connection.host, connection.port)
    return bounded


def _pool_classes(
    allowed: AddressAllowed, *, unverified: bool
) -> dict[str, type[HTTPConnectionPool]]:
    """Return classes of pools, by scheme, whose connections are bounded.

    unverified: TLS without verification is requested. urllib3 would warn of each connection through
    Python's warnings, whose filters apply to the whole process; marking the connection as verified
    is the only way to silence the warning for these connections alone.
    """

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _new_connection(self, allowed)

    class Tls(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _new_connection(self, allowed)

        def connect(self) -> None:
            super().connect()
            self.is_verified = self.is_verified or unverified

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    return {"http": PlainPool, "https": TlsPool}


class BoundedAdapter(HTTPAdapter):
    """Connections with exactly the given SSLContext; no retries of its own.

    tls: called once, before the first connection with TLS. server_name: the name to expect in the
    server's certificate, empty for the host's. allowed: which IP addresses may be connected to.
    unverified: see _pool_classes.
    """

    def __init__(
        self,
        tls: Callable[[], ssl.SSLContext],
        *,
        server_name: str = "",
        unverified: bool = False,
        allowed: AddressAllowed = lambda address: not never(address),
    ) -> None:
        self._tls = functools.cache(lambda: use(tls()))
        self._server_name, self._classes = (
            server_name,
            _pool_classes(allowed, unverified=unverified),
        )
        super().__init__(pool_connections=2, pool_maxsize=_CONNECTIONS, max_retries=0)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> Any:
        """Use the given context instead of what requests derives from
        `verify` and the environment."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        if host["scheme"] != "https":
            return host, {}
        context = self._tls()
        settings: dict[str, Any] = {"ssl_context": context, "cert_reqs": context.verify_mode}
        return host, settings | (
            {"server_hostname": self._server_name} if self._server_name else {}
        )

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        """Create the pools of direct connections."""
        super().init_poolmanager(*arguments, **named)
        self.poolmanager.pool_classes_by_scheme = self._classes

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        """Return the pools of connections through this proxy. A proxy with TLS is verified
        against the public authorities."""
        if proxy not in self.proxy_manager and proxy.lower().startswith("https:"):
            named["proxy_ssl_context"] = use(public_context())
        manager = super().proxy_manager_for(proxy, **named)
        manager.pool_classes_by_scheme = self._classes
        return manager

    def cert_verify(self, conn: object, url: str, verify: object, cert: object) -> None:
        """Do nothing: requests would load its own CA bundle into the context here."""


class BoundedSession(requests.Session):
    """A session without an environment, cookies or redirects. The caller mounts its adapters."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # ignore CA bundle, proxy and ~/.netrc of the environment
        self.headers["User-Agent"] = AGENT
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self.adapters.clear()

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return None. requests calls this even where redirects are not followed, and then reads
        the whole body, decompressed."""
        del resp
        return None
