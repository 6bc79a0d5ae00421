"""A `requests` session whose exchanges are bounded, and that does nothing of its own accord.

It names Outscaler and its release as the User-Agent of every request, so that a vendor's or a cluster's audit log can
be read by release.

Nothing of the environment is obeyed, no cookie is kept, no redirect is followed or even looked at (requests would read
its whole body), and the CA is the one that is given.
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
from chalicelib.net.bounded_sockets import AddressAllowed, connected, use
from chalicelib.net.forbidden_addresses import never

AGENT = f"outscaler/{__version__}"

_CONNECTIONS = 8

# It warns of headers that cannot be parsed, and quotes them, with the address and its query.
logging.getLogger("urllib3").setLevel(logging.ERROR)


def public_context() -> ssl.SSLContext:
    """TLS that trusts the public authorities as certifi ships them, and nothing of the machine or the environment."""
    context = create_urllib3_context()
    context.load_verify_locations(cafile=requests.utils.DEFAULT_CA_BUNDLE_PATH)
    return context


def _not_never(address: str) -> bool:
    return not never(address)


def _new_connection(connection: HTTPConnection, allowed: AddressAllowed) -> socket.socket:
    """What urllib3's own `_new_conn` does, with a socket that keeps the bound."""
    timeout = connection.timeout
    seconds = timeout if isinstance(timeout, int | float) else None
    try:
        made = connected(connection._dns_host, connection.port, seconds, connection.socket_options or (), allowed)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, f"Connection to {connection.host} timed out") from error
    except OSError as error:
        raise NewConnectionError(connection, f"Failed to establish a new connection: {error}") from error
    sys.audit("http.client.connect", connection, connection.host, connection.port)
    return made


def _pool_classes(allowed: AddressAllowed, *, unverified: bool) -> dict[str, type[HTTPConnectionPool]]:
    """Classes of pools, by scheme, whose connections are bounded.

    unverified: TLS without verification is wanted. urllib3 would warn of each connection, by Python's warnings, whose
    filters are the whole process's; a connection that passes for verified is the one way to be silent about ours only.
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

    tls: called before the first connection with TLS, once. server_name: the name to expect in the server's certificate,
    empty for the host's. allowed: which IP addresses may be connected to. unverified: see _pool_classes.
    """

    def __init__(
        self,
        tls: Callable[[], ssl.SSLContext],
        *,
        server_name: str = "",
        unverified: bool = False,
        allowed: AddressAllowed = _not_never,
    ) -> None:
        self._tls = functools.cache(lambda: use(tls()))
        self._server_name, self._classes = server_name, _pool_classes(allowed, unverified=unverified)
        super().__init__(pool_connections=2, pool_maxsize=_CONNECTIONS, max_retries=0)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> Any:
        """Our context instead of what requests makes of `verify` and the environment."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        if host["scheme"] != "https":
            return host, {}
        context = self._tls()
        settings: dict[str, Any] = {"ssl_context": context, "cert_reqs": context.verify_mode}
        return host, settings | ({"server_hostname": self._server_name} if self._server_name else {})

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        """The pools of direct connections."""
        super().init_poolmanager(*arguments, **named)
        self.poolmanager.pool_classes_by_scheme = self._classes

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        """The pools of connections by this proxy. A proxy with TLS is checked against the public authorities."""
        if proxy not in self.proxy_manager and proxy.lower().startswith("https:"):
            named["proxy_ssl_context"] = use(public_context())
        manager = super().proxy_manager_for(proxy, **named)
        manager.pool_classes_by_scheme = self._classes
        return manager

    def cert_verify(self, conn: object, url: str, verify: object, cert: object) -> None:
        """Nothing: requests would load its own CA bundle into our context here."""


class BoundedSession(requests.Session):
    """A session without an environment, cookies or redirects. Its adapters are for the caller to mount."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # no CA bundle, no proxy and no ~/.netrc of the environment
        self.headers["User-Agent"] = AGENT
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self.adapters.clear()

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None. requests asks even where redirects are not to be followed, and then reads the whole body,
        decompressed."""
        del resp
        return None
