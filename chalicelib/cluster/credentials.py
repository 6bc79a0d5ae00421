"""Credentials for a cluster, and how to renew them when the cluster responds with 401.

Rotated secrets, projected token files and ten-minute EKS tokens differ only in the
`CredentialProvider`, so the client has one rule: on 401 renew once and try once more.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.secret import LONGEST_TOKEN, Secret, is_sendable
from chalicelib.net.bounded_files import text as file_text

# EKS accepts a token for 15 minutes from its signing; a third of it is reserved for clock
# differences and slow passes.
EKS_TOKEN_LIFETIME = 600.0
_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----"
)


class KubeCredential(msgspec.Struct, frozen=True):
    """An API server's address and the credentials for it. All file references are resolved,
    except the token file's.

    server: base URL without a trailing slash. ca, certificate: PEM; empty means the public
    authorities and no certificate. proxy: the kubeconfig's own proxy-url, which may contain a
    password; empty for none. hosted: it is used by a function, which connects to no loopback
    address and ignores proxies of the environment. token_header: the header in which a vendor's
    gateway expects the bare token; empty for `Authorization: Bearer …`. cluster_place, user_place:
    where an operator finds the two parts, for errors. signed: the token is made anew for every use,
    for an account that cluster_place determines.
    """

    server: str
    ca: bytes = b""
    server_name: str = ""
    insecure: bool = False
    proxy: Secret = Secret("")
    hosted: bool = False
    certificate: bytes = b""
    key: Secret = Secret("")
    token: Secret = Secret("")
    token_file: str = ""
    token_header: str = ""
    cluster_place: str = ""
    user_place: str = ""
    signed: bool = False


def identity_of(credential: KubeCredential) -> str:
    """Return the digest of the CA's certificates, ignoring any text between and around them; of the
    URL where there is no CA."""
    blocks = _CERTIFICATE.findall(credential.ca)
    certificates = sorted(b"".join(block.split()) for block in blocks)
    what = (
        b"ca:" + b",".join(certificates)
        if certificates
        else b"server:" + credential.server.lower().encode()
    )
    return hashlib.sha256(what).hexdigest()


def access_of(credential: KubeCredential) -> str:
    """Return a digest of the server, and of the account as far as its tokens last."""
    parts: tuple[bytes, ...] = (
        credential.server.encode(),
        credential.ca,
        credential.server_name.encode(),
        credential.proxy.reveal().encode(),
        credential.certificate,
        b"" if credential.signed else credential.token.reveal().encode(),
        credential.cluster_place.encode(),
        credential.user_place.encode(),
    )
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


class CredentialProvider(Protocol):
    """The source of a credential. Used by several threads at once."""

    def current(self) -> KubeCredential:
        """Return the credential in force, with a token that is fresh; cheap."""

    def renew(self) -> None:
        """Read the source again, because the cluster has refused the result of
        current(). Raises OutscalerError."""


def usable_token(text: str, place: str) -> Secret:
    """Return a bearer token that is valid in a header. Raises BadInput, which never quotes it."""
    token = text.strip()
    if not token:
        raise BadInput(place, "the token is empty", "write the service account's token")
    if not is_sendable(token, LONGEST_TOKEN):
        remedy = "write it on one line, without quotes or `Bearer`"
        raise BadInput(place, "the token contains invalid characters", remedy)
    return Secret(token)


class KubeconfigLogin:
    """A kubeconfig from a secret or a file. load(fresh) parses it; fresh bypasses a cached copy."""

    def __init__(self, load: Callable[[bool], KubeCredential]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._credential = load(False)  # noqa: FBT003 - a callable type cannot name its parameter
        self._file_state: tuple[int, int] = (0, 0)
        self._follow_token_file()

    def current(self) -> KubeCredential:
        """Return the credential; its token file is read again when it has changed (kubelet
        replaces projected tokens)."""
        with self._lock:
            self._follow_token_file()
            return self._credential

    def renew(self) -> None:
        """Parse the source again, and read the token file again with it."""
        with self._lock:
            self._credential = self._load(True)  # noqa: FBT003 - as above
            self._file_state = (0, 0)
            self._follow_token_file()

    def _follow_token_file(self) -> None:
        credential = self._credential
        if not credential.token_file:
            return
        path, place = Path(credential.token_file), f"{credential.user_place}.tokenFile"
        try:
            stat = path.stat()
            state = (stat.st_mtime_ns, stat.st_size)
            if state == self._file_state:
                return
            text = file_text(path)
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not text"
            problem = f"{path} cannot be read: {why}"
            raise BadInput(place, problem, "name a readable file that holds the token") from None
        self._credential = msgspec.structs.replace(credential, token=usable_token(text, place))
        self._file_state = state


class EksLogin:
    """An EKS cluster by name. describe: returns its address and CA; sign: returns a new
    token, valid for 15 minutes."""

    def __init__(
        self,
        describe: Callable[[], KubeCredential],
        sign: Callable[[], Secret],
        clock: Callable[[], float],
    ) -> None:
        self._describe, self._sign, self._clock = describe, sign, clock
        self._lock = threading.Lock()
        self._credential = describe()
        self._signed_at: float | None = None

    def current(self) -> KubeCredential:
        """Return the credential with a token of at most ten minutes."""
        with self._lock:
            now = self._clock()
            if self._signed_at is None or not 0 <= now - self._signed_at <= EKS_TOKEN_LIFETIME:
                self._credential = msgspec.structs.replace(self._credential, token=self._sign())
                self._signed_at = now
            return self._credential

    def renew(self) -> None:
        """Describe the cluster again (its CA may have been rotated) and
        sign anew at the next call."""
        with self._lock:
            self._credential, self._signed_at = self._describe(), None
