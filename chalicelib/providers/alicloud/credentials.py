"""Where a signature's key comes from, and how it is replaced when the vendor refuses it (alicloud.md §1.2).

An access key may be rotated and a session may expire in the middle of a pass. Either is met by one more look at where
it came from and one more try; what is refused then is refused (Unauthorized). Sessions live in this process's memory
only, never in the table, and are found again by what they were made from, so that a changed key or role is never
answered with a session of the old one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import msgspec

from chalicelib.model.secret import Secret
from chalicelib.providers.credential_source import digest
from chalicelib.providers.errors import ProviderError, Throttled, Transient

LIFETIME = 3600.0  # seconds asked of STS; every role allows an hour
_EARLY = 900.0  # renewed so long before the end, as the vendor's own client does …
_SHARE = 0.8  # … but not before this share of a short life is over
_LAST_USE = 60.0  # seconds before its end up to which an old session stands in while STS gives no answer
_AGAIN = 30.0  # seconds until the next attempt in that case
_MOST_SESSIONS = 256


class AlicloudCredential(msgspec.Struct, frozen=True):
    """A key and, for a session, its token and its end. obtained, expires: epoch seconds."""

    key_id: Secret
    key_secret: Secret
    token: Secret = Secret("")
    obtained: float = 0.0
    expires: float = float("inf")

    def hidden_in(self, text: str) -> str:
        """The same text without any of it, in whatever encoding."""
        for secret in (self.token, self.key_secret, self.key_id):
            text = secret.hidden_in(text)
        return text


class AlicloudCredentialSource(Protocol):
    """Something that has a credential. Both methods raise ProviderError."""

    def current(self) -> AlicloudCredential:
        """The one to sign with now."""

    def renewed(self, refused: AlicloudCredential) -> AlicloudCredential | None:
        """Another one than that, which the vendor did not take; None where there is none."""


class ReadKey(Protocol):
    """Reads a key where it is kept."""

    def __call__(self, *, fresh: bool = False) -> AlicloudCredential:
        """The key; fresh: as it is now."""


class AlicloudAccessKeys:
    """A long-lived key that somebody keeps in a secret. read: a credential; asked with
    fresh=True it looks past every cache."""

    def __init__(self, read: ReadKey) -> None:
        self._read, self._held = read, None

    _held: AlicloudCredential | None

    def current(self) -> AlicloudCredential:
        """The key as it was first read."""
        if self._held is None:
            self._held = self._read()
        return self._held

    def renewed(self, refused: AlicloudCredential) -> AlicloudCredential | None:
        """The key as it is now, if somebody has changed it."""
        fresh = self._read(fresh=True)
        self._held = fresh
        return None if _same(fresh, refused) else fresh


class Sessions:
    """The sessions of a process. Thread-safe; two threads may both make one, and the later stays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[AlicloudCredential, float]] = {}

    def get(self, key: str, now: float, make: Callable[[], AlicloudCredential]) -> AlicloudCredential:
        """The session made from what `key` stands for, renewed in good time.

        While STS gives no answer the old one is used as long as it lives; every other error of `make` is raised.
        """
        with self._lock:
            old, look = self._kept.get(key, (None, 0.0))
        if old is not None and old.obtained - _LAST_USE <= now < look:
            return old
        try:
            made = make()
        except (Transient, Throttled):
            if old is None or not old.obtained - _LAST_USE <= now < old.expires - _LAST_USE:
                raise
            return self._keep(key, old, now, now + _AGAIN)
        return self._keep(key, made, now, due(made))

    def drop(self, key: str, refused: AlicloudCredential) -> None:
        """Forget a session that the vendor refused, unless another has taken its place."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and _same(kept[0], refused):
                del self._kept[key]

    def _keep(self, key: str, credential: AlicloudCredential, now: float, look: float) -> AlicloudCredential:
        with self._lock:
            if len(self._kept) >= _MOST_SESSIONS:
                self._kept = {each: kept for each, kept in self._kept.items() if kept[0].expires > now}
            if len(self._kept) >= _MOST_SESSIONS:
                self._kept.clear()
            self._kept[key] = (credential, look)
        return credential


@lru_cache(maxsize=1)
def of_this_process() -> Sessions:
    """The one that all passes of a process share; a pass builds its providers anew, and STS is not asked each time."""
    return Sessions()


class Session:
    """A temporary credential. key: what it is made from (made_from); make: asks STS or the metadata service."""

    def __init__(
        self, sessions: Sessions, key: str, make: Callable[[], AlicloudCredential], now: Callable[[], float]
    ) -> None:
        self._sessions, self._key, self._make, self._now = sessions, key, make, now

    def current(self) -> AlicloudCredential:
        """The session of this process, or a new one."""
        return self._sessions.get(self._key, self._now(), self._make)

    def renewed(self, refused: AlicloudCredential) -> AlicloudCredential | None:
        """A new session."""
        self._sessions.drop(self._key, refused)
        fresh = self.current()
        return None if _same(fresh, refused) else fresh


class ChosenCredentialSource:
    """The source that the settings and the secret mean, found out at first use: building a provider asks nobody."""

    def __init__(self, choose: Callable[[], AlicloudCredentialSource]) -> None:
        self._choose, self._source = choose, None

    _source: AlicloudCredentialSource | None

    def current(self) -> AlicloudCredential:
        """See Source."""
        if self._source is None:
            self._source = self._choose()
        return self._source.current()

    def renewed(self, refused: AlicloudCredential) -> AlicloudCredential | None:
        """See Source."""
        return self._source.renewed(refused) if self._source is not None else self.current()


def due(credential: AlicloudCredential) -> float:
    """When to renew: 15 minutes before the end, or when four fifths are over of a life shorter than half an hour (§1.2,
    §3.8). At least a minute after it was had, whatever end the vendor names: STS is not asked for every call."""
    life = credential.expires - credential.obtained
    early = life - _EARLY
    return credential.obtained + max(early if early >= life / 2 else _SHARE * life, _LAST_USE)


def made_from(*parts: str) -> str:
    """A name for a session that shows nothing of what it was made from."""
    return digest("\0".join(f"{len(part)}:{part}" for part in parts), 64)


def refused_for_good(error: ProviderError) -> bool:
    """Not a matter of waiting."""
    return not isinstance(error, (Transient, Throttled))


def _same(one: AlicloudCredential, other: AlicloudCredential) -> bool:
    return (one.key_id, one.key_secret, one.token) == (other.key_id, other.key_secret, other.token)
