"""Settings of the watcher: variables of its environment, and secrets in files, which
Kubernetes updates in place.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from chalicelib.cluster.list_archive import watcher_key
from chalicelib.model.errors import BadInput
from chalicelib.net.http_session import public_context
from chalicelib.runtime.webhook_authentication import read_keys

_LARGEST_SECRET = 2**14  # characters


class WatcherSettings(msgspec.Struct, frozen=True):
    """cluster: its name in Outscaler. url: where the cluster's events are posted. kubeconfig: a
    file. secrets: a folder with the files `webhook` and `watcher`. namespace: the policy's
    options.namespace. every: seconds between two posts while nothing is urgent. authorities: a file
    in PEM with those that may sign the webhook's certificate, "" for the public ones."""

    cluster: str
    url: str
    kubeconfig: str
    secrets: Path
    namespace: str
    every: float
    authorities: str = ""

    def webhook_key(self) -> bytes:
        """Return the key that signs requests. Raises BadInput."""
        place = str(self.secrets / "webhook")
        keys = read_keys(_text(self.secrets / "webhook"), place)
        if not keys.hmac:
            raise BadInput(place, "has no key for signatures", 'store {"hmac": "…"}')
        return keys.hmac[0]

    def trusted(self) -> ssl.SSLContext:
        """Return the TLS settings for the webhook. Raises BadInput."""
        if not self.authorities:
            return public_context()
        try:
            return ssl.create_default_context(cafile=self.authorities)
        except OSError:
            raise BadInput(
                "OUTSCALER_WEBHOOK_CA", "has no certificates", "mount authorities in PEM there"
            ) from None

    def seal_key(self) -> bytes:
        """Return the key that seals lists. Raises BadInput."""
        return watcher_key(self.cluster, _text(self.secrets / "watcher"), self.namespace)


def from_environment(environment: Mapping[str, str]) -> WatcherSettings:
    """Return the settings. Raises BadInput that names the variable."""
    cluster, address = (
        _given(environment, "OUTSCALER_CLUSTER"),
        _given(environment, "OUTSCALER_WEBHOOK"),
    )
    try:
        right = urlsplit(address).scheme == "https" and bool(urlsplit(address).hostname)
    except ValueError:
        right = False
    if not right:
        raise BadInput(
            "OUTSCALER_WEBHOOK", "is not an HTTPS address", _EXAMPLE["OUTSCALER_WEBHOOK"]
        )
    return WatcherSettings(
        cluster=cluster,
        url=f"{address.rstrip('/')}/clusters/{quote(cluster, safe='')}/events",
        kubeconfig=environment.get("OUTSCALER_KUBECONFIG", "/etc/outscaler/kubeconfig"),
        secrets=Path(environment.get("OUTSCALER_SECRETS", "/etc/outscaler-secrets")),
        namespace=environment.get("OUTSCALER_NAMESPACE", "kube-system"),
        every=_seconds(environment.get("OUTSCALER_EVERY", "10")),
        authorities=environment.get("OUTSCALER_WEBHOOK_CA", ""),
    )


_EXAMPLE = {
    "OUTSCALER_CLUSTER": "give the name of the cluster's policy",
    "OUTSCALER_WEBHOOK": "write it like https://ID.execute-api.REGION.amazonaws.com/api",
}
_SHORTEST, _LONGEST = 2.0, 20.0  # seconds; passes use no lists that are older than 45


def _given(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise BadInput(name, "is not set", _EXAMPLE[name])
    return environment[name]


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not _SHORTEST <= found <= _LONGEST:
        raise BadInput(
            "OUTSCALER_EVERY", f"is {text[:20]!r}", f"give {_SHORTEST:g} to {_LONGEST:g} seconds"
        )
    return found


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(_LARGEST_SECRET)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            str(file), f"cannot be read ({type(error).__name__})", "mount the Secret there"
        ) from None
