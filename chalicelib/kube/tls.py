"""TLS to one cluster: its own CA, nothing else's, and a client certificate that leaves no file behind.

`requests` lets REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE take the place of `session.verify`, and adds its own CA bundle to
any SSLContext it is given. A cluster's CA must win over both. So the SSLContext is made here, and the adapter
keeps requests' own hands off (net/session.py).
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Mapping

import requests

from chalicelib.kube.credentials import KubeCredential
from chalicelib.model.errors import BadInput


def client_context(credential: KubeCredential) -> ssl.SSLContext:
    """The SSLContext for this credential. Raises BadInput naming the field whose PEM is unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody yet, and the machine's own bundle never
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


def _trust(context: ssl.SSLContext, credential: KubeCredential) -> None:
    try:
        context.load_verify_locations(cadata=credential.ca.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        place = f"{credential.cluster_place}.certificate-authority-data"
        raise BadInput(place, "is not a PEM certificate", "write the base64 of the cluster's CA in PEM") from None


def _present(context: ssl.SSLContext, credential: KubeCredential) -> None:
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


def proxies_of(credential: KubeCredential) -> Mapping[str, str]:
    """The proxy to reach the server by: the kubeconfig's own; else, but not in a function, as kubectl does, what
    HTTPS_PROXY, HTTP_PROXY and NO_PROXY say.

    Asked once per connection, because a session without an environment does not ask itself.
    """
    if credential.proxy:
        return {"http": credential.proxy.reveal(), "https": credential.proxy.reveal()}
    if credential.hosted:
        return {}
    found = requests.utils.get_environ_proxies(credential.server)
    return {str(scheme): str(url) for scheme, url in found.items()}
