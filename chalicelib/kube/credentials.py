"""Who we are to a cluster, and how to find that out again once the cluster says 401.

A credential is data (`Credential`); where it comes from is a `Login`: it gives the current one, and reads its source
again on demand. Rotated secrets, projected token files and ten-minute EKS tokens differ in nothing else, so the client
knows one rule only: on 401 renew once, try once more.
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

# EKS accepts a token for 15 minutes from its signing; a third of it is left for clocks that differ and slow passes.
EKS_TOKEN_LIFETIME = 600.0
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")


class KubeCredential(msgspec.Struct, frozen=True):
    """An API server's address and what proves us to it. All file references are resolved, except the token file's.

    server: base URL without a trailing slash. ca, certificate: PEM, empty for "the public ones" and "none".
    proxy: the kubeconfig's own proxy-url, which may carry a password; empty for none. hosted: it is used by a function,
    which connects to no loopback address and obeys no proxy of the environment. token_header: the header that a
    vendor's gateway wants the token in, as it is; empty for `Authorization: Bearer …`.
    cluster_place, user_place: where a person finds the two halves, for errors.
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


def identity_of(credential: KubeCredential) -> str:
    """The digest of the CA's certificates, whatever stands between and around them; of the URL where there is no CA."""
    blocks = _CERTIFICATE.findall(credential.ca)
    certificates = sorted(b"".join(block.split()) for block in blocks)
    what = b"ca:" + b",".join(certificates) if certificates else b"server:" + credential.server.lower().encode()
    return hashlib.sha256(what).hexdigest()


class CredentialProvider(Protocol):
    """Where a credential comes from. Used by several threads at once."""

    def current(self) -> KubeCredential:
        """The credential in force, with a token that is fresh; cheap."""

    def renew(self) -> None:
        """Read the source again: the cluster has refused what current() gave. Raises OutscalerError."""


def usable_token(text: str, place: str) -> Secret:
    """A bearer token as it may stand in a header. Raises BadInput, which never quotes it."""
    token = text.strip()
    if not token:
        raise BadInput(place, "the token is empty", "write the service account's token")
    if not is_sendable(token, LONGEST_TOKEN):
        remedy = "write it on one line, without quotes or `Bearer`"
        raise BadInput(place, "the token has characters that no token has", remedy)
    return Secret(token)


class KubeconfigLogin:
    """A kubeconfig out of a secret or a file. load(fresh) parses it; fresh asks for more than a cached copy."""

    def __init__(self, load: Callable[[bool], KubeCredential]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._credential = load(False)  # noqa: FBT003 - a callable type cannot name its parameter
        self._file_state: tuple[int, int] = (0, 0)
        if self._credential.token_file:
            self._follow_token_file()

    def current(self) -> KubeCredential:
        """The credential; its token file is read again when it has changed (kubelet replaces projected tokens)."""
        with self._lock:
            if self._credential.token_file:
                self._follow_token_file()
            return self._credential

    def renew(self) -> None:
        """Parse the source again, and the token file with it."""
        with self._lock:
            self._credential = self._load(True)  # noqa: FBT003 - as above
            self._file_state = (0, 0)
            if self._credential.token_file:
                self._follow_token_file()

    def _follow_token_file(self) -> None:
        credential = self._credential
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
    """An EKS cluster by name. describe: its address and CA; sign: a new token, good for 15 minutes."""

    def __init__(
        self, describe: Callable[[], KubeCredential], sign: Callable[[], Secret], clock: Callable[[], float]
    ) -> None:
        self._describe, self._sign, self._clock = describe, sign, clock
        self._lock = threading.Lock()
        self._credential = describe()
        self._signed_at: float | None = None

    def current(self) -> KubeCredential:
        """The credential with a token of at most ten minutes."""
        with self._lock:
            now = self._clock()
            if self._signed_at is None or not 0 <= now - self._signed_at <= EKS_TOKEN_LIFETIME:
                self._credential = msgspec.structs.replace(self._credential, token=self._sign())
                self._signed_at = now
            return self._credential

    def renew(self) -> None:
        """Describe the cluster again (its CA may have been rotated) and sign anew at the next call."""
        with self._lock:
            self._credential, self._signed_at = self._describe(), None
