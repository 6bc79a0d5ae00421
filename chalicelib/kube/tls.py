"""TLS to one cluster: its own CA, nothing else's, and a client certificate that leaves no file behind.

`requests` lets REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE take the place of `session.verify`, and adds its own CA bundle to
any SSLContext it is given. A cluster's CA must win over both. So the adapter here brings a finished SSLContext and
keeps requests' own hands off; the session around it must have `trust_env = False` (transport.py).
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPSConnection

from chalicelib.kube.credentials import Credential
from chalicelib.model.errors import BadInput

_CONNECTIONS = 8


def client_context(credential: Credential) -> ssl.SSLContext:
    """The SSLContext for this credential. Raises BadInput naming the field whose PEM is unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)     # trusts nobody yet, and the machine's own bundle never
    # Python 3.13 turns this on by default; CAs made by kubeadm and EKS lack the extensions it asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if credential.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif credential.ca:
        _trust(context, credential)
    else:
        context.load_verify_locations(cafile=requests.utils.DEFAULT_CA_BUNDLE_PATH)
    if credential.certificate:
        _present(context, credential)
    return context


def _trust(context: ssl.SSLContext, credential: Credential) -> None:
    try:
        context.load_verify_locations(cadata=credential.ca.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        place = f"{credential.cluster_place}.certificate-authority-data"
        raise BadInput(place, "is not a PEM certificate", "write the base64 of the cluster's CA in PEM") from None


def _present(context: ssl.SSLContext, credential: Credential) -> None:
    """Load the client certificate. OpenSSL reads files only, so there is one for a moment, private to this user."""
    descriptor, path = tempfile.mkstemp(prefix="outscaler-", suffix=".pem")  # created with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(credential.certificate.rstrip() + b"\n" + credential.key.reveal().encode())
        # The callable keeps OpenSSL from asking a terminal for the pass phrase of an encrypted key.
        context.load_cert_chain(path, password=lambda: "-")
    except (ssl.SSLError, ValueError):
        place = f"{credential.user_place}.client-certificate-data and client-key-data"
        problem = "are not a PEM certificate and the key that belongs to it"
        raise BadInput(place, problem, "write the base64 of each in PEM, the key without a pass phrase") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class _UnverifiedConnection(HTTPSConnection):
    """To a server that the policy says to trust unseen. urllib3 would warn of each one, by Python's warnings, whose
    filters are the whole process's; a connection that passes for verified is the one way to be silent about ours only.
    """

    def connect(self) -> None:
        """As ever; then nothing is left to warn of."""
        super().connect()
        self.is_verified = True


class _UnverifiedPool(HTTPSConnectionPool):
    """A pool of those."""

    ConnectionCls = _UnverifiedConnection


class ClusterAdapter(HTTPAdapter):
    """Connections to one API server with exactly the given SSLContext; no retries of its own."""

    def __init__(self, context: ssl.SSLContext | None, server_name: str) -> None:
        self._pool_kwargs: dict[str, Any] = {}
        if context is not None:
            self._pool_kwargs = {"ssl_context": context, "cert_reqs": context.verify_mode}
            if server_name:
                self._pool_kwargs["server_hostname"] = server_name
        self._unverified = context is not None and context.verify_mode == ssl.CERT_NONE
        super().__init__(pool_connections=2, pool_maxsize=_CONNECTIONS, max_retries=0)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> Any:
        """Our context instead of what requests makes of `verify` and the environment."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, dict(self._pool_kwargs)

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        """The pools of direct connections."""
        super().init_poolmanager(*arguments, **named)
        self._hush(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        """The pools of connections by this proxy."""
        manager = super().proxy_manager_for(proxy, **named)
        self._hush(manager)
        return manager

    def _hush(self, manager: PoolManager) -> None:
        if self._unverified:
            manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": _UnverifiedPool}

    def cert_verify(self, conn: object, url: str, verify: object, cert: object) -> None:
        """Nothing: requests would load its own CA bundle into our context here."""


def environment_proxies(server: str, proxy: str) -> Mapping[str, str]:
    """The proxy to reach this server by: the kubeconfig's own, else HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

    Asked once per connection, because `trust_env = False` keeps requests from asking itself.
    """
    if proxy:
        return {"http": proxy, "https": proxy}
    found = requests.utils.get_environ_proxies(server)
    return {str(scheme): str(url) for scheme, url in found.items()}
