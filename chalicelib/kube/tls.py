"""TLS to one cluster: trusts only its own CA, and uses a client certificate without leaving a file behind.

`requests` lets REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE replace `session.verify`, and adds its own CA bundle to any
SSLContext it is given. A cluster's CA must take precedence over both. The SSLContext is therefore created here, and the
adapter prevents requests from changing it (net/http_session.py).
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
    """Return the SSLContext for this credential. Raises BadInput naming the field whose PEM is unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no CA yet; never the machine's bundle
    # Python 3.13 enables this by default; CAs made by kubeadm and EKS lack the extensions it requires.
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
    """Load the client certificate. OpenSSL reads files only, so a temporary file private to this user is used."""
    descriptor, path = tempfile.mkstemp(prefix="outscaler-", suffix=".pem")  # created with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(credential.certificate.rstrip() + b"\n" + credential.key.reveal().encode())
        # The callable prevents OpenSSL from prompting on a terminal for the pass phrase of an encrypted key.
        context.load_cert_chain(path, password=lambda: "-")
    except (ssl.SSLError, ValueError):
        place = f"{credential.user_place}.client-certificate-data and client-key-data"
        problem = "are not a PEM certificate and the key that belongs to it"
        raise BadInput(place, problem, "write the base64 of each in PEM, the key without a pass phrase") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def proxies_of(credential: KubeCredential) -> Mapping[str, str]:
    """Return the proxy for the server: the kubeconfig's own; otherwise, but not in a function, the one that
    HTTPS_PROXY, HTTP_PROXY and NO_PROXY name, as in kubectl.

    Evaluated once per connection, because a session that ignores the environment does not evaluate it itself.
    """
    if credential.proxy:
        return {"http": credential.proxy.reveal(), "https": credential.proxy.reveal()}
    if credential.hosted:
        return {}
    found = requests.utils.get_environ_proxies(credential.server)
    return {str(scheme): str(url) for scheme, url in found.items()}
